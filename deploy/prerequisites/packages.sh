#!/usr/bin/env bash
# Sees to it that the programs which these scripts call are there: as root installs their Debian packages, as
# an ordinary user says exactly which to install. What is there already, from wherever, is taken.
#
#   deploy/prerequisites/packages.sh demo|test|fuzz
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

# A program, and the packages that bring it.
demo=(
    "make=make" "git=git" "curl=curl ca-certificates" "python3=python3 python3-venv" "flock=util-linux"
    "docker=docker.io"
)
# Only where cargo is on this machine: it links with gcc. Else the build happens in a container.
native=("gcc=gcc libc6-dev")
# Base images are made with these where no registry answers.
airgap=("mmdebstrap=mmdebstrap debian-archive-keyring")
tests=(
    "ip=iproute2" "nsenter=util-linux" "iptables=iptables" "pdftotext=poppler-utils" "shellcheck=shellcheck"
    # A machine whose power is cut: its emulator, its disk, and what its kernel is packed with.
    "qemu-system-x86_64=qemu-system-x86" "mkfs.ext4=e2fsprogs" "losetup=mount" "xz=xz-utils" "zstd=zstd"
)

# Another apt may hold its lock for a while, on a machine that was just started for instance.
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

# is_static PROGRAM: whether it is there and needs no libraries.
is_static() { has "$1" && [[ "$(LC_ALL=C ldd "$(command -v "$1")" 2>&1)" == *"not a dynamic executable"* ]]; }

wanted=("${demo[@]}")
if has cargo; then wanted+=("${native[@]}"); fi
case ${1:-} in
demo) ;;
test)
    wanted+=("${tests[@]}")
    # The shared one, which many systems have, does not run in an image with nothing else.
    is_static busybox || wanted+=("busybox-static=busybox-static")
    # The plugin of a newer Docker serves as well.
    docker compose version >/dev/null 2>&1 || wanted+=("docker-compose=docker-compose")
    ;;
fuzz) if has cargo; then wanted+=("c++=g++"); fi ;;
*) die "unknown purpose: ${1:-none}" "demo, test or fuzz" ;;
esac
if is_root; then wanted+=("${airgap[@]}"); fi

missing=()
for entry in "${wanted[@]}"; do
    # Programs of the administrator are not on every user's PATH.
    if ! PATH="$PATH:/usr/sbin:/sbin" has "${entry%%=*}"; then
        read -ra packages <<<"${entry#*=}"
        missing+=("${packages[@]}")
    fi
done

if [ ${#missing[@]} -eq 0 ]; then
    say "    packages: nothing is missing"
elif ! has apt-get; then
    die "these are missing: ${missing[*]}" "install what this system calls these Debian packages"
elif is_root; then
    say "    packages: installing ${missing[*]}"
    apt_get update
    apt_get install --yes --no-install-recommends "${missing[@]}"
else
    die "these packages are missing: ${missing[*]}" \
        "sudo apt-get install --no-install-recommends ${missing[*]}"
fi
