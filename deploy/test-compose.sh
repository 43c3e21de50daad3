#!/usr/bin/env bash
# Starts the cluster of docker-compose.yml under a separate name, runs a small capsule through the proxy, stops a
# gateway, runs it again, and stops both nodes during a run: the nodes drain, and nothing is lost.
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Maximum time from the start of the containers until two nodes are present.
READY_SECONDS_MAX=60

cd "$REPOSITORY_DIR"
work="$(mktemp -d /tmp/aod-compose.XXXXXX)"
project="aod-test-$$"
export AOD_IMAGE="aod:$project" AOD_DATA="$work/data" AOD_LISTEN=127.0.0.1:0
export COMPOSE_PROJECT_NAME="$project"
# Passed on to the nodes.
export AOD_SECRETS=/operator/secrets

compose() {
    if docker compose version >/dev/null 2>&1; then
        docker compose "$@"
    else
        docker-compose "$@"
    fi
}

stop() {
    local status=$?
    trap - EXIT INT TERM
    if [ "$status" -ne 0 ]; then compose logs --no-color --tail 30 >&2 || true; fi
    compose down --volumes --timeout 5 >"$work/down.log" 2>&1 || tail -n 20 "$work/down.log" >&2
    # Files of containers belong to root.
    docker run --rm --volume "$work:/work" "$DEBIAN_IMAGE" find /work -mindepth 1 -delete >/dev/null || true
    docker image rm "$AOD_IMAGE" >/dev/null 2>&1 || true
    rmdir "$work" || true
    exit "$status"
}
trap stop EXIT
trap 'exit 130' INT TERM

# The image of the program from this machine's build; from deploy/Dockerfile if that build does not run in the image.
make_image() {
    build_everything
    mkdir "$work/image"
    cp target/debug/aod "$work/image/aod"
    printf 'FROM %s\nCOPY aod /usr/local/bin/aod\nENTRYPOINT ["aod"]\n' "$DEBIAN_IMAGE" >"$work/image/Dockerfile"
    docker build --quiet --tag "$AOD_IMAGE" "$work/image" >/dev/null
    if ! docker run --rm "$AOD_IMAGE" --version >/dev/null 2>&1; then
        say "    the program of this machine does not run on $DEBIAN_IMAGE: building it there"
        docker build --quiet --tag "$AOD_IMAGE" --file "$DEPLOY_DIR/Dockerfile" . >/dev/null
    fi
}

# A secret of the operator.
write_secret() {
    mkdir --parents "$AOD_DATA/operator/secrets"
    install --mode 0600 /dev/stdin "$AOD_DATA/operator/secrets/WORD" <<<"not for the log"
}

# A capsule that returns its input, after the seconds in it, and runs only where the operator stores its secret.
write_capsule() {
    mkdir "$work/echo"
    printf 'secrets: [WORD]\n' >"$work/echo/agent.yaml"
    printf 'FROM %s\nCOPY run.sh /run.sh\nENTRYPOINT ["sh", "/run.sh"]\n' "$DEBIAN_IMAGE" >"$work/echo/Dockerfile"
    cat >"$work/echo/run.sh" <<'SCRIPT'
seconds=$(sed -n 's/.*"seconds": *\([0-9]*\).*/\1/p' /io/input.json)
sleep "${seconds:-0}"
cp /io/input.json /io/output.json
SCRIPT
    printf '{"input": {"type": "object", "properties": {"seconds": {"type": "integer"}}}, "output": {"type": "object"}}\n' >"$work/echo/schema.json"
}

two_nodes_are_there() {
    [ "$("$aod" nodes ls --format json 2>/dev/null | grep -o '"node_[^"]*"' | sort -u | wc -l)" -ge 2 ]
}

wait_for_nodes() {
    local deadline=$((SECONDS + READY_SECONDS_MAX))
    until two_nodes_are_there; do
        [ "$SECONDS" -lt "$deadline" ] || die "fewer than two nodes after $READY_SECONDS_MAX s" "the logs follow"
        sleep 0.5
    done
}

# state RUN: the state of the run.
state() { "$aod" runs show "$1" --format json | python3 -c 'import json, sys; print(json.load(sys.stdin)["state"])'; }

# attempts RUN: the number of attempts of the run.
attempts() { "$aod" runs show "$1" --format json | python3 -c 'import json, sys; print(json.load(sys.stdin)["attempts"])'; }

wait_until_running() {
    local deadline=$((SECONDS + READY_SECONDS_MAX))
    until [ "$(state "$1")" = running ]; do
        [ "$SECONDS" -lt "$deadline" ] || die "$1 is $(state "$1") after $READY_SECONDS_MAX s"
        sleep 0.2
    done
}

# Stops both nodes during a run: the run ends with its first attempt.
drain_by_stop() {
    local run
    run="$("$aod" run echo -i seconds=15 --detach)"
    wait_until_running "$run"
    compose stop node-1 node-2 >/dev/null 2>&1
    [ "$(state "$run") $(attempts "$run")" = "succeeded 1" ] ||
        die "the run is $(state "$run") after $(attempts "$run") attempts, although its node was stopped with a drain"
}

# run_echo WORD: the answer is the input.
run_echo() {
    local answer
    answer="$("$aod" run echo -i word="$1" --format json 2>/dev/null)"
    grep -q "\"$1\"" <<<"$answer" || die "echo answered $answer, not $1"
}

make_image
write_secret
write_capsule
compose up --detach >"$work/up.log" 2>&1 || {
    cat "$work/up.log" >&2
    exit 1
}
aod="$REPOSITORY_DIR/target/debug/aod"
compose exec -T gateway-1 cat /secrets/token >"$work/token"
AOD_URL="http://$(compose port proxy 8080)"
export AOD_URL AOD_TOKEN_FILE="$work/token"
wait_for_nodes
"$aod" capsule build "$work/echo" >&2
run_echo first
compose stop --timeout 5 gateway-1 >/dev/null 2>&1
run_echo second
compose start gateway-1 >/dev/null 2>&1
drain_by_stop
say "    compose: two runs, the second with one gateway, and one that both nodes finished while they were stopped"
