#!/usr/bin/env bash
# Builds the simulator and hands it the arguments: deploy/simulate.sh 10000, deploy/simulate.sh --show 7.
#
# A build of its own, optimised and with every check: a flag of tokio's that is not for the product lets the
# simulator seed what tokio draws, so that one seed is one history.
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cd "$REPOSITORY_DIR"
target="$REPOSITORY_DIR/target/simulator"
RUSTFLAGS="--cfg tokio_unstable" "$DEPLOY_DIR/cargo.sh" build --quiet --locked --profile simulation \
    --target-dir "$target" -p aod-simulator
exec "$target/simulation/aod-simulate" "$@"
