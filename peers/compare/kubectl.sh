#!/usr/bin/env bash
# Runs some 380 kubectl commands on peers/apiserver and through a gateway in front of it, and compares what they print. Needs kubectl and Go. Two
# minutes, and some more the first time.
#
#   peers/compare/kubectl.sh                             on peers/apiserver
#   peers/compare/kubectl.sh --kubeconfig FILE           on another cluster; on a kube-apiserver some 220 commands more
set -euo pipefail
cd "$(dirname "$0")"

# What Skopos has built already is not built again.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/../../target}"
cargo run --quiet -p peers-compare -- kubectl --build "$@"
