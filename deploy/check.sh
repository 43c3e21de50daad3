#!/usr/bin/env bash
# Checks this tree without whole systems: formatting, lints, dependencies, documentation, and (unless --without-tests)
# the unit tests. Continues after a failure, and prints a summary.
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=deploy/parts.sh
source "$DEPLOY_DIR/parts.sh"

cd "$REPOSITORY_DIR"
export PATH="$TOOLS_DIR/bin:$PATH"
cargo="$DEPLOY_DIR/cargo.sh"

shell_scripts() {
    if ! has shellcheck; then
        say "    not checked, because shellcheck is missing: apt-get install shellcheck"
        if must_run_all; then return 1; else return 0; fi
    fi
    find deploy .ci capsules crates/kit/templates -type f \( -name '*.sh' -o -name run \) -exec shellcheck --external-sources --source-path=. {} +
}

# The database of advisories is a repository that is unreachable from some networks.
advisories() {
    local log status=0
    log="$(mktemp)"
    GIT_TERMINAL_PROMPT=0 timeout 120 "$cargo" deny --all-features check advisories >"$log" 2>&1 || status=$?
    if [ "$status" -ne 0 ] && grep -q 'failed to fetch advisory database' "$log"; then
        say "    not checked: the database of advisories is unreachable"
        status=0
    else
        cat "$log" >&2
    fi
    rm -f "$log"
    return "$status"
}

documentation() {
    RUSTDOCFLAGS="-D warnings" "$cargo" doc --quiet --workspace --no-deps --locked
}

# The fuzz programs are a separate, rarely built workspace: its lock file must stay current.
lock_of_fuzz_programs() {
    "$cargo" metadata --quiet --locked --format-version 1 --manifest-path tests/fuzz/Cargo.toml >/dev/null
}

# The patches that make the simulator fail are rarely applied: they must stay applicable.
mutants_fit() {
    local patch status=0
    for patch in "$DEPLOY_DIR"/mutants/*.patch; do
        git apply --check "$patch" || status=1
    done
    return "$status"
}

# The document is generated from the code; a test compares the two.
openapi() {
    local validator
    validator="$("$DEPLOY_DIR/prerequisites/openapi.sh")" && "$validator" --errors all docs/contracts/openapi.json
}

part formatting "$cargo" fmt --all --check
part "shell scripts" shell_scripts
part lints "$cargo" clippy --quiet --workspace --all-targets --locked -- -D warnings
part "bans, licences, sources" "$cargo" deny --all-features --log-level error check bans licenses sources
part advisories advisories
part "lock of fuzz programs" lock_of_fuzz_programs
part "patches of mutants" mutants_fit
part OpenAPI openapi
part documentation documentation
if [ "${1:-}" != --without-tests ]; then
    part "doc tests" "$cargo" test --quiet --workspace --doc --locked
    part "unit tests" "$cargo" nextest run --workspace --locked --lib --bins
fi
summary
