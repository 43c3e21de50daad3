#!/bin/sh
# Tests the SDK (sdk/test.sh) and the capsules: plain logic with the machine's own python3, then libraries and
# bridges in the images, which have them. Nothing reaches the network while the tests run.
#
# Without Docker the second half cannot run: then that is said, and with CI=true it is a failure.
# Images are built from their directories unless AOD_CAPSULE_IMAGES=NAME is given: then
# NAME-chart, NAME-report and so on are used as they are.
set -eu
cd "$(dirname "$0")"

echo "capsules/sdk"
sdk/test.sh

# What the logic needs of it, its errors, needs no library.
sdk="$PWD/sdk/src"
for directory in chart csv-query extract fan-out pdf-text report research summarize survey thumbnail .; do
    echo "capsules/$directory: logic"
    (cd "$directory" && PYTHONPATH="$sdk" PYTHONDONTWRITEBYTECODE=1 python3 -m unittest discover -b -s tests)
done

if ! docker version >/dev/null 2>&1; then
    echo "NOT RUN: libraries and bridges are tested in the images, and Docker does not answer here" >&2
    if [ "${CI:-}" = true ]; then exit 1; else exit 0; fi
fi

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# The wheel of the SDK, as `aod` adds it to the directories of capsules. It is made of a copy:
# setuptools leaves files beside what it packs.
make_wheel() {
    cp -R sdk "$work/sdk"
    python3 -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work/vendor" "$work/sdk"
}

# build CAPSULE IMAGE
build() {
    cp -R "$1" "$work/$1"
    cp -R "$work/vendor" "$work/$1/"
    docker build --quiet --tag "$2" "$work/$1" >/dev/null
}

# in_image CAPSULE TESTS: runs the tests in the directory TESTS as the orchestrator runs the capsule.
in_image() {
    image="${AOD_CAPSULE_IMAGES:-aod-capsule-test}-$1"
    [ -n "${AOD_CAPSULE_IMAGES:-}" ] || build "$1" "$image"
    echo "capsules/$2: in the image of $1"
    docker run --rm --network none --read-only --user 65534:65534 --cap-drop ALL \
        --tmpfs /workspace:mode=1777 --env HOME=/workspace --env TMPDIR=/workspace \
        --env PYTHONDONTWRITEBYTECODE=1 --volume "$PWD/$2:/tests:ro" \
        --entrypoint python3 "$image" -m unittest discover -b -s /tests
}

[ -n "${AOD_CAPSULE_IMAGES:-}" ] || make_wheel
for capsule in chart csv-query extract fan-out pdf-text report research summarize thumbnail; do
    in_image "$capsule" "$capsule/tests/in_image"
done
