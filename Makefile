# Every habit of this project. `make help` lists them.

PORT ?= 8080
DATA ?= noonday.db
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ARGS ?=
# Tests are compiled once, not by every process that collects them, also where Python is told to keep nothing.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest
MINUTES ?= 10
SEED ?=
RUNS ?= 300
BASE ?= main

.DEFAULT_GOAL := help
.PHONY: help run servers cluster test chaos mutants check lint types collect format bench bench-peers bench-compare lock clean

help: ## List what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

run: $(READY) ## Start Noonday on one SQLite file (PORT=8080 DATA=noonday.db)
	@$(BIN)/noonday up --port $(PORT) --data $(DATA)

servers: ## Install and start PostgreSQL, Redis, etcd and Kafka (scripts/servers --help)
	@PYTHON=$(PYTHON) scripts/servers install
	@PYTHON=$(PYTHON) scripts/servers start

cluster: $(READY) ## Run a whole cluster on this machine: servers and eleven processes (PORT=8080)
	@scripts/cluster run --port $(PORT)

test: $(READY) servers ## Run every test, those of the cluster on real servers
	@$(MAKE) --no-print-directory -j 2 types lint collect
	eval "$$(scripts/servers env)" && $(PYTEST) -n 4 --dist worksteal $(ARGS)

chaos: $(READY) servers ## Break a cluster in every way, and see whether its promises hold (MINUTES=10 SEED=n RUNS=300)
	@if [ $(RUNS) -gt 0 ]; then eval "$$(scripts/servers env)" && \
		NOONDAY_SIMULATION_SEEDS=$$((4 * $(RUNS))) NOONDAY_CLUSTER_SEEDS=$(RUNS) NOONDAY_POSTGRES_SEEDS=$(RUNS) \
		$(PYTEST) -q -n 2 tests/simulation/test_embedded.py tests/simulation/test_cluster.py tests/simulation/test_postgres.py; fi
	$(BIN)/python -m tests.scenarios.cluster.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

mutants: $(READY) ## Break the engine on purpose in many ways, and see whether the checker reports each (ARGS=names)
	$(BIN)/python -m tests.mutants $(ARGS)

check: $(READY) ## Format, lint, types, imports and the fast tests, which need no servers (about a minute)
	$(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory -j 2 types lint
	$(PYTEST) -n auto --dist worksteal -m "not slow" $(ARGS)

lint:
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m compileall -qq src

types:
	$(BIN)/mypy

collect:
	@$(PYTEST) --collect-only -qq > /dev/null || $(PYTEST) --collect-only -qq

format: $(READY) ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) ## Measure what the README claims (takes some minutes)
	$(BIN)/python -m bench.aims $(ARGS)

bench-peers: $(READY) servers ## Measure Noonday beside other schedulers, in turn (ARGS="--peer river --work burst")
	eval "$$(scripts/servers env)" && $(BIN)/python -m bench peers $(ARGS)

bench-compare: $(READY) ## Measure a revision and this tree, in turn (BASE=main ARGS="--mode cluster --rounds 5")
	$(BIN)/python -m bench compare $(BASE) $(ARGS)

lock: $(READY) ## Choose the newest allowed version of every dependency
	$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-emit-index-url --extra cluster --extra otlp --extra pydantic --extra yaml --group dev \
		pyproject.toml --output-file requirements.lock

clean: ## Remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(READY): requirements.lock pyproject.toml scripts/bootstrap
	@PYTHON=$(PYTHON) scripts/bootstrap $(VENV)
	@touch $(READY)
