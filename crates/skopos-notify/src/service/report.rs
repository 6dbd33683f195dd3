//! Reports of sinks, for people, commands and metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use skopos_reflect::Time;

use crate::desired::Desired;
use crate::event::Outbox;
use crate::plan::{HeldRemovals, PlanStats, Planner, SinkPlan};

/// State of a sink.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SinkReport {
    /// Its name.
    pub name: String,
    /// Age of the cluster's state that the outside was last seen equal to, in seconds; `None` if it was never equal since the start.
    pub outside_age_seconds: Option<f64>,
    /// Age of the view of the cluster, in seconds; `None` before the first list.
    pub view_age_seconds: Option<f64>,
    /// The reason why the view is old, if it is.
    pub view_problem: Option<String>,
    /// Names that are wanted.
    pub wanted: usize,
    /// Names that are outside and ours.
    pub outside: usize,
    /// Names that are not yet as wanted, and not held.
    pub pending: usize,
    /// Removals that are held.
    pub held: Vec<HeldReport>,
    /// The error of the last read, if it failed.
    pub sink_problem: Option<String>,
    /// True if a sink that is read back could not be reached the last time by this process; another process may reach it.
    #[serde(default)]
    pub unreachable: bool,
    /// True if nothing is written any more, because another process writes the sink.
    #[serde(default)]
    pub fenced: bool,
    /// The first hundred names that could not be written.
    pub problems: Vec<Problem>,
    /// The number of names that could not be written.
    pub problem_count: usize,
    /// The first hundred names whose records outside are not ours.
    pub foreign: Vec<String>,
    /// The number of names whose records outside are not ours.
    pub foreign_count: usize,
    /// The first hundred objects that ask for what another object has, or for what the sink cannot serve.
    pub rejected: Vec<Problem>,
    /// The number of such objects.
    pub rejected_count: usize,
    /// Names with more values than the sink takes, with the number of values left out.
    pub left_out: BTreeMap<String, usize>,
    /// The first hundred messages that the receiver rejected for good.
    pub dead: Vec<DeadReport>,
    /// The number of such messages.
    pub dead_count: usize,
    /// Waiting time of the oldest message, in seconds.
    pub oldest_pending_seconds: Option<f64>,
    /// Number of changes outside that were not ours.
    pub drift: u64,
    /// Numbers of steps by result.
    pub steps: BTreeMap<String, u64>,
    /// True if the outside was seen as the view wants it: no step is due, waits, or is held.
    pub equal: bool,
    #[serde(skip)]
    pub(crate) equal_as_of: Option<Time>,
    #[serde(skip)]
    pub(crate) view_as_of: Option<Time>,
    #[serde(skip)]
    pub(crate) pending_since: Option<Time>,
}

/// A message that the receiver rejected for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadReport {
    /// The ID that `dead retry` takes.
    pub id: String,
    /// The object.
    pub object: String,
    /// The kind of the change.
    pub change: String,
    /// The answer of the receiver.
    pub problem: String,
}

/// Removals that are held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldReport {
    /// The ID that `approve` takes.
    pub id: String,
    /// The reason in a word.
    pub reason: String,
    /// The reason in a sentence, with what to do.
    pub message: String,
    /// The number of removals.
    pub count: usize,
    /// The first hundred removals.
    pub removals: Vec<String>,
}

/// A problem with a name or object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The name or object.
    pub about: String,
    /// The problem, and what to do.
    pub message: String,
}

impl From<&HeldRemovals> for HeldReport {
    fn from(held: &HeldRemovals) -> Self {
        Self {
            id: held.id.clone(),
            reason: held.reason.as_str().to_owned(),
            message: held.reason.to_string(),
            count: held.removals.len(),
            removals: held.removals.iter().take(MAX_LISTED).map(ToString::to_string).collect(),
        }
    }
}

/// Maximum length of lists in a report. Counts are complete.
const MAX_LISTED: usize = 100;

impl SinkReport {
    pub(crate) fn starting(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Describes a sink after planning.
    pub(crate) fn from_plan(name: &str, planner: &Planner, plan: &SinkPlan, desired: &Desired) -> Self {
        let conflicts = plan.conflicts.iter().map(|conflict| Problem {
            about: conflict.loser.to_string(),
            message: format!("{} belongs to {}: choose another name", conflict.name, conflict.owner),
        });
        let rejections = desired
            .rejected()
            .map(|rejected| Problem { about: rejected.object.to_string(), message: rejected.reason.clone() });
        let problems = planner
            .problems()
            .map(|(name, problem)| Problem { about: name.to_string(), message: problem.to_owned() });
        let PlanStats { drift, .. } = planner.stats();
        Self {
            name: name.to_owned(),
            held: plan.held.iter().map(HeldReport::from).collect(),
            problem_count: planner.problems().count(),
            problems: problems.take(MAX_LISTED).collect(),
            foreign_count: plan.foreign.len(),
            rejected_count: plan.conflicts.len() + desired.rejected().count(),
            foreign: plan.foreign.iter().take(MAX_LISTED).map(ToString::to_string).collect(),
            rejected: conflicts.chain(rejections).take(MAX_LISTED).collect(),
            left_out: plan.left_out.iter().map(|(name, count)| (name.to_string(), *count)).collect(),
            pending: plan.pending,
            equal: plan.is_equal,
            drift,
            equal_as_of: planner.equal_as_of(),
            ..Self::default()
        }
    }

    /// Describes a receiver.
    pub(crate) fn from_outbox(name: &str, outbox: &Outbox, held: &[HeldRemovals]) -> Self {
        let problems = outbox
            .problems()
            .map(|(key, problem)| Problem { about: key.to_string(), message: problem.to_owned() });
        let dead = outbox.dead().map(|(key, letter)| DeadReport {
            id: letter.id.to_string(),
            object: key.to_string(),
            change: letter.kind.as_str().to_owned(),
            problem: letter.problem.clone(),
        });
        let (pending, pending_since) = outbox.pending();
        Self {
            name: name.to_owned(),
            outside: outbox.recorded(),
            held: held.iter().map(HeldReport::from).collect(),
            problem_count: outbox.problems().count(),
            problems: problems.take(MAX_LISTED).collect(),
            dead: dead.take(MAX_LISTED).collect(),
            dead_count: outbox.dead().count(),
            pending,
            pending_since,
            ..Self::default()
        }
    }

    /// Returns the report with its ages as of `now`.
    pub(crate) fn at(&self, now: Time) -> Self {
        let age =
            |as_of: Option<Time>| as_of.map(|as_of| now.since(as_of)).as_ref().map(Duration::as_secs_f64);
        Self {
            outside_age_seconds: age(self.equal_as_of),
            view_age_seconds: age(self.view_as_of),
            oldest_pending_seconds: age(self.pending_since),
            ..self.clone()
        }
    }

    /// Returns whether the outside is as wanted, and can be read.
    pub fn is_equal(&self) -> bool {
        self.equal && self.sink_problem.is_none()
    }
}
