# Runstate. `make` lists what there is. A clean clone needs Python 3.11 or newer and nothing else:
# every target makes .venv first, from the pinned requirements/dev.txt.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
INSTALLED := $(VENV)/.installed
OLDEST := python3.10
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help up demo test test-oldest check fmt schema chaos chaos-queue chaos-database bench bench-fetch bench-admit bench-ops bench-cancel bench-sequencer soak requirements clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: $(INSTALLED) ## PostgreSQL, one space, one key and the server on :8080; ARGS="--port N --data-dir PATH"
	@exec $(BIN)/runstate dev $(ARGS)

demo: $(INSTALLED) ## `once` among real processes, one of them killed; prints who ran, waited, took over
	@exec $(PY) -m examples.demo $(ARGS)

# One more than there are processors: tests wait, for leases and for processes, as often as they work.
test: check ## make check, then every test; ARGS="-k word" chooses
	$(PY) -m pytest -n $$(($$($(PY) -c 'import os; print(os.cpu_count() or 1)') + 1)) $(ARGS)

check: $(INSTALLED) ## lint, format, types, import contracts: what review expects
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.10 sdk/runstate
	$(BIN)/lint-imports

.venv310/installed: requirements/sdk-py310.txt sdk/pyproject.toml
	@[ -x .venv310/bin/python ] || $(OLDEST) -m venv .venv310
	.venv310/bin/python -m pip install --quiet --require-hashes -r requirements/sdk-py310.txt
	.venv310/bin/python -m pip install --quiet --no-deps --no-build-isolation -e ./sdk
	@touch $@

test-oldest: $(INSTALLED) .venv310/installed ## the SDK's tests on the oldest Python it supports; OLDEST=/path/to/python3.10
	$(PY) -m tests.support.bridge .venv310/bin/python -m pytest \
		-p tests.support.visitor --confcutdir=tests/sdk tests/sdk $(ARGS)

fmt: $(INSTALLED) ## format the code, mend what lint can mend
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

schema: $(INSTALLED) ## write migrations/schema.sql, today's whole schema
	$(PY) -m tests.support.schema migrations/schema.sql

chaos: $(INSTALLED) ## two replicas, 20 callers, an owner or a replica killed every 5 s for 60 s; prints the counts
	@exec $(PY) -m bench.chaos_once $(ARGS)

chaos-queue: $(INSTALLED) ## two replicas, workers and producers, one killed every 5 s for 60 s; prints the counts
	@exec $(PY) -m bench.chaos_queue $(ARGS)

chaos-database: $(INSTALLED) ## PostgreSQL stands still for 10 s, is stopped for 10 s, is killed, under load; prints the counts
	@exec $(PY) -m bench.chaos_database $(ARGS)

bench: $(INSTALLED) ## once, submit, batch, admit + complete beside pgbench on the same functions; ARGS="--only admit"
	@exec $(PY) -m bench.load $(ARGS)

bench-fetch: $(INSTALLED) ## how long a fetch takes with 1,000 to 1,000,000 waiting; ARGS="--million 100000"
	@exec $(PY) -m bench.fetch_depth $(ARGS)

bench-admit: $(INSTALLED) ## how long an admission with needs takes, behind up to 100,000 blocked tasks; ARGS="--many 10000"
	@exec $(PY) -m bench.admit_depth $(ARGS)

bench-ops: $(INSTALLED) ## how long reports and lists take, with 1,000 and 100,000 of each kind behind them
	@exec $(PY) -m bench.ops_depth $(ARGS)

bench-cancel: $(INSTALLED) ## one cancel of runs of 10, 1,000 and 10,000 scopes with work in each; ARGS="--sizes 10,100"
	@exec $(PY) -m bench.cancel_size $(ARGS)

bench-sequencer: $(INSTALLED) ## once_acquire while events are numbered and while they are not, as a ratio
	@exec $(PY) -m bench.sequencer $(ARGS)

soak: $(INSTALLED) ## two minutes of open watches, idle workers and events; prints lag and memory
	@exec $(PY) -m bench.soak $(ARGS)

requirements: $(INSTALLED) ## pin the requirements anew; needs uv on the PATH
	COMPILE="uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --no-emit-find-links" \
	&& $$COMPILE --python-version 3.11 --extra embedded \
		pyproject.toml sdk/pyproject.toml requirements/dev.in -o requirements/dev.txt \
	&& $$COMPILE --python-version 3.11 -c requirements/dev.txt pyproject.toml -o requirements/server.txt \
	&& $$COMPILE --python-version 3.11 -c requirements/dev.txt requirements/build.in -o requirements/build.txt \
	&& $$COMPILE --python-version 3.10 \
		sdk/pyproject.toml requirements/sdk-py310.in -o requirements/sdk-py310.txt

clean: ## remove .venv, builds and caches
	rm -rf $(VENV) .venv310 build dist sdk/dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Two steps: pip refuses an editable install among hashes. A .venv that is already there and new enough is kept.
$(INSTALLED): requirements/dev.txt pyproject.toml sdk/pyproject.toml
	@set -e; \
	fits='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'; \
	if ! $(PY) -c "$$fits" 2>/dev/null; then \
		for candidate in $(PYTHON) python3.11 python3.12 python3.13 python3 python; do \
			if "$$candidate" -c "$$fits" 2>/dev/null; then found=$$candidate; break; fi; \
		done; \
		if [ -z "$$found" ]; then \
			echo "Runstate needs Python 3.11 or newer with its venv module (Debian: apt install python3-venv);" >&2; \
			echo "none was found. Name one: make PYTHON=/path/to/python3.11" >&2; \
			exit 1; \
		fi; \
		echo "making $(VENV) with $$found"; \
		"$$found" -m venv --clear $(VENV); \
	fi
	$(PY) -m pip install --quiet --require-hashes -r requirements/dev.txt
	$(PY) -m pip install --quiet --no-deps --no-build-isolation -e ./sdk -e .
	@touch $(INSTALLED)
