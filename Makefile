# The commands of the repository. Each one sets up what is missing first; `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
# Whoever forbids Python to keep what it compiled makes every process compile everything anew; tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE
# Narrow or extend what a command runs: make test ARGS="tests/log -k torn", make bench ARGS="append".
ARGS ?=
# More than there are cores to run them on, because most tests wait: for disks, servers, browsers.
TEST_WORKERS ?= 4
# How often the long fault runs kill and reopen a pond.
MILLPOND_FAULT_CYCLES ?= 1000
# 90 minutes: one test of 1,000 cycles is many times longer than the limit of an ordinary test.
FAULT_TIMEOUT_SECONDS ?= 5400
# Given as UPGRADE=1, `make lock` moves to the newest versions that pyproject.toml allows.
UPGRADE ?=

.PHONY: help setup demo test check format bench fault lock clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup: ## install Python packages (locked, into .venv) and Java, if missing; instant when nothing changed
	@scripts/setup.sh

demo: setup ## run the main job end to end: append, settle, query live and settled data in Spark SQL
	@$(BIN)/millpond demo $(ARGS)

test: setup ## run all tests but the long ones, several at a time; with ARGS, what they say, one after the other
ifeq ($(strip $(ARGS)),)
	@failed=0; \
	$(BIN)/python -m pytest -n $(TEST_WORKERS) -m "not long and not alone" || failed=$$?; \
	$(BIN)/python -m pytest -m "alone and not long" || failed=$$?; \
	exit $$failed
else
	@$(BIN)/python -m pytest $(ARGS)
endif

check: setup ## ruff, mypy --strict and the import order of the rooms
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: setup ## let ruff format the code and mend what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: setup ## measure; one JSON line per figure, with its baseline and ratio
	@$(BIN)/python -m benchmarks $(ARGS)

fault: setup ## the long fault runs: MILLPOND_FAULT_CYCLES (1000) kills of a pond under load
	@MILLPOND_FAULT_CYCLES=$(MILLPOND_FAULT_CYCLES) MILLPOND_HYPOTHESIS_PROFILE=long \
		$(BIN)/python -m pytest tests/faults tests/archive tests/serve tests/client tests/consume tests/spark -m long --timeout=$(FAULT_TIMEOUT_SECONDS) $(ARGS)

lock: setup ## resolve pyproject.toml into requirements.lock (UPGRADE=1: to the newest versions)
	@$(BIN)/uv pip compile pyproject.toml --extra dev --extra demo --quiet \
		--universal --python-version 3.11 --fork-strategy fewest \
		--generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock" \
		$(if $(UPGRADE),--upgrade) --output-file requirements.lock
	@if grep -n '://' requirements.lock; then echo "requirements.lock names a host: see the lines above" >&2; exit 1; fi

clean: ## remove caches and what the commands above produced (.venv stays)
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	rm -rf spark-warehouse metastore_db derby.log artifacts demo-pond bench-results demo*.png
	find src tests $(wildcard benchmarks) -name __pycache__ -type d -prune -exec rm -rf {} +
