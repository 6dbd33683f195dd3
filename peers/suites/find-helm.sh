# Sourced: finds helm, or builds it from its module into peers/suites/bin, within $BUILD_TIMEOUT. Ends with 77 if it cannot be had.

SUITES=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
HELM_MODULE=helm.sh/helm/v4/cmd/helm@v4.3.1

find_helm() {
    if [[ -z ${HELM:-} ]]; then
        HELM=$(type -P helm || true)
    fi
    if [[ -z $HELM ]]; then
        HELM=$SUITES/bin/helm
        [[ -x $HELM ]] || GOBIN=$SUITES/bin timeout "${BUILD_TIMEOUT:-2m}" go install "$HELM_MODULE" || {
            echo "SKIPPED: helm is not installed, and was not built from its module within ${BUILD_TIMEOUT:-2m}"
            exit 77
        }
    fi
    "$HELM" version --short
}
