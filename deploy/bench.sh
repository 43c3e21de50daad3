#!/usr/bin/env bash
# Runs the benchmarks, all or the named ones, and writes target/bench/NAME.json. Exits with 3 if a bound is missed.
#
#   deploy/bench.sh [NAME...]       NAME: sdk (the Python SDK), or a benchmark of tests/bench
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cd "$REPOSITORY_DIR"
if [ $# -eq 0 ] || [ "$1" = sdk ]; then
    capsules/sdk/test.sh --bench || exit 3
    [ $# -eq 0 ] || exit 0
fi
{
    "$DEPLOY_DIR/prerequisites/packages.sh" test
    "$DEPLOY_DIR/prerequisites/docker.sh"
    "$DEPLOY_DIR/airgap/build.sh" debian
    tools_directory="$("$DEPLOY_DIR/prerequisites/tools.sh" s3s-fs nats-server)"
} >&2
export PATH="$tools_directory:$PATH"
export AOD_TEST_NATS_SERVER="$tools_directory/nats-server" AOD_TEST_S3S_FS="$tools_directory/s3s-fs"
"$DEPLOY_DIR/cargo.sh" build --release --locked -p aod-cli -p aod-tests
exec target/release/aod-bench "$@"
