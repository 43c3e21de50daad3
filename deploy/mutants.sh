#!/usr/bin/env bash
# Proves that the simulator can fail: breaks one rule at a time in a copy of the tree, with the patches in
# deploy/mutants, and expects a failing seed.
#
#   deploy/mutants.sh [NAME...]
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# A broken rule must show within this number of seeds.
SEEDS=1000

cd "$REPOSITORY_DIR"
# Time limit for the seeds of one broken rule.
SECONDS_MAX=300
copy="$REPOSITORY_DIR/target/mutants/tree"
# Separate from the simulator's own directory: cargo would confuse the broken crates with those of this tree.
target="$REPOSITORY_DIR/target/mutants/build"

# build NAME: builds the simulator from a tree with the rule NAME broken.
build() {
    rm -rf "$copy"
    mkdir -p "$copy"
    git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents --target-directory "$copy"
    # Keeps git from treating the copy as a part of this repository.
    (cd "$copy" && GIT_CEILING_DIRECTORIES="$(dirname "$copy")" git apply "$DEPLOY_DIR/mutants/$1.patch") ||
        die "the patch $1 does not apply" "update deploy/mutants/$1.patch"
    (cd "$copy" && "$DEPLOY_DIR/cargo.sh" build --quiet --locked --target-dir "$target" -p aod-simulator) ||
        die "the tree does not build with $1" "update deploy/mutants/$1.patch"
}

# is_noticed: whether a seed fails; prints it.
is_noticed() {
    # A broken rule may keep a simulation from ending; the findings of its other seeds count.
    if timeout "$SECONDS_MAX" "$target/debug/aod-simulate" "$SEEDS" >"$copy/seeds.log" 2>&1; then
        return 1
    fi
    grep -m 1 '^seed' "$copy/seeds.log" >&2
}

if [ $# -eq 0 ]; then
    mapfile -t names < <(basename --suffix=.patch --multiple "$DEPLOY_DIR"/mutants/*.patch)
    set -- "${names[@]}"
fi
unnoticed=()
for name in "$@"; do
    say "==> $name"
    build "$name"
    is_noticed || unnoticed+=("$name")
done
[ ${#unnoticed[@]} -eq 0 ] || die "not noticed in $SEEDS seeds: ${unnoticed[*]}" "the invariants miss something"
say "all $# broken rules were noticed"
