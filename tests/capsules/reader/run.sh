# shellcheck shell=dash
# The payload is one line, and no name in it has a quote.
file="/io/input/$(sed 's/.*"file":"\([^"]*\)".*/\1/' /io/input.json)"
head -c 64 "$file" >/io/output/beginning.txt
digest="$(sha256sum "$file" | cut -d ' ' -f 1)"
printf '{"digest": "%s", "size_bytes": %s, "beginning": "beginning.txt"}' \
    "$digest" "$(wc -c <"$file")" >/io/output.new
mv /io/output.new /io/output.json
