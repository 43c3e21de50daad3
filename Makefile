# The commands of this repository. `make` alone lists them; the work is done by scripts in deploy/.

.DEFAULT_GOAL := help
.PHONY: help demo test check bench simulate chaos mutants fuzz build images

help: ## this list
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / { sub("%", "NAME", $$1); printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## three capsules hand a real table on and make a PDF of it
	@echo "aod demo: from a clean tree to a PDF; a first run takes up to 20 minutes"
	@deploy/demo.sh

test: ## everything: check, and all tests with real NATS and real Docker
	@deploy/test.sh

check: ## formatting, lints, dependencies, documentation, unit tests
	@deploy/prerequisites/tools.sh cargo-nextest cargo-deny >/dev/null
	@deploy/check.sh

bench: ## what it costs, beside its floor; into target/bench
	@deploy/bench.sh

bench-%: ## one of the benchmarks
	@deploy/bench.sh $*

SEEDS ?= 10000
FROM ?= 0
simulate: ## whole clusters in virtual time: SEEDS=N histories with faults, the first of them FROM
	@deploy/simulate.sh $(SEEDS) --from $(FROM)

MINUTES ?= 10
chaos: ## real parts under load are killed, paused, cut off and filled: MINUTES=N, SEED=N
	@deploy/chaos.sh --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

mutants: ## breaks one rule at a time: the simulator must notice each
	@deploy/mutants.sh

SECONDS ?= 30
fuzz: ## bytes that nobody would write, for every parser of foreign bytes: SECONDS=N for each
	@deploy/fuzz.sh $(SECONDS)

build: ## the program, as target/release/aod
	@deploy/cargo.sh build --release --locked -p aod-cli

images: ## the images that docker-compose.yml names
	@deploy/images.sh
