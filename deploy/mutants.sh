#!/usr/bin/env bash
# Shows that the simulator can fail: breaks one rule at a time in a copy of the tree, as the patches in
# deploy/mutants do, and expects that a seed tells.
#
#   deploy/mutants.sh [NAME...]
set -euo pipefail

# shellcheck source=deploy/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# A rule that is broken must show within so many seeds.
SEEDS=1000

cd "$REPOSITORY_DIR"
# How long the seeds of one broken rule may take.
SECONDS_MAX=300
copy="$REPOSITORY_DIR/target/mutants/tree"
# Not that of the simulator: cargo would take the broken crates for those of this tree.
target="$REPOSITORY_DIR/target/mutants/build"

# build NAME: the simulator of a tree with that rule broken.
build() {
    rm -rf "$copy"
    mkdir -p "$copy"
    git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents --target-directory "$copy"
    # The copy is no part of this repository, for git neither.
    (cd "$copy" && GIT_CEILING_DIRECTORIES="$(dirname "$copy")" git apply "$DEPLOY_DIR/mutants/$1.patch") ||
        die "the patch $1 does not fit any more" "make it anew: deploy/mutants/$1.patch"
    (cd "$copy" && RUSTFLAGS="--cfg tokio_unstable" "$DEPLOY_DIR/cargo.sh" build --quiet --locked --profile simulation \
        --target-dir "$target" -p aod-simulator) ||
        die "the tree does not build with $1" "make it anew: deploy/mutants/$1.patch"
}

# is_noticed: whether one of the seeds fails; names it.
is_noticed() {
    # A broken rule may keep a simulation from its end; what its others have found is told all the same.
    if timeout "$SECONDS_MAX" "$target/simulation/aod-simulate" "$SEEDS" >"$copy/seeds.log" 2>&1; then
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
say "all $# broken rules are noticed"
