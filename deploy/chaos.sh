#!/usr/bin/env bash
# Injects faults into a real cluster under load, and writes target/chaos/report.json. Exits with a status other than 0
# if anything is lost, done twice, left over or late. Requires root: hosts are namespaces.
#
#   deploy/chaos.sh --minutes 10 [--seed N]
#   deploy/chaos.sh --short [--seed N]
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cd "$REPOSITORY_DIR"
is_root || die "the chaos creates network namespaces, mounts and Docker daemons, which requires root" "sudo make chaos"
{
    "$DEPLOY_DIR/prerequisites/packages.sh" test
    "$DEPLOY_DIR/prerequisites/docker.sh"
    "$DEPLOY_DIR/airgap/build.sh" debian
    tools_directory="$("$DEPLOY_DIR/prerequisites/tools.sh" nats-server)"
} >&2
export PATH="$tools_directory:$PATH" AOD_TEST_NATS_SERVER="$tools_directory/nats-server"
# Built like the tests: with all assertions, and without a second build.
build_everything
export AOD_TEST_AOD="$REPOSITORY_DIR/target/debug/aod"
exec target/debug/aod-chaos "$@"
