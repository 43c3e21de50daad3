#!/bin/sh
# Writes a line before the bytes that it was given. Its first attempt takes the time it was told
# to, any further one does not: what a test lets die is not waited for again.
set -eu

table=$(sed -n 's/.*"table": *"\([^"]*\)".*/\1/p' "$AOD_INPUT")
seconds=$(sed -n 's/.*"seconds": *\([0-9]*\).*/\1/p' "$AOD_INPUT")

echo "attempt $AOD_ATTEMPT works on $table"
if [ "$AOD_ATTEMPT" = 1 ]; then sleep "$seconds"; fi
{ echo "made by the worker"; cat "/io/input/$table"; } >/io/output/made.bin
sha256=$(sha256sum "/io/input/$table" | cut -d ' ' -f 1)
cat >/io/output.json.new <<JSON
{"received_sha256": "$sha256", "made": "made.bin"}
JSON
mv /io/output.json.new "$AOD_OUTPUT"
