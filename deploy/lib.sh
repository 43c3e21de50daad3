# shellcheck shell=bash
# What every script under deploy/ shares: words for people, times of steps, places and pins.
# To be sourced; it leaves the work itself to those who source it.

set -euo pipefail

DEPLOY_DIR="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
REPOSITORY_DIR="$(dirname "$DEPLOY_DIR")"
CACHE_DIR="${XDG_CACHE_HOME:-$HOME/.cache}/aod"
TOOLS_DIR="$CACHE_DIR/tools"
# Only the scripts that source this file read some of these.
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

# step NAME COMMAND...: runs the command and says when it starts and how long it took.
# A failure ends the script: the command runs outside any `if`, so that `set -e` holds inside it.
step() {
    local name=$1 began_seconds=$SECONDS
    shift
    say "==> $name"
    "$@"
    say "    $name: $((SECONDS - began_seconds)) s"
}
