//! The tables of the page, in Markdown.

use std::fmt::Write as _;

use crate::results::{FaultResult, FaultResults, Outcome, SpeedResults};

/// How a client came to know of a fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Notice {
    /// It told its user.
    Told(f64),
    /// It did not tell, but what it holds was the server's again while the fault lasted.
    Caught(f64),
    /// Neither.
    Never,
}

const MOMENT: f64 = 0.25;

impl Notice {
    pub(crate) fn of(fault: &FaultResult, outcome: &Outcome) -> Self {
        // What is right again in the very moment of the heal was not noticed before it.
        let lasts = fault.healed_s.map_or(f64::INFINITY, |healed| healed - MOMENT);
        let caught = outcome.equal_s.filter(|at| *at < lasts);
        match (outcome.told_s.filter(|at| *at < lasts), caught) {
            (Some(told), Some(caught)) if caught < told => Self::Caught(caught),
            (Some(told), _) => Self::Told(told),
            (None, Some(caught)) => Self::Caught(caught),
            (None, None) => Self::Never,
        }
    }
}

/// When each client noticed each fault, and when it had recovered.
pub(super) fn times(results: &FaultResults) -> String {
    let mut table = String::from(
        "| row | fault | server | client-go noticed | kube-rs noticed | Skopos noticed | client-go recovered | kube-rs \
         recovered | Skopos recovered |\n|--:|---|---|--:|--:|--:|--:|--:|--:|\n",
    );
    for fault in &results.faults {
        let noticed = fault.clients.iter().map(|outcome| match Notice::of(fault, outcome) {
            Notice::Told(at) => format!("{} told", seconds(at)),
            Notice::Caught(at) => format!("{} seen", seconds(at)),
            Notice::Never => "**no**".to_owned(),
        });
        let recovered = fault.clients.iter().map(|outcome| match outcome.recovered_s {
            Some(at) => seconds(at),
            None => "**no**".to_owned(),
        });
        let cells: Vec<String> = noticed.chain(recovered).collect();
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} |",
            fault.row,
            fault.title,
            if fault.server == crate::server::Kind::Real { "real" } else { "test" },
            cells.join(" | ")
        );
    }
    table
}

/// What was lost, what it cost, and whether the user knows.
pub(super) fn harm(results: &FaultResults) -> String {
    let mut table = String::from(
        "| fault | user told | wrong in the end | delete + create told as an update | deletions never told | requests \
         (lists) | connections |\n|---|---|---|---|---|---|---|\n",
    );
    for fault in &results.faults {
        let each = |cell: &dyn Fn(&Outcome) -> String| {
            fault.clients.iter().map(cell).collect::<Vec<_>>().join(" / ")
        };
        let count = |count: usize| if count == 0 { "0".to_owned() } else { format!("**{count}**") };
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} | {} |",
            fault.title,
            each(&|outcome| if outcome.told_s.is_some() { "yes" } else { "no" }.to_owned()),
            each(&|outcome| count(outcome.wrong)),
            each(&|outcome| count(outcome.crossings)),
            each(&|outcome| count(outcome.untold_deletions)),
            each(&|outcome| match (outcome.requests, outcome.lists) {
                (Some(requests), Some(lists)) => format!("{requests} ({lists})"),
                _ => "–".to_owned(),
            }),
            each(&|outcome| outcome.connections.to_string()),
        );
    }
    table
}

/// What the wait for the first sync came to where the server was not well from the start.
pub(super) fn starts(results: &FaultResults) -> String {
    let mut table = String::from(
        "| fault | client | the wait for the first sync, bounded to 30 s, says |\n|---|---|---|\n",
    );
    for fault in results.faults.iter().filter(|fault| fault.id.starts_with("start-")) {
        for outcome in &fault.clients {
            let said = match &outcome.sync_timeout {
                None => "synced in time".to_owned(),
                Some((_, reason)) if reason.is_empty() => "nothing but that the time is over".to_owned(),
                Some((_, reason)) => format!("\"{}\"", shorten(reason)),
            };
            let _ = writeln!(table, "| {} | {} | {said} |", fault.title, outcome.client.name());
        }
    }
    table
}

/// Speed and memory.
pub(super) fn speed(results: &SpeedResults) -> String {
    let mut table = String::from(
        "| server | pods | client | sync, s | sync, CPU µs per pod | the server's | peak KiB per pod | steady KiB per pod | events per \
         CPU second |\n|---|--:|---|--:|--:|--:|--:|--:|--:|\n",
    );
    for row in &results.rows {
        let server = row.server_cpu_us_per_pod.map_or_else(|| "–".to_owned(), |cpu| format!("{cpu:.1}"));
        let events = match row.events {
            0..=FEW => "not measured".to_owned(),
            _ => format!("{:.0}", row.events_per_cpu_second),
        };
        let _ = writeln!(
            table,
            "| {} | {} | {}, {} | {:.1} | {:.1} | {server} | {:.1} | {:.1} | {events} |",
            row.server.name(),
            row.pods,
            row.client.name(),
            row.mode,
            row.sync_s,
            row.sync_cpu_us_per_pod,
            row.peak_kib_per_pod,
            row.steady_kib_per_pod,
        );
    }
    table
}

/// Fewer events than this are no measurement.
pub(super) const FEW: u64 = 1_000;

fn seconds(value: f64) -> String {
    match value {
        value if value < 1.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// A reason on one line of a table.
fn shorten(reason: &str) -> String {
    const LONGEST: usize = 220;
    let text: String = reason.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
