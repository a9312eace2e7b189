# make demo: import the embedded WordNet graph and look at it. make test: every check. Both do all the set-up first.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin

.PHONY: demo test clean

demo: $(VENV)/.installed
	$(RUN)/fnftg data get wordnet-animals
	$(RUN)/fnftg audit wordnet-animals

test: $(VENV)/.installed
	$(RUN)/python -m pytest

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN)/pip install --disable-pip-version-check --progress-bar off -q -c constraints.txt torch -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV)
