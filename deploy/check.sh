#!/usr/bin/env bash
# All that can be said of this tree without running whole systems: formatting, lints, dependencies,
# documentation, and (unless --without-tests) the unit tests. Goes on after a failure; ends with a summary.
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
        say "    shellcheck is missing, not checked: apt-get install shellcheck"
        if must_run_all; then return 1; else return 0; fi
    fi
    find deploy .ci capsules crates/cli/templates -type f \( -name '*.sh' -o -name run \) -exec shellcheck --external-sources --source-path=. {} +
}

# The database of advisories is a repository that not every network can reach.
advisories() {
    local log status=0
    log="$(mktemp)"
    GIT_TERMINAL_PROMPT=0 timeout 120 "$cargo" deny --all-features check advisories >"$log" 2>&1 || status=$?
    if [ "$status" -ne 0 ] && grep -q 'failed to fetch advisory database' "$log"; then
        say "    the database of advisories cannot be reached from here: not checked"
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

# The fuzz programs are a workspace of their own, which is built seldom: its lock file must not fall behind.
lock_of_fuzz_programs() {
    "$cargo" metadata --quiet --locked --format-version 1 --manifest-path tests/fuzz/Cargo.toml >/dev/null
}

# The simulator is shown to fail by patches, which are applied seldom: they must not fall behind.
mutants_fit() {
    local patch status=0
    for patch in "$DEPLOY_DIR"/mutants/*.patch; do
        git apply --check "$patch" || status=1
    done
    return "$status"
}

part formatting "$cargo" fmt --all --check
part "shell scripts" shell_scripts
part lints "$cargo" clippy --quiet --workspace --all-targets --locked -- -D warnings
part "bans, licences, sources" "$cargo" deny --all-features --log-level error check bans licenses sources
part advisories advisories
part "lock of fuzz programs" lock_of_fuzz_programs
part "patches of mutants" mutants_fit
part documentation documentation
part "doc tests" "$cargo" test --quiet --workspace --doc --locked
if [ "${1:-}" != --without-tests ]; then
    part "unit tests" "$cargo" nextest run --workspace --locked --lib --bins
fi
summary
