//! What was measured, for people.

use std::fmt::Write as _;
use std::time::Duration;

use super::bed::{Case, Measured};
use super::bounds::Bound;

pub(crate) fn markdown(measured: &[(Case, Measured)], seeds: u64) -> String {
    let mut table = format!("{}", HEAD.replace("{seeds}", &seeds.to_string()));
    for (case, m) in measured {
        let (detect, recover) = (case.bounds.detect, case.bounds.recover);
        writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            case.fault,
            took(m.detected),
            bound(detect),
            took(m.recovered),
            bound(recover),
            format_args!("{} + {}", m.requests.saturating_sub(m.probes), m.probes),
            m.lists,
            case.not_met.map_or_else(|| "yes".to_owned(), |why| format!("**not met**: {why}")),
        )
        .expect("writing to a text");
    }
    let mut sources: Vec<&str> =
        measured.iter().flat_map(|(c, _)| [c.bounds.detect.source, c.bounds.recover.source]).collect();
    sources.sort_unstable();
    sources.dedup();
    table
}

pub(crate) fn write(table: &str) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    std::fs::create_dir_all(folder).expect("a folder for the table");
    std::fs::write(format!("{folder}/detection.md"), table).expect("the table is written");
}

fn took(took: Option<Duration>) -> String {
    took.map_or_else(|| "never".to_owned(), |took| format!("{:.1} s", took.as_secs_f64()))
}

fn bound(bound: Bound) -> String {
    format!("{} s", bound.within.as_secs())
}

const HEAD: &str = "# Detection and recovery\n\n\
| fault | noticed after | bound | recovered after | bound | requests/min + probes/min | lists | met |\n\
|---|---|---|---|---|---|---|---|\n";
