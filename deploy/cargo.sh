#!/usr/bin/env bash
# Runs cargo with the given arguments: this machine's own, or else the one of the rust image, as this user, with this
# tree and the tool cache at the same paths.
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

BUILDER_IMAGE=aod-builder:$RUST_VERSION

# The official image lacks clippy and rustfmt.
make_builder_image() {
    docker image inspect "$BUILDER_IMAGE" >/dev/null 2>&1 && return
    "$DEPLOY_DIR/airgap/build.sh" rust
    docker build --quiet --tag "$BUILDER_IMAGE" - >/dev/null <<DOCKERFILE
FROM $RUST_IMAGE
RUN command -v cargo-clippy cargo-fmt || rustup component add clippy rustfmt
DOCKERFILE
}

# The flag of tests in .cargo/config.toml is not for the product.
case " $* " in *" --release "*) export RUSTFLAGS="${RUSTFLAGS-}" ;; esac

if has cargo; then
    exec cargo "$@"
fi

make_builder_image
mkdir -p "$CACHE_DIR/cargo-home"
image_path="$(docker image inspect --format "{{range .Config.Env}}{{println .}}{{end}}" "$BUILDER_IMAGE" |
    sed -n "s/^PATH=//p")"
variables=(--env HOME=/tmp --env CARGO_HOME="$CACHE_DIR/cargo-home" --env PATH="$TOOLS_DIR/bin:$image_path")
while IFS='=' read -r name _; do
    variables+=(--env "$name")
done < <(env | grep -E '^(CARGO_[A-Z_]+|RUSTFLAGS|RUSTDOCFLAGS|CI|https?_proxy|no_proxy)=' | grep -v '^CARGO_HOME=')
exec docker run --rm --init --network host --user "$(id -u):$(id -g)" \
    --volume "$REPOSITORY_DIR:$REPOSITORY_DIR" --volume "$CACHE_DIR:$CACHE_DIR" --workdir "$PWD" \
    "${variables[@]}" "$BUILDER_IMAGE" cargo "$@"
