#!/usr/bin/env bash
# Builds the simulator and passes it the arguments: deploy/simulate.sh 10000, deploy/simulate.sh --show 7.
#
# The simulator shares the build of the tests.
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cd "$REPOSITORY_DIR"
build_everything
exec target/debug/aod-simulate "$@"
