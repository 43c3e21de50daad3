#!/usr/bin/env bash
# Runs three capsules on real data: `survey` reads a table, calls `chart` for the pictures and `report` for the PDF.
# Prints the tree of runs and the path of the PDF. Stops everything that it started, also after a failure.
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cd "$REPOSITORY_DIR"
demo_directory="$REPOSITORY_DIR/target/demo"
result_directory="$demo_directory/result"
# Not optimized: half the time of a release build, and fast enough here.
aod="$REPOSITORY_DIR/target/debug/aod"
export AOD_DATA="$demo_directory/data"
# The demo uses the cluster that it starts, not the one that the user works with.
unset AOD_URL AOD_TOKEN_FILE

build_program() {
    "$DEPLOY_DIR/cargo.sh" build --locked -p aod-cli
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
    run="$("$aod" runs ls --format json | python3 -c '
import json, sys
print(next(run["id"] for run in json.load(sys.stdin)["items"] if run["capsule"] == "survey"))')"
    "$aod" runs tree "$run"
}

started=no
stop() {
    local status=$?
    trap - EXIT INT TERM
    if [ "$started" = yes ]; then
        say "==> stopping the cluster"
        "$aod" down >&2 || say "    aod down failed: see $AOD_DATA"
    fi
    [ "$status" -eq 0 ] || say "the demo failed after $SECONDS s"
    exit "$status"
}
trap stop EXIT
trap 'exit 130' INT TERM

mkdir -p "$demo_directory"
step "setup: what the demo needs" "$DEPLOY_DIR/setup.sh" demo
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
