#!/usr/bin/env bash
# Runs the named fuzz programs of tests/fuzz, or all, one after the other, for SECONDS each (default 30). Stops at the
# first input that violates a property, and prints its path. New inputs are stored in target/fuzz; the corpus in the
# repository is only read.
#
#   deploy/fuzz.sh [SECONDS [NAME...]]
#
# Uses the stable toolchain: libFuzzer needs a C++ compiler and rustc's coverage flags; address sanitizers would need a
# nightly one and find little in code without `unsafe`. The product is built as shipped, without `cfg(fuzzing)`, which
# would change the behaviour of libraries.
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# A slower input is a finding: the slowest accepted schema takes 2 s.
INPUT_SECONDS_MAX=25
# An input that takes more memory is a finding; the largest accepted body has 2 MiB.
MEMORY_MEGABYTES_MAX=2048

seconds=${1:-30}
[ $# -eq 0 ] || shift
cd "$REPOSITORY_DIR/tests/fuzz"
"$DEPLOY_DIR/prerequisites/packages.sh" fuzz
tools_directory="$("$DEPLOY_DIR/prerequisites/tools.sh" cargo-fuzz)"
export PATH="$tools_directory:$PATH"
if [ $# -eq 0 ]; then
    mapfile -t names < <(basename --suffix=.rs --multiple fuzz_targets/*.rs)
    set -- "${names[@]}"
fi

target="$REPOSITORY_DIR/target/fuzz"
for name in "$@"; do
    say "==> $name"
    mkdir -p "$target/corpus/$name" "$target/found/$name"
    "$DEPLOY_DIR/cargo.sh" fuzz run --fuzz-dir . --target-dir "$target" --sanitizer none --no-cfg-fuzzing "$name" \
        "$target/corpus/$name" "corpus/$name" -- -max_total_time="$seconds" -timeout="$INPUT_SECONDS_MAX" \
        -rss_limit_mb="$MEMORY_MEGABYTES_MAX" -artifact_prefix="$target/found/$name/" -print_final_stats=1 ||
        die "an input in $target/found/$name violates a property of $name" "add it as a named test of its crate, then fix the code"
done
