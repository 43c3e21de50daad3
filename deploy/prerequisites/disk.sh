#!/usr/bin/env bash
# Checks the disk before anything is downloaded: GIGABYTES must be free in this tree, in the tool cache and in Docker's
# image directory.
#
#   deploy/prerequisites/disk.sh GIGABYTES
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

needed_gigabytes=${1:?gigabytes that must be free}
# The space of an earlier build is reused.
if [ -d "$REPOSITORY_DIR/target" ]; then
    built_gigabytes="$(du --summarize --block-size=1G "$REPOSITORY_DIR/target" 2>/dev/null | cut -f1)"
    needed_gigabytes=$((needed_gigabytes > built_gigabytes ? needed_gigabytes - built_gigabytes : 1))
fi

# free_gigabytes PATH: free space of the file system of PATH, which may not exist yet.
free_gigabytes() {
    local path=$1
    while [ ! -e "$path" ]; do path="$(dirname "$path")"; done
    df --output=avail --block-size=1G "$path" | tail -n 1 | tr -d ' '
}

docker_root=/var/lib/docker
if has docker; then
    docker_root="$(docker info --format '{{.DockerRootDir}}' 2>/dev/null || echo "$docker_root")"
fi
for path in "$REPOSITORY_DIR" "$CACHE_DIR" "$docker_root"; do
    free="$(free_gigabytes "$path")"
    [ "$free" -ge "$needed_gigabytes" ] ||
        die "$path has $free GB free; $needed_gigabytes GB are required" \
            "free space, for example with: docker system prune; cargo clean"
done
say "    disk: at least $needed_gigabytes GB are free"
