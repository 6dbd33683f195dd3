#!/usr/bin/env bash
# Shows that `skopos vc` handles virtual clusters as vcluster's own chart makes them: created with helm and from rendered manifests, listed, reached through
# the host, paused, resumed, upgraded and deleted without a trace, for each kind of control plane of the chart. Needs kubectl, jq, curl, Go, a built `skopos`, and helm or its module.
#
#   peers/suites/vcluster.sh                    on `skopos testserver --tls --workloads`
#   HELM=PATH SKOPOS=PATH BUILD_TIMEOUT=2m      the programs; how long helm may be built where it is not installed
#   VCLUSTER=v0.30.0                            the version of vcluster, whose Go module has the chart
#
# Ends with 77 if helm or the chart cannot be had. The test server's pods run nothing: the Secret that a virtual cluster writes is written here.
set -euo pipefail
cd "$(dirname "$0")"
source ./find-helm.sh
find_helm
VCLUSTER=${VCLUSTER:-v0.30.0}
module=$(timeout 2m go mod download -json "github.com/loft-sh/vcluster@$VCLUSTER" | jq -r '.Dir // empty') || true
if [[ -z ${module:-} ]]; then
    echo "SKIPPED: the module github.com/loft-sh/vcluster@$VCLUSTER with the chart is not there"
    exit 77
fi
source ./lib.sh
# `skopos vc` looks for it.
mkdir "$work/bin"
ln -s "$(realpath "$HELM")" "$work/bin/helm"
PATH=$work/bin:$PATH
# The chart has no version of its own before it is published.
cp -r "$module/chart" "$work/chart"
chmod -R u+w "$work/chart"
sed -i "s/^version: .*/version: ${VCLUSTER#v}/; s/^appVersion: .*/appVersion: ${VCLUSTER#v}/" "$work/chart/Chart.yaml"
export KUBECONFIG=$work/kubeconfig HOME=$work
"$SKOPOS" testserver --tls --workloads --kubeconfig-out "$KUBECONFIG" >"$work/testserver.log" 2>&1 &
pids+=($!)
await "$work/testserver.log" '^kubeconfig:' >/dev/null

vc() { "$SKOPOS" vc "$@"; }

authority=$(kubectl config view --raw -o 'jsonpath={.clusters[0].cluster.certificate-authority-data}')

# secret NAME: the kubeconfig Secret, as the virtual cluster writes it (pkg/setup/controllers.go).
secret() {
    kubectl -n "vcluster-$1" create secret generic "vc-$1" --from-literal=token= \
        --from-literal=config='{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"https://localhost:8443","certificate-authority-data":"'"$authority"'"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"current-context":"c","users":[{"name":"u","user":{"token":"t"}}]}' \
        --dry-run=client -o yaml | kubectl apply -f - >/dev/null
    kubectl -n "vcluster-$1" label --overwrite secret "vc-$1" app=vcluster "vcluster-name=$1" >/dev/null
}

# state NAME: what `skopos vc list` says of it.
state() { vc list -o json | jq -r --arg name "$1" '.[] | select(.name == $name) | "\(.status) \(.version)"'; }

# workloads NAME: the desired pods of its workloads, each once.
workloads() { kubectl -n "vcluster-$1" get statefulsets,deployments -o json | jq -rc '[.items[].spec.replicas] | unique'; }

# reached NAME: what `skopos vc connect` says once something connects to its port. Nothing listens in the test server's pods.
reached() {
    local url
    "$SKOPOS" vc connect "$1" >"$work/connect.log" 2>&1 &
    pids+=($!)
    url=$(await "$work/connect.log" ' is at https://')
    curl --silent --insecure --max-time 10 "$url" || true
    await "$work/connect.log" '^# a connection was closed' >/dev/null
    kill "${pids[-1]}"
    unset 'pids[-1]'
    cat "$work/connect.log"
}

# left NAME: what remains of it in the whole cluster; "nothing" if that is so.
left() {
    local kinds objects
    kinds=$(kubectl api-resources --verbs=list -o name | grep -vE '^(events|selfsubject|componentstatuses)' | paste -sd,)
    objects=$(kubectl get "$kinds" -A -o json | jq -r --arg name "$1" '.items[]
        | select(.metadata.namespace == "vcluster-" + $name or (.metadata.labels.release // "") == $name or .metadata.name == "vcluster-" + $name)
        | "\(.kind) \(.metadata.namespace)/\(.metadata.name)"') || return 1
    echo "${objects:-nothing}"
}

# lives NAME PODS: from an installed release to its deletion. PODS is the desired pods of its workloads.
lives() {
    local name=$1 pods=$2
    secret "$name"
    check 'it runs' "^Running ${VCLUSTER#v}\$" eventually "^Running" state "$name"
    check 'its pod is reached through the host' "error forwarding port 8443 to pod $name-" reached "$name"
    check 'it is paused' 'Paused|paused' vc pause "$name"
    check 'it is listed as paused' '^Paused ' state "$name"
    check 'no workload wants pods' '^\[0\]$' workloads "$name"
    check 'it is resumed' 'Running|resumed|up' vc resume "$name" --wait
    check 'its workloads are as before' "^\\[$pods\\]\$" workloads "$name"
}

# eventually PATTERN COMMAND...: waits until its output matches.
eventually() {
    local pattern=$1 output
    shift
    for _ in $(seq 100); do
        output=$("$@" 2>&1) || true
        if grep -Eq -- "$pattern" <<<"$output"; then break; fi
        sleep 0.2
    done
    echo "$output"
}

# gone NAME: deleted, without a trace.
gone() {
    check 'it has objects' '^(StatefulSet|Deployment) vcluster-' left "$1"
    check 'it is deleted' '.' vc delete "$1"
    check 'nothing is left of it' '^nothing$' eventually '^nothing$' left "$1"
}

number=0
for values in '{}' \
    '{"controlPlane":{"backingStore":{"etcd":{"deploy":{"enabled":true}}}}}' \
    '{"controlPlane":{"backingStore":{"etcd":{"deploy":{"enabled":true,"statefulSet":{"highAvailability":{"replicas":3}}}}},"statefulSet":{"highAvailability":{"replicas":3}}}}' \
    '{"rbac":{"clusterRole":{"enabled":true}},"sync":{"fromHost":{"nodes":{"enabled":true}}},"policies":{"resourceQuota":{"enabled":true},"limitRange":{"enabled":true},"networkPolicy":{"enabled":true}},"controlPlane":{"ingress":{"enabled":true}}}' \
    '{"controlPlane":{"backingStore":{"database":{"external":{"enabled":true,"dataSource":"mysql://db"}}}}}'; do
    number=$((number + 1))
    pods=1
    [[ $number != 3 ]] || pods=3
    echo "$values" >"$work/values.json"
    label="values $number, helm"
    check 'created' '.' vc create "made$number" --chart "$work/chart" -f "$work/values.json" --no-wait
    lives "made$number" "$pods"
    check 'changed' '.' vc create "made$number" --upgrade --chart "$work/chart" -f "$work/values.json" --set controlPlane.advanced.defaultImageRegistry=registry.example/ --no-wait
    check 'its image is another' 'registry.example/' kubectl -n "vcluster-made$number" get statefulsets,deployments -l app=vcluster -o json
    gone "made$number"
    label="values $number, manifests"
    "$HELM" template "plain$number" "$work/chart" --namespace "vcluster-plain$number" -f "$work/values.json" >"$work/manifests.yaml"
    check 'created' '.' vc create "plain$number" --manifests "$work/manifests.yaml" --no-wait
    lives "plain$number" "$pods"
    gone "plain$number"
done
echo "skopos vc handles what vcluster's chart makes"
