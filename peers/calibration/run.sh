#!/usr/bin/env bash
# Builds the API server of Kubernetes' own libraries; plays the calibration scripts on it and on the test server, where what a
# client sees has to be the same; and plays the five reports of the field, and the transport's promises, on it. Three minutes,
# and some more the first time.
set -euo pipefail
cd "$(dirname "$0")"

# What Skopos has built already is not built again.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/../../target}"
(cd ../apiserver && go build -o apiserver .)
# With the same features, so that nothing is built twice.
play() {
    cargo run --quiet --features reports --bin "$1" -- "${@:2}" --apiserver ../apiserver/apiserver
}
play skopos-calibration check
play reports
