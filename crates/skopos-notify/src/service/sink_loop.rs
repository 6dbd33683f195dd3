use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, OptionFuture};
use futures::stream::{self, StreamExt as _};
use kube_runtime::events::Recorder;
use prometheus_client::metrics::histogram::Histogram;
use skopos_reflect::{Clock, Time};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::SinkOptions;
use super::gates::PodGates;
use super::handle::SinkCommand;
use super::report::{Problem, SinkReport};
use super::warnings::{self, Warnings};
use super::watched::{ClusterChanges, Watched};
use crate::desired::{Attachment, ClusterChange, Desired};
use crate::entry::EntryName;
use crate::plan::{PROBE_INTERVAL, Planner, SinkPlan};
use crate::sink::{SinkError, SinkStep, StepOutcome};

/// The loop of one sink.
pub(super) struct SinkLoop {
    pub(super) options: SinkOptions,
    pub(super) desired: Desired,
    pub(super) planner: Planner,
    pub(super) watched: Watched,
    pub(super) gates: PodGates,
    pub(super) warnings: Warnings,
    pub(super) recorder: Recorder,
    /// Propagation times of changes to the outside.
    pub(super) propagation: Histogram,
    pub(super) clock: Clock,
    pub(super) commands: mpsc::Receiver<SinkCommand>,
    pub(super) reports: watch::Sender<Arc<SinkReport>>,
}

/// State of the loop between two rounds.
struct Rounds {
    observe_at: Time,
    /// Time from which a notice of the sink triggers an observation.
    notice_at: Time,
    read_at: Time,
    audit_at: Time,
    gates_at: Time,
    audit: Option<BoxFuture<'static, Option<Time>>>,
    /// The write of Events in progress.
    telling: Option<BoxFuture<'static, Result<(), String>>>,
    telling_problem: Option<String>,
    warn_at: Time,
    sink_problem: Option<String>,
    unreachable: bool,
    view_problem: Option<String>,
    steps: BTreeMap<String, u64>,
}

/// Interval between two checks of the view, because proofs of age come without events.
pub(super) const TICK: Duration = Duration::from_millis(500);
/// Time limit of a confirming list, and the pause before the next one.
pub(super) const AUDIT_TIMEOUT: Duration = Duration::from_secs(30);

impl SinkLoop {
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let Ok(mut changes) = self.watched.changes() else {
            // The factory was shut down.
            return;
        };
        if let Some(cluster) = self.options.cluster() {
            self.planner.set_cluster(cluster);
        }
        let now = self.clock.now();
        let mut rounds = Rounds {
            observe_at: now,
            notice_at: now,
            read_at: now,
            audit_at: now,
            gates_at: now,
            audit: None,
            telling: None,
            telling_problem: None,
            warn_at: now,
            sink_problem: None,
            unreachable: false,
            view_problem: None,
            steps: BTreeMap::new(),
        };
        let sink = self.options.sink.clone();
        while !stop.is_cancelled() {
            self.take_changes(&mut changes);
            self.look(&mut rounds);
            let now = self.clock.now();
            let plan = self.planner.plan(now);
            self.planner
                .take_propagated()
                .iter()
                .for_each(|took| self.propagation.observe(took.as_secs_f64()));
            self.report(&plan, &rounds);
            self.warn(&plan, &mut rounds, now);
            let work = self.work(&plan, &mut rounds, now);
            let Some(worked) = stop.run_until_cancelled(work).await else { break };
            // Commands and lists have their turn even if there is always work.
            let next = if worked { now } else { self.next(&plan, &rounds) };
            tokio::select! {
                () = stop.cancelled() => {}
                Some(change) = changes.next() => self.saw(&change),
                Some(command) = self.commands.recv() => self.obey(command, &mut rounds).await,
                Some(listed) = OptionFuture::from(rounds.audit.as_mut()) => {
                    rounds.audit = None;
                    rounds.audit_at = self.clock.now() + AUDIT_TIMEOUT;
                    if let Some(began) = listed {
                        self.planner.listed(began);
                    }
                }
                Some(told) = OptionFuture::from(rounds.telling.as_mut()) => self.told(told, &mut rounds),
                () = sink.changed() => rounds.observe_at = rounds.observe_at.min(rounds.notice_at),
                () = sleep_until(self.clock.instant(next)) => {}
            }
        }
    }

    /// Begins to write Events about objects that do not get what they ask for. No name waits for these writes.
    fn warn(&mut self, plan: &SinkPlan, rounds: &mut Rounds, now: Time) {
        // Events are about lasting states, so they are not evaluated after each of a hundred changes a second.
        if rounds.telling.is_none() && rounds.warn_at <= now {
            rounds.warn_at = now + TICK;
            let current = warnings::current(&self.options.name, plan, &self.planner, &self.desired);
            let due = self.warnings.due(now, current);
            rounds.telling = (!due.is_empty()).then(|| warnings::tell(self.recorder.clone(), due).boxed());
        }
    }

    fn told(&self, told: Result<(), String>, rounds: &mut Rounds) {
        rounds.telling = None;
        let problem = told.err();
        if let Some(problem) = &problem
            && rounds.telling_problem.as_ref() != Some(problem)
        {
            tracing::warn!(sink = self.options.name, problem, "an Event is not written");
        }
        rounds.telling_problem = problem;
    }

    /// Takes all available changes, before the content that they led to is evaluated.
    fn take_changes(&mut self, changes: &mut ClusterChanges) {
        while let Some(Some(change)) = changes.next().now_or_never() {
            self.saw(&change);
        }
    }

    fn saw(&mut self, change: &ClusterChange) {
        let now = self.clock.now();
        self.desired.removed(change).into_iter().for_each(|removal| self.planner.saw_removal(now, removal));
    }

    /// Passes the cluster's wanted state to the planner.
    fn look(&mut self, rounds: &mut Rounds) {
        let is_known = self.planner.cluster().is_some();
        let (view, problem) = self.watched.view(&mut self.desired, self.clock, is_known);
        rounds.view_problem = problem;
        self.planner.set_view(view);
        if !is_known && let Some(cluster) = self.planner.cluster() {
            self.options.remember(cluster);
        }
    }

    /// Does one unit of due work, and begins a list if something waits for one; returns whether any work was due.
    async fn work(&mut self, plan: &SinkPlan, rounds: &mut Rounds, now: Time) -> bool {
        if plan.list_from.is_some_and(|at| at <= now) && rounds.audit.is_none() && rounds.audit_at <= now {
            rounds.audit = Some(self.watched.clone().audit(self.clock, AUDIT_TIMEOUT).boxed());
        }
        if !plan.steps.is_empty() {
            self.apply(&plan.steps, rounds).await;
            return true;
        }
        if !plan.read.is_empty() && rounds.read_at <= now {
            self.read_back(&plan.read, rounds).await;
            return true;
        }
        if rounds.observe_at <= now {
            self.look_outside(rounds).await;
            return true;
        }
        rounds.gates_at <= now && self.set_gates(rounds).await
    }

    /// Sets the gates of pods whose items exist; returns whether there were any.
    async fn set_gates(&mut self, rounds: &mut Rounds) -> bool {
        let planner = &self.planner;
        let is_outside = |attachment: &Attachment| planner.is_outside(&attachment.name, &attachment.value);
        let due = self.gates.due(self.desired.attachments(), is_outside);
        if due.is_empty() {
            return false;
        }
        if !self.gates.set(due).await {
            rounds.gates_at = self.clock.now() + PROBE_INTERVAL;
        }
        true
    }

    async fn apply(&mut self, steps: &[SinkStep], rounds: &mut Rounds) {
        let (sink, fence, down) = (self.options.sink.clone(), self.options.fence.clone(), OnceLock::new());
        let apply = |step: &SinkStep| {
            let (sink, step, fence, down) = (sink.clone(), step.clone(), fence.as_ref(), &down);
            async move {
                // An unreachable sink is not dialed for each of a thousand names.
                if let Some(problem) = down.get() {
                    return (step, StepOutcome::Unreachable(String::clone(problem)));
                }
                let outcome = sink.apply(&step, fence).await;
                if let StepOutcome::Unreachable(problem) = &outcome {
                    down.get_or_init(|| problem.clone());
                }
                (step, outcome)
            }
        };
        let applying: Vec<_> = steps.iter().map(apply).collect();
        let mut outcomes = stream::iter(applying).buffer_unordered(self.options.writes.max(1));
        while let Some((step, outcome)) = outcomes.next().await {
            let now = self.clock.now();
            let (result, problem) = match &outcome {
                StepOutcome::Done => ("done", None),
                StepOutcome::Unknown(problem) => ("unknown", Some(problem)),
                StepOutcome::Conflict(problem) => ("conflict", Some(problem)),
                StepOutcome::Refused(problem) => ("refused", Some(problem)),
                StepOutcome::Unreachable(problem) => ("unreachable", Some(problem)),
                StepOutcome::Fenced(problem) => ("fenced", Some(problem)),
            };
            match problem {
                None => tracing::info!(sink = self.options.name, step = %step, "written"),
                Some(problem) => {
                    tracing::warn!(sink = self.options.name, step = %step, result, problem, "not written")
                }
            }
            *rounds.steps.entry(result.to_owned()).or_default() += 1;
            if let StepOutcome::Unreachable(problem) = &outcome {
                (rounds.sink_problem, rounds.unreachable) = (Some(problem.clone()), true);
                rounds.observe_at = now + PROBE_INTERVAL;
            }
            self.planner.outcome(now, &step.name, outcome);
        }
    }

    async fn read_back(&mut self, names: &BTreeSet<EntryName>, rounds: &mut Rounds) {
        match self.options.sink.read(names).await {
            Ok(observed) => {
                (rounds.sink_problem, rounds.unreachable) = (None, false);
                self.planner.read(self.clock.now(), names, &observed);
            }
            Err(error) => self.not_read(error, rounds),
        }
    }

    /// Observes the sink, and reads everything unless it is proven unchanged.
    async fn look_outside(&mut self, rounds: &mut Rounds) {
        let began = self.clock.now();
        if self.planner.is_read_back() {
            match self.options.sink.is_unchanged().await {
                Ok(true) => {
                    self.planner.unchanged(began);
                    return self.was_read(began, rounds);
                }
                Ok(false) => {}
                Err(error) => return self.not_read(error, rounds),
            }
        }
        self.observe(rounds).await;
    }

    async fn observe(&mut self, rounds: &mut Rounds) {
        let began = self.clock.now();
        match self.options.sink.observe().await {
            Ok(observed) => {
                self.planner.observed(self.clock.now(), began, observed);
                self.was_read(began, rounds);
            }
            Err(error) => self.not_read(error, rounds),
        }
    }

    /// Records that the sink was read from `began` on.
    fn was_read(&self, began: Time, rounds: &mut Rounds) {
        let now = self.clock.now();
        (rounds.sink_problem, rounds.unreachable) = (None, false);
        rounds.read_at = began;
        rounds.observe_at = began + self.options.observe_every;
        // Reads requested by the sink take at most a tenth of the time.
        rounds.notice_at = (now + now.since(began) * 9).min(rounds.observe_at);
    }

    fn not_read(&mut self, error: SinkError, rounds: &mut Rounds) {
        let (now, problem) = (self.clock.now(), error.to_string());
        if rounds.sink_problem.as_ref() != Some(&problem) {
            tracing::warn!(sink = self.options.name, problem, "the sink cannot be read");
        }
        rounds.unreachable = matches!(error, SinkError::Unreachable(_));
        rounds.sink_problem = Some(problem);
        (rounds.observe_at, rounds.read_at) = (now + PROBE_INTERVAL, now + PROBE_INTERVAL);
        rounds.notice_at = now + TICK;
        self.planner.not_observed(now);
    }

    async fn obey(&mut self, command: SinkCommand, rounds: &mut Rounds) {
        match command {
            SinkCommand::Approve { id, known } => {
                let is_known = self.planner.approve(&id);
                if is_known {
                    tracing::info!(sink = self.options.name, id, "held removals were approved");
                    if let Some(cluster) = self.planner.cluster() {
                        self.options.remember(cluster);
                    }
                }
                // The requester may be gone.
                let _ = known.send(is_known);
            }
            // A sink that is read back has no messages.
            command @ SinkCommand::RetryDead { .. } => command.decline(),
            SinkCommand::Retry => {
                self.planner.retry();
                (rounds.observe_at, rounds.read_at) = (self.clock.now(), self.clock.now());
            }
            SinkCommand::Verify { done } => {
                self.observe(rounds).await;
                self.look(rounds);
                let plan = self.planner.plan(self.clock.now());
                self.report(&plan, rounds);
                self.apply(&plan.steps, rounds).await;
                let _ = done.send(());
            }
        }
    }

    fn report(&self, plan: &SinkPlan, rounds: &Rounds) {
        let mut report = SinkReport::from_plan(&self.options.name, &self.planner, plan, &self.desired);
        report.view_as_of = self.planner.view_as_of();
        report.view_problem.clone_from(&rounds.view_problem);
        report.sink_problem.clone_from(&rounds.sink_problem);
        report.unreachable = rounds.unreachable;
        if let Some(problem) = self.planner.fenced() {
            (report.fenced, report.sink_problem) = (true, Some(problem.to_owned()));
        }
        report.steps.clone_from(&rounds.steps);
        let of_sink = self.options.sink.problem();
        let of_sink = of_sink.map(|message| Problem { about: self.options.name.clone(), message });
        for problem in of_sink.into_iter().chain(self.gates.problem().cloned()) {
            report.problems.insert(0, problem);
            report.problem_count += 1;
        }
        (report.wanted, report.outside) = self.planner.counts();
        self.reports.send_replace(Arc::new(report));
    }

    /// Returns the latest time of the next round.
    fn next(&self, plan: &SinkPlan, rounds: &Rounds) -> Time {
        let read = (!plan.read.is_empty()).then_some(rounds.read_at);
        let list = plan.list_from.filter(|_| rounds.audit.is_none()).map(|at| at.max(rounds.audit_at));
        let tick = self.clock.now() + TICK;
        [plan.wake_at, read, list, Some(rounds.observe_at)].into_iter().flatten().fold(tick, Time::min)
    }
}
