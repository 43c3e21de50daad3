# shellcheck shell=bash
# Pulls an image, and quickly detects that no registry is reachable. Sourced by build.sh.

# Maximum time for a registry to name the image; the download itself may take longer.
REGISTRY_ANSWER_SECONDS=15
PULL_SECONDS_MAX=1800

# Set when no registry answered, so that only the first image waits for it.
REGISTRY_ABSENT=no

# pull_image IMAGE: true if the image is available afterwards.
pull_image() {
    local image=$1 log deadline pull
    [ "$REGISTRY_ABSENT" = no ] || return 1
    log="$(mktemp)"
    timeout "$PULL_SECONDS_MAX" docker pull "$image" >"$log" 2>&1 9>&- &
    pull=$!
    deadline=$((SECONDS + REGISTRY_ANSWER_SECONDS))
    # Docker prints "Pulling from" when the registry has answered with the image's manifest.
    while kill -0 "$pull" 2>/dev/null && ! grep -q 'Pulling from' "$log"; do
        if [ "$SECONDS" -ge "$deadline" ]; then
            kill "$pull" 2>/dev/null || true
            break
        fi
        sleep 0.2
    done
    if wait "$pull"; then
        rm -f "$log"
        return 0
    fi
    if ! grep -q 'Pulling from\|not found\|denied' "$log"; then
        REGISTRY_ABSENT=yes
        say "    no image registry is reachable: building images from packages"
    fi
    rm -f "$log"
    return 1
}
