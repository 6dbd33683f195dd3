//! Lines of the list and watch contract, and the page that maps them to scripts.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::compare::Known;
use super::script::Script;

/// Line of the contract: its name, its text, and the reason why no script shows it (empty if one does).
const LINES: [(&str, &str, &str); 30] = [
    ("L1", "RV unset: a consistent read", ""),
    ("L2", "RV \"0\": any state, no limit", ""),
    ("L3", "RV=N: not older than; with a limit exactly", ""),
    ("L4", "combinations that are refused with 422", ""),
    ("L5", "an RV that is no number", ""),
    ("L6", "an RV to come: waits 3 s, then 504", ""),
    ("L7", "continue tokens", ""),
    ("L8", "compacted: 410, with a token to go on from", ""),
    ("L9", "remainingItemCount, `items: []`", ""),
    ("L10", "one RV for all pages", ""),
    (
        "L11",
        "watch cache not ready: 429",
        "the moment passes within milliseconds of a start; the test server inflicts it as a fault",
    ),
    ("L12", "odd limits and timeouts; 60 s, streaming, gzip", ""),
    ("W1", "a watch without an RV or with \"0\" starts with the state", ""),
    ("W2", "sendInitialEvents needs NotOlderThan", ""),
    ("W3", "the state as ADDED, then the annotated BOOKMARK", ""),
    ("W4", "RV=N: what is newer", ""),
    ("W5", "too old: ERROR 410 in the stream", ""),
    ("W6", "the window of events; a restart empties it", ""),
    ("W7", "bookmarks", ""),
    ("W8", "timeoutSeconds: a clean end", ""),
    ("W9", "crossing a selector", ""),
    (
        "W10",
        "slow watchers are closed without ERROR",
        "when exactly depends on socket buffers and time budgets; the test server's own tests show that it ends so",
    ),
    ("W11", "events in the order of RVs, none twice", ""),
    ("W12", "framing: JSON lines, protobuf", ""),
    ("W13", "partial metadata, tables, 406", ""),
    ("W14", "HTTP/2 streams, GOAWAY", "scripts speak HTTP/1.1; the transport's tests cover HTTP/2"),
    ("W15", "shutdown", "needs a server that is going away; inflicted as a fault"),
    ("W16", "404 for what is not served", ""),
    ("W17", "single-name watches", ""),
    ("W18", "Status", ""),
];

/// Returns an error for each unknown line that a script names, and for each line that no script shows though one should.
pub(crate) fn uncovered(scripts: &[Script]) -> Vec<String> {
    let shown = |line: &str| scripts.iter().any(|script| script.shows.iter().any(|shown| shown == line));
    let missing = LINES.iter().filter(|(line, _, reason)| reason.is_empty() && !shown(line));
    let known = |line: &String| LINES.iter().any(|(name, ..)| name == line);
    let strange = scripts.iter().flat_map(|script| &script.shows).filter(|line| !known(line));
    missing
        .map(|(line, ..)| format!("no script shows {line}"))
        .chain(strange.map(|line| format!("there is no line {line}")))
        .collect()
}

/// Returns the page `docs/evidence/calibration.md`.
pub(crate) fn page(scripts: &[Script], known: &[Known]) -> String {
    let mut page = INTRODUCTION.replace("{COUNT}", &scripts.len().to_string());
    page.push_str("\n## What shows what\n\n| line | what it says | scripts |\n|---|---|---|\n");
    for (line, says, reason) in LINES {
        let shows = if reason.is_empty() { shown_by(line, scripts) } else { format!("none: {reason}") };
        let _ = writeln!(page, "| {line} | {says} | {shows} |");
    }
    page.push_str("\nBeside the contract: ");
    let others = scripts.iter().filter(|script| script.shows.is_empty());
    page.push_str(&names(others));
    page.push_str(".\n\n## Where the test server differs, and why\n\n");
    if known.is_empty() {
        page.push_str("Nowhere.\n");
    } else {
        page.push_str("| scripts | reason |\n|---|---|\n");
    }
    for known in known {
        let scripts: Vec<String> = known.scripts.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(page, "| {} | {} |", scripts.join(", "), known.reason.trim());
    }
    page
}

fn shown_by(line: &str, scripts: &[Script]) -> String {
    names(scripts.iter().filter(|script| script.shows.iter().any(|shown| shown == line)))
}

/// Joins the names; those of a matrix are too many, so only their number is given.
fn names<'a>(scripts: impl Iterator<Item = &'a Script>) -> String {
    let mut matrices: BTreeMap<&str, usize> = BTreeMap::new();
    let mut names = Vec::new();
    for script in scripts {
        if script.group().starts_with("matrix-") {
            *matrices.entry(script.group()).or_default() += 1;
        } else {
            names.push(format!("`{}`", script.name));
        }
    }
    names.extend(matrices.iter().map(|(group, count)| format!("`{group}/*` ({count})")));
    names.join(", ")
}

const INTRODUCTION: &str = "# Calibration

<!-- Written by the program in peers/calibration; `cargo test -p skopos-testserver --test calibration` checks that it is
up to date. -->

This page shows how closely `skopos-testserver` follows Kubernetes' own server. {COUNT} scripts (writes, lists, watches,
compactions, restarts, and the whole matrix of parameters) run on it and on a server made of the published
`k8s.io/apiserver` libraries (`peers/apiserver`: generic registry, watch cache, etcd). A client must see the same on
both: status codes, bodies, messages, events and their order, bookmarks, and how streams end.

Versions are compared by their place among the script's writes, uids and generated names by their order, times by their
presence. managedFields, the cells of tables and most of spec and status (which are full of the kinds' defaults) are not
compared.

```console
cargo test -p skopos-testserver --test calibration     # against the recorded histories; needs no Go
cd peers/apiserver && go build .                        # the real one
cd peers/calibration
cargo run --release -- check --apiserver ../apiserver/apiserver    # both, live
cargo run --release -- record --apiserver ../apiserver/apiserver   # records the histories again, and writes this page
```

Scripts are in `crates/skopos-testserver/tests/calibration/scripts`, the matrix in `kit/matrix.rs`, the recorded
histories in `golden`. `differences.yaml` lists the differences and their reasons. The test fails for a difference that
is not listed, and for a listed one that no longer occurs.
";
