#!/usr/bin/env bash
# Makes sure that Docker answers. As root, starts an installed daemon that is not running, with systemd or without; for
# a normal user, prints what to do.
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

# The first start of a daemon also creates its directories and its bridge.
START_SECONDS_MAX=60
DAEMON_LOG=/var/log/aod-dockerd.log

answers() { docker info >/dev/null 2>&1; }

wait_until_answers() {
    local deadline=$((SECONDS + START_SECONDS_MAX))
    while ! answers; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.5
    done
}

start() {
    if [ -d /run/systemd/system ]; then
        systemctl start docker && wait_until_answers && return
    fi
    if [ -x /etc/init.d/docker ]; then
        service docker start >&2 && wait_until_answers && return
    fi
    # A container or bare machine has neither: start the daemon itself, detached from this terminal.
    setsid dockerd >"$DAEMON_LOG" 2>&1 </dev/null &
    wait_until_answers && return
    tail -n 15 "$DAEMON_LOG" >&2
    die "dockerd does not answer $START_SECONDS_MAX s after its start" "see its log, $DAEMON_LOG"
}

if answers; then
    say "    docker: $(docker version --format '{{.Server.Version}}') answers"
elif [ -n "${DOCKER_HOST:-}" ]; then
    die "docker does not answer at DOCKER_HOST=$DOCKER_HOST" "start it there, or unset DOCKER_HOST"
elif is_root; then
    say "    docker: not running, starting it"
    start
    say "    docker: $(docker version --format '{{.Server.Version}}') answers"
elif [ -S /var/run/docker.sock ] && [ ! -w /var/run/docker.sock ]; then
    die "docker is running, but this user has no access" "sudo usermod --append --groups docker $(id -un), then log in again"
else
    die "docker is not running" "sudo systemctl start docker"
fi
