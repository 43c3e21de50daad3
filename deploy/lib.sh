# shellcheck shell=bash
# Shared by all scripts in deploy/: messages, times of steps, directories and pinned versions. To be sourced.

set -euo pipefail

DEPLOY_DIR="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
REPOSITORY_DIR="$(dirname "$DEPLOY_DIR")"
CACHE_DIR="${XDG_CACHE_HOME:-$HOME/.cache}/aod"
TOOLS_DIR="$CACHE_DIR/tools"
# Some of these are only used by the scripts that source this file.
export DEPLOY_DIR REPOSITORY_DIR CACHE_DIR TOOLS_DIR

# shellcheck source=deploy/versions.env
source "$DEPLOY_DIR/versions.env"

say() { printf '%s\n' "$*" >&2; }

# Ends the script: what is wrong, then what to do about it.
#   die "docker does not answer" "start it: systemctl start docker"
die() {
    say "error: $1"
    [ $# -lt 2 ] || say "hint: $2"
    exit 1
}

is_root() { [ "$(id -u)" -eq 0 ]; }

has() { command -v "$1" >/dev/null 2>&1; }

# Builds all programs and tests into target/debug, with the one set of features that all tests use: a build of a single
# crate would compile the libraries again, with fewer features.
build_everything() {
    (cd "$REPOSITORY_DIR" && "$DEPLOY_DIR/cargo.sh" test --quiet --locked --workspace --no-run)
}

# step NAME COMMAND...: runs the command; prints its start and its duration.
# A failure ends the script: the command runs outside any `if`, so that `set -e` holds inside it.
step() {
    local name=$1 began_seconds=$SECONDS
    shift
    say "==> $name"
    "$@"
    say "    $name: $((SECONDS - began_seconds)) s"
}
