#!/usr/bin/env bash
# Starts the cluster of docker-compose.yml under a name of its own, runs a small capsule through the proxy,
# stops a gateway, runs it again, and leaves nothing behind.
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# From the start of the containers until two nodes are there.
READY_SECONDS_MAX=60

cd "$REPOSITORY_DIR"
work="$(mktemp -d /tmp/aod-compose.XXXXXX)"
project="aod-test-$$"
export AOD_IMAGE="aod:$project" AOD_DATA="$work/data" AOD_LISTEN=127.0.0.1:0
export COMPOSE_PROJECT_NAME="$project"
# Handed on to the nodes.
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
    # What containers wrote belongs to root, whoever this is.
    docker run --rm --volume "$work:/work" "$DEBIAN_IMAGE" find /work -mindepth 1 -delete >/dev/null || true
    docker image rm "$AOD_IMAGE" >/dev/null 2>&1 || true
    rmdir "$work" || true
    exit "$status"
}
trap stop EXIT
trap 'exit 130' INT TERM

# The image of the program from this machine's own build; from deploy/Dockerfile where that does not run in it.
make_image() {
    "$DEPLOY_DIR/cargo.sh" build --quiet --locked -p aod-cli
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

# A capsule that answers with what it is asked, and runs only where the operator keeps its secret.
write_capsule() {
    mkdir "$work/echo"
    printf 'secrets: [WORD]\n' >"$work/echo/agent.yaml"
    printf 'FROM %s\nENTRYPOINT ["cp", "/io/input.json", "/io/output.json"]\n' "$DEBIAN_IMAGE" >"$work/echo/Dockerfile"
    printf '{"input": {"type": "object"}, "output": {"type": "object"}}\n' >"$work/echo/schema.json"
}

two_nodes_are_there() {
    [ "$("$aod" nodes ls --output json 2>/dev/null | grep -o '"node_[^"]*"' | sort -u | wc -l)" -ge 2 ]
}

wait_for_nodes() {
    local deadline=$((SECONDS + READY_SECONDS_MAX))
    until two_nodes_are_there; do
        [ "$SECONDS" -lt "$deadline" ] || die "no two nodes after $READY_SECONDS_MAX s" "the logs follow"
        sleep 0.5
    done
}

# run_echo WORD: what comes back is what was sent.
run_echo() {
    local answer
    answer="$("$aod" run echo -i word="$1" --output json 2>/dev/null)"
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
say "    compose: two runs, the second with one gateway"
