# Sourced: clusters, and gateways in front of them, for programs that talk to both.

SKOPOS=$(realpath "${SKOPOS:-../../target/debug/skopos}")
work=$(mktemp -d)
pids=()
# stop_all: ends what was started here. A kube-apiserver whose etcd is gone does not end by itself.
stop_all() {
    ((${#pids[@]} > 0)) || return 0
    kill "${pids[@]}" 2>/dev/null || true
    for _ in $(seq 20); do
        if ! kill -0 "${pids[@]}" 2>/dev/null; then
            pids=()
            return 0
        fi
        sleep 0.1
    done
    kill -9 "${pids[@]}" 2>/dev/null || true
    pids=()
}
trap 'stop_all; rm -rf "$work"' EXIT

# await FILE PATTERN: a line that matches is in the file, within a minute; prints what follows the last space in it.
await() {
    local line
    for _ in $(seq 600); do
        if line=$(grep -m 1 -E -- "$2" "$1" 2>/dev/null); then
            echo "${line##* }"
            return
        fi
        sleep 0.1
    done
    echo "no line like $2 in $1:" >&2
    cat "$1" >&2
    return 1
}

# check NAME PATTERN COMMAND...: the command succeeds, and prints a line that matches. $label says what is checked.
check() {
    local name=$1 pattern=$2 output
    shift 2
    if ! output=$("$@" 2>&1) || ! grep -Eq -- "$pattern" <<<"$output"; then
        printf '%s: %s\n  %s\n  expected: %s\n%s\n' "$label" "$name" "$*" "$pattern" "$output"
        exit 1
    fi
    printf '%-20s %s\n' "$label" "$name"
}

# start_member FOLDER: a cluster of its own, so that nothing is left of another run.
start_member() {
    mkdir -p "$1"
    if [[ -n ${START:-} ]]; then
        "$START" "$1" >/dev/null
        # shellcheck disable=SC2046
        pids+=($(cat "$1/pids"))
        return
    fi
    "$SKOPOS" testserver --tls --kubeconfig-out "$1/kubeconfig" >"$1/testserver.log" 2>&1 &
    pids+=($!)
    await "$1/testserver.log" '^kubeconfig:' >/dev/null
}

# start_gateway FOLDER http|tls: `skopos serve` for the cluster of that folder; writes FOLDER/through.
start_gateway() {
    local tls="" scheme=http trust="" url context
    context=$(sed -n 's/^current-context: *//p' "$1/kubeconfig" | tr -d "\"'")
    if [[ $2 == tls ]]; then
        openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=gateway -addext subjectAltName=IP:127.0.0.1 \
            -keyout "$1/tls.key" -out "$1/tls.crt" 2>/dev/null
        tls=", tls: {certificate: $1/tls.crt, key: $1/tls.key}"
        scheme=https
        trust=", certificate-authority: $1/tls.crt"
    fi
    printf 'listen: {address: "127.0.0.1:0"%s}\nauthorization: {loopback: Trusted}\nclusters: {kubeconfigs: [{path: %s}]}\n' \
        "$tls" "$1/kubeconfig" >"$1/gateway.yaml"
    SKOPOS_LOG=${SKOPOS_LOG:-warn} "$SKOPOS" serve --config "$1/gateway.yaml" >"$1/serve.log" 2>&1 &
    pids+=($!)
    url=$(await "$1/serve.log" "https?://127\.0\.0\.1:[0-9]+")
    url=$scheme://127.0.0.1:${url##*:}
    cat >"$1/through" <<YAML
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "${url%/}/clusters/$context"$trust}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: not-checked}}]
YAML
    [[ $2 == tls ]] || sed -i 's/{token: not-checked}/{}/' "$1/through"
}
