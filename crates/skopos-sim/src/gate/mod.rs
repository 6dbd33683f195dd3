//! Many runs that must all be clean: before a change lands, each night, and before a release.
//!
//! ```text
//!  volume ──▶ every fault × n seeds ─┐
//!             mixed hours            ├──▶ threads, one run at a time each ──▶ tally ──▶ report, failures
//!             the same again ────────┘    (another process: the digests must be equal)
//! ```

mod args;
mod check;
mod tally;
mod twice;

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;

pub use self::args::{DigestsArgs, GateArgs};
pub use self::check::{Failure, Run, Summary, check};
pub use self::tally::{Cell, Row, Tally};
use crate::fault::CATALOGUE;
use crate::report::Report;

/// Amount of runs.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Name for the report.
    pub name: String,
    /// Seeds of each fault alone.
    pub per_fault: u64,
    /// Only this fault, instead of each.
    pub fault: Option<u8>,
    /// Seeds of mixed hours.
    pub mixed: u64,
    /// The first seed of both.
    pub first: u64,
    /// Number of mixed seeds that are run again in another process.
    pub twice: u64,
    /// Number of parallel runs.
    pub jobs: usize,
    /// Real time after which no run is begun.
    pub at_most: Option<Duration>,
    /// True to stop at the first failure.
    pub until_red: bool,
    /// Maximum number of runs.
    pub runs: Option<usize>,
}

impl Volume {
    /// Returns the volume that is required before a change lands: some minutes.
    pub fn pull_request() -> Self {
        Self {
            name: "pr".to_owned(),
            per_fault: 20,
            fault: None,
            mixed: 250,
            first: 0,
            twice: 25,
            jobs: std::thread::available_parallelism().map_or(2, usize::from),
            at_most: None,
            until_red: false,
            runs: None,
        }
    }

    /// Returns the volume that is required each night: about an hour.
    pub fn nightly() -> Self {
        Self {
            name: "nightly".to_owned(),
            per_fault: 200,
            mixed: 10_000,
            first: 100_000,
            twice: 50,
            ..Self::pull_request()
        }
    }

    /// Returns the volume that is required before a release: about a day.
    pub fn release() -> Self {
        Self {
            name: "release".to_owned(),
            per_fault: 2000,
            mixed: 100_000,
            first: 1_000_000,
            ..Self::nightly()
        }
    }

    /// Returns all runs in a mixed order, so that the first minutes cover some of everything.
    fn runs(&self) -> VecDeque<Run> {
        let wanted = |number| self.fault.is_none_or(|fault| fault == number);
        let simulated = CATALOGUE.iter().filter(|entry| entry.is_simulated() && wanted(entry.number));
        let singles = simulated.flat_map(|entry| {
            (self.first..self.first + self.per_fault).map(|seed| Run::Single { fault: entry.number, seed })
        });
        let mut singles: Vec<Run> = singles.collect();
        singles.sort_by_key(|run| run.seed());
        let mixed: Vec<Run> = (self.first..self.first + self.mixed).map(|seed| Run::Mixed { seed }).collect();
        let (many, few) = if singles.len() > mixed.len() { (singles, mixed) } else { (mixed, singles) };
        let mut runs = VecDeque::with_capacity(many.len() + few.len());
        let mut rest = few.iter();
        for (at, run) in many.iter().enumerate() {
            runs.push_back(*run);
            while runs.len() - at - 1 < (at + 1) * few.len() / many.len() {
                runs.extend(rest.next());
            }
        }
        runs.extend(rest);
        runs.truncate(self.runs.unwrap_or(usize::MAX));
        runs
    }
}

/// Runs everything of a volume, and writes the report and the failures into `to`.
///
/// # Errors
/// When files or processes cannot be made. Failing runs are no error but part of the report.
pub fn pass(volume: &Volume, to: &Path) -> anyhow::Result<Report> {
    std::fs::create_dir_all(to).with_context(|| format!("no folder {}", to.display()))?;
    crate::quiet_planned_panics();
    let begun = Clock::start();
    let again = twice::Again::start(volume)?;
    let left = Mutex::new(volume.runs());
    let tally = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..volume.jobs.max(1) {
            scope.spawn(|| {
                while let Some(run) = next(volume, &left, &begun) {
                    let summary = check(run);
                    let red = !summary.failures.is_empty();
                    if red {
                        eprintln!("{run}: {}", summary.failures[0].violation);
                    }
                    let mut tally = tally.lock();
                    tally.add(&summary);
                    if tally.runs % 200 == 0 {
                        eprintln!("{} runs, {} failed, {:.0?}", tally.runs, tally.failed, begun.elapsed());
                    }
                    if red && volume.until_red {
                        left.lock().clear();
                    }
                }
            });
        }
    });
    let mut tally = tally.into_inner();
    if let Some(red) = tally.failures.first().map(|first| first.run).filter(|_| volume.until_red) {
        let broken: Vec<_> = tally.failures.iter().filter(|failure| failure.run == red).collect();
        let codes: Vec<_> = broken.iter().map(|failure| failure.violation.invariant.code()).collect();
        println!("red: {} in {red}, run {}", codes.join(", "), tally.runs);
    }
    tally.differing = again.compare(&tally.digests)?;
    let report = Report::of(volume, &tally, begun.elapsed());
    check::write_failures(&tally, to, !volume.until_red)?;
    Ok(report)
}

fn next(volume: &Volume, left: &Mutex<VecDeque<Run>>, begun: &Clock) -> Option<Run> {
    if volume.at_most.is_some_and(|at_most| begun.elapsed() > at_most) {
        return None;
    }
    left.lock().pop_front()
}

/// Real time, which the runs cannot see.
struct Clock(std::time::Instant);

impl Clock {
    #[allow(clippy::disallowed_methods, reason = "how long the gate itself takes")]
    fn start() -> Self {
        Self(std::time::Instant::now())
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_has_every_run_once() {
        for (per_fault, mixed) in [(2, 3), (1, 200), (0, 5), (3, 0)] {
            let volume = Volume { per_fault, mixed, ..Volume::pull_request() };
            let mut runs: Vec<Run> = volume.runs().into();
            let simulated = CATALOGUE.iter().filter(|entry| entry.is_simulated()).count();
            assert_eq!(runs.len() as u64, simulated as u64 * per_fault + mixed);
            runs.sort();
            runs.dedup();
            assert_eq!(runs.len() as u64, simulated as u64 * per_fault + mixed);
        }
    }
}
