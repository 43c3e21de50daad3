#!/bin/sh
# Makes a file: the one that it was given and a line more, or one of its own. Hands it to the next relay, if there is one.
set -eu

number() {
    sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$AOD_INPUT"
}

level=$(number level)
megabytes=$(number megabytes)
sleep "$(number pause)"
made=/io/handoff/outgoing/data.bin
if [ -f /io/input/data.bin ]; then
    cat /io/input/data.bin >"$made"
    echo "level $level" >>"$made"
else
    head -c "$((megabytes * 1000000))" /dev/urandom >"$made"
fi
bytes=$(wc -c <"$made")
if [ "$level" -gt 0 ]; then
    wget -q -O /workspace/answer.json --header 'Content-Type: application/json' \
        --post-data "{\"target\": \"relay\", \"args\": {\"level\": $((level - 1)), \"megabytes\": $megabytes, \"data\": \"data.bin\"}}" \
        "$ORCHESTRATOR_URL/handoff"
    grep -q '"success": *true' /workspace/answer.json
fi
echo "{\"bytes\": $bytes}" >/io/output.json.new
mv /io/output.json.new "$AOD_OUTPUT"
