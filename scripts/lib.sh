# What the scripts that run kubectl share; to be sourced. The binary ($SKOPOS, or built now), a folder that goes when the script
# ends ($work), and a count of what held. A script names what it started in `pids`.
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ -z "${SKOPOS:-}" ]]; then
    cargo build --quiet --bin skopos
    SKOPOS="${CARGO_TARGET_DIR:-target}/debug/skopos"
fi
command -v kubectl >/dev/null || { echo "kubectl is not installed" >&2; exit 1; }

work=$(mktemp -d)
export KUBECACHEDIR="$work/cache" HOME="$work"
pids=()
cleanup() {
    local pid
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap cleanup EXIT

passed=0
failed=0

# verdict HELD NAME COMMAND WANTED OUTPUT: counts it, and shows what was printed if it did not hold.
verdict() {
    if [[ $1 == true ]]; then
        passed=$((passed + 1))
        printf 'ok      %s\n' "$2"
    else
        failed=$((failed + 1))
        printf 'FAILED  %s\n  $ %s\n  wanted: %s\n' "$2" "$3" "$4"
        sed -n '1,20s/^/  | /p' <<<"$5"
    fi
}

summary() {
    echo "$passed passed, $failed failed"
    [[ $failed -eq 0 ]]
}
