#!/usr/bin/env bash
# Runs the benchmarks, all or those named, and writes target/bench/NAME.json. Ends with 3 where a bound is missed.
#
#   deploy/bench.sh [NAME...]
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cd "$REPOSITORY_DIR"
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
