#!/bin/sh
# Counts the lines and words of a text, and sorts its lines.
set -eu

# The text is the only input file, so the script does not need its name from input.json.
for text in /io/input/*; do break; done

echo "sorting $text"
lines=$(wc -l <"$text")
words=$(wc -w <"$text")
sort "$text" >/io/output/sorted.txt

# Write and rename, so that the output is complete or missing.
printf '{"lines": %d, "words": %d, "sorted": "sorted.txt"}\n' "$lines" "$words" >/io/answer.part
mv /io/answer.part "$AOD_OUTPUT"
