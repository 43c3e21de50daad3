#!/usr/bin/env bash
# Builds the simulator and passes it the arguments: deploy/simulate.sh 10000, deploy/simulate.sh --show 7.
#
# The simulator has a build of its own, with optimisation and all checks. A flag of tokio that the product does not use
# lets the simulator seed the random numbers of tokio: without it, the same seed gives another history each time.
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cd "$REPOSITORY_DIR"
RUSTFLAGS="--cfg tokio_unstable" "$DEPLOY_DIR/cargo.sh" build --quiet --locked --profile simulation -p aod-simulator
exec "${CARGO_TARGET_DIR:-$REPOSITORY_DIR/target}/simulation/aod-simulate" "$@"
