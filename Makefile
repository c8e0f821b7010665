# What a developer runs is what CI runs: `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TESTBED := PYTHONPATH=tests/cluster $(BIN)/python -m testbed
INSTALLED := $(VENV)/.installed

# The wheels of torch are large; a slow network should make the installation slow, not fail it.
export UV_HTTP_TIMEOUT ?= 300

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv demo test lint types unit local chaos constraints clean
.PHONY: cluster cluster-build cluster-up cluster-down

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

venv: $(INSTALLED) ## Make .venv and install Footplate in it, with all it needs to train and be tested.

# Byte code is compiled here because the first import of torch and Ray would do it otherwise, in
# every process where PYTHONDONTWRITEBYTECODE is set.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "Footplate needs Python 3.11 or newer, which $(PYTHON) is not."; \
	    echo "Name one that is: make PYTHON=python3.12 $(or $(MAKECMDGOALS),venv)"; \
	    exit 1; } >&2
	@if [ -x $(BIN)/python ]; then :; \
	elif command -v uv >/dev/null; then uv venv --quiet --python $(PYTHON) $(VENV); \
	else $(PYTHON) -m venv $(VENV); fi
	@command -v uv >/dev/null || [ -x $(BIN)/uv ] || \
	    $(BIN)/python -m pip install --quiet --constraint constraints.txt uv
	@uv=$$(command -v uv || echo $(BIN)/uv); \
	    $$uv pip install --python $(BIN)/python --compile-bytecode \
	    --constraint constraints.txt --editable '.[train,dev]'
	@touch $@

demo: venv ## Train a small model on real data, here, in about a minute.
	@$(BIN)/footplate run rayjobs/digits.toml

# What trains has the processors for itself. The cluster last: while it runs it takes a part of them.
test: lint types unit local cluster ## All that this machine can test.

lint: venv ## Rules and layout of the source.
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: venv ## Static types.
	$(BIN)/mypy

unit: venv ## The tests that take seconds, several at a time.
	$(BIN)/pytest -m "not local and not cluster and not chaos" -n logical --maxprocesses 4

local: venv ## The tests that train here, with Ray, torch and MLflow.
	$(BIN)/pytest -m "local and not cluster and not chaos"

chaos: venv ## What takes long, most of it hundreds of kills at random moments; over an hour.
	$(BIN)/pytest -m chaos

cluster: venv ## The tests on a real Kubernetes of their own; needs root and `make cluster-build`.
	$(BIN)/pytest -m "cluster and not chaos"

cluster-build: venv ## Compile that Kubernetes, KubeRay and Kueue; minutes the first time.
	@$(TESTBED) build

cluster-up: venv ## Start it, and say how to use it.
	@$(TESTBED) up

cluster-down: venv ## Stop it, and remove all that it has made.
	@$(TESTBED) down

constraints: venv ## Write constraints.txt anew from what is installed in .venv.
	@{ echo "# Versions that Footplate is tested with; written by \`make constraints\`."; \
	   $(BIN)/uv pip freeze --python $(BIN)/python --exclude-editable \
	       | grep -E '^[A-Za-z0-9._-]+==' | grep -vE '^(pip|setuptools|wheel)=='; \
	} > $(VENV)/constraints.txt
	@mv $(VENV)/constraints.txt constraints.txt
	@touch $(INSTALLED)

clean: ## Remove .venv, caches and builds; trained runs stay.
	rm -rf $(VENV) .testbed-failure build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find platform rayjobs datasets tests -name __pycache__ -prune -exec rm -rf {} +
