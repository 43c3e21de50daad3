# The commands of this repository. `make` lists them; the scripts in deploy/ do the work.

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all check bench simulate chaos mutants fuzz build images

help: ## this list
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / { sub("%", "NAME", $$1); printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what demo and tests need (as root), or print what to install
	@deploy/setup.sh test

demo: ## three capsules make a PDF of a table
	@echo "aod demo: from a clean tree to a PDF; runs make setup for what it needs; a first run takes about 8 minutes on two processors"
	@deploy/demo.sh

test: ## what contributors and CI run: checks and tests with real NATS and Docker; runs setup first
	@deploy/test.sh

test-all: ## everything: also 10,000 seeds, ten minutes of chaos, mutants, fuzzing, the long tests
	@deploy/test.sh --all

check: ## formatting, lints, dependencies, documentation, unit tests
	@deploy/prerequisites/tools.sh cargo-nextest cargo-deny >/dev/null
	@deploy/check.sh

bench: ## all benchmarks, into target/bench
	@deploy/bench.sh

bench-%: ## one benchmark
	@deploy/bench.sh $*

SEEDS ?= 10000
FROM ?= 0
simulate: ## whole clusters in virtual time: SEEDS=N histories with faults, starting at seed FROM
	@deploy/simulate.sh $(SEEDS) --from $(FROM)

MINUTES ?= 10
chaos: ## kill, pause, cut off and fill real parts under load: MINUTES=N, SEED=N
	@deploy/chaos.sh --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

mutants: ## break one rule at a time: the simulator must notice each
	@deploy/mutants.sh

SECONDS ?= 30
fuzz: ## fuzz every parser of foreign bytes: SECONDS=N for each
	@deploy/fuzz.sh $(SECONDS)

build: ## the program, as target/release/aod
	@deploy/cargo.sh build --release --locked -p aod-cli

images: ## the images that docker-compose.yml names
	@deploy/images.sh
