#!/usr/bin/env bash
# Runs the commands that `skopos demo` prints, as they are printed, with the real kubectl, and checks what they print.
#
#   scripts/fleet-kubectl.sh           builds skopos and runs everything
#   SKOPOS=path scripts/fleet-kubectl.sh     uses that binary instead
set -euo pipefail
source "$(dirname "$0")/lib.sh"
export TMPDIR="$work"

# matches NAME COMMAND WANTED OUTPUT: whether the output matches the extended regular expression.
matches() {
    local held=false
    if grep -Eq -- "$3" <<<"$4"; then held=true; fi
    verdict "$held" "$@"
}

# check NAME PATTERN COMMAND: what the command, a line of shell, prints.
check() { matches "$1" "$3" "$2" "$(bash -c "$3" 2>&1)"; }

# soon NAME PATTERN COMMAND: the same, within 45 s: discovery may be 30 s old.
soon() {
    local until=$((SECONDS + 45)) output
    while output=$(bash -c "$3" 2>&1); ! grep -Eq -- "$2" <<<"$output"; do
        ((SECONDS < until)) || break
    done
    matches "$1" "$3" "$2" "$output"
}

# watched NAME PATTERN: a line that the watch prints, within 30 s.
watched() {
    local line seen=
    while read -r -t 30 -u 9 line; do
        seen+="$line"$'\n'
        printf '%s\n' "$line" >>"$work/seen"
        [[ ! $line =~ $2 ]] || break
    done
    matches "$1" "${tries[2]}" "$2" "$seen"
}

mkfifo "$work/out" "$work/watch"
# Nothing but what is done here takes pods away: what the watch says of them can be judged.
"$SKOPOS" demo --lines --port 0 --churn 0 >"$work/out" 2>&1 &
demo=$!
pids+=("$demo")
exec 8<"$work/out"
tries=()
while read -r -t 120 -u 8 line; do
    case $line in
        export* | kubectl* | curl* | */skopos* | skopos*) tries+=("$line") ;;
        *'everything is in memory'*) break ;;
        error*) echo "$line" >&2; exit 1 ;;
    esac
done
# What it says from now on is read, so that it can go on.
cat <&8 >"$work/log" &

[[ ${#tries[@]} -eq 8 ]] || { printf 'not the commands that this script knows:\n'; printf '  %s\n' "${tries[@]}"; exit 1; }
eval "${tries[0]}"
back=${tries[3]/--replicas=0/--replicas=1}

check 'one list of all clusters' '^NAMESPACE +CLUSTER +NAME +READY' "${tries[1]}"
for cluster in host berlin lima oslo tokyo; do
    check "with the pods of $cluster" "^\S+ +$cluster[. ].* Running" "${tries[1]}"
done

bash -c "exec ${tries[2]%%#*} --output-watch-events" >"$work/watch" 2>&1 &
pids+=("$!")
exec 9<"$work/watch"
watched 'one watch of all clusters' '^ADDED +shop +tokyo'

cat >"$work/boats.json" <<'JSON'
{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "boats.sea.example"},
 "spec": {"group": "sea.example", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat", "shortNames": ["bt"]},
  "versions": [{"name": "v1", "served": true, "storage": true,
   "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
   "additionalPrinterColumns": [{"name": "Sails", "type": "integer", "jsonPath": ".spec.sails"}]}]}}
JSON
cat >"$work/ark.json" <<'JSON'
{"apiVersion": "sea.example/v1", "kind": "Boat", "metadata": {"namespace": "default", "name": "ark"}, "spec": {"sails": 3}}
JSON
check 'define a kind in one cluster' 'created' "kubectl --context lima create --validate=false -f $work/boats.json"
soon 'make one of it' 'created' "kubectl --context lima create --validate=false -f $work/ark.json"
soon 'it is a kind of all clusters' '^boats +bt +sea.example/v1 +true +Boat' 'kubectl --context fleet api-resources'
soon 'shown in its own columns' '^default +lima\S* +ark +3' 'kubectl --context fleet get boats.sea.example -A'
soon 'and explained' '^KIND: +Boat' 'kubectl --context fleet explain boats.sea.example'

check 'scale one to zero, by way of the gateway' 'scaled' "${tries[3]}"
soon 'its list is from memory, with a warning' '^Warning: .*(paused|scaled to zero|old)' "${tries[4]}"
check 'its pods are still there' '^shop +cart' "${tries[4]}"
soon 'status tells why' '^berlin\S* +paused .*scaled to zero' "${tries[7]}"
check 'the list of all still has it' '^shop +berlin.* cart' "${tries[1]}"
check 'scale it up again' 'scaled' "$back"
soon 'it is live again' '^berlin\S* +live ' "${tries[7]}"

check 'pause with skopos vc' 'lima .*paused' "${tries[5]}"
soon 'status tells that it was the vcluster CLI' '^lima\S* +paused .*vcluster CLI' "${tries[7]}"
check 'resume with skopos vc' 'lima .*resumed' "${tries[5]/vc pause/vc resume}"
soon 'it is live again' '^lima\S* +live ' "${tries[7]}"

check 'pause by REST' '"operation":"pause"' "${tries[6]}"
soon 'status tells it' '^oslo\S* +paused ' "${tries[7]}"
soon 'resume by REST' '"operation":"resume"' "${tries[6]/\/pause/\/resume}"
soon 'it is live again' '^oslo\S* +live ' "${tries[7]}"

# After all that the watch still runs, and has a change of a cluster that was away.
check 'scale something in it' 'scaled' 'kubectl --context berlin scale deployment/cart -n shop --replicas=5'
watched 'the watch has the new pod' '^ADDED +shop +berlin.* cart-.* (Pending|ContainerCreating|Running)'
matches 'and saw nothing go in the clusters that were away' "${tries[2]}" '^$' "$(grep -E '^DELETED +shop ' "$work/seen" || true)"

kill -INT "$demo"
ended=$SECONDS
wait "$demo" && status=0 || status=$?
matches 'Ctrl-C ends it in bounded time' 'kill -INT' '^ended 0 1$' "ended $status $((SECONDS - ended <= 5))"
summary
