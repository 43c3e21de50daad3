#!/usr/bin/env bash
# Shows the main job on real data: `survey` reads a table, hands it to `chart`, which draws it, and text and
# pictures to `report`, which sets a PDF. Ends with the tree of runs and the path of the PDF; nothing is left
# running, whatever happens.
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cd "$REPOSITORY_DIR"
demo_directory="$REPOSITORY_DIR/target/demo"
result_directory="$demo_directory/result"
aod="$REPOSITORY_DIR/target/release/aod"
export AOD_DATA="$demo_directory/data"
# The demo talks to the cluster that it starts, whatever else the user works with.
unset AOD_URL AOD_TOKEN_FILE

# Room for the build, the images and the data.
DISK_GIGABYTES=12

prerequisites() {
    "$DEPLOY_DIR/prerequisites/disk.sh" "$DISK_GIGABYTES"
    "$DEPLOY_DIR/prerequisites/packages.sh" demo
    "$DEPLOY_DIR/prerequisites/docker.sh"
}

build_program() {
    "$DEPLOY_DIR/cargo.sh" build --release --locked -p aod-cli
}

build_capsules() {
    local name
    for name in chart report survey; do
        step "capsule $name" "$aod" capsule build "capsules/$name"
    done
}

run_survey() {
    rm -rf "$result_directory"
    "$aod" run survey -i table=@capsules/survey/example/penguins.csv -o "$result_directory"
}

# The newest run of survey is the one that just ended.
show_tree() {
    local run
    run="$("$aod" runs ls --output json | python3 -c '
import json, sys
print(next(run["id"] for run in json.load(sys.stdin)["items"] if run["capsule"] == "survey"))')"
    "$aod" runs tree "$run"
}

started=no
stop() {
    local status=$?
    trap - EXIT INT TERM
    if [ "$started" = yes ]; then
        say "==> stopping what was started"
        "$aod" down >&2 || say "    aod down failed: see $AOD_DATA"
    fi
    [ "$status" -eq 0 ] || say "the demo failed after $SECONDS s"
    exit "$status"
}
trap stop EXIT
trap 'exit 130' INT TERM

mkdir -p "$demo_directory"
step "prerequisites" prerequisites
step "base images" "$DEPLOY_DIR/airgap/build.sh" debian nats python
step "the program aod" build_program
started=yes
step "starting: broker, gateway, node" "$aod" up --detach --data "$AOD_DATA"
build_capsules
step "survey of the penguins" run_survey
step "what ran" show_tree

pdf="$(find "$result_directory" -type f -name '*.pdf' -print -quit)"
[ -n "$pdf" ] || die "the run ended without a PDF" "look into $result_directory"
say ""
say "the report is $pdf, after $SECONDS s"
