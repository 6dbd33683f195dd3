#!/usr/bin/env bash
# Runs the commands of docs/start/kubeconfigs.md, in order, and checks what a reader is to see. Prints the time taken.
#
#   scripts/start-kubectl.sh           builds skopos and runs everything
#   SKOPOS=path scripts/start-kubectl.sh     uses that binary instead
set -euo pipefail
source "$(dirname "$0")/lib.sh"

page=$PWD/docs/start/kubeconfigs.md
mkdir "$work/bin"
ln -s "$(realpath "$SKOPOS")" "$work/bin/skopos"
export PATH="$work/bin:$PATH"
cd "$work"

# Port 8001 of the page may be in use here.
port=$((20000 + RANDOM % 10000))
server="http://127.0.0.1:$port"

# in_background LINE FILE: starts a command that runs until it is stopped, and waits for what it writes first.
in_background() {
    bash -c "exec $1" >>"$work/out" 2>&1 &
    pids+=($!)
    for _ in $(seq 300); do
        ! { [[ -s $2 ]] && { [[ $2 != "$work/out" ]] || grep -q "$3" "$2"; }; } || return 0
        sleep 0.1
    done
    verdict false "starts" "$1" "$2" "$(cat "$work/out")"
}

# runs LINE: runs a command, and keeps its output in `output`.
runs() {
    local held=true
    output=$(bash -c "$1" </dev/null 2>&1) || held=false
    verdict "$held" "$1" "$1" "success" "$output"
}

# shows PATTERN TIMES: whether so many lines of `output` match.
shows() {
    local held=false
    [[ $(grep -Ec -- "$1" <<<"$output" || true) -ne $2 ]] || held=true
    verdict "$held" "shows $1" "" "$2 lines" "$output"
}

begun=$SECONDS
lost=false
while read -r line; do
    line=${line//http:\/\/127.0.0.1:8001/$server}
    case $line in
    "skopos testserver "*) in_background "$line" "${line##* }" ;;
    "skopos serve "*) in_background "$line --listen :$port" "$work/out" "clusters: " ;;
    "skopos status"*)
        runs "$line --server $server"
        if $lost; then shows '^tokyo +unreachable' 1; else shows ' live ' 3; fi
        ;;
    "kubectl --server $server/fleet get pods -A")
        # The page says so: stop tokyo before the second list.
        if [[ -n ${listed:-} ]] && ! $lost; then
            lost=true
            kill "${pids[1]}"
            wait "${pids[1]}" 2>/dev/null || true
            sleep 6
        fi
        listed=true
        runs "$line"
        shows '^team-' 60
        if $lost; then shows '^Warning: .*tokyo' 1; fi
        ;;
    *) runs "$line" ;;
    esac
done < <(awk '/^```console/ { on = 1; next } /^```/ { on = 0 } on' "$page")
verdict "$lost" "the page loses a cluster" "$page" "a second list of the fleet" ""
echo "$((SECONDS - begun)) s"
summary
