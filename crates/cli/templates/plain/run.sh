#!/bin/sh
# Counts the lines and words of a text and puts its lines in order.
set -eu

# The text is the only input file, so its name need not be looked up in input.json.
for text in /io/input/*; do break; done

echo "sorting $text"
lines=$(wc -l <"$text")
words=$(wc -w <"$text")
sort "$text" >/io/output/sorted.txt

# Written under another name and renamed: then there is all of the answer or nothing.
printf '{"lines": %d, "words": %d, "sorted": "sorted.txt"}\n' "$lines" "$words" >/io/answer.part
mv /io/answer.part "$AOD_OUTPUT"
