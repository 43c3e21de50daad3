#!/bin/sh
# Adds a line to a text and hands it to `node`; what comes back is the answer.
set -eu

text=$(jq --raw-output .text "$AOD_INPUT")
{ cat "/io/input/$text"; echo "shell"; } >"/io/handoff/outgoing/$text"
jq --null-input --arg text "$text" '{target: "node", args: {text: $text}}' |
    curl --silent --show-error --fail-with-body --header 'Content-Type: application/json' --data @- "$AOD_URL/handoff" >/workspace/answer.json
made=$(jq --exit-status --raw-output 'select(.success).output.text' /workspace/answer.json)
cp "/io/handoff/incoming/$made" "/io/output/$made"
jq '{text: .output.text, makers: (.output.makers + ["shell"])}' /workspace/answer.json >/io/output.new
mv /io/output.new "$AOD_OUTPUT"
