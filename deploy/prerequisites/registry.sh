#!/usr/bin/env bash
# Prints the path of an image registry for tests, after downloading it into the tool cache if it is missing: the
# distribution's own, unpacked from its package and never installed, so that no registry runs on this machine
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
    has apt-get || die "tests need an image registry, and apt-get is missing" \
        "set AOD_TEST_REGISTRY to a program"
    mkdir -p "$TOOLS_DIR/bin"
    work="$(mktemp -d)"
    trap 'rm -rf "$work"' EXIT
    fetch "$work"
fi
printf '%s\n' "$program"
