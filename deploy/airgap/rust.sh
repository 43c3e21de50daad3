# shellcheck shell=bash
# rust:1.95-bookworm from Debian packages and this machine's own Rust toolchain, without a registry of toolchains.
# Contains Cargo's configuration (mirrors, certificates), but not its credentials. Sourced by build.sh.

# build_rust WORK
build_rust() {
    local work=$1 toolchain version
    if ! has rustc || ! has cargo; then
        die "no image registry is reachable, and there is no Rust toolchain to build $RUST_IMAGE from" \
            "install Rust $RUST_VERSION or newer (https://rustup.rs), or run deploy/airgap/build.sh rust as a user who has it; then retry"
    fi
    version="$(rustc --version | cut -d' ' -f2)"
    printf '%s\n' "$RUST_VERSION" "$version" | sort --check --version-sort 2>/dev/null ||
        die "this machine's Rust is $version, older than $RUST_VERSION" "rustup update stable"
    toolchain="$(rustc --print sysroot)"
    mkdir "$work/toolchain" "$work/cargo"
    # Hard links if possible: the toolchain has more than half a gigabyte.
    cp -rl "$toolchain"/{bin,lib} "$work/toolchain/" 2>/dev/null || cp -r "$toolchain"/{bin,lib} "$work/toolchain/"
    if [ -d "$toolchain/libexec" ]; then cp -r "$toolchain/libexec" "$work/toolchain/"; fi
    if [ -r "${CARGO_HOME:-$HOME/.cargo}/config.toml" ]; then
        cp "${CARGO_HOME:-$HOME/.cargo}/config.toml" "$work/cargo/"
    fi
    cat >"$work/Dockerfile" <<DOCKERFILE
FROM $DEBIAN_IMAGE
RUN apt-get update \\
    && apt-get install -y --no-install-recommends ca-certificates curl file g++ gcc git libc6-dev make pkg-config \\
    && rm -rf /var/lib/apt/lists/*
ENV CARGO_HOME=/usr/local/cargo \\
    PATH=/usr/local/cargo/bin:/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
COPY cargo/ /usr/local/cargo/
COPY toolchain/ /usr/local/rust/
RUN chmod -R a+rwX /usr/local/cargo && cargo --version
LABEL dev.aod.airgap=rust
DOCKERFILE
    docker_build_packages --tag "$RUST_IMAGE" "$work"
}
