#!/usr/bin/env bash
# Checks that the disk has room before anything is fetched: GIGABYTES free where this tree lies, where the
# tools are cached and where Docker keeps its images.
#
#   deploy/prerequisites/disk.sh GIGABYTES
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

needed_gigabytes=${1:?gigabytes that must be free}
# What an earlier build takes is not needed again.
if [ -d "$REPOSITORY_DIR/target" ]; then
    built_gigabytes="$(du --summarize --block-size=1G "$REPOSITORY_DIR/target" 2>/dev/null | cut -f1)"
    needed_gigabytes=$((needed_gigabytes > built_gigabytes ? needed_gigabytes - built_gigabytes : 1))
fi

# free_gigabytes PATH: of the file system that PATH is on, or will be on once it is made.
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
        die "$path has $free GB free, and $needed_gigabytes GB are needed" \
            "make room, for instance with: docker system prune; cargo clean"
done
say "    disk: at least $needed_gigabytes GB are free"
