#!/usr/bin/env bash
# Runs every fuzz program in tests/fuzz for so many seconds, or those named, one after the other; ends at the first
# input that breaks a property, and says where it lies. What is learnt stays in target/fuzz; the corpus that is
# checked in is only read.
#
#   deploy/fuzz.sh [SECONDS [NAME...]]
#
# On the stable toolchain: libFuzzer needs a C++ compiler and rustc's flags for coverage, while address sanitizers
# would need a nightly one and have little to find in code without `unsafe`. The product is built as it ships:
# libraries that behave otherwise under `cfg(fuzzing)` are not told.
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# An input that takes longer than this is a finding: the slowest schema that is let in takes 2 s.
INPUT_SECONDS_MAX=25
# So is one that takes more memory; a body that is let in is 2 MiB.
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
        die "an input in $target/found/$name breaks $name" "make it a named test of its crate, then mend it"
done
