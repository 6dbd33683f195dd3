//! The table of the controllers, in Markdown: a row for each figure, a column for each controller.

use crate::results::{ControllerResult, ControllerResults};

/// A figure's name, and how it is read.
type Figure = (&'static str, fn(&ControllerResult) -> String);

const FIGURES: [Figure; 20] = [
    ("first: all children right, s", |row| seconds(row.first_s)),
    ("first: reconciles", |row| row.first_reconciles.to_string()),
    ("first: reconciles per second", |row| per(row.first_reconciles, row.first_s)),
    ("first: reconciles per second of its CPU", |row| per(row.first_reconciles, row.first_cpu_s)),
    ("burst: its length, s", |row| seconds(row.burst_s)),
    ("burst: server away, s", |row| seconds(row.outage_s)),
    ("restart: until it writes again, s", |row| maybe(row.written_again_s)),
    ("restart: until a new change is right, s", |row| maybe(row.right_again_s)),
    ("burst over: until all children are right, s", |row| maybe(row.settled_s)),
    ("lost: children that are wrong in the end", |row| row.lost.to_string()),
    ("reconciles in all", |row| row.reconciles.to_string()),
    ("of them failed", |row| row.failed.to_string()),
    ("writes sent", |row| asked(row, "apply").to_string()),
    ("double: writes that changed nothing", |row| row.idle_writes().to_string()),
    ("writes that changed a child", |row| row.changes.to_string()),
    ("lists / watches / other requests", others),
    ("CPU in all, s", |row| seconds(row.cpu_s)),
    ("CPU per reconcile, µs", |row| per((row.cpu_s * 1e6) as u64, row.reconciles as f64)),
    ("memory: peak / in the end, MiB", |row| format!("{} / {}", row.peak_kib >> 10, row.steady_kib >> 10)),
    ("the server's CPU, s", |row| seconds(row.server_cpu_s)),
];

/// What three controllers did at the same job.
pub(super) fn table(results: &ControllerResults) -> String {
    let names: Vec<&str> = results.rows.iter().map(|row| row.runtime.name()).collect();
    let mut table = format!("| | {} |\n|---|{}\n", names.join(" | "), "--:|".repeat(names.len()));
    for (name, figure) in FIGURES {
        let cells: Vec<String> = results.rows.iter().map(figure).collect();
        table += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    table
}

fn others(row: &ControllerResult) -> String {
    let (lists, watches, writes) = (asked(row, "list"), asked(row, "watch"), asked(row, "apply"));
    let rest = row.requests.values().sum::<u64>() - lists - watches - writes;
    format!("{lists} / {watches} / {rest}")
}

fn asked(row: &ControllerResult, verb: &str) -> u64 {
    row.requests.get(verb).copied().unwrap_or_default()
}

fn per(count: u64, of: f64) -> String {
    format!("{:.0}", count as f64 / of)
}

fn maybe(value: Option<f64>) -> String {
    value.map_or_else(|| "**no**".to_owned(), seconds)
}

fn seconds(value: f64) -> String {
    format!("{value:.1}")
}
