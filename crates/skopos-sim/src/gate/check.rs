//! One run, judged, and its summary.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use super::tally::Tally;
use crate::history::{At, Fact, History};
use crate::oracle::{Counts, Focus, Invariant, PerInvariant, Verdict, Violation, Weather, judge};
use crate::plan::{Plan, shrink};
use crate::timeline::{self, Frame};

/// Kind of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Run {
    /// One fault at several points.
    Single {
        /// Its number in the catalogue.
        fault: u8,
        /// The seed.
        seed: u64,
    },
    /// An hour of everything.
    Mixed {
        /// The seed.
        seed: u64,
    },
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The run.
    pub run: Run,
    /// Digest of its history; 0 if it panicked.
    pub digest: u64,
    /// Number of facts.
    pub facts: usize,
    /// Duration in simulated time.
    pub simulated: Duration,
    /// The faults that hit something, with their numbers of hits.
    pub hits: Vec<(u8, u64)>,
    /// Number of looks at content with a part of its RV.
    pub parted: u64,
    /// Counts by invariant.
    pub counts: PerInvariant<Counts>,
    /// Violations: the first of each invariant.
    pub failures: Vec<Failure>,
}

/// A violation, with the context that is needed to examine it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The run.
    pub run: Run,
    /// The violation.
    pub violation: Violation,
    /// The timeline around it; empty if the run panicked.
    pub timeline: String,
}

impl Run {
    /// Returns the seed.
    pub fn seed(self) -> u64 {
        match self {
            Run::Single { seed, .. } | Run::Mixed { seed } => seed,
        }
    }

    /// Returns its plan. `None` if the fault is not simulated.
    pub fn plan(self) -> Option<Plan> {
        match self {
            Run::Single { fault, seed } => Plan::single(fault, seed),
            Run::Mixed { seed } => Some(Plan::mixed(seed)),
        }
    }

    /// Returns the command that reproduces it.
    pub fn command(self) -> String {
        match self {
            Run::Single { fault, seed } => format!("cargo xtask sim --seed {seed} --fault {fault}"),
            Run::Mixed { seed } => format!("cargo xtask sim --seed {seed}"),
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Run::Single { fault, seed } => write!(f, "fault {fault}, seed {seed}"),
            Run::Mixed { seed } => write!(f, "seed {seed}"),
        }
    }
}

/// Runs and judges.
pub fn check(run: Run) -> Summary {
    let nothing = Summary {
        run,
        digest: 0,
        facts: 0,
        simulated: Duration::ZERO,
        hits: Vec::new(),
        parted: 0,
        counts: PerInvariant::default(),
        failures: Vec::new(),
    };
    let Some(plan) = run.plan() else { return nothing };
    let judged = catch_unwind(AssertUnwindSafe(|| {
        let history = crate::run(&plan);
        let verdict = judge(&history);
        (history, verdict)
    }));
    match judged {
        Ok((history, verdict)) => Summary::of(run, &history, &verdict),
        Err(panic) => Summary { failures: vec![Failure::panicked(run, &*panic)], ..nothing },
    }
}

impl Summary {
    fn of(run: Run, history: &History, verdict: &Verdict) -> Self {
        let mut told = BTreeSet::new();
        let first = verdict.violations.iter().filter(|violation| told.insert(violation.invariant));
        let failures = first.map(|violation| Failure {
            run,
            violation: violation.clone(),
            timeline: timeline::around(history, violation, Frame::default()),
        });
        Self {
            run,
            digest: history.digest(),
            facts: history.entries.len(),
            simulated: history.end().since(At::ZERO),
            hits: hits(history),
            parted: verdict.parted,
            counts: PerInvariant::from_fn(|invariant| verdict.counts(invariant)),
            failures: failures.collect(),
        }
    }
}

impl Failure {
    fn panicked(run: Run, panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        let what = format!("the run panicked: {text}");
        // No code outside of handlers may panic.
        let violation =
            Violation { invariant: Invariant::I21, at: Default::default(), what, of: Focus::default() };
        Self { run, violation, timeline: String::new() }
    }
}

/// Returns the faults that hit something. An action of users is a hit in itself, and is recorded as one.
fn hits(history: &History) -> Vec<(u8, u64)> {
    let mut hits: std::collections::BTreeMap<u8, u64> = std::collections::BTreeMap::new();
    for span in Weather::of(history).spans() {
        if !span.hits.is_empty() {
            *hits.entry(span.number).or_default() += span.hits.len() as u64;
        }
    }
    if history.entries.iter().any(|entry| matches!(entry.fact, Fact::RolledBack { .. })) {
        hits.entry(32).or_insert(1);
    }
    hits.into_iter().collect()
}

/// Maximum number of failures written, and of runs to shrink the first one.
const WRITTEN: usize = 20;
const ATTEMPTS: usize = 60;

/// Writes each failure's timeline, and, if wanted, the first one's plan, shrunk as far as possible.
pub(super) fn write_failures(tally: &Tally, to: &Path, smaller: bool) -> anyhow::Result<()> {
    for failure in tally.failures.iter().take(WRITTEN) {
        let name = failure.run.to_string().replace(", ", "-").replace(' ', "-");
        let text = format!("{}\n{}\n\n{}", failure.violation, failure.run.command(), failure.timeline);
        let file = to.join(format!("failed-{name}-{}.txt", failure.violation.invariant.code()));
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        eprintln!(
            "\n{}: {}\nrun it again: {}\n{}",
            failure.run,
            failure.violation,
            failure.run.command(),
            failure.timeline
        );
    }
    if smaller
        && let Some(failure) = tally.failures.first()
        && let Some(plan) = failure.run.plan()
    {
        let invariant = failure.violation.invariant;
        let smaller = shrink(&plan, ATTEMPTS, |plan| {
            let verdict = catch_unwind(AssertUnwindSafe(|| judge(&crate::run(plan))));
            verdict.map_or(true, |verdict| verdict.violations.iter().any(|v| v.invariant == invariant))
        });
        let file = to.join("smallest.json");
        std::fs::write(&file, smaller.to_json()?)
            .with_context(|| format!("cannot write {}", file.display()))?;
        eprintln!("as small as it could be had: skopos-sim run --plan {}", file.display());
    }
    Ok(())
}
