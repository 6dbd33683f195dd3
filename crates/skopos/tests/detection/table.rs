//! The table of the results, as Markdown.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use super::bed::{Case, Measured};
use super::bounds::Bound;

pub(crate) fn markdown(measured: &[(Case, Measured)], seeds: u64) -> String {
    let mut table = HEAD.replace("{seeds}", &seeds.to_string());
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
            format_args!("{} + {}", m.worst.informers(), m.worst.probes),
            m.lists,
            if case.missed(m).is_empty() { "yes" } else { "**not met**" },
        )
        .expect("writing to a text");
    }
    table.push_str(SOURCES);
    let bounds = measured.iter().flat_map(|(case, _)| [case.bounds.detect, case.bounds.recover]);
    let sources: BTreeSet<String> = bounds.map(|of| format!("| {} | {} |\n", bound(of), of.source)).collect();
    table.extend(sources);
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
    format!("{} s", bound.within.as_secs_f64())
}

const HEAD: &str = "\
# How soon faults are noticed, and how soon they are over

This page shows how soon an informer notices each fault, and how soon it recovers. A test run writes it: `SKOPOS_WRITE_TABLES=1 cargo test -p skopos --test detection`.
The informer runs against the test server in virtual time. Each fault begins at {seeds} different moments between two probes; the table shows the worst.

* *noticed*: the content is no longer called live, or a failure is reported, or the change arrived all the same. Where a request or a connection hangs: the
  deadline that ends it.
* *recovered*: the time from when the fault is both healed and noticed until the content is the server's and called live. After that, another change arrives.
* *requests*: the most in any minute of the fault: those of the informer + probes of its kind. The bound is 6 for the informer, and 6 for both together where
  the cluster is dead.
* *lists*: from the fault to the recovery. The bound is 2 in any minute.
* *met*: all of these hold. The test fails where one does not.

Each lasting fault lasts until the client has settled into it. A fault that is healed within its first minute may have used up that minute's two lists or six
requests. Then the recovery comes when the minute is over.

| fault | noticed after | bound | recovered after | bound | requests a minute | lists | met |
|---|---|---|---|---|---|---|---|
";

const SOURCES: &str = "\
\n## Where the bounds come from

*row* is a fault's number in [simulation.md](simulation.md), *bounds* is the project's promise for faults of its kind, and text in code style is the name of an option.

| bound | source |
|---|---|
";
