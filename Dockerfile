# A CPU image that serves a run: docker build --build-arg BASE=python@sha256:… --build-arg TORCH_SHA256=… -t fnftg .
# Mount the run's folder at /srv/run and its graph at /srv/graph, both read-only. /srv/home must be writable.
# Digests differ by platform; docs/deployment.md says how to look them up. UNPINNED=1 builds without them, to try it out.
ARG BASE=python:3.11-slim
FROM ${BASE}

# PyPI's torch for Linux includes CUDA, so the CPU build comes from torch's own index.
ARG BASE
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG TORCH_SHA256=
ARG UNPINNED=
RUN case "$UNPINNED:$BASE:$TORCH_SHA256" in \
        1:*|*@sha256:*:????????????????????????????????????????????????????????????????) ;; \
        *) echo "Pin the base image and torch with --build-arg BASE=python@sha256:… --build-arg TORCH_SHA256=… (docs/deployment.md), or build with --build-arg UNPINNED=1." >&2; exit 1 ;; \
    esac

ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1

WORKDIR /opt/fnftg
COPY constraints.txt requirements.lock ./
RUN torch="$(sed -n 's/^\(torch==[^ ;]*\).*/\1/p' constraints.txt)" \
    && echo "$torch ${TORCH_SHA256:+--hash=sha256:$TORCH_SHA256}" > torch.txt \
    && pip install --no-deps --index-url "$TORCH_INDEX" -r torch.txt

# All other packages are installed with their hashes, without dependency resolution. Building fnftg downloads nothing.
RUN pip install --no-deps --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-deps --no-build-isolation . \
    && rm -rf src

RUN useradd --uid 10001 --user-group --no-create-home fnftg \
    && mkdir -p /srv/run /srv/graph /srv/home \
    && chown fnftg:fnftg /srv/home
USER fnftg
WORKDIR /srv

# Caches of tokenised texts, compiled kernels and downloaded encoders.
ENV FNFTG_HOME=/srv/home \
    NUMBA_CACHE_DIR=/srv/home/numba \
    HF_HOME=/srv/home/huggingface
VOLUME /srv/home

EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]

# Set the token in the environment variable FNFTG_TOKEN.
ENTRYPOINT ["fnftg"]
CMD ["serve", "/srv/run", "--graph", "/srv/graph", "--host", "0.0.0.0", "--port", "8000"]
