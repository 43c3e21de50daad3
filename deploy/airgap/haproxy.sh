# shellcheck shell=bash
# haproxy:2.6 from Debian's package of the same version, with the same configuration file and arguments as the official
# image. Sourced by build.sh.

# build_haproxy WORK
build_haproxy() {
    local work=$1
    cat >"$work/Dockerfile" <<DOCKERFILE
FROM $DEBIAN_IMAGE
RUN apt-get update \\
    && apt-get install -y --no-install-recommends haproxy \\
    && rm -rf /var/lib/apt/lists/* \\
    && mkdir -p /usr/local/etc/haproxy
USER haproxy
WORKDIR /var/lib/haproxy
STOPSIGNAL SIGUSR1
ENTRYPOINT ["haproxy", "-W", "-db"]
CMD ["-f", "/usr/local/etc/haproxy/haproxy.cfg"]
LABEL dev.aod.airgap=haproxy
DOCKERFILE
    docker_build_packages --tag "$HAPROXY_IMAGE" "$work"
}
