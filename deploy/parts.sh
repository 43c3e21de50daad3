# shellcheck shell=bash
# Runs the parts of a check one after the other, each with its time, and prints a summary. To be sourced after lib.sh.

PARTS=()
PARTS_FAILED=0

# As root and in CI, a test that cannot run is a failure.
must_run_all() { is_root || [ "${CI:-}" = true ]; }

# part NAME COMMAND...: records a failure, and continues with the next part. The command must not rely on `set -e`
# before its last step, because it runs as a condition.
part() {
    local name=$1 began_seconds=$SECONDS result=passed
    shift
    say "==> $name"
    if ! "$@"; then
        result=FAILED
        PARTS_FAILED=$((PARTS_FAILED + 1))
    fi
    PARTS+=("$(printf '%-28s %-8s %5d s' "$name" "$result" "$((SECONDS - began_seconds))")")
    say "    $name: $result, $((SECONDS - began_seconds)) s"
}

# Prints the parts and the verdict, and returns it as status: the last line of a script.
summary() {
    say ""
    [ ${#PARTS[@]} -eq 0 ] || printf '    %s\n' "${PARTS[@]}" >&2
    if [ "$PARTS_FAILED" -gt 0 ]; then
        say "$PARTS_FAILED of ${#PARTS[@]} parts failed, after $SECONDS s"
        return 1
    fi
    say "all ${#PARTS[@]} parts passed in $SECONDS s"
}
