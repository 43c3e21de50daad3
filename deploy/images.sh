#!/usr/bin/env bash
# Builds the images of docker-compose.yml and deploy/hosts: the base images, and the image of the program, aod:local.
#
#   deploy/images.sh [--ca FILE]
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

arguments=()
for variable in http_proxy https_proxy no_proxy; do
    [ -z "${!variable:-}" ] || arguments+=(--build-arg "$variable=${!variable}")
done

step "base images" "$DEPLOY_DIR/airgap/build.sh" "$@"
step "aod:local" docker build --tag aod:local --file "$DEPLOY_DIR/Dockerfile" \
    --build-arg "RUST_IMAGE=$RUST_IMAGE" --build-arg "DEBIAN_IMAGE=$DEBIAN_IMAGE" "${arguments[@]}" \
    "$REPOSITORY_DIR"
