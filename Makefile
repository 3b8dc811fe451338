# Two commands are enough: `make serve` (the service on its embedded default) and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
DATA ?= ../shared/retrieval-eval

.PHONY: setup serve demo demo-week test check format bench lock openapi clean

setup: $(STAMP)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python >= 3.11 is needed; name one with: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(STAMP): $(BIN)/python requirements.lock pyproject.toml
	@echo "Installing into $(VENV) (about 350 MB, once) ..."
	$(PIP) install --require-hashes -r requirements.lock
	$(PIP) install --no-deps --no-build-isolation --no-index --editable .
	@touch $@

$(DEV_STAMP): $(STAMP) requirements-dev.lock
	@echo "Installing what tests and checks need ..."
	$(PIP) install --require-hashes -r requirements-dev.lock
	@touch $@

# `temporal-memory serve`, but that Ctrl-C, which is how it ends here, is no error (130) of the target. In one
# process: a shell between would die of make's SIGTERM and leave the service running.
serve: $(STAMP)
	@exec $(BIN)/python -c 'import sys; from app.cli import _exit_code; sys.exit(_exit_code(["serve"]) % 130)'

demo: $(STAMP)
	@exec $(BIN)/temporal-memory demo

demo-week: $(STAMP)
	@exec $(BIN)/python benchmarks/week.py

test: $(DEV_STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

check: $(DEV_STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m app.api.openapi --check openapi/openapi.json

format: $(DEV_STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

openapi: $(STAMP)
	$(BIN)/python -m app.api.openapi openapi/openapi.json

bench: $(DEV_STAMP)
	$(BIN)/python benchmarks/scale.py
	@if [ -d "$(DATA)" ]; then $(BIN)/python benchmarks/retrieval.py --data "$(DATA)"; else echo "no conversations at $(DATA): make bench DATA=folder (docs/retrieval.md has the form)"; fi

# No index URL is written: a lock names packages and hashes, not where they come from.
lock: $(DEV_STAMP)
	$(BIN)/uv pip compile pyproject.toml --extra embedded --group build --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header -o requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra embedded --group build --group dev --group lock --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header -c requirements.lock -o requirements-dev.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
