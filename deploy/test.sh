#!/usr/bin/env bash
# Runs `make test`: checks, tests with real NATS, real Docker and several hosts, simulations, capsules and a short
# chaos. Installs what is missing first. Prints the time of each part and the slowest tests.
#
#   deploy/test.sh          what contributors and CI run
#   deploy/test.sh --all    the same and everything that takes longer: `make test-all`
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=deploy/parts.sh
source "$DEPLOY_DIR/parts.sh"

# Seeds of the simulator in `make test`. They start at a number that follows from the commit, so that each commit
# tries other seeds.
SEEDS=2000
# Seeds of `make test-all`, and those that must give the same history when they run twice.
SEEDS_ALL=10000
SEEDS_TWICE=1000
# Duration of the chaos in `make test-all`.
CHAOS_MINUTES=10
# Duration of each fuzz program in `make test-all`.
FUZZ_SECONDS=60
# Slowest tests that the summary lists.
SLOWEST=20
# Tests of whole systems that make network namespaces need root: a name of their module begins so.
NEEDS_ROOT='test(/(^|::)needs_root/)'

run_all=no
[ "${1:-}" != --all ] || run_all=yes

cd "$REPOSITORY_DIR"
cargo="$DEPLOY_DIR/cargo.sh"
# Incremental builds only pay off when a source changes afterwards.
[ "${CI:-}" != true ] || export CARGO_INCREMENTAL=0

# The profile of nextest: see deploy/nextest.toml for what `make test` leaves to `make test-all`.
profile() { if [ "$run_all" = yes ]; then echo all; else echo default; fi; }

tests() {
    local options
    options=(--config-file "$DEPLOY_DIR/nextest.toml" --profile "$(profile)")
    must_run_all || options+=(--filterset "not $NEEDS_ROOT")
    if has cargo; then
        cargo nextest run --workspace --locked "${options[@]}"
        return
    fi
    # The tests need this machine's Docker and network namespaces: only the build runs in a container.
    local archive="$REPOSITORY_DIR/target/tests.tar.zst"
    "$cargo" nextest archive --workspace --locked --archive-file "$archive" &&
        "$TOOLS_DIR/bin/cargo-nextest" nextest run --archive-file "$archive" \
            --workspace-remap "$REPOSITORY_DIR" "${options[@]}"
}

# first_seed: the first eight digits of the commit as a number; 0 without git.
first_seed() {
    local commit
    commit="$(git rev-parse --short=8 HEAD 2>/dev/null || echo 0)"
    echo $((16#${commit:0:8}))
}

simulator() {
    if [ "$run_all" = yes ]; then
        "$DEPLOY_DIR/simulate.sh" "$SEEDS_ALL" --twice "$SEEDS_TWICE"
    else
        "$DEPLOY_DIR/simulate.sh" "$SEEDS" --from "$(first_seed)"
    fi
}

# Runs the cases of the capsules with the program of this tree, as their authors do.
capsule_cases() {
    local directories=(capsules/*/tests/cases)
    target/debug/aod capsule test "${directories[@]%/tests/cases}"
}

chaos() {
    if [ "$run_all" = yes ]; then
        "$DEPLOY_DIR/chaos.sh" --minutes "$CHAOS_MINUTES"
    else
        "$DEPLOY_DIR/chaos.sh" --short
    fi
}

# Names what the run of an ordinary user leaves out.
tests_not_run() {
    say ""
    say "not run, because these tests make network namespaces and Docker daemons, which needs root:"
    "$cargo" nextest list --workspace --locked --message-format oneline --filterset "$NEEDS_ROOT" 2>/dev/null |
        sed 's/^/    /' >&2
    say "    chaos: deploy/chaos.sh"
    say "run them with: sudo make test"
}

# A failure here ends the script: nothing else can run without these.
part setup "$DEPLOY_DIR/setup.sh" test
[ "$PARTS_FAILED" -eq 0 ] || die "the setup failed" "see above; make setup repeats it alone"
export PATH="$TOOLS_DIR/bin:$PATH"
export AOD_TEST_NATS_SERVER="$TOOLS_DIR/bin/nats-server" AOD_TEST_S3S_FS="$TOOLS_DIR/bin/s3s-fs"
export AOD_TEST_KERNEL="$TOOLS_DIR/kernel" AOD_TEST_REGISTRY="$TOOLS_DIR/bin/docker-registry"

part check "$DEPLOY_DIR/check.sh" --without-tests
part build build_everything
# The capsules come first: later tests build the same images from Docker's cache.
part capsules capsules/test.sh
part "capsule cases" capsule_cases
part tests tests
part simulator simulator
part compose "$DEPLOY_DIR/test-compose.sh"
if must_run_all; then part chaos chaos; else tests_not_run; fi
if [ "$run_all" = yes ]; then
    part "doc tests" "$cargo" test --quiet --workspace --doc --locked
    part mutants "$DEPLOY_DIR/mutants.sh"
    part fuzz "$DEPLOY_DIR/fuzz.sh" "$FUZZ_SECONDS"
fi
"$DEPLOY_DIR/slowest-tests.py" "target/nextest/$(profile)/junit.xml" "$SLOWEST" >&2 || true
summary
