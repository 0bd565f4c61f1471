# Everything that is done with this repository, as short recipes. On a fresh machine with Python 3.11: make demo, make test.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready
READY2 := .venv-duckdb2/.ready
PYTEST := $(BIN)/pytest -n logical --dist worksteal
PYTEST2 := .venv-duckdb2/bin/pytest -n logical --dist worksteal -m "not native and not slow"
# The tests of what pz leaves to DuckDB: reading, writing, types, staging, SQL.
ON_DUCKDB2 := file_types file_reading file_writing duckdb_connector pushdown dry_compile lineage sqltext \
    staging_meta staging_session staging_partitions staging_fingerprint staging_prior_run staging_deliveries \
    run_files run_incremental run_checks retry_files cursors delivery

.NOTPARALLEL:
.PHONY: help venv system demo test lint type pytest pytest-duckdb2 test-duckdb2 docs bench crash-sweep soak postgres lock clean

help:  ## list the recipes
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

venv: $(READY)  ## create .venv with everything in it

$(READY): pyproject.toml requirements-dev.txt
	@PYTHON="$(PYTHON)" scripts/make_venv.sh .venv requirements-dev.txt

system:  ## install the Debian packages that some suites need, where that is allowed
	@scripts/system_packages.sh strace postgresql

demo: $(READY)  ## make scratch/demo anew (what is there goes), run the sample project in it, show the results
	@scripts/demo.sh scratch/demo

test: system $(READY) lint type pytest-duckdb2 pytest  ## set up, check style, types and layers, run all tests

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

type: $(READY)
	$(BIN)/mypy

pytest: $(READY)
	$(PYTEST)

pytest-duckdb2:
	@if $(MAKE) $(READY2); then $(PYTEST2) $(ON_DUCKDB2:%=tests/test_%.py); \
	else echo "left out: the tests on DuckDB 2, which cannot be installed here"; fi

test-duckdb2: $(READY2)  ## all tests without extensions, on the newest DuckDB 2
	$(PYTEST2)

$(READY2): pyproject.toml requirements-dev.txt
	@grep -v -E '^(duckdb|#)' requirements-dev.txt > .duckdb2.txt && echo 'duckdb>=2,<3' >> .duckdb2.txt
	@PYTHON="$(PYTHON)" scripts/make_venv.sh .venv-duckdb2 .duckdb2.txt
	@rm -f .duckdb2.txt

docs: $(READY)  ## write the generated parts of docs/
	$(BIN)/python scripts/generate_docs.py

bench: $(READY)  ## measure against plain DuckDB, write docs/benchmarks.md
	$(BIN)/python -m benchmarks

crash-sweep: $(READY)  ## die at every durable step and retry
	$(PYTEST) -m crash

soak: $(READY)  ## random faults for as long as SOAK_SECONDS says
	$(PYTEST) -m soak

postgres: $(READY)  ## run a throw-away PostgreSQL server in the foreground (PORT=5433 to choose the port)
	@scripts/system_packages.sh postgresql
	$(BIN)/python tests/postgres_server.py

lock: $(READY)  ## pin what is installed in .venv
	$(BIN)/pip freeze --exclude-editable --all > .lock.txt
	sed -n '/^#/p' requirements-dev.txt > .pins.txt && grep -v '^pip==' .lock.txt >> .pins.txt
	rm .lock.txt && mv .pins.txt requirements-dev.txt

clean:  ## remove what the recipes made
	rm -rf .venv .venv-duckdb2 .duckdb2.txt scratch build dist .mypy_cache .ruff_cache .import_linter_cache .hypothesis
