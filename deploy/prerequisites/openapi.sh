#!/usr/bin/env bash
# Prints the path of the pinned OpenAPI validator, after installing it from PyPI into the tool cache if it is missing.
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

directory="$TOOLS_DIR/openapi-spec-validator-$OPENAPI_SPEC_VALIDATOR_VERSION"
if [ ! -e "$directory/complete" ]; then
    rm -rf "$directory"
    python3 -m venv "$directory" >&2 || die "python3 cannot make an environment" "apt-get install python3-venv"
    "$directory/bin/python" -m pip install --quiet --disable-pip-version-check \
        "openapi-spec-validator==$OPENAPI_SPEC_VALIDATOR_VERSION" >&2 ||
        die "pip cannot install openapi-spec-validator $OPENAPI_SPEC_VALIDATOR_VERSION" "see above"
    touch "$directory/complete"
fi
printf '%s\n' "$directory/bin/openapi-spec-validator"
