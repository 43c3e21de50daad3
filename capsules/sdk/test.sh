#!/usr/bin/env bash
# Tests the Python SDK: layout, lints, types, tests, and that the SDK and the orchestrator's code agree on 10,000
# generated cases. First pip and cargo download packages; the tests use only this machine.
#
#   capsules/sdk/test.sh            the tests
#   capsules/sdk/test.sh --bench    the time of imports and of the start of agents, compared with their bounds
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../deploy/lib.sh"

PACKAGES=("jsonschema-rs==$JSONSCHEMA_RS_VERSION" "PyYAML==$PYYAML_VERSION" "ruff==$RUFF_VERSION"
    "mypy==$MYPY_VERSION" "pytest==$PYTEST_VERSION" "pytest-xdist==$PYTEST_XDIST_VERSION" "types-PyYAML==$TYPES_PYYAML_VERSION"
    "pydantic-ai-slim==$PYDANTIC_AI_VERSION" "openai==$OPENAI_VERSION" "anthropic==$ANTHROPIC_VERSION"
    "google-genai==$GOOGLE_GENAI_VERSION" "mcp==$MCP_VERSION" "jinja2==$JINJA2_VERSION")

# Creates the environment of the tests in the tool cache, one for each set of versions, and prints its directory.
environment() {
    local directory
    directory="$TOOLS_DIR/python-sdk-$({ python3 --version && printf '%s\n' "${PACKAGES[@]}"; } | sha256sum | cut -c1-16)"
    # Programs in an environment contain its path, so it is created in its final place.
    if [ ! -e "$directory/complete" ]; then
        rm -rf "$directory"
        python3 -m venv "$directory" >&2 || die "python3 cannot make an environment" "apt-get install python3-venv"
        "$directory/bin/python" -m pip install --quiet --disable-pip-version-check "${PACKAGES[@]}" >&2 ||
            die "pip cannot install ${PACKAGES[*]}" "see above"
        touch "$directory/complete"
    fi
    printf '%s\n' "$directory"
}

cd "$REPOSITORY_DIR/capsules/sdk"
export PYTHONDONTWRITEBYTECODE=1
mkdir -p "$TOOLS_DIR"
exec 9>"$TOOLS_DIR/python-sdk.lock"
flock 9
programs="$(environment)/bin"
flock --unlock 9

if [ "${1:-}" = --bench ]; then
    step imports "$programs/python" bench.py
    step agents "$programs/python" bench_agent.py
    exit
fi

step "the domain's side of the comparison" build_everything
export AOD_CONTRACT_EXAMPLE="${CARGO_TARGET_DIR:-$REPOSITORY_DIR/target}/debug/examples/contract"

step layout "$programs/ruff" format --no-cache --quiet --check .
step lints "$programs/ruff" check --no-cache --quiet .
step types "$programs/mypy" --cache-dir "$TOOLS_DIR/python-sdk.mypy" --no-error-summary src tests bench.py bench_agent.py
step tests "$programs/python" -m pytest --numprocesses auto
