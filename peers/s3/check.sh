#!/usr/bin/env bash
# Keeps a ledger in a real S3 service: versitygw, which stores objects in a folder. Needs Go, which builds it the first time.
set -euo pipefail
cd "$(dirname "$0")"
port=${1:-18470}
go build -o ../bin/versitygw github.com/versity/versitygw/cmd/versitygw
folder=$(mktemp -d)
mkdir -p "$folder/objects/ledgers"
echo access > "$folder/access"
echo secret-key > "$folder/secret"
ROOT_ACCESS_KEY=access ROOT_SECRET_KEY=secret-key ../bin/versitygw --quiet --port "127.0.0.1:$port" posix "$folder/objects" > "$folder/log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null; rm -rf "$folder"' EXIT
for _ in $(seq 100); do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
    kill -0 $server 2>/dev/null || { cat "$folder/log" >&2; exit 1; }
    sleep 0.1
done
cd ../..
export SKOPOS_S3="{\"url\": \"s3://ledgers/notify\", \"endpoint\": \"http://127.0.0.1:$port\", \"region\": \"us-east-1\",
    \"credentials\": {\"accessKey\": \"$folder/access\", \"secretKey\": \"$folder/secret\"}}"
cargo test --workspace --all-features --test ledger_bucket real_service
