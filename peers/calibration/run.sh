#!/usr/bin/env bash
# Builds the API server of Kubernetes' own libraries and plays the calibration scripts on it and on the test server: what a
# client sees has to be the same. A minute, and some more the first time.
set -euo pipefail
cd "$(dirname "$0")"

# What Skopos has built already is not built again.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/../../target}"
(cd ../apiserver && go build -o apiserver .)
cargo run --quiet -- check --apiserver ../apiserver/apiserver
