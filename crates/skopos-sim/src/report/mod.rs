//! Faults × invariants, with counts, for people: as Markdown and as a page.

mod reasons;

use std::time::Duration;

use anyhow::Context as _;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use serde::Serialize;

use self::reasons::reason;
use crate::fault::{CATALOGUE, Place};
use crate::gate::{Cell, Tally, Volume};
use crate::oracle::Invariant;

/// Result of a gate.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The gate's name.
    pub gate: String,
    /// Number of runs.
    pub runs: u64,
    /// Number of runs with a violation.
    pub failed: u64,
    /// Number of runs in which a store had a part of the changes that share an RV.
    pub parted: u64,
    /// Simulated hours, by the plans.
    pub hours: u64,
    /// Facts of all histories.
    pub facts: u64,
    /// Real time, in seconds.
    pub seconds: u64,
    /// Number of seeds that were run again in another process.
    pub twice: u64,
    /// Seeds whose histories differed.
    pub differing: Vec<u64>,
    /// The invariants.
    pub columns: Vec<Column>,
    /// The faults, and finally the mixed runs.
    pub rows: Vec<Row>,
    /// Cells without a count and without a reason.
    pub unexplained: Vec<String>,
    /// Reasons for empty cells.
    pub reasons: Vec<String>,
    /// The violations.
    pub failures: Vec<Broken>,
}

/// An invariant.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// Code, such as `I8b`.
    pub code: &'static str,
    /// Name in a word or two.
    pub name: &'static str,
    /// Statement of the invariant.
    pub statement: &'static str,
}

/// A fault.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its number; empty for the mixed runs.
    pub number: String,
    /// A short name.
    pub name: String,
    /// The part of the simulation that inflicts it.
    pub place: String,
    /// Number of runs.
    pub runs: u64,
    /// Number of runs in which it hit something.
    pub struck: u64,
    /// Number of hits.
    pub hits: u64,
    /// Cells by invariant.
    pub cells: Vec<Shown>,
}

/// A cell.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    /// Number of evaluations.
    pub checked: u64,
    /// Number of evaluations in a situation that could have broken it.
    pub exercised: u64,
    /// Number of runs that broke it.
    pub broken: u64,
    /// Short form of `exercised`.
    pub short: String,
    /// Number of the reason for an empty cell; 0 if it is not empty.
    pub reason: usize,
}

/// A violation.
#[derive(Clone, Debug, Serialize)]
pub struct Broken {
    /// The run.
    pub run: String,
    /// The violation.
    pub what: String,
    /// The command that reproduces it.
    pub command: String,
}

impl Report {
    /// Makes the report of a gate.
    pub fn of(volume: &Volume, tally: &Tally, took: Duration) -> Self {
        let column = |invariant: Invariant| Column {
            code: invariant.code(),
            name: invariant.name(),
            statement: invariant.statement(),
        };
        let mut report = Self {
            gate: volume.name.clone(),
            runs: tally.runs,
            failed: tally.failed,
            parted: tally.parted,
            hours: tally.simulated.as_secs() / 3600,
            facts: tally.facts,
            seconds: took.as_secs(),
            twice: volume.twice.min(volume.mixed),
            differing: tally.differing.clone(),
            columns: Invariant::ALL.into_iter().map(column).collect(),
            rows: Vec::new(),
            unexplained: Vec::new(),
            reasons: Vec::new(),
            failures: Vec::new(),
        };
        for entry in &CATALOGUE {
            let place = match entry.place {
                Place::NotHere(why) => format!("not here: {why}"),
                place => format!("{place:?}").to_lowercase(),
            };
            let runs = tally.rows.get(&Some(entry.number));
            report.row(Some(entry.number), entry.name.to_owned(), place, runs);
        }
        report.row(None, "mixed hours".to_owned(), "all".to_owned(), tally.rows.get(&None));
        report.failures = tally
            .failures
            .iter()
            .map(|failure| Broken {
                run: failure.run.to_string(),
                what: failure.violation.to_string(),
                command: failure.run.command(),
            })
            .collect();
        report
    }

    fn row(&mut self, fault: Option<u8>, name: String, place: String, row: Option<&crate::gate::Row>) {
        let nothing = crate::gate::Row::default();
        let known = row.unwrap_or(&nothing);
        let mut cells = Vec::new();
        for (invariant, cell) in known.cells.iter() {
            cells.push(self.cell(fault, &name, invariant, cell, known.runs > 0));
        }
        self.rows.push(Row {
            number: fault.map_or_else(String::new, |number| number.to_string()),
            name,
            place,
            runs: known.runs,
            struck: known.struck,
            hits: known.hits,
            cells,
        });
    }

    fn cell(&mut self, fault: Option<u8>, name: &str, invariant: Invariant, cell: &Cell, ran: bool) -> Shown {
        let mut shown = Shown {
            checked: cell.checked,
            exercised: cell.exercised,
            broken: cell.broken,
            short: short(cell.exercised),
            reason: 0,
        };
        if cell.exercised > 0 {
            return shown;
        }
        match reason(fault, invariant) {
            Some(why) => {
                let known = self.reasons.iter().position(|known| known == why);
                shown.reason = 1 + known.unwrap_or_else(|| {
                    self.reasons.push(why.to_owned());
                    self.reasons.len() - 1
                });
            }
            // A fault without any run is not the runs' fault.
            None if ran => self.unexplained.push(format!("{name} × {}", invariant.code())),
            None => {}
        }
        shown
    }

    /// Returns whether the gate is passed.
    pub fn is_green(&self) -> bool {
        self.failed == 0 && self.differing.is_empty() && self.unexplained.is_empty()
    }

    /// Renders the report as Markdown.
    ///
    /// # Errors
    /// When the template is broken.
    pub fn markdown(&self) -> anyhow::Result<String> {
        self.render("report.md", include_str!("templates/report.md.jinja"))
    }

    /// Renders the report as an HTML page.
    ///
    /// # Errors
    /// When the template is broken.
    pub fn html(&self) -> anyhow::Result<String> {
        // The file name makes the library escape HTML.
        self.render("report.html", include_str!("templates/report.html.jinja"))
    }

    fn render(&self, name: &str, template: &str) -> anyhow::Result<String> {
        let mut templates = minijinja::Environment::new();
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true);
        templates.set_syntax(syntax.build()?);
        templates.add_template(name, template)?;
        templates.get_template(name)?.render(Serde(self)).context("the report")
    }
}

/// Formats 1234 as `1.2k`.
fn short(number: u64) -> String {
    match number {
        0 => String::new(),
        1..1000 => number.to_string(),
        1000..10_000 => format!("{:.1}k", number as f64 / 1e3),
        10_000..1_000_000 => format!("{}k", number / 1000),
        _ => format!("{:.1}M", number as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_report_lists_catalogue_and_is_green() {
        let report = Report::of(&Volume::pull_request(), &Tally::default(), Duration::ZERO);
        assert_eq!(report.rows.len(), CATALOGUE.len() + 1);
        assert!(report.is_green(), "{:?}", report.unexplained);
        let text = report.markdown().expect("Markdown");
        assert!(text.contains("| 1 | black-holed TCP |"), "{text}");
        assert!(report.html().expect("a page").contains("<td class=\"name\">black-holed TCP"));
    }

    #[test]
    fn a_cell_that_was_never_exercised_needs_a_reason() {
        let mut tally = Tally::default();
        let row = crate::gate::Row { runs: 20, struck: 20, hits: 20, ..Default::default() };
        tally.rows.insert(Some(1), row);
        let report = Report::of(&Volume::pull_request(), &tally, Duration::ZERO);
        assert!(report.unexplained.contains(&"black-holed TCP × I3".to_owned()), "{:?}", report.unexplained);
        assert!(!report.is_green());
        assert!(
            !report.unexplained.contains(&"black-holed TCP × I19".to_owned()),
            "only a rollback begins an epoch"
        );
    }

    #[test]
    fn numbers_are_short() {
        let texts: Vec<String> = [0, 7, 1234, 45_678, 1_500_000].map(short).into();
        assert_eq!(texts, ["", "7", "1.2k", "45k", "1.5M"]);
    }
}
