#!/bin/sh
# Tests the SDK (sdk/test.sh) and the capsules: plain logic with the machine's own python3, then drawing, setting
# and the bridge in the images, which have the libraries. Nothing reaches the network while the tests run.
#
# Without Docker the second half cannot run: then that is said, and with CI=true it is a failure.
# Images are built from their directories unless AOD_CAPSULE_IMAGES=NAME is given: then
# NAME-chart, NAME-report and NAME-survey are used as they are.
set -eu
cd "$(dirname "$0")"

echo "capsules/sdk"
sdk/test.sh

for directory in chart report survey .; do
    echo "capsules/$directory: logic"
    (cd "$directory" && PYTHONDONTWRITEBYTECODE=1 python3 -m unittest discover -b -s tests)
done

if ! docker version >/dev/null 2>&1; then
    echo "NOT RUN: drawing, setting and the bridge are tested in the images, and Docker does not answer here" >&2
    if [ "${CI:-}" = true ]; then exit 1; else exit 0; fi
fi

# in_image CAPSULE TESTS: runs the tests in the directory TESTS as the orchestrator runs the capsule.
in_image() {
    image="${AOD_CAPSULE_IMAGES:-aod-capsule-test}-$1"
    [ -n "${AOD_CAPSULE_IMAGES:-}" ] || docker build --quiet --tag "$image" "$1" >/dev/null
    echo "capsules/$2: in the image of $1"
    docker run --rm --network none --read-only --user 65534:65534 --cap-drop ALL \
        --tmpfs /workspace:mode=1777 --env HOME=/workspace --env TMPDIR=/workspace \
        --env PYTHONDONTWRITEBYTECODE=1 --volume "$PWD/$2:/tests:ro" \
        --entrypoint python3 "$image" -m unittest discover -b -s /tests
}

in_image survey tests/in_image
in_image chart chart/tests/in_image
in_image report report/tests/in_image
