#!/usr/bin/env bash
# Draws docs/pictures/demo.svg: runs `skopos demo` in a terminal, breaks and pauses clusters by its keys, and captures the screen.
# Needs tmux and python3. SKOPOS names the binary; without it, `cargo run` builds it.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${SKOPOS:-}" ]; then
    cargo build --quiet --package skopos-cli
    SKOPOS="${CARGO_TARGET_DIR:-target}/debug/skopos"
fi
for program in tmux python3; do
    command -v "$program" >/dev/null || { echo "$program is not installed: apt-get install $program" >&2; exit 1; }
done

PATH="$(cd "$(dirname "$SKOPOS")" && pwd):$PATH"
terminal() { tmux -L skopos-demo-picture "$@"; }
press() { for key in "$@"; do terminal send-keys -t 0 "$key"; sleep 0.3; done; }

trap 'terminal kill-server 2>/dev/null || true' EXIT
terminal -f /dev/null new-session -d -x 120 -y 30 'TMPDIR=/tmp skopos demo'
sleep 8
press b              # the first cluster: a black hole
sleep 3
press Down Down p    # the third one: paused
sleep 12
press Down 5         # the fourth one: every request is answered with 503
sleep 6
screen=$(terminal capture-pane -e -p -t 0)
press q
picture=$(python3 scripts/terminal-svg.py "skopos demo" <<<"$screen")
printf '%s\n' "$picture" >docs/pictures/demo.svg
