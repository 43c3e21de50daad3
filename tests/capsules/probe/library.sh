# shellcheck shell=dash disable=SC2034 # the scripts that read this use what is here
# What scripts of tests have in common: how they answer, and how they ask their orchestrator.

# Where files for a callee lie.
OUTGOING=/io/handoff/outgoing

# Makes what comes in the capsule's answer, whole or not at all.
answer() {
    cat >/io/output.new && mv /io/output.new /io/output.json
}

# ask METHOD PATH [FILE]: sends one request, with FILE as its JSON, and prints what comes back:
# {"status": …, "type": …, "answer": …}.
ask() {
    exchange="$(mktemp -d /workspace/ask.XXXXXX)"
    body="${3:-/dev/null}"
    mkfifo "$exchange/request"
    # Both ends stay open: a client that closes its own is one that no longer wants the answer.
    exec 3<>"$exchange/request"
    nc 127.0.0.1 8700 <"$exchange/request" >"$exchange/response" &
    {
        printf '%s %s HTTP/1.0\r\nHost: capsule\r\nContent-Type: application/json\r\n' "$1" "$2"
        printf 'Content-Length: %d\r\n\r\n' "$(wc -c <"$body")"
        cat "$body"
    } >"$exchange/request"
    wait $!
    status="$(head -n 1 "$exchange/response" | cut -d ' ' -f 2)"
    type="$(sed -n 's/^content-type: \(.*\)\r$/\1/p' "$exchange/response" | head -n 1)"
    printf '{"status": %s, "type": "%s", "answer": ' "${status:-0}" "$type"
    sed '1,/^\r$/d' "$exchange/response" | grep . || printf null
    printf '}'
}

# call TARGET ARGUMENTS: hands over, both as they stand in JSON.
call() {
    request="$(mktemp /workspace/call.XXXXXX)"
    printf '{"target": "%s", "args": %s}' "$1" "$2" >"$request"
    ask POST /handoff "$request"
}

# many COUNT TEXT: a JSON list of so many times the same text.
many() {
    printf '["%s"' "$2"
    yes ",\"$2\"" | head -n "$(($1 - 1))" | tr -d '\n'
    printf ']'
}

# letters COUNT: so many letters.
letters() {
    head -c "$1" /dev/zero | tr '\0' 'A'
}
