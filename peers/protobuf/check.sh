#!/usr/bin/env bash
# Compares the table of protobuf fields and the vectors with what Kubernetes' modules give, and reads the data that k8s.io/api
# is tested with: objects of every kind, of this release and of older ones.
set -euo pipefail
cd "$(dirname "$0")"
go run . schema --check ../../crates/skopos-wire/src/protobuf/schema.txt
go run . vectors --gz --check ../../crates/skopos-wire/tests/vectors/protobuf.jsonl.gz
testdata=$(go list -m -f '{{.Dir}}' k8s.io/api)/testdata
cd ../..
SKOPOS_KUBERNETES_TESTDATA=$testdata cargo test --workspace --all-features --test protobuf reads_testdata_of_kubernetes
