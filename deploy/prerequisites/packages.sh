#!/usr/bin/env bash
# Makes sure that the programs used by these scripts exist: as root, installs their Debian packages; for a normal user,
# prints the packages to install. Accepts existing programs from any source.
#
#   deploy/prerequisites/packages.sh demo|test|fuzz
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

# Each program with its packages.
demo=(
    "make=make" "git=git" "curl=curl ca-certificates" "python3=python3 python3-venv" "flock=util-linux"
    "docker=docker.io"
)
# Only if this machine has cargo, which links with gcc. Otherwise the build runs in a container.
native=("gcc=gcc libc6-dev")
# Used to build base images if no registry is reachable.
airgap=("mmdebstrap=mmdebstrap debian-archive-keyring")
tests=(
    "ip=iproute2" "nsenter=util-linux" "iptables=iptables" "pdftotext=poppler-utils" "shellcheck=shellcheck" "skopeo=skopeo"
    # For the machine whose power is cut: its emulator, its disk, and the packers of its kernel.
    "qemu-system-x86_64=qemu-system-x86" "mkfs.ext4=e2fsprogs" "losetup=mount" "xz=xz-utils" "zstd=zstd"
)

# Another apt may hold its lock for a while, for example on a machine that has just started.
APT_ATTEMPTS_MAX=12
APT_PAUSE_SECONDS=10

apt_get() {
    local attempt
    for ((attempt = 1; attempt <= APT_ATTEMPTS_MAX; attempt++)); do
        if DEBIAN_FRONTEND=noninteractive apt-get --quiet --quiet --option DPkg::Lock::Timeout=120 "$@" >&2 </dev/null; then
            return
        fi
        say "    apt-get $1 failed, attempt $attempt of $APT_ATTEMPTS_MAX"
        sleep "$APT_PAUSE_SECONDS"
    done
    die "apt-get $* failed" "see above"
}

# is_static PROGRAM: whether it exists and needs no libraries.
is_static() { has "$1" && [[ "$(LC_ALL=C ldd "$(command -v "$1")" 2>&1)" == *"not a dynamic executable"* ]]; }

wanted=("${demo[@]}")
if has cargo; then wanted+=("${native[@]}"); fi
case ${1:-} in
demo) ;;
test)
    wanted+=("${tests[@]}")
    # The dynamically linked one, which many systems have, does not run in an empty image.
    is_static busybox || wanted+=("busybox-static=busybox-static")
    # The plugin of a newer Docker is accepted too.
    docker compose version >/dev/null 2>&1 || wanted+=("docker-compose=docker-compose")
    ;;
fuzz) if has cargo; then wanted+=("c++=g++"); fi ;;
*) die "unknown purpose: ${1:-none}" "demo, test or fuzz" ;;
esac
if is_root; then wanted+=("${airgap[@]}"); fi

missing=()
for entry in "${wanted[@]}"; do
    # Administration programs are not on every user's PATH.
    if ! PATH="$PATH:/usr/sbin:/sbin" has "${entry%%=*}"; then
        read -ra packages <<<"${entry#*=}"
        missing+=("${packages[@]}")
    fi
done

if [ ${#missing[@]} -eq 0 ]; then
    say "    packages: complete"
elif ! has apt-get; then
    die "missing Debian packages: ${missing[*]}" "install their equivalents on this system"
elif is_root; then
    say "    packages: installing ${missing[*]}"
    apt_get update
    apt_get install --yes --no-install-recommends "${missing[@]}"
else
    die "missing packages: ${missing[*]}" \
        "sudo apt-get install --no-install-recommends ${missing[*]}"
fi
