#!/usr/bin/env bash
# Prints the directory of the kernel for emulated machines in tests, after downloading it into the tool cache if it is
# missing: `vmlinuz`, and `modules` with the content for the machine's /. It is this distribution's own kernel for
# virtual machines, of any version, unpacked from its packages and never installed. apt checks their signatures.
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

directory="$TOOLS_DIR/kernel"
# Its name in Debian, and in Ubuntu.
NAMES=("linux-image-cloud-$(dpkg --print-architecture 2>/dev/null || true)" linux-image-virtual)
# Modules for a disk, a network and a file system, unless built in.
MODULES='virtio_pci|virtio_blk|virtio_net|ext4'

# Prints the packages of a kernel and its modules, of the newest version known to apt.
packages() {
    local name
    for name in "${NAMES[@]}"; do
        apt-cache show "$name" >/dev/null 2>&1 || continue
        apt-cache depends --recurse --no-recommends --no-suggests --no-enhances --no-breaks --no-conflicts \
            --no-replaces "$name" | grep -E '^linux-(image|modules)-[0-9]' | sort --unique
        return
    done
}

fetch() {
    local work=$1 found names version package
    found="$(packages)"
    if [ -z "$found" ] && is_root; then
        apt-get --quiet --quiet update >&2
        found="$(packages)"
    fi
    [ -n "$found" ] || die "apt finds none of the kernels ${NAMES[*]}" "apt-get update"
    mapfile -t names <<<"$found"
    (cd "$work" && apt-get --quiet --quiet download "${names[@]}" 2>&1) >"$work/log" ||
        { cat "$work/log" >&2 && die "apt-get download ${names[*]} failed" "see above"; }
    for package in "$work"/*.deb; do dpkg-deb --extract "$package" "$work/all"; done
    # In a distribution whose /lib is a link to usr/lib, the package contains the latter.
    [ -d "$work/all/lib/modules" ] || mv "$work/all/usr/lib" "$work/all/lib"
    version="$(basename "$work"/all/lib/modules/*)"
    busybox depmod -b "$work/all" "$version"
    mkdir -p "$work/new/modules/lib/modules/$version"
    cp "$work/all/boot/vmlinuz-$version" "$work/new/vmlinuz"
    select_modules "$work/all/lib/modules/$version" "$work/new/modules/lib/modules/$version"
    busybox depmod -b "$work/new/modules" "$version"
}

# select_modules FROM TO: copies MODULES with their dependencies, uncompressed.
select_modules() {
    local from=$1 to=$2 module
    cp "$from"/modules.{builtin,order} "$to"
    { grep -E "/($MODULES)\.ko[.a-z]*:" "$from/modules.dep" || true; } | tr -d : | tr ' ' '\n' | sort --unique |
        while read -r module; do
            install -D --mode 0644 "$from/$module" "$to/$module"
            case $module in
            *.xz) xz --decompress "$to/$module" ;;
            *.zst) zstd --quiet --rm --decompress "$to/$module" ;;
            esac
        done
}

if [ ! -f "$directory/vmlinuz" ]; then
    has apt-get || die "tests need a kernel for an emulated machine, and apt-get is missing" \
        "set AOD_TEST_KERNEL to a directory with vmlinuz and modules"
    mkdir -p "$TOOLS_DIR"
    work="$(mktemp -d)"
    trap 'rm -rf "$work"' EXIT
    fetch "$work"
    rm -rf "$directory"
    mv "$work/new" "$directory"
fi
printf '%s\n' "$directory"
