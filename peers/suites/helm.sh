#!/usr/bin/env bash
# Shows that helm works through a gateway as it does on the cluster: a chart with crds/ and an object of that kind is installed, upgraded, rolled back and
# uninstalled, on a cluster and through a gateway in front of one (HTTP/1.1, and TLS with HTTP/2). Needs kubectl, openssl, a built `skopos`, and helm or Go.
#
#   peers/suites/helm.sh                        on `skopos testserver --tls`
#   START=PROGRAM peers/suites/helm.sh          on the cluster that `PROGRAM FOLDER` starts: it writes FOLDER/kubeconfig, and FOLDER/pids
#   HELM=PATH SKOPOS=PATH BUILD_TIMEOUT=2m      the programs; how long helm may be built where it is not installed
#
# Ends with 77 if helm cannot be had.
set -euo pipefail
cd "$(dirname "$0")"
source ./lib.sh
source ./find-helm.sh

colour_is() {
    check "$1" "^$2 $2\$" kubectl get widgets.shop.example/red-shop configmap/red-shop -o 'jsonpath={.items[0].spec.colour} {.items[1].data.colour}'
}

release() {
    check 'install' 'STATUS: deployed' "$HELM" --namespace default install red-shop ./chart --wait --timeout 60s
    colour_is 'the custom resource and the config map are there' blue
    check 'list' 'red-shop.*deployed' "$HELM" --namespace default list
    check 'upgrade' 'STATUS: deployed' "$HELM" --namespace default upgrade red-shop ./chart --set colour=red --wait --timeout 60s
    colour_is 'they are changed' red
    check 'history' '^2 .*deployed' "$HELM" --namespace default history red-shop
    check 'rollback' 'Rollback was a success' "$HELM" --namespace default rollback red-shop 1 --wait --timeout 60s
    colour_is 'they are as before' blue
    check 'uninstall' 'uninstalled' "$HELM" --namespace default uninstall red-shop --wait --timeout 60s
    check 'nothing is left but the definition' '^0 1$' remains
    check 'install again' 'STATUS: deployed' "$HELM" --namespace default install red-shop ./chart --wait --timeout 60s
    check 'uninstall again' 'uninstalled' "$HELM" --namespace default uninstall red-shop --wait --timeout 60s
}
remains() {
    echo "$(kubectl get widgets.shop.example,configmaps --field-selector metadata.name=red-shop -o name | wc -l) $(kubectl get crd widgets.shop.example -o name | wc -l)"
}

find_helm
for way in member http tls; do
    folder=$work/$way
    label=$way
    start_member "$folder"
    export KUBECONFIG=$folder/kubeconfig HOME=$folder
    if [[ $way != member ]]; then
        start_gateway "$folder" "$way"
        export KUBECONFIG=$folder/through
    fi
    release
    stop_all
done
echo "helm works through the gateway as on the cluster"
