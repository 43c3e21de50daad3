#!/usr/bin/env bash
# Installs what the demo or the tests need and this machine lacks: Debian packages, a running Docker, pinned tools
# and base images. As root it installs; for an ordinary user it prints what to install.
#
#   deploy/setup.sh demo|test
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

purpose=${1:?demo or test}
case $purpose in
# Room for the build, the images and the data.
demo) disk_gigabytes=12 images=(debian nats python) ;;
test) disk_gigabytes=25 images=(debian nats haproxy python) ;;
*) die "unknown purpose: $purpose" "demo or test" ;;
esac

"$DEPLOY_DIR/prerequisites/disk.sh" "$disk_gigabytes"
"$DEPLOY_DIR/prerequisites/packages.sh" "$purpose"
"$DEPLOY_DIR/prerequisites/docker.sh"
if [ "$purpose" = test ]; then
    step tools "$DEPLOY_DIR/prerequisites/tools.sh" >/dev/null
    step "kernel of the emulated machine" "$DEPLOY_DIR/prerequisites/kernel.sh" >/dev/null
    step "image registry" "$DEPLOY_DIR/prerequisites/registry.sh" >/dev/null
fi
step "base images" "$DEPLOY_DIR/airgap/build.sh" "${images[@]}"
