//! The sum of many runs.

use std::collections::BTreeMap;
use std::time::Duration;

use super::check::{Failure, Run, Summary};
use crate::oracle::PerInvariant;

/// Totals so far.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Number of runs.
    pub runs: u64,
    /// Number of runs with a violation.
    pub failed: u64,
    /// Number of runs in which a store had a part of the changes that share an RV.
    pub parted: u64,
    /// Facts of all histories.
    pub facts: u64,
    /// Total simulated time.
    pub simulated: Duration,
    /// The first failure of each kind per run, up to a limit.
    pub failures: Vec<Failure>,
    /// Totals of each fault alone, and of all mixed runs together (`None`).
    pub rows: BTreeMap<Option<u8>, Row>,
    /// Digests of the mixed runs.
    pub digests: BTreeMap<u64, u64>,
    /// Seeds whose digest differed in another process.
    pub differing: Vec<u64>,
}

/// The runs of one fault.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Number of runs.
    pub runs: u64,
    /// Number of runs in which the fault hit something; only they count.
    pub struck: u64,
    /// Number of hits.
    pub hits: u64,
    /// Cells by invariant.
    pub cells: PerInvariant<Cell>,
}

/// One invariant under one fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cell {
    /// Number of evaluations.
    pub checked: u64,
    /// Number of evaluations in a situation that could have broken it.
    pub exercised: u64,
    /// Number of runs that broke it.
    pub broken: u64,
}

/// Maximum number of failures kept. An invariant broken in a thousand runs is as broken as in a hundred.
const KEPT: usize = 100;

impl Tally {
    pub(super) fn add(&mut self, summary: &Summary) {
        self.runs += 1;
        self.facts += summary.facts as u64;
        self.simulated += summary.simulated;
        self.failed += u64::from(!summary.failures.is_empty());
        self.parted += u64::from(summary.parted > 0);
        let room = KEPT.saturating_sub(self.failures.len());
        self.failures.extend(summary.failures.iter().take(room).cloned());
        let row = match summary.run {
            Run::Single { fault, .. } => Some(fault),
            Run::Mixed { seed } => {
                self.digests.insert(seed, summary.digest);
                None
            }
        };
        let hits = match row {
            Some(fault) => {
                summary.hits.iter().filter(|(number, _)| *number == fault).map(|(_, hits)| hits).sum()
            }
            None => summary.hits.iter().map(|(_, hits)| hits).sum(),
        };
        self.rows.entry(row).or_default().add(summary, hits);
    }
}

impl Row {
    fn add(&mut self, summary: &Summary, hits: u64) {
        self.runs += 1;
        self.hits += hits;
        for failure in &summary.failures {
            self.cells[failure.violation.invariant].broken += 1;
        }
        if hits == 0 {
            return;
        }
        self.struck += 1;
        for (invariant, counts) in summary.counts.iter() {
            let cell = &mut self.cells[invariant];
            cell.checked += counts.checked;
            cell.exercised += counts.exercised;
        }
    }
}
