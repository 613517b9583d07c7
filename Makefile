# Waystation's build: `make help` lists the targets. Everything lives in .venv, build/ and ~/.cache/waystation.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help env lint check ready test soak demo bench fuzz clean

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
JARS := $(VENV)/.jars
ARGS ?=

# The first of these that is Python 3.11 or newer makes the environment; `make env PYTHON=…` names another.
PYTHON ?= python3 python3.13 python3.12 python3.11

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: $(INSTALLED) $(JARS)  ## make the pinned environment and resolve the JVM libraries; costs nothing when done

$(INSTALLED): pyproject.toml constraints.txt
	@python=""; \
	for name in $(PYTHON); do \
	  if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python="$$name"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "Python 3.11 or newer was not found among: $(PYTHON). Install it, or run make env PYTHON=/path/to/python" >&2; exit 1; \
	fi; \
	if ! "$$python" -c 'import venv, ensurepip' 2>/dev/null; then \
	  echo "$$python has no module venv. Install it (Debian: apt-get install python3-venv) and run make again" >&2; exit 1; \
	fi; \
	echo "making $(VENV) with $$("$$python" --version); the installation takes a few minutes the first time"; \
	"$$python" -m venv $(VENV); \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev,demo]'; \
	touch $@

$(JARS): $(INSTALLED) conf/ivy.xml
	@$(BIN)/waystation jars
	@$(BIN)/python -m jobs.stack.class_archive
	@touch $@

lint: $(INSTALLED)
	@$(BIN)/ruff format --check --quiet --output-format concise . || { echo "run: $(BIN)/ruff format ." >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

check: lint  ## format, lint, types, layers and unit tests: seconds
	@$(BIN)/pytest -q --numprocesses 2 tests/unit

# All that comes before the tests; two things at a time, either of which takes a minute of one processor.
ready: $(INSTALLED)
	@$(MAKE) --no-print-directory lint & checks=$$!; \
	$(MAKE) --no-print-directory $(JARS) || { wait $$checks; exit 1; }; \
	wait $$checks

test: ready  ## everything check does, and all tests against the real parts
	@$(BIN)/pytest --numprocesses 2 --no-loadscope-reorder tests/integration tests/unit tests/acceptance

soak: ready  ## all cases of what make test draws some of; hours
	@SOAK=1 $(BIN)/pytest --numprocesses 2 --no-loadscope-reorder --timeout 3600 tests/integration tests/unit tests/acceptance

demo: env  ## a day of flights through the platform; pass options with ARGS="--keep --json FILE"
	@$(BIN)/waystation demo $(ARGS)

bench: env  ## measure speed; writes build/bench.json and a plot
	@$(BIN)/python -m bench $(ARGS)

fuzz: $(INSTALLED)  ## fuzz what the gateway reads; options in ARGS, e.g. ARGS="--executions 1_000_000"
	@$(BIN)/python -m tests.fuzz $(ARGS)

clean:  ## remove what building and testing left; keeps .venv and the data directory
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@rm -rf spark-warehouse metastore_db derby.log
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
