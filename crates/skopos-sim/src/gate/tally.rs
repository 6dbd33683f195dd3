//! The sum of many runs.

use std::collections::BTreeMap;
use std::time::Duration;

use super::check::{Failure, Run, Summary};
use crate::oracle::PerInvariant;

/// What has been seen so far.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Runs.
    pub runs: u64,
    /// Those of them that broke something.
    pub failed: u64,
    /// Those of them in which a store was seen to have a part of what shares an RV.
    pub parted: u64,
    /// Facts of all histories.
    pub facts: u64,
    /// How long all runs lasted, in their own time.
    pub simulated: Duration,
    /// The first of each kind per run, up to a bound.
    pub failures: Vec<Failure>,
    /// Of each fault on its own, and of all mixed runs together (`None`).
    pub rows: BTreeMap<Option<u8>, Row>,
    /// Of the mixed runs.
    pub digests: BTreeMap<u64, u64>,
    /// Seeds whose digest was another in another process.
    pub differing: Vec<u64>,
}

/// The runs of one fault.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Runs.
    pub runs: u64,
    /// Those in which the fault struck something; only they count.
    pub struck: u64,
    /// How often it struck.
    pub hits: u64,
    /// By invariant.
    pub cells: PerInvariant<Cell>,
}

/// One invariant under one fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cell {
    /// How often it was evaluated.
    pub checked: u64,
    /// How often in a situation that could have broken it.
    pub exercised: u64,
    /// In how many runs it was broken.
    pub broken: u64,
}

/// One that is broken in a thousand runs is as broken as in a hundred.
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
