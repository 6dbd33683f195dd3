#!/usr/bin/env bash
# Shows that kubectl works against `skopos testserver`: every command that people use daily, each checked by what it prints.
#
#   scripts/kubectl.sh            builds skopos and runs everything, over TLS and then over plain HTTP
#   SKOPOS=path scripts/kubectl.sh     uses that binary instead
set -euo pipefail
source "$(dirname "$0")/lib.sh"
export KUBECONFIG="$work/kubeconfig"

# check NAME PATTERN COMMAND...: the command succeeds, and its output matches the extended regular expression.
check() {
    local name=$1 pattern=$2 output held=false
    shift 2
    if output=$("$@" 2>&1) && grep -Eq -- "$pattern" <<<"$output"; then held=true; fi
    verdict "$held" "$name" "$*" "$pattern" "$output"
}

# refuse NAME PATTERN COMMAND...: the command fails, and says so in these words.
refuse() {
    local name=$1 pattern=$2 output held=false
    shift 2
    if ! output=$("$@" 2>&1) && grep -Eq -- "$pattern" <<<"$output"; then held=true; fi
    verdict "$held" "$name" "$*" "a failure: $pattern" "$output"
}

k() { kubectl "$@"; }
count() { k "$@" -o name | wc -l; }

start() {
    local out="$work/out"
    rm -f "$out" "$KUBECONFIG"
    mkfifo "$out"
    "$SKOPOS" testserver --objects 600 --workloads --kubeconfig-out "$KUBECONFIG" "$@" >"$out" &
    pids=($!)
    local line
    while read -r line; do
        [[ $line != kubeconfig:* ]] || break
    done <"$out"
}

stop() {
    kill "${pids[0]}"
    wait "${pids[0]}" || true
    pids=()
}

reading() {
    check 'version' 'Server Version: v1\.' k version
    check 'cluster-info' 'is running at' k cluster-info
    check 'api-resources' '^deployments +deploy +apps/v1 +true +Deployment' k api-resources
    check 'api-resources of a group' '^leases ' k api-resources --api-group=coordination.k8s.io
    check 'api-versions' '^apps/v1$' k api-versions
    check 'get as a table' '^NAME +READY +STATUS +RESTARTS +AGE' k get pods -n team-00
    check 'get all namespaces' '^NAMESPACE +NAME +READY' k get po -A
    check 'get -o wide' ' NODE ' k get pods -n team-00 -o wide
    check 'get -o yaml' '^  kind: Pod$|^kind: List$' k get pods -n team-00 -o yaml
    check 'get -o json' '"kind": "List"' k get pods -n team-00 -o json
    check 'get in chunks' '^600$' count get pods -A --chunk-size=100
    check 'get without chunks' '^600$' count get pods -A --chunk-size=0
    check 'get by label' '^pod/' k get pods -A -l tier=frontend -o name
    check 'get by set of labels' '^pod/' k get pods -A -l 'tier in (frontend,worker),tier!=worker' -o name
    check 'get by field' '^[1-9]' count get pods -A --field-selector status.phase=Running
    check 'get nothing' 'No resources found in default namespace' k get pods
    check 'get --show-labels' 'tier=' k get pods -n team-00 --show-labels
    check 'get --sort-by' '^NAME ' k get pods -n team-00 --sort-by=.metadata.name
    check 'get with jsonpath' '^[1-9][0-9]*$' k get ns default -o 'jsonpath={.metadata.resourceVersion}'
    check 'get with columns' '^NAME +NODE' k get pods -n team-00 -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName
    check 'get --raw' '"major"' k get --raw /version
    check 'describe' '^Containers:' k describe pods -n team-00
    check 'explain' 'replicas' k explain deployment.spec
    check 'explain a field' 'FIELD: replicas' k explain deployments.spec.replicas
    refuse 'get what is not there' 'pods "nobody" not found' k get pod nobody
    refuse 'get an unknown resource' "doesn't have a resource type" k get nonsense
}

writing() {
    check 'create a namespace' 'namespace/shop created' k create namespace shop
    refuse 'create it again' 'already exists' k create namespace shop
    check 'create a configmap' 'configmap/settings created' k create configmap settings -n shop --from-literal=colour=blue
    check 'create a secret' 'secret/key created' k create secret generic key -n shop --from-literal=password=x
    deployment 2 >"$work/web.yaml"
    check 'apply --dry-run=server' 'created \(server dry run\)' k apply --dry-run=server -f "$work/web.yaml"
    check 'apply' 'deployment.apps/web created' k apply -f "$work/web.yaml"
    check 'apply again' 'deployment.apps/web unchanged' k apply -f "$work/web.yaml"
    deployment 3 >"$work/web.yaml"
    check 'diff' '\+ +replicas: 3' differences k diff -f "$work/web.yaml"
    check 'apply a change' 'deployment.apps/web configured' k apply -f "$work/web.yaml"
    check 'apply --server-side' 'serverside-applied' k apply --server-side --force-conflicts -f "$work/web.yaml"
    check 'wait for a condition' 'condition met' k wait -n shop --for=condition=Available deployment/web --timeout=60s
    check 'rollout status' 'successfully rolled out' k rollout status -n shop deployment/web --timeout=60s
    check 'its pods' '^3$' count get pods -n shop -l app=web
    check 'patch, strategic' 'deployment.apps/web patched' \
        k patch -n shop deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:2"}]}}}}'
    check 'the patch merged by name' '^web:2$' \
        k get -n shop deployment web -o 'jsonpath={.spec.template.spec.containers[*].image}'
    check 'patch, merge' 'configmap/settings patched' k patch -n shop configmap settings --type=merge -p '{"data":{"size":"5"}}'
    check 'patch, JSON' 'configmap/settings patched' \
        k patch -n shop configmap settings --type=json -p '[{"op":"replace","path":"/data/colour","value":"red"}]'
    check 'both patches hold' '^red 5$' k get -n shop configmap settings -o 'jsonpath={.data.colour} {.data.size}'
    check 'edit' 'configmap/settings edited' env "KUBE_EDITOR=sed -i s/colour:.red/colour:\\ green/" kubectl edit -n shop configmap settings
    check 'the edit holds' '^green$' k get -n shop configmap settings -o 'jsonpath={.data.colour}'
    check 'set image' 'image updated' k set image -n shop deployment/web web=web:3
    check 'label' 'configmap/settings labeled' k label -n shop configmap settings tier=test
    check 'annotate' 'configmap/settings annotated' k annotate -n shop configmap settings note=hello
    check 'they are found by it' '^configmap/settings$' k get configmaps -n shop -l tier=test -o name
    check 'scale' 'deployment.apps/web scaled' k scale -n shop deployment/web --replicas=1
    check 'wait for a value' 'condition met' \
        k wait -n shop --for=jsonpath='{.status.readyReplicas}'=1 deployment/web --timeout=60s
    check 'replace' 'replaced' replace_settings
    check 'delete' 'configmap "settings" deleted' k delete configmap settings -n shop
    check 'delete and wait' 'deployment.apps "web" deleted' k delete -f "$work/web.yaml" --wait --timeout=60s
    refuse 'it is gone' 'not found' k get -n shop deployment web
    check 'delete a pod' 'deleted' k delete -n team-01 --now "$(k get pods -n team-01 -o name | head -1)"
    check 'delete by label' 'deleted' k delete pods -n team-02 -l tier --now
    check 'none is left of them' '^0$' count get pods -n team-02 -l tier
}

custom() {
    crd >"$work/crd.yaml"
    check 'create a CRD' 'customresourcedefinition.apiextensions.k8s.io/widgets.example.com created' k apply -f "$work/crd.yaml"
    check 'wait until it is served' 'condition met' k wait --for=condition=Established crd/widgets.example.com --timeout=30s
    check 'create an object of it' 'widget.example.com/one created' widget
    check 'get it by its short name' '^NAME +SIZE' k get wd
    check 'explain it' 'size' k explain widgets.spec
    check 'patch it' 'patched' k patch widget one --type=merge -p '{"spec":{"size":7}}'
    check 'get its column' '^one +7' k get widgets
    check 'delete the CRD' 'deleted' k delete crd widgets.example.com --timeout=60s
    refuse 'and its resource is gone' "doesn't have a resource type|could not find the requested resource" k get widgets
}

watching() {
    local out="$work/watch"
    mkfifo "$out"
    timeout 60 kubectl get configmaps -n shop -w --output-watch-events >"$out" 2>&1 &
    local watch=$!
    exec 9<"$out"
    k create configmap watched -n shop >/dev/null
    check 'get -w sees a creation' '^ADDED +watched' read_until watched
    k delete configmap watched -n shop >/dev/null
    check 'get -w sees a deletion' '^DELETED +watched' read_until DELETED
    kill "$watch" 2>/dev/null || true
    wait "$watch" 2>/dev/null || true
    exec 9<&-
    rm -f "$out"
}

read_until() {
    local line
    while read -r -t 30 -u 9 line; do
        if [[ $line == *$1* ]]; then
            echo "$line"
            return
        fi
    done
    return 1
}

# `kubectl diff` exits with 1 when there is a difference, which here is what we want.
differences() { "$@" || [[ $? -eq 1 ]]; }

replace_settings() {
    k get -n shop configmap settings -o json | sed 's/"green"/"black"/' | k replace -f -
}

widget() {
    k create -f - <<'YAML'
apiVersion: example.com/v1
kind: Widget
metadata: {name: one}
spec: {size: 3}
YAML
}

deployment() {
    cat <<YAML
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: $1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "web:1", ports: [{containerPort: 80}]}
YAML
}

crd() {
    cat <<'YAML'
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, description: How large it is.}
YAML
}

for flags in --tls ''; do
    echo "=== kubectl $(kubectl version --client -o json | sed -n 's/.*"gitVersion": "\(.*\)".*/\1/p') against skopos testserver $flags"
    # shellcheck disable=SC2086
    start $flags
    reading
    writing
    watching
    custom
    stop
done
summary
