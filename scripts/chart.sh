#!/usr/bin/env bash
# Tests the Helm chart charts/skopos: its generated files, helm lint, the rendered manifests beside the recorded ones, values that must be refused,
# a release on `skopos testserver` from install to uninstall, a strict server-side dry run, and the real programs with the rendered configuration.
#
#   scripts/chart.sh                builds skopos and runs everything
#   scripts/chart.sh SKOPOS         uses that binary instead
#   scripts/chart.sh --write [SKOPOS]     writes the generated files and the recorded manifests, and runs nothing
#   HELM=PATH BUILD_TIMEOUT=2m      the program helm; how long it may be built where it is not installed
#
# Needs kubectl, jq, openssl, curl, and helm or Go. Ends with 77 if helm cannot be had.
set -euo pipefail
write=false
if [[ ${1:-} == --write ]]; then
    write=true
    shift
fi
if [[ -n ${1:-} ]]; then SKOPOS=$(realpath "$1"); fi
for program in jq openssl curl; do
    command -v "$program" >/dev/null || { echo "$program is not installed" >&2; exit 1; }
done
# Before lib.sh, which sets HOME: Go has its modules there.
source "$(dirname "$0")/../peers/suites/find-helm.sh"
find_helm
source "$(dirname "$0")/lib.sh"
SKOPOS=$(realpath "$SKOPOS")
export SKOPOS KUBECONFIG="$work/kubeconfig"
chart=charts/skopos
# Files of the repository that are in the chart, because a chart cannot reach beyond its folder.
copies=(crates/skopos-gateway/alerts.yaml=files/gateway-alerts.yaml crates/skopos-notify/alerts.yaml=files/notify-alerts.yaml)

# check NAME PATTERN COMMAND...: the command succeeds, and its output matches the extended regular expression.
check() {
    local name=$1 pattern=$2 output held=false
    shift 2
    if output=$("$@" 2>&1) && grep -Eq -- "$pattern" <<<"$output"; then held=true; fi
    verdict "$held" "$name" "$*" "$pattern" "$output"
}

# same NAME EXPECTED ACTUAL: two files are equal.
same() {
    local output held=false
    if output=$(diff -u "$2" "$3" 2>&1); then held=true; fi
    verdict "$held" "$1" "diff $2 $3" "no difference (after an intended change: scripts/chart.sh --write)" "$output"
}

k() { kubectl "$@"; }

# render RELEASE ARGUMENTS...: the manifests, as helm sends them.
render() { "$HELM" template "$1" "$chart" --namespace skopos "${@:2}"; }

# recorded NAME: the manifests of a file of values. Without a made certificate, and without the rules and dashboards, which are compared with
# their sources.
recorded() {
    render skopos --values "$chart/ci/$1-values.yaml" | sed -E 's/^(  (ca\.crt|tls\.crt|tls\.key): ).{100,}$/\1TUFERQ==/' | awk '
        /^---/ { kind = ""; name = ""; cut = 0 }
        /^kind:/ { kind = $2 }
        /^  name:/ && name == "" { name = $2 }
        cut && /^[^ ]/ { cut = 0 }
        !cut { print }
        (kind == "PrometheusRule" && /^spec:/) || (name ~ /-dashboards$/ && /^data:/) { cut = 1 }'
}

values() { basename -a -s -values.yaml "$chart"/ci/*-values.yaml; }

generated() {
    scripts/chart-schema.sh >"$work/schema.json"
    same 'the schema is that of the program' "$chart/values.schema.json" "$work/schema.json"
    local copy
    for copy in "${copies[@]}"; do
        same "${copy#*=} is ${copy%=*}" "${copy%=*}" "$chart/${copy#*=}"
    done
    check 'appVersion is the version of the workspace' '^same$' same_version
    check 'the table of values in README.md has every value' '^all$' every_value_is_in_the_readme
}

same_version() {
    local version
    version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
    if grep -qx "appVersion: \"$version\"" "$chart/Chart.yaml"; then echo same; else echo "the workspace has $version"; fi
}

every_value_is_in_the_readme() {
    local value missing=()
    # The names of the schema, down to its free maps and to the definitions of the programs.
    while read -r value; do
        grep -qF "\`$value\`" "$chart/README.md" || missing+=("$value")
    done < <(jq -r '
        . as $schema
        | def names($at; $of):
            if $of."$ref" then
              ($of."$ref" | ltrimstr("#/$defs/")) as $name
              | if ($name | test("Config$")) then $at else names($at; $schema."$defs"[$name]) end
            elif $of.properties then $of.properties | to_entries[] | names(if $at == "" then .key else "\($at).\(.key)" end; .value)
            else $at end;
        names(""; .) | select(. != "global") | sub("issuerRef.*"; "issuerRef")' "$chart/values.schema.base.json")
    if [[ ${#missing[@]} -eq 0 ]]; then echo all; else printf '%s\n' "${missing[@]}"; fi
}

rendered() {
    local name
    check 'lint: the default values' '0 chart\(s\) failed' "$HELM" lint --strict "$chart"
    for name in $(values); do
        check "lint: $name" '0 chart\(s\) failed' "$HELM" lint --strict "$chart" --values "$chart/ci/$name-values.yaml"
        recorded "$name" >"$work/$name.yaml" 2>&1 || true
        same "the manifests of $name are the recorded ones" "$chart/ci/golden/$name.yaml" "$work/$name.yaml"
    done
    for name in "$chart"/ci/golden/*.yaml; do
        name=$(basename -s .yaml "$name")
        [[ -f $chart/ci/$name-values.yaml ]] || verdict false "ci/golden/$name.yaml" ls "ci/$name-values.yaml" 'a file of values'
    done
    # A complete configuration of each program is a valid value.
    for name in gateway notify; do
        { echo "$name:"; echo "  config:"; sed 's/^/    /' "docs/reference/$name.example.yaml"; } >"$work/example.yaml"
        [[ $name == gateway ]] || printf '  enabled: true\n  ipvs: {enabled: true}\n' >>"$work/example.yaml"
        sed -i 's/127.0.0.1:9911/0.0.0.0:9911/' "$work/example.yaml"
        check "docs/reference/$name.example.yaml is a valid $name.config" '^kind: ConfigMap' render skopos --values "$work/example.yaml"
    done
}

# refuse NAME PATTERN VALUES: these values are refused, and the message matches.
refuse() {
    local output held=false
    if ! output=$(render skopos --values - <<<"$3" 2>&1) && grep -Eq -- "$2" <<<"$output"; then held=true; fi
    verdict "$held" "refused: $1" "helm template --values - <<<'$3'" "a failure: $2" "$output"
}

refused() {
    local oidc='authentication: {oidc: {issuer: "https://id", audiences: [a]}}' files='clusters: {kubeconfigs: [{path: /k}]}'
    local dns='{name: zone, dns: {zone: z, server: "1.2.3.4:53"}, from: [{services: {}}]}'
    local lvs='{name: lvs, ipvs: {addresses: [10.0.0.0/8]}, from: [{services: {}}]}'
    refuse 'a value that the chart does not have' "additional properties 'replica' not allowed" 'gateway: {replica: 2}'
    refuse 'a wrong key of the gateway' "at '/gateway/config/cache': additional properties 'maxage' not allowed" 'gateway: {config: {cache: {maxage: 5s}}}'
    refuse 'a wrong key in a list' "at '/gateway/config/clusters/vclusters/0': additional properties 'namespace'" 'gateway: {config: {clusters: {vclusters: [{namespace: a}]}}}'
    refuse 'a wrong type' "at '/gateway/config/metrics/maxSeries': got string, want integer" 'gateway: {config: {metrics: {maxSeries: "many"}}}'
    refuse 'a word that is none of the words' "at '/gateway/config/outbound/connect'" 'gateway: {config: {outbound: {connect: Everything}}}'
    refuse 'a missing field' "missing property 'issuer'" 'gateway: {config: {authentication: {oidc: {audiences: [a]}}}}'
    refuse 'a wrong key of the notifier' "at '/notify/config/guard': additional properties 'percentage' not allowed" 'notify: {config: {guard: {percentage: 5}}}'
    refuse 'a wrong key of a sink' "at '/notify/config/sinks/0/dns': additional properties 'zones' not allowed" 'notify: {config: {sinks: [{name: a, dns: {zone: z, zones: z}, from: [{services: {}}]}]}}'
    refuse 'a digest that is none' "at '/image/digest'.*does not match pattern" 'image: {digest: latest}'
    refuse 'a feature that is neither on nor off' "at '/gateway/rbac/features/reads'" 'gateway: {rbac: {features: {reads: maybe}}}'
    refuse 'nothing to install' 'gateway.enabled and notify.enabled are both false' 'gateway: {enabled: false}'
    refuse 'two certificates' 'existingSecret and gateway.tls.certManager.enabled are both set' 'gateway: {tls: {existingSecret: a, certManager: {enabled: true, issuerRef: {name: a}}}}'
    refuse 'a certificate without an issuer' 'set gateway.tls.certManager.issuerRef.name' 'gateway: {tls: {certManager: {enabled: true}}}'
    refuse 'a certificate that is not used' 'listen.tls names its own files' 'gateway: {tls: {existingSecret: a}, config: {listen: {tls: {certificate: /a, key: /b}}}}'
    refuse 'an address of the pod alone' 'listen.address is 127.0.0.1:8001, which neither the Service nor the probes reach' 'gateway: {config: {listen: {address: "127.0.0.1:8001"}}}'
    refuse 'a port that changes' 'the Service needs a fixed port' 'gateway: {config: {listen: {address: "0.0.0.0:0"}}}'
    refuse 'clusters for callers who do not authenticate' 'set authentication.tokenReview, authentication.oidc' "gateway: {config: {$files}}"
    refuse 'callers without clusters' 'so there is nothing to serve' "gateway: {config: {$oidc}}"
    refuse 'a claim without checkpoints' 'gateway.checkpoints.enabled is false, so the claim would stay empty' 'gateway: {checkpoints: {enabled: false, persistence: {enabled: true}}}'
    refuse 'a claim and a bucket' 'in a bucket, so the claim would stay empty' "gateway: {config: {$oidc, $files, checkpoints: {bucket: {url: 's3://a/b'}}}, checkpoints: {persistence: {enabled: true}}}"
    refuse 'a claim and another folder' 'the claim is mounted at /var/lib/skopos' 'gateway: {config: {checkpoints: {folder: /data}}, checkpoints: {persistence: {enabled: true}}}'
    refuse 'two gateways with one claim' 'gateway.replicas is 2 with one claim' 'gateway: {replicas: 2, checkpoints: {persistence: {enabled: true, existingClaim: a}}}'
    refuse 'checkpoints that a kubelet opens to the group' 'use OnRootMismatch' 'gateway: {checkpoints: {persistence: {enabled: true}}, podSecurityContext: {fsGroupChangePolicy: Always}}'
    refuse 'two gateways with one prefix of a bucket' 'each gateway needs a prefix of its own' "gateway: {replicas: 2, config: {$oidc, $files, checkpoints: {bucket: {url: 's3://a/b'}}}}"
    refuse 'a PodMonitor without credentials' 'needs the credentials of an observer' 'gateway: {podMonitor: {enabled: true}}'
    refuse 'a PodMonitor without an observer' 'authorization.observers names no caller' 'gateway: {podMonitor: {enabled: true, authorization: {credentials: {name: a, key: b}}}}'
    refuse 'a budget that blocks every drain' 'no node can be drained' 'gateway: {pdb: {enabled: true, minAvailable: 1}}'
    refuse 'a notifier without sinks' 'notify.config.sinks has no sink: add one' 'notify: {enabled: true}'
    refuse 'IPVS without its rights' 'the sink lvs is of IPVS.*set notify.ipvs.enabled' "notify: {enabled: true, config: {sinks: [$lvs]}}"
    refuse 'two notifiers of one balancer' 'notify.replicas is 2, and the sink lvs is of one machine' "notify: {enabled: true, replicas: 2, ipvs: {enabled: true}, config: {sinks: [$lvs]}}"
    refuse 'probes of a notifier on loopback' 'notify.config.listen is 127.0.0.1:9911, which the probes do not reach' "notify: {enabled: true, config: {listen: '127.0.0.1:9911', sinks: [$dns]}}"
    refuse 'a state beyond the volume' 'the volume is mounted at /var/lib/skopos' "notify: {enabled: true, config: {state: {folder: /data}, sinks: [$dns]}}"
    refuse 'two files of keys' 'gateway.config.replicas.continueKeys names its own file' 'gateway: {continueKeys: {existingSecret: a}, config: {replicas: {continueKeys: /keys}}}'
    refuse 'two problems at once' 'notify.config.sinks has no sink' 'gateway: {pdb: {enabled: true, minAvailable: 1}}
notify: {enabled: true}'
}

start_server() {
    mkfifo "$work/out"
    "$SKOPOS" testserver --tls --workloads --kubeconfig-out "$KUBECONFIG" >"$work/out" &
    pids=($!)
    local line
    while read -r line; do
        [[ $line != kubeconfig:* ]] || break
    done <"$work/out"
    k create namespace skopos >/dev/null
    k apply -f "$chart/ci/crds.yaml" >/dev/null
    k wait --for=condition=Established crd --all --timeout=30s >/dev/null
}

# helm_ NAME PATTERN COMMAND...: helm in the namespace of the release.
helm_() { check "$1" "$2" "$HELM" --namespace skopos "${@:3}"; }

field() { k -n skopos get "$1" -o "jsonpath={$2}"; }
pods() { k -n skopos get pods -l app.kubernetes.io/instance="$1" -o 'jsonpath={.items[*].metadata.uid}'; }

# remains RELEASE: the objects of a release, and helm's own record of it.
remains() {
    k get "$(k api-resources --verbs=list,delete -o name | paste -sd,)" -A -l "app.kubernetes.io/instance=$1" -o name
    k -n skopos get secrets -l "owner=helm,name=$1" -o name
}

# give_up: ends the script where there is nothing to check any more.
give_up() {
    summary
    exit 1
}

gateway_release() {
    local pods certificate
    helm_ 'gateway: install' 'STATUS: deployed' install skopos "$chart" --wait --timeout 60s
    check 'gateway: its pod is ready' '^1 1$' field deployment/skopos-gateway '.status.readyReplicas} {.status.availableReplicas'
    check 'gateway: its configuration' 'cluster: host' field configmap/skopos-gateway '.data.gateway\.yaml'
    check 'gateway: its account is bound' '^skopos-gateway skopos$' k get clusterrolebinding skopos-skopos-gateway -o 'jsonpath={.subjects[0].name} {.subjects[0].namespace}'
    k -n skopos get deployment skopos-gateway -o json >"$work/gateway.json" || give_up
    field configmap/skopos-gateway '.data.gateway\.yaml' >"$work/gateway.yaml"
    certificate=$(field secret/skopos-gateway-tls '.data.tls\.crt')
    pods=$(pods skopos)
    helm_ 'gateway: upgrade' 'STATUS: deployed' upgrade skopos "$chart" --set gateway.config.cache.maxAge=5s --wait --timeout 60s
    check 'gateway: the configuration has changed' 'maxAge: 5s' field configmap/skopos-gateway '.data.gateway\.yaml'
    check 'gateway: its pods are the same, because it follows this setting' "^$pods\$" pods skopos
    check 'gateway: its certificate is the same' "^$certificate\$" field secret/skopos-gateway-tls '.data.tls\.crt'
    helm_ 'gateway: upgrade of a setting for the next start' 'STATUS: deployed' upgrade skopos "$chart" --set gateway.config.clusters.retainRemoved=1m \
        --set gateway.config.clusters.vclusters[0].host.name=here --set gateway.config.authentication.tokenReview.cluster=here --wait --timeout 60s
    check 'gateway: its pods are new' '^new$' new_pods "$pods"
    helm_ 'gateway: rollback' 'Rollback was a success' rollback skopos 1 --wait --timeout 60s
    field configmap/skopos-gateway '.data.gateway\.yaml' >"$work/again.yaml"
    same 'gateway: the configuration is as before' "$work/gateway.yaml" "$work/again.yaml"
    check 'gateway: its certificate is the same' "^$certificate\$" field secret/skopos-gateway-tls '.data.tls\.crt'
    field secret/skopos-gateway-tls '.data.ca\.crt' | base64 -d >"$work/ca.crt"
    field secret/skopos-gateway-tls '.data.tls\.crt' | base64 -d >"$work/tls.crt"
    field secret/skopos-gateway-tls '.data.tls\.key' | base64 -d >"$work/tls.key"
    helm_ 'gateway: a Deployment becomes a StatefulSet with claims' 'STATUS: deployed' upgrade skopos "$chart" \
        --set gateway.replicas=2 --set gateway.checkpoints.persistence.enabled=true --wait --timeout 60s
    check 'gateway: two pods are ready' '^2$' field statefulset/skopos-gateway .status.readyReplicas
    gateway_starts
    helm_ 'gateway: uninstall' 'uninstalled' uninstall skopos --wait --timeout 60s
    check 'gateway: nothing is left' '^nothing$' nothing_remains skopos
    gateway_rights
}

new_pods() {
    local now
    now=$(pods skopos)
    if [[ -n $now && $now != "$1" ]]; then echo new; else echo "$now"; fi
}

# Pods and claims of a removed StatefulSet go later than it does.
nothing_remains() {
    local left
    for _ in $(seq 100); do
        left=$(remains "$1")
        [[ -n $left ]] || { echo nothing; return; }
        sleep 0.1
    done
    echo "$left"
}

notify_release() {
    helm_ 'notify: install' 'STATUS: deployed' install told "$chart" --values "$chart/ci/notify-values.yaml" --wait --timeout 60s
    check 'notify: two pods are ready' '^2$' field statefulset/told-skopos-notify .status.readyReplicas
    check 'notify: the Lease is of the release' 'lease: skopos/told-skopos-notify' field configmap/told-skopos-notify '.data.notify\.yaml'
    check 'notify: a role in each namespace' '^skopos team-00 team-01$' k get roles -A -l app.kubernetes.io/instance=told -o 'jsonpath={.items[*].metadata.namespace}'
    field configmap/told-skopos-notify '.data.notify\.yaml' >"$work/notify.yaml" || give_up
    k -n skopos get statefulset told-skopos-notify -o json >"$work/notify.json"
    notify_starts
    notify_rights
    helm_ 'notify: upgrade' 'STATUS: deployed' upgrade told "$chart" --reuse-values --set notify.config.guard.percent=10 --wait --timeout 60s
    check 'notify: the configuration has changed' 'percent: 10' field configmap/told-skopos-notify '.data.notify\.yaml'
    helm_ 'notify: rollback' 'Rollback was a success' rollback told 1 --wait --timeout 60s
    check 'notify: the configuration is as before' 'percent: 20' field configmap/told-skopos-notify '.data.notify\.yaml'
    helm_ 'notify: uninstall' 'uninstalled' uninstall told --wait --timeout 60s
    check 'notify: nothing is left' '^nothing$' nothing_remains told
}

# restricted FILE: whether all pods of the manifests keep to the restricted profile of the Pod Security Standards, with a read-only root.
restricted() {
    jq '[.items[] | .spec.template.spec? // empty
        | .securityContext.runAsNonRoot and .securityContext.runAsUser == 65532 and .securityContext.seccompProfile.type == "RuntimeDefault"
            and (.hostNetwork or .hostPID or .hostIPC | not)
            and all(.volumes[]; has("configMap") or has("secret") or has("emptyDir") or has("persistentVolumeClaim"))
            and all(.containers[]; .securityContext
                | .allowPrivilegeEscalation == false and .readOnlyRootFilesystem and .capabilities == {drop: ["ALL"]} and (.privileged | not))]
        | length > 0 and all' "$1"
}

dry_run() {
    local name
    for name in $(values); do
        render skopos --values "$chart/ci/$name-values.yaml" >"$work/all.yaml"
        check "strict dry run on the server: $name" '"kind": "List"' k apply --dry-run=server --validate=strict -o json -f "$work/all.yaml"
        k apply --dry-run=server -o json -f "$work/all.yaml" >"$work/all.json"
        if [[ $name == ipvs ]]; then
            check "pod security: $name is root on the node's network with NET_ADMIN alone" '^true$' jq '[.items[] | select(.kind == "StatefulSet") | .spec.template.spec
                | .hostNetwork and .securityContext.runAsUser == 0 and .containers[0].securityContext.capabilities == {add: ["NET_ADMIN"], drop: ["ALL"]}] == [true]' "$work/all.json"
        else
            check "pod security: $name keeps to the restricted profile" '^true$' restricted "$work/all.json"
        fi
    done
    # That it can fail: a field that no Deployment has, and one that no PodMonitor has.
    render skopos | sed 's/maxUnavailable: 0/maxUnavailible: 0/' >"$work/all.yaml"
    check 'strict dry run: an unknown field is refused' 'unknown field "spec.strategy.rollingUpdate.maxUnavailible"' not k apply --dry-run=server --validate=strict -f "$work/all.yaml"
    render skopos --values "$chart/ci/production-values.yaml" | sed 's/podMetricsEndpoints/podMetricEndpoints/' >"$work/all.yaml"
    check 'strict dry run: an unknown field of a custom resource is refused' 'unknown field "spec.podMetricEndpoints"' not k apply --dry-run=server --validate=strict -f "$work/all.yaml"
    # The rules and dashboards that the recorded manifests leave out.
    render skopos --values "$chart/ci/production-values.yaml" >"$work/all.yaml"
    k apply --dry-run=server -o json -f "$work/all.yaml" >"$work/all.json"
    for name in "$chart"/files/dashboards/*.json; do
        [[ -f $name ]] || continue
        jq --arg name "skopos-$(basename "$name")" -j '.items[] | select(.metadata.name == "skopos-dashboards") | .data[$name]' "$work/all.json" >"$work/dashboard.json"
        same "the ConfigMap has $(basename "$name")" "$name" "$work/dashboard.json"
    done
    for name in gateway notify; do
        check "the PrometheusRule of the $name has every alert" "^$(grep -c -- '- alert:' "$chart/files/$name-alerts.yaml")\$" \
            jq --arg name "skopos-$name" '[.items[] | select(.kind == "PrometheusRule" and .metadata.name == $name) | .spec.groups[].rules[] | select(.alert)] | length' "$work/all.json"
    done
}

not() { ! "$@"; }

# Port of this run.
port=$((20000 + RANDOM % 10000))

# Whether this process may make a mount namespace, so that a program sees the files of its pod.
can_mount() { [[ $(id -u) == 0 ]] && command -v setpriv >/dev/null && unshare --mount true 2>/dev/null; }

# begin COMPONENT ACCOUNT: runs the real program with the arguments, the configuration and the files of its pod. Where namespaces can be
# made: as the pod's user, without capabilities, on a read-only root, with the token of the account in its place. The port is another.
begin() {
    local run=$work/$1 arguments server
    readarray -t arguments < <(jq -r '.spec.template.spec.containers[0].args[]' "$work/$1.json")
    mkdir -p "$run"/{usr,proc,dev,etc/ssl,etc/skopos/config,var/lib/skopos,run/secrets/kubernetes.io/serviceaccount}
    sed "s#0\.0\.0\.0:\(6443\|9911\)#127.0.0.1:$port#" "$work/$1.yaml" >"$run/etc/skopos/config/$1.yaml"
    server=$(k config view -o 'jsonpath={.clusters[0].cluster.server}')
    k config view --raw -o 'jsonpath={.clusters[0].cluster.certificate-authority-data}' | base64 -d >"$run/run/secrets/kubernetes.io/serviceaccount/ca.crt"
    k -n skopos create token "$2" >"$run/run/secrets/kubernetes.io/serviceaccount/token"
    echo skopos >"$run/run/secrets/kubernetes.io/serviceaccount/namespace"
    local host=${server#https://}
    local environment=(PATH=/usr/bin KUBERNETES_SERVICE_HOST="${host%:*}" KUBERNETES_SERVICE_PORT="${host##*:}")
    if can_mount; then
        ln -sf /run "$run/var/run"
        for link in lib lib64; do [[ ! -e /$link ]] || ln -sfn "usr/$link" "$run/$link"; done
        cp "$SKOPOS" "$run/skopos"
        chmod 711 "$work"
        # As a kubelet makes it: the root of an emptyDir is open to all; files of Secrets are readable by the group of the pod.
        chown 0:65532 "$run/var/lib/skopos"
        chmod 2777 "$run/var/lib/skopos"
        find "$run/etc/skopos" -type f -exec chgrp 65532 {} + -exec chmod 440 {} +
        # shellcheck disable=SC2016
        env -i "${environment[@]}" unshare --mount bash -c '
            set -e
            export PATH=/usr/sbin:/usr/bin:/sbin:/bin
            mount --make-rprivate /
            mount --bind "$0" "$0"
            for folder in usr proc dev etc/ssl; do mount --rbind "/$folder" "$0/$folder"; done
            mount --bind "$0/var/lib/skopos" "$0/var/lib/skopos"
            mount -o remount,ro,bind "$0"
            exec chroot "$0" /usr/bin/setpriv --reuid 65532 --regid 65532 --clear-groups --no-new-privs --bounding-set=-all /skopos "$@"' \
            "$run" "${arguments[@]}" >"$work/$1.log" 2>&1 &
    else
        echo "no mount namespace can be made here: $1 runs with other paths, and with a kubeconfig in place of the account of its pod"
        begin_here "$1" "$KUBECONFIG"
        return
    fi
    pids+=($!)
}

# begin_here COMPONENT KUBECONFIG: runs the real program with the paths of this machine.
begin_here() {
    local run=$work/$1 arguments file
    readarray -t arguments < <(jq -r '.spec.template.spec.containers[0].args[]' "$work/$1.json")
    mkdir -p "$run"/{etc/skopos/config,var/lib/skopos}
    file=$run/etc/skopos/config/$1.yaml
    sed "s#0\.0\.0\.0:\(6443\|9911\)#127.0.0.1:$port#; s#/etc/skopos#$run/etc/skopos#; s#/var/lib/skopos#$run/var/lib/skopos#" "$work/$1.yaml" >"$file.new"
    if [[ $1 == gateway ]]; then
        sed -i "s#^\( *\)name: host\$#&\n\1kubeconfig: $2#" "$file.new"
    else
        printf 'cluster: {kubeconfig: %s}\n' "$2" >>"$file.new"
    fi
    mv -f "$file.new" "$file"
    env -i PATH=/usr/bin "$SKOPOS" "${arguments[@]/#\/etc\/skopos/$run/etc/skopos}" >"$work/$1.log" 2>&1 &
    pids+=($!)
}

# finish NAME: ends the program, and checks that it ends in order.
finish() {
    local code=0
    kill "${pids[-1]}" || true
    wait "${pids[-1]}" || code=$?
    unset 'pids[-1]'
    [[ $code == 0 ]] || cat "$work/$1.log"
    check "$1: it ends in order" '^0$' echo "$code"
}

# answers URL ARGUMENTS...: the status of a GET, once it is 200, or after 20 s.
answers() {
    local code
    rm -f "$work/body"
    for _ in $(seq 100); do
        code=$(curl --silent --output "$work/body" --write-out '%{http_code}' "$@" || true)
        [[ $code != 200 ]] || break
        sleep 0.2
    done
    echo "$code"
    [[ $code == 200 ]] || cat "$work/body" 2>/dev/null || true
}

gateway_starts() {
    local url=https://localhost:$port token
    mkdir -p "$work/gateway/etc/skopos/tls"
    cp "$work"/tls.{crt,key} "$work/gateway/etc/skopos/tls"
    begin gateway skopos-gateway
    check 'gateway: /readyz of the real program, with the certificate of the chart' '^200$' answers --cacert "$work/ca.crt" "$url/readyz"
    check 'gateway: /livez' '^200$' answers --cacert "$work/ca.crt" "$url/livez"
    k -n skopos create serviceaccount caller >/dev/null
    token=$(k -n skopos create token caller)
    check 'gateway: a token of the cluster reads it' '^200$' answers --cacert "$work/ca.crt" --header "Authorization: Bearer $token" "$url/clusters/host/api/v1/namespaces"
    check 'gateway: the answer' '"name":"team-00"' cat "$work/body"
    check 'gateway: no token, no answer' '^401$' curl --silent --output /dev/null --write-out '%{http_code}' --cacert "$work/ca.crt" "$url/clusters/host/api/v1/namespaces"
    check 'gateway: it warns of nothing' '^nothing$' warnings gateway
    finish gateway
    check 'gateway: it wrote checkpoints' '/gateway/clusters/' find "$work/gateway/var/lib/skopos" -type f
}

# begin_recorded COMPONENT: runs the real program, and records its requests: `kubectl proxy` in front of the cluster logs them.
begin_recorded() {
    kubectl proxy --port "$((port + 1))" -v=8 >"$work/$1.requests" 2>&1 &
    pids+=($!)
    cat >"$work/proxy" <<YAML
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "http://127.0.0.1:$((port + 1))"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
YAML
    for _ in $(seq 100); do
        ! curl --silent --output /dev/null "http://127.0.0.1:$((port + 1))/version" || break
        sleep 0.1
    done
    begin_here "$1" "$work/proxy"
}

# unauthorized COMPONENT RELEASE: the recorded requests that the roles of the release do not allow. (The test server itself allows all.)
# Discovery is allowed to every account (system:discovery).
unauthorized() {
    local requests
    requests=$(sed -nE 's#.*round_trippers.* (GET|PUT|POST|PATCH|DELETE) https?://[^/]+(/.*)$#\1 \2#p' "$work/$1.requests" | sed 's/[?]\(.*\)/ \1/' | sort -u)
    [[ -n $requests ]] || { echo "no request was recorded"; return; }
    k get clusterroles,roles -A -l "app.kubernetes.io/instance=$2" -o json | jq -r --arg requests "$requests" '
        .items as $roles
        | def has_any($all; $one): $all | index("*") or index($one);
        def parsed:
          (split(" ") | {method: .[0], path: .[1], query: (.[2] // "")}) as $r
          | ($r.path | split("/")[1:]) as $p
          | (if $p[0] == "api" then {group: "", rest: $p[2:]} elif $p[0] == "apis" then {group: ($p[1] // ""), rest: $p[3:]} else {rest: []} end)
          | . + (if .rest[0] == "namespaces" and (.rest | length) > 2 then {namespace: .rest[1], rest: .rest[2:]} else {} end)
          | .resource = .rest[0] | .name = (.rest[1] // ($r.query | capture("fieldSelector=metadata.name%3D(?<name>[^&]*)").name? // null))
          | if .rest[2] then .resource += "/" + .rest[2] else . end
          | .verb = (if $r.method == "GET" then (if .rest[1] then "get" elif ($r.query | test("watch=(true|1)")) then "watch" else "list" end)
              else {POST: "create", PUT: "update", PATCH: "patch", DELETE: "delete"}[$r.method] end);
        [$requests | split("\n")[] | . as $line | parsed
          | select(.resource) | . as $request
          | select(any($roles[] | select(.kind == "ClusterRole" or .metadata.namespace == $request.namespace) | .rules[];
              .resources and has_any(.apiGroups; $request.group) and has_any(.resources; $request.resource) and has_any(.verbs; $request.verb)
              and ((.resourceNames // []) | length == 0 or index($request.name // ""))) | not)
          | $line] | if length == 0 then "none" else .[] end'
}

# With the narrowest roles: each kind that callers read is named, and the Secrets are of one namespace.
gateway_rights() {
    local url=https://localhost:$port token path
    cat >"$work/narrow.yaml" <<'YAML'
gateway:
  config:
    authentication: {tokenReview: {cluster: host}}
    clusters:
      vclusters: [{host: {name: host}, namespaces: [team-00]}]
  rbac: {reads: [{apiGroups: [""], resources: [pods, namespaces]}]}
YAML
    helm_ 'rights: the gateway with narrow roles' 'STATUS: deployed' install narrow "$chart" --values "$work/narrow.yaml" --set fullnameOverride=skopos --wait --timeout 60s
    k -n skopos get deployment skopos-gateway -o json >"$work/gateway.json" || give_up
    field configmap/skopos-gateway '.data.gateway\.yaml' >"$work/gateway.yaml"
    for path in ca.crt tls.crt tls.key; do
        field secret/skopos-gateway-tls ".data.${path/./\\.}" | base64 -d >"$work/$path"
        cp -f "$work/$path" "$work/gateway/etc/skopos/tls/"
    done
    rm -rf "$work/gateway/var/lib/skopos"
    begin_recorded gateway
    token=$(k -n skopos create token caller)
    for path in namespaces pods namespaces/team-00/pods; do
        check "rights: a caller reads $path" '^200$' answers --cacert "$work/ca.crt" --header "Authorization: Bearer $token" "$url/clusters/host/api/v1/$path"
    done
    finish gateway
    check 'rights: requests of the gateway are recorded' 'POST .*/tokenreviews' cat "$work/gateway.requests"
    check 'rights: the roles allow every request of the gateway' '^none$' unauthorized gateway narrow
    check 'rights: without its roles they would not' 'GET .*/api/v1/namespaces/kube-system' unauthorized gateway nothing
    kill "${pids[-1]}"
    unset 'pids[-1]'
    helm_ 'rights: uninstall' 'uninstalled' uninstall narrow --wait --timeout 60s
}

# What the sinks of the release need: a Service with a wrong name makes an Event.
notify_rights() {
    k -n team-00 create service loadbalancer web --tcp=80 >/dev/null
    k -n team-00 annotate service web external-dns.alpha.kubernetes.io/hostname=elsewhere.example.org >/dev/null
    rm -rf "$work/notify/var/lib/skopos"
    k -n skopos delete lease told-skopos-notify --ignore-not-found >/dev/null
    begin_recorded notify
    check 'rights: the notifier has the Lease' '^working$' leads
    for _ in $(seq 60); do
        ! grep -q 'POST .*/events' "$work/notify.requests" || break
        sleep 0.2
    done
    finish notify
    check 'rights: requests of the notifier are recorded' 'PUT .*/leases/' cat "$work/notify.requests"
    check 'rights: an Event on a Service is among them' 'POST .*/events' cat "$work/notify.requests"
    check 'rights: the roles allow every request of the notifier' '^none$' unauthorized notify told
    check 'rights: without its roles they would not' 'POST .*/leases' unauthorized notify nothing
    kill "${pids[-1]}"
    unset 'pids[-1]'
}

# The addresses of its sinks do not exist: the configuration is accepted, it leads, and says that it cannot reach them.
notify_starts() {
    mkdir -p "$work/notify/etc/skopos/tsig"
    openssl rand -base64 32 >"$work/notify/etc/skopos/tsig/secret"
    begin notify told-skopos-notify
    check 'notify: /readyz of the real program' '^200$' answers "http://127.0.0.1:$port/readyz"
    check 'notify: it has the Lease' '^working$' leads
    check 'notify: its metrics name the sinks' 'skopos_notify_sink_up\{sink="zone"\}' curl --silent "http://127.0.0.1:$port/metrics"
    finish notify
    check 'notify: it wrote its state' '/notify/' find "$work/notify/var/lib/skopos" -type f
}

leads() {
    for _ in $(seq 100); do
        [[ $(curl --silent "http://127.0.0.1:$port/readyz") != working ]] || break
        sleep 0.2
    done
    curl --silent "http://127.0.0.1:$port/readyz"
}

warnings() { grep -E '"level":"(WARN|ERROR)"' "$work/$1.log" || echo nothing; }

if $write; then
    scripts/chart-schema.sh >"$work/schema.json"
    cp "$work/schema.json" "$chart/values.schema.json"
    for copy in "${copies[@]}"; do cp "${copy%=*}" "$chart/${copy#*=}"; done
    mkdir -p "$chart/ci/golden"
    rm -f "$chart"/ci/golden/*.yaml
    for name in $(values); do recorded "$name" >"$chart/ci/golden/$name.yaml"; done
    echo "written: look at git diff $chart"
    exit 0
fi
begun=$SECONDS
generated
rendered
refused
start_server
gateway_release
notify_release
dry_run
echo "$((SECONDS - begun)) s"
summary
