#!/usr/bin/env bash
# Everything that is checked: `make check`, then all tests, those of whole systems with real NATS, real Docker
# and several hosts too, and simulations. Installs what is missing first; prints the time of each part and a summary.
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=deploy/parts.sh
source "$DEPLOY_DIR/parts.sh"

# Tools, images, build and test data together stay below this.
DISK_GIGABYTES=25
# Histories that the simulator tries, and those tried once more, which must come out the same: meant to take three
# minutes on two cores; 337 s were measured on slow ones.
SIMULATED_SEEDS=10000
SIMULATED_TWICE=1000
# Tests of whole systems that make hosts need root: a name of their module begins so.
NEEDS_ROOT='test(/(^|::)needs_root/)'

cd "$REPOSITORY_DIR"
cargo="$DEPLOY_DIR/cargo.sh"

tests() {
    local options=(--config-file "$DEPLOY_DIR/nextest.toml")
    must_run_all || options+=(--filterset "not $NEEDS_ROOT")
    if has cargo; then
        cargo nextest run --workspace --locked "${options[@]}"
        return
    fi
    # The tests themselves need this machine's Docker and hosts: only the build is in the container.
    local archive="$REPOSITORY_DIR/target/tests.tar.zst"
    "$cargo" nextest archive --workspace --locked --archive-file "$archive" &&
        "$TOOLS_DIR/bin/cargo-nextest" nextest run --archive-file "$archive" \
            --workspace-remap "$REPOSITORY_DIR" "${options[@]}"
}

# The cases of the product's capsules, with the program of this tree, as their authors would.
capsule_cases() {
    local directories=(capsules/*/tests/cases)
    "$cargo" build --quiet --locked -p aod-cli && target/debug/aod capsule test "${directories[@]%/tests/cases}"
}

# Names what an ordinary user's run leaves out.
tests_not_run() {
    say ""
    say "not run, because they make network namespaces and Docker daemons, which needs root:"
    "$cargo" nextest list --workspace --locked --message-format oneline --filterset "$NEEDS_ROOT" 2>/dev/null |
        sed 's/^/    /' >&2
    say "    chaos: ninety seconds of six kinds of faults, deploy/chaos.sh --short"
    say "run them with: sudo make test"
}

say "==> prerequisites"
"$DEPLOY_DIR/prerequisites/disk.sh" "$DISK_GIGABYTES"
"$DEPLOY_DIR/prerequisites/packages.sh" test
"$DEPLOY_DIR/prerequisites/docker.sh"

# Without these nothing else can be said, so that a failure ends the script.
began_seconds=$SECONDS
tools_directory="$("$DEPLOY_DIR/prerequisites/tools.sh")"
PARTS+=("$(printf '%-28s %-8s %5d s' tools present "$((SECONDS - began_seconds))")")
export PATH="$tools_directory:$PATH"
export AOD_TEST_NATS_SERVER="$tools_directory/nats-server" AOD_TEST_S3S_FS="$tools_directory/s3s-fs"
AOD_TEST_KERNEL="$("$DEPLOY_DIR/prerequisites/kernel.sh")"
export AOD_TEST_KERNEL
AOD_TEST_REGISTRY="$("$DEPLOY_DIR/prerequisites/registry.sh")"
export AOD_TEST_REGISTRY
part "base images" "$DEPLOY_DIR/airgap/build.sh" debian nats haproxy python

part check "$DEPLOY_DIR/check.sh" --without-tests
part tests tests
part simulator "$DEPLOY_DIR/simulate.sh" "$SIMULATED_SEEDS" --twice "$SIMULATED_TWICE"
part capsules capsules/test.sh
part "capsule cases" capsule_cases
part compose "$DEPLOY_DIR/test-compose.sh"
if must_run_all; then part chaos "$DEPLOY_DIR/chaos.sh" --short; else tests_not_run; fi
summary
