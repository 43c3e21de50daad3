#!/usr/bin/env bash
# Runs every fuzz program in tests/fuzz for so many seconds, or those named, one after the other; ends at the first
# input that breaks a property, and says where it lies. What it learns stays in target/fuzz; the corpus that is
# checked in is only read.
#
#   deploy/fuzz.sh [SECONDS] [NAME...]
#   deploy/fuzz.sh --minimise [NAME...]   writes the smallest corpus of the same coverage to tests/fuzz/corpus
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
# Largest input that is checked in, so that the tests stay quick.
CORPUS_INPUT_BYTES_MAX=16384

cd "$REPOSITORY_DIR/tests/fuzz"
corpus="$PWD/corpus"
learnt="$REPOSITORY_DIR/target/fuzz/corpus"
found="$REPOSITORY_DIR/target/fuzz/found"
"$DEPLOY_DIR/prerequisites/packages.sh" fuzz
PATH="$("$DEPLOY_DIR/prerequisites/tools.sh" cargo-fuzz):$PATH"
export PATH

seconds=30
minimise=
case "${1:-}" in
--minimise) minimise=yes && shift ;;
[0-9]*) seconds=$1 && shift ;;
esac
if [ $# -eq 0 ]; then
    mapfile -t names < <(basename --suffix=.rs --multiple fuzz_targets/*.rs)
    set -- "${names[@]}"
fi

build=(--fuzz-dir . --target-dir "$REPOSITORY_DIR/target/fuzz" --sanitizer none --no-cfg-fuzzing)
run_fuzz() {
    local name=$1
    shift
    mkdir -p "$learnt/$name" "$found/$name"
    "$DEPLOY_DIR/cargo.sh" fuzz run "${build[@]}" "$name" "$@" -timeout="$INPUT_SECONDS_MAX" \
        -rss_limit_mb="$MEMORY_MEGABYTES_MAX" -artifact_prefix="$found/$name/"
}

for name in "$@"; do
    say "==> $name"
    if [ -n "$minimise" ]; then
        smallest="$(mktemp -d)"
        run_fuzz "$name" "$smallest" "$corpus/$name" "$learnt/$name" -- -merge=1 -max_len="$CORPUS_INPUT_BYTES_MAX"
        rm -r "${corpus:?}/$name"
        mv "$smallest" "$corpus/$name"
        chmod 755 "$corpus/$name"
        continue
    fi
    run_fuzz "$name" "$learnt/$name" "$corpus/$name" -- -max_total_time="$seconds" -print_final_stats=1 ||
        die "$name is broken by an input in $found/$name" "make it a named test of its crate, then mend it"
done
