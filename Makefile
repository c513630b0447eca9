# Everything that one does with topics while working on it. `make help` lists the targets.
# All of them set .venv/ up first, from requirements.lock; that does nothing when nothing changed.

VENV ?= .venv
PY := $(VENV)/bin/python
# Twice the two cores that everything is sized for: half of the time tests wait, for daemons and their deadlines.
JOBS ?= 4
# Compiled once, whatever the environment says of that: else each of a thousand daemons compiles itself, and each worker
# rewrites the asserts of all tests.
export PYTHONDONTWRITEBYTECODE =
PYTEST = $(PY) -m compileall -q -x '/\.' . && $(PY) -m pytest -n $(JOBS)
REWRITTEN := tests/__pycache__/.rewritten

export VENV

.DEFAULT_GOAL := help
.PHONY: help setup setup-spark setup-s3 spark-zip bench-spark run serve test quick check crash crash-long soak bench conformance fmt docs site lock

help: ## what can be made
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 14

setup: ## .venv/ with topics, topicsd and what the tests need, from the lock file
	@scripts/setup.sh

setup-spark: ## the same, and what exports and Spark need (requirements-spark.lock)
	@scripts/setup.sh --spark

setup-s3: setup-spark ## the same, and what buckets and their tests need (requirements-s3.lock)
	@scripts/setup.sh --s3

spark-zip: setup ## topics-spark.zip for spark-submit --py-files
	@$(PY) -m topics_lake.archive topics-spark.zip && echo topics-spark.zip

run: setup ## see it work: a daemon, the sample events written, followed, looked at, stopped
	@scripts/run.sh

serve: setup ## the daemon in the foreground, on ./topics-data (ARGS="--port 4000" for its options)
	@exec $(VENV)/bin/topicsd $(ARGS)

check: setup ## ruff and mypy --strict
	@echo "check: ruff, mypy --strict"
	@$(PY) -m ruff check --quiet .
	@$(PY) -m ruff format --check --quiet .
	@$(PY) -m mypy

# The first time by two processes, a half each, before all workers would do the whole; pytest sees later changes by itself.
$(REWRITTEN): | setup
	@ls -d tests/*/ | xargs -P 2 -n 15 $(PY) -m pytest --collect-only -q >/dev/null 2>&1 || true
	@mkdir -p $(@D) && touch $@

# ruff and mypy beside the tests, what they say behind what those say, and the worse of both exit statuses.
define beside-check
	@said=$$(mktemp); $(MAKE) --silent check >"$$said" 2>&1 & check=$$!; trap 'kill $$check 2>/dev/null; rm -f "$$said"' EXIT; \
	$(1); tests=$$?; wait $$check; checked=$$?; cat "$$said"; exit $$((tests > checked ? tests : checked))
endef

test: setup-s3 $(REWRITTEN) ## everything that must hold before a change lands (under 10 minutes on two cores)
	$(call beside-check,$(PYTEST))

# Few of these wait for anything, and each worker takes two seconds to begin.
quick: JOBS = 3
quick: setup $(REWRITTEN) ## the same without the slow tests (under a minute); before every commit
	$(call beside-check,$(PYTEST) -m "not slow")

crash: setup ## the crash gate: every legal crash image, planted bugs, bit flips, SIGKILLs; one table (under 10 minutes)
	@$(PY) -m tests.sim.gate $(ARGS)

crash-long: setup ## the crash gate without a bound
	@$(PY) -m tests.sim.gate --long

soak: setup ## mixed load with a SIGKILL each minute, for SOAK_SECONDS (600)
	@$(PY) -m tests.soak

bench: setup ## rates, latencies and CPU against the goals; BENCH=rows picks
	@$(PY) -m tests.bench

bench-spark: setup-spark ## CPU of exports against plain copies of the same rows; RECORDS=… SIZE=…
	@SPARK=1 $(PY) -m tests.bench.lake

conformance: setup ## the wire, sentence by sentence, against URL=… (KEY=… if it wants one), else a daemon of its own
	@$(PY) -m tests.conformance $(if $(URL),--url "$(URL)")

fmt: setup ## format, and mend what can be mended by itself
	@$(PY) -m ruff check --fix --quiet . || true
	@$(PY) -m ruff format --quiet .

docs: setup ## write the generated pages again: docs/reference/, man/, completions/, those of figures
	@$(PY) -m scripts.docs
	@$(PY) -m tests.bench.pages

site: ## the documents as a site, in build/site; a link that leads nowhere is an error
	@scripts/setup.sh --docs
	@$(PY) -m scripts.site

lock: ## write requirements*.lock again from pyproject.toml (UPGRADE=1 takes the newest versions)
	@scripts/lock.sh
