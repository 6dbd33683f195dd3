#!/usr/bin/env bash
# Keeps every kind of peers/apiserver in a gateway while only config maps change, and fails if one is ever called stale. Its Events have no watch
# cache, as those of a kube-apiserver. Needs kubectl and Go. Two and a half minutes, and some more the first time.
#
#   peers/compare/quiet.sh --seconds 3600
#   peers/compare/quiet.sh --kubeconfig FILE             on another cluster
set -euo pipefail
cd "$(dirname "$0")"

# What Skopos has built already is not built again.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/../../target}"
cargo run --quiet -p peers-compare -- quiet --build "$@"
