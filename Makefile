# `make demo` and `make test` work in a new clone: each creates .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
STAMP := $(VENV)/.installed
# One process per core, because each test uses one thread.
PYTEST := $(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help browser demo test test-long quick lint check dist docs pictures format mutants fuzz bench bench-quality bench-choices \
        bench-alternatives bench-table bench-scale bench-report clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-19s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@echo 'Installing into $(VENV) (only once; a minute or two).'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[all]'
	@touch $@

# The tests of reports need a browser. If none can be installed, they are skipped.
browser:
	@for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do \
	  command -v $$name >/dev/null && exit 0; \
	done; \
	if [ -n "$$BIV_BROWSER" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo 'Installing chromium for the tests of reports.'; \
	  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium; } \
	    >/dev/null 2>&1 && exit 0; \
	fi; \
	echo 'No browser was found, so browser tests are skipped. Set BIV_BROWSER to the path of a Chromium to run them.'

demo: $(STAMP) ## repeat the paper's table on the included bike data: train and compare 110 networks, a minute
	$(BIN)/biv reproduce table1 --dataset bike2011 --preset laptop --seeds 5 --out build/demo

test: $(STAMP) browser ## run all tests and all examples of the documentation: under ten minutes on two cores
	$(PYTEST)

test-long: $(STAMP) browser ## run all tests, with full-length simulations and fuzzing: half an hour
	BIV_TEST_LONG=1 $(PYTEST)

quick: $(STAMP) ## run the fast tests only: a minute
	$(PYTEST) -m 'not slow'

lint: $(STAMP) ## check format, lint, types and import direction, like the pre-commit hooks
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

check: lint test ## run lint and all tests, which must pass before a commit is merged

dist: $(STAMP) ## build a release in dist, install it into an empty environment and run the README there
	$(BIN)/python tools/dist.py

docs: $(STAMP) ## build the documentation site in build/docs; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d build/doctrees docs build/docs
	@echo 'build/docs/index.html'

pictures: $(STAMP) ## draw the pictures of README and docs from stored results
	$(BIN)/python docs/pictures.py

format: $(STAMP) ## format the sources and fix lint errors
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

mutants: $(STAMP) ## run mutation testing of the mathematical core: hours; MUTANTS="biv.losses.weights*" selects a part
	$(BIN)/mutmut run $(MUTANTS)
	$(BIN)/mutmut results

fuzz: $(STAMP) ## fuzz with 10,000 odd inputs, damaged files and failing disks, and 100 kills: half an hour, can be resumed
	PYTHONPATH=tests $(BIN)/python -m fuzz --cases 10000 --kills 100

bench: $(STAMP) ## compare the speed of losses with torch's, of training with ordinary loops, and of training on images
	$(BIN)/python benchmarks/loss.py --out build/bench/loss.md
	$(BIN)/python benchmarks/training.py --out build/bench/training.md
	$(BIN)/python benchmarks/images.py --out build/bench/images.md

bench-quality: $(STAMP) ## compare BIVRegressor with gradient boosting on noisy labels: half an hour, can be resumed
	$(BIN)/python benchmarks/quality.py --out build/bench/quality.md

bench-choices: $(STAMP) ## measure the choice of embeddings and epochs, and fits of several outputs: twenty minutes
	$(BIN)/python benchmarks/choices.py --out build/bench/choices.md

bench-alternatives: $(STAMP) ## compare biv with torch, scikit-learn, GPyTorch, astroNN and LightGBM: half an hour
	$(BIN)/python benchmarks/alternatives.py --out build/bench/alternatives.md

bench-table: $(STAMP) ## measure time and memory of the command on a million rows: ten minutes
	$(BIN)/python benchmarks/table.py --out build/bench/table.md

bench-scale: $(STAMP) ## measure training on ten million rows, streamed and by two processes: ten minutes, 1.3 GB
	$(BIN)/python benchmarks/scale.py --out build/bench/scale.md

bench-report: $(STAMP) browser ## measure the size of a report of 720 runs, and the time to make and open it
	$(BIN)/python benchmarks/report.py --out build/bench/report.md

clean: ## remove all files that make has created
	rm -rf $(VENV) build dist mutants .pytest_cache .hypothesis .mypy_cache .ruff_cache
