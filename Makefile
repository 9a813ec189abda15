# `make` alone prints what there is. Every target makes the environment it needs in .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
JOBS ?= 2
BENCH_ARGS ?= accuracy
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test lint types tutorials bench format clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.runtime ## quantize the embedded network and compare it with float
	$(BIN)/tvm-quant demo

test: $(VENV)/.dev ## run all tests, and the examples in the documentation
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile $(PYTEST_ARGS)

lint: $(VENV)/.dev ## check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev ## check types (mypy --strict)
	$(BIN)/mypy

tutorials: $(VENV)/.runtime ## run every file in tutorials/
	@set -e; for file in tutorials/*.py; do echo "== $$file"; $(BIN)/python "$$file"; done

bench: $(VENV)/.dev ## measure the networks that are at hand
	$(BIN)/tvm-quant bench $(BENCH_ARGS)

format: $(VENV)/.dev ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment and all caches
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are newer than what they were made from, so that nothing is installed twice.
$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { \
	  echo "requirements.txt is pinned for Python 3.11: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: $(VENV)/.python requirements.txt pyproject.toml
	$(BIN)/python -m pip install --quiet --constraint requirements.txt --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(BIN)/python -m pip install --quiet --requirement requirements.txt
	@touch $@
