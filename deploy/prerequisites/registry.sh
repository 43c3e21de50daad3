#!/usr/bin/env bash
# Prints the program of an image registry for tests, fetching it into the tool cache first where it is missing: it is
# the distribution's own, unpacked from its package and never installed, so that none runs on this machine
# afterwards. apt checks its signature.
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

PACKAGE=docker-registry
program="$TOOLS_DIR/bin/docker-registry"

fetch() {
    local work=$1
    if ! apt-cache show "$PACKAGE" >/dev/null 2>&1 && is_root; then apt-get --quiet --quiet update >&2; fi
    (cd "$work" && apt-get --quiet --quiet download "$PACKAGE" 2>&1) >"$work/log" ||
        { cat "$work/log" >&2 && die "apt-get download $PACKAGE failed" "see above"; }
    dpkg-deb --extract "$work/$PACKAGE"_*.deb "$work/all"
    install -D --mode 0755 "$work/all/usr/bin/docker-registry" "$program"
}

if [ ! -x "$program" ]; then
    has apt-get || die "tests need an image registry, and there is no apt-get to bring it" \
        "name a program in AOD_TEST_REGISTRY"
    mkdir -p "$TOOLS_DIR/bin"
    work="$(mktemp -d)"
    trap 'rm -rf "$work"' EXIT
    fetch "$work"
fi
printf '%s\n' "$program"
