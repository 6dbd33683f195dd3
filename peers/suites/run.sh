#!/usr/bin/env bash
# Runs controller-runtime's own test suites on a cluster and through a gateway in front of it (HTTP/1.1, and TLS with HTTP/2). No test may fail
# through the gateway that passes on the cluster. Needs Go, openssl and a built `skopos`.
#
#   peers/suites/run.sh                         on `skopos testserver --tls`
#   START=PROGRAM peers/suites/run.sh           on the cluster that `PROGRAM FOLDER` starts: it writes FOLDER/kubeconfig, and FOLDER/pids
#   ROUNDS=3 SUITES="client source"             how often, and which of client, cache, source, controllerutil (once, all)
#   SKOPOS=PATH REPORTS=FOLDER                  the program (target/debug/skopos), and where reports and logs are kept (a temporary folder)
set -euo pipefail
cd "$(dirname "$0")"

source ./lib.sh
REPORTS=$(realpath -m "${REPORTS:-$(mktemp -d)}")
ROUNDS=${ROUNDS:-1}
SUITES=${SUITES:-client cache source controllerutil}
RUNTIME=sigs.k8s.io/controller-runtime/pkg
# A suite that hangs fails.
SUITE_TIMEOUT=${SUITE_TIMEOUT:-10m}
mkdir -p "$REPORTS"

package_of() {
    case $1 in
        controllerutil) echo "$RUNTIME/controller/controllerutil" ;;
        *) echo "$RUNTIME/$1" ;;
    esac
}

# run SUITE WAY ROUND
run() {
    local suite=$1 way=$2 folder="$work/$1-$2-$3" report="$REPORTS/$1-$2-$3.json" folder_of kubeconfig
    start_member "$folder"
    kubeconfig="$folder/kubeconfig"
    if [[ $way != member ]]; then
        start_gateway "$folder" "$way"
        kubeconfig="$folder/through"
    fi
    folder_of=$(go list -f '{{.Dir}}' "$(package_of "$suite")")
    local begin=$SECONDS result=passed
    (cd "$folder_of" && USE_EXISTING_CLUSTER=true KUBECONFIG="$kubeconfig" timeout "$SUITE_TIMEOUT" \
        "$OLDPWD/bin/$suite.test" --ginkgo.no-color --ginkgo.json-report="$report" >"${report%.json}.log" 2>&1) || result=failed
    printf '%-15s %-7s round %d: %s in %d s\n' "$suite" "$way" "$3" "$result" $((SECONDS - begin))
    [[ $way == member ]] || cp "$folder/serve.log" "${report%.json}.serve.log"
    stop_all
}

for suite in $SUITES; do
    go test -c -o "bin/$suite.test" "$(package_of "$suite")"
done
go build -o bin/compare .
echo "reports: $REPORTS"
for suite in $SUITES; do
    for round in $(seq "$ROUNDS"); do
        for way in member http tls; do
            run "$suite" "$way" "$round"
        done
    done
done
bin/compare "$REPORTS"
