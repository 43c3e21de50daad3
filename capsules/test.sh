#!/bin/sh
# Tests the SDK (sdk/test.sh) and the capsules: logic with this machine's python3, then libraries and bridges in the
# images. The tests do not use the network.
#
# Without Docker, the second half is skipped with a message; with CI=true that is a failure. Builds the images from
# their directories, unless AOD_CAPSULE_IMAGES=NAME is set: then uses NAME-chart, NAME-report and so on.
set -eu
cd "$(dirname "$0")"

echo "capsules/sdk"
sdk/test.sh

# The logic only uses the SDK's errors, which need no library.
sdk="$PWD/sdk/src"
for directory in chart csv-query extract fan-out pdf-text report research summarize survey thumbnail .; do
    echo "capsules/$directory: logic"
    (cd "$directory" && PYTHONPATH="$sdk" PYTHONDONTWRITEBYTECODE=1 python3 -m unittest discover -b -s tests)
done

if ! docker version >/dev/null 2>&1; then
    echo "NOT RUN: tests of libraries and bridges need Docker, which does not answer" >&2
    if [ "${CI:-}" = true ]; then exit 1; else exit 0; fi
fi

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# The wheel of the SDK that `aod` adds to the directories of capsules: with the same bytes, Docker builds each layer once
# for these tests and for all builds of `aod`.
make_wheel() {
    mkdir "$work/vendor"
    ../deploy/cargo.sh test --quiet --locked --workspace --no-run --message-format json >"$work/messages"
    python3 - "$work/messages" "$work/vendor" <<'END'
import json, pathlib, shutil, sys

messages = map(json.loads, open(sys.argv[1]))
[output] = [m["out_dir"] for m in messages if m["reason"] == "build-script-executed" and "aod-kit" in m["package_id"]]
[wheel] = pathlib.Path(output).glob("aod_capsule-*.whl")
shutil.copy(wheel, sys.argv[2])
END
}

images="${AOD_CAPSULE_IMAGES:-aod-capsule-test}"

# build CAPSULE...
build() {
    for capsule in "$@"; do
        cp -R "$capsule" "$work/$capsule" &&
            cp -R "$work/vendor" "$work/$capsule/" &&
            docker build --quiet --tag "$images-$capsule" "$work/$capsule" >/dev/null || return 1
    done
}

# in_image CAPSULE TESTS: runs the tests in the directory TESTS in the image of the capsule, as the orchestrator does.
in_image() {
    echo "capsules/$2: in the image of $1"
    docker run --rm --network none --read-only --user 65534:65534 --cap-drop ALL \
        --tmpfs /workspace:mode=1777 --env HOME=/workspace --env TMPDIR=/workspace \
        --env PYTHONDONTWRITEBYTECODE=1 --volume "$PWD/$2:/tests:ro" \
        --entrypoint python3 "$images-$1" -m unittest discover -b -s /tests
}

if [ -z "${AOD_CAPSULE_IMAGES:-}" ]; then
    make_wheel
    # Two at a time. Capsules with equal layers come one after the other: only the first builds them.
    build chart csv-query report thumbnail &
    build extract research summarize fan-out pdf-text
    wait $!
fi
for capsule in chart csv-query extract fan-out pdf-text report research summarize thumbnail; do
    in_image "$capsule" "$capsule/tests/in_image"
done
