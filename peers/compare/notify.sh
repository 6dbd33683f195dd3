#!/usr/bin/env bash
# Restarts peers/apiserver under `skopos notify`, takes it away for a while, and lets two replicas take turns on a Lease; BIND and a receiver of
# webhooks are the outside. Fails if a promise is broken. Needs Go and BIND. Six minutes, and some more the first time.
#
#   peers/compare/notify.sh --restarts 3 --away 20 --turns 1      a bit more than a minute
#   peers/compare/notify.sh --away 3600
set -euo pipefail
cd "$(dirname "$0")"

# What Skopos has built already is not built again.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/../../target}"
cargo run --quiet -p peers-compare -- notify --build "$@"
