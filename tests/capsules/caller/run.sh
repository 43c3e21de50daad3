#!/bin/sh
# Hands its file to the worker, waits, and gives back the file that the worker made.
set -eu

table=$(sed -n 's/.*"table": *"\([^"]*\)".*/\1/p' "$AOD_INPUT")
seconds=$(sed -n 's/.*"seconds": *\([0-9]*\).*/\1/p' "$AOD_INPUT")

cp "/io/input/$table" "/io/handoff/outgoing/$table"
echo "attempt $AOD_ATTEMPT hands $table over"
# The first bytes come at once, the last when the worker has ended.
wget -q -O /workspace/answer.json --header 'Content-Type: application/json' \
    --post-data "{\"target\": \"Worker\", \"args\": {\"table\": \"$table\", \"seconds\": $seconds}}" \
    "$ORCHESTRATOR_URL/handoff"
answer=$(cat /workspace/answer.json)
echo "the answer: $answer"
returned=$(echo "$answer" | sed -n 's/.*"made": *"\([^"]*\)".*/\1/p')
cp "/io/handoff/incoming/$returned" "/io/output/$returned"
sha256=$(sha256sum "/io/output/$returned" | cut -d ' ' -f 1)
cat >/io/output.json.new <<JSON
{"returned": "$returned", "returned_sha256": "$sha256",
 "answer": $(echo "$answer" | sed -n 's/.*"output": *\({[^}]*}\).*/\1/p')}
JSON
mv /io/output.json.new "$AOD_OUTPUT"
