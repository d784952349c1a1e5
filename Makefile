# `make demo` and `make test` work from a bare clone: each makes .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
STAMP := $(VENV)/.installed
# A process a core: tests use one thread each.
PYTEST := $(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help browser demo test test-long quick lint check dist docs pictures format mutants fuzz bench bench-quality bench-choices \
        bench-alternatives bench-table bench-scale bench-report clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-19s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@echo 'Installing into $(VENV): a minute or two, once.'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[all]'
	@touch $@

# For the tests of reports. Where none can be installed they are skipped, and say so.
browser:
	@for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do \
	  command -v $$name >/dev/null && exit 0; \
	done; \
	if [ -n "$$BIV_BROWSER" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo 'Installing chromium, for the tests of reports.'; \
	  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium; } \
	    >/dev/null 2>&1 && exit 0; \
	fi; \
	echo 'There is no chromium here: browser tests are skipped.'

demo: $(STAMP) ## the paper's table on the shipped bike data: 110 networks, trained and compared
	$(BIN)/biv reproduce table1 --dataset bike2011 --preset laptop --seeds 5 --out build/demo

test: $(STAMP) browser ## every test and every example of the documentation, under ten minutes on two cores
	$(PYTEST)

test-long: $(STAMP) browser ## the same tests with their simulations and campaigns in full: half an hour
	BIV_TEST_LONG=1 $(PYTEST)

quick: $(STAMP) ## the tests of the inner loop, a minute
	$(PYTEST) -m 'not slow'

lint: $(STAMP) ## format, lint, types and import direction, as the pre-commit hooks do
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

check: lint test ## lint, then all tests: what must pass before a commit is merged

dist: $(STAMP) ## a release in dist: built, checked, installed into an empty environment, the README run there
	$(BIN)/python tools/dist.py

docs: $(STAMP) ## the documentation as a site, in build/docs; a warning is an error
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d build/doctrees docs build/docs
	@echo 'build/docs/index.html'

pictures: $(STAMP) ## the pictures of README and docs, from stored results
	$(BIN)/python docs/pictures.py

format: $(STAMP) ## rewrite the sources in the one format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

mutants: $(STAMP) ## mutation testing of the mathematical core, hours; MUTANTS="biv.losses.weights*" for a part of it
	$(BIN)/mutmut run $(MUTANTS)
	$(BIN)/mutmut results

fuzz: $(STAMP) ## 10,000 odd inputs, damaged files and failing disks, and 100 kills: half an hour, resumes where it stopped
	PYTHONPATH=tests $(BIN)/python -m fuzz --cases 10000 --kills 100

bench: $(STAMP) ## losses beside torch's own, training beside ordinary loops, images beside the bare network
	$(BIN)/python benchmarks/loss.py --out build/bench/loss.md
	$(BIN)/python benchmarks/training.py --out build/bench/training.md
	$(BIN)/python benchmarks/images.py --out build/bench/images.md

bench-quality: $(STAMP) ## BIVRegressor beside boosting on noisy labels: half an hour, goes on where it stopped
	$(BIN)/python benchmarks/quality.py --out build/bench/quality.md

bench-choices: $(STAMP) ## how well embeddings, epochs and several outputs are chosen: twenty minutes
	$(BIN)/python benchmarks/choices.py --out build/bench/choices.md

bench-alternatives: $(STAMP) ## biv beside torch, scikit-learn, GPyTorch, astroNN and LightGBM: half an hour
	$(BIN)/python benchmarks/alternatives.py --out build/bench/alternatives.md

bench-table: $(STAMP) ## a million rows through the command: time and memory, ten minutes
	$(BIN)/python benchmarks/table.py --out build/bench/table.md

bench-scale: $(STAMP) ## ten million rows, streamed and by two processes: ten minutes, 1.3 GB
	$(BIN)/python benchmarks/scale.py --out build/bench/scale.md

bench-report: $(STAMP) browser ## how long a report of 720 runs takes to make and to open, and its size
	$(BIN)/python benchmarks/report.py --out build/bench/report.md

clean: ## remove what make has made
	rm -rf $(VENV) build dist mutants .pytest_cache .hypothesis .mypy_cache .ruff_cache
