# `make` alone prints what there is. Every target makes the environment it needs: .venv from
# requirements.txt, with MXNet and the old NumPy that it needs; .venv-current from
# requirements-current.txt, without MXNet, with the NumPy of today.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
CURRENT ?= .venv-current
JOBS ?= 2
BENCH_ARGS ?= accuracy
BIN := $(VENV)/bin

# What `make test-current` leaves to `make test`: whole networks, kernels and measurements, which take
# two thirds of the time and see NumPy through the parts that stay in.
SLOW := backend bench cli integration search test_documentation.py test_tutorials.py

.DEFAULT_GOAL := help
.PHONY: help demo test test-current lint types tutorials bench format clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.runtime ## quantize the embedded network and compare it with float
	$(BIN)/tvm-quant demo

test: $(VENV)/.dev ## run all tests, and the examples in the documentation
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile $(PYTEST_ARGS)

test-current: $(CURRENT)/.dev ## run the quick tests without MXNet, with the NumPy of today
	$(CURRENT)/bin/python -m pytest --numprocesses $(JOBS) --dist loadfile \
	  $(SLOW:%=--ignore tests/python/%) $(PYTEST_ARGS)

lint: $(VENV)/.dev ## check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(CURRENT)/.dev ## check types (mypy --strict)
	$(CURRENT)/bin/mypy

tutorials: $(VENV)/.runtime ## run every file in tutorials/
	@set -e; for file in tutorials/*.py; do echo "== $$file"; $(BIN)/python "$$file"; done

bench: $(VENV)/.dev ## measure the networks that are at hand
	$(BIN)/tvm-quant bench $(BENCH_ARGS)

format: $(VENV)/.dev ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environments and all caches
	rm -rf $(VENV) $(CURRENT) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are newer than what they were made from, so that nothing is installed twice.
VENVS := $(VENV) $(CURRENT)
$(VENV)/.dev $(VENV)/.runtime: PINS := requirements.txt
$(CURRENT)/.dev $(CURRENT)/.runtime: PINS := requirements-current.txt

$(VENVS:%=%/.python):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { \
	  echo "The requirements are pinned for Python 3.11: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(@D)
	@touch $@

$(VENVS:%=%/.runtime): %/.runtime: %/.python requirements.txt requirements-current.txt pyproject.toml
	$(@D)/bin/python -m pip install --quiet --constraint $(PINS) --editable .
	@touch $@

$(VENVS:%=%/.dev): %/.dev: %/.runtime
	$(@D)/bin/python -m pip install --quiet --requirement $(PINS)
	@touch $@
