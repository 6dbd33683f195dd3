//! State of sinks, as lines.
use std::fmt::Write as _;

use skopos_console::human;
use skopos_notify::service::SinkReport;

/// Returns the state of all sinks, for people.
pub(crate) fn sinks(reports: &[SinkReport]) -> String {
    reports.iter().map(sink).collect()
}

/// Returns the held removals, and what may be done.
pub(crate) fn held(reports: &[SinkReport]) -> String {
    let mut text = String::new();
    for report in reports {
        for held in &report.held {
            let _ = writeln!(text, "{}  {} ({}): {} removals", held.id, report.name, held.reason, held.count);
            let _ = writeln!(text, "  {}", held.message);
            for removal in &held.removals {
                let _ = writeln!(text, "  - {}", human::one_line(removal, 200));
            }
            if held.count > held.removals.len() {
                let _ = writeln!(text, "  and {} more", held.count - held.removals.len());
            }
        }
    }
    if text.is_empty() { "nothing is held\n".to_owned() } else { text }
}

/// Returns the messages that receivers will never take.
pub(crate) fn dead(reports: &[SinkReport]) -> String {
    let mut text = String::new();
    for report in reports {
        for letter in &report.dead {
            let _ = writeln!(text, "{}  {}: {} {}", letter.id, report.name, letter.change, letter.object);
            let _ = writeln!(text, "  {}", human::one_line(&letter.problem, 400));
        }
        if report.dead_count > report.dead.len() {
            let _ = writeln!(text, "  and {} more of {}", report.dead_count - report.dead.len(), report.name);
        }
    }
    if text.is_empty() { "there are no dead letters\n".to_owned() } else { text }
}

fn sink(report: &SinkReport) -> String {
    let mut text = String::new();
    let state = match report.outside_age_seconds {
        Some(age) => format!("equal to the cluster as of {age:.1} s ago"),
        None => "not yet seen equal to the cluster".to_owned(),
    };
    let _ = writeln!(
        text,
        "{}: {state}; {} names wanted, {} outside, {} pending",
        report.name, report.wanted, report.outside, report.pending
    );
    let mut line = |what: &str| {
        let _ = writeln!(text, "  {}", human::one_line(what, 400));
    };
    if let Some(problem) = &report.sink_problem {
        let what = if report.fenced { "nothing is written" } else { "the sink does not work" };
        line(&format!("{what}: {problem}"));
    }
    if let Some(problem) = &report.view_problem {
        line(&format!("the view of the cluster is old: {problem}"));
    }
    for held in &report.held {
        line(&format!("held {}: {} removals ({}): {}", held.id, held.count, held.reason, held.message));
    }
    for problem in &report.problems {
        line(&format!("not written: {}: {}", problem.about, problem.message));
    }
    if report.dead_count > 0 {
        line(&format!("{} messages will never be taken: see `skopos notify dead`", report.dead_count));
    }
    for name in &report.foreign {
        line(&format!("foreign: {name} is there without our mark, and is left alone"));
    }
    for problem in &report.rejected {
        line(&format!("not taken: {}: {}", problem.about, problem.message));
    }
    for (name, count) in &report.left_out {
        line(&format!("{name} has {count} values more than the sink takes"));
    }
    text
}
