//! The planner: its input, and the steps that it returns.

mod removals;
mod round;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use skopos_reflect::Time;

use self::round::Round;
use crate::entry::{DesiredEntry, EntryName, EntryOwner, EntryValue};
use crate::packed::Packed;
use crate::plan::decision::{Decision, Facts, MemberTimes};
use crate::plan::evidence::{Evidence, Removal};
use crate::plan::guard::{HeldRemovals, HoldReason, RemovalGuard};
use crate::plan::name_state::{CONFLICT, NameState, REFUSED, UNKNOWN};
use crate::plan::names::differing;
use crate::plan::options::PlanOptions;
use crate::plan::outside::Outside;
use crate::plan::resting::Resting;
use crate::plan::sink_plan::{PlanStats, SinkPlan};
use crate::plan::view::DesiredView;
use crate::sink::{
    EntryMark, Observed, ObservedEntry, Serving, SinkStep, SinkTraits, StepAction, StepOutcome,
};

/// Planner of the changes outside, and of those that wait. A state machine without I/O: it gets the observed state, and returns
/// steps.
pub struct Planner {
    options: PlanOptions,
    traits: SinkTraits,
    view: DesiredView,
    /// The first cluster that answered.
    cluster: Option<Arc<str>>,
    outside: Outside,
    /// Time at which the last complete observation began.
    observed_at: Option<Time>,
    names: BTreeMap<EntryName, NameState>,
    /// Names that the next plan decides, beside those with a state. All others rest.
    due: BTreeSet<EntryName>,
    resting: Resting,
    evidence: Evidence,
    guard: RemovalGuard,
    approved: BTreeSet<Removal>,
    /// Removals that were held in the last plan.
    held: Vec<HeldRemovals>,
    /// Time until which the sink is left alone.
    not_before: Option<Time>,
    /// The reason for which nothing is written any more: another process writes the sink.
    fenced: Option<String>,
    equal_as_of: Option<Time>,
    /// Propagation times of names seen equal since the last call of `take_propagated`: from the view to the observation outside.
    propagated: Vec<Duration>,
    stats: PlanStats,
}

/// Pause before a seen removal is carried out, so that a value that moves from one object to another does not go and come.
const REMOVAL_PAUSE: Duration = Duration::from_millis(100);
/// Interval between two tries of a sink that is down.
pub(crate) const PROBE_INTERVAL: Duration = Duration::from_secs(10);
impl Planner {
    /// Makes a planner for a sink whose state is unknown.
    pub fn new(traits: SinkTraits, options: PlanOptions) -> Self {
        Self {
            options,
            traits,
            view: DesiredView::default(),
            cluster: None,
            outside: Outside::default(),
            observed_at: None,
            names: BTreeMap::new(),
            due: BTreeSet::new(),
            resting: Resting::default(),
            evidence: Evidence::default(),
            guard: RemovalGuard::default(),
            approved: BTreeSet::new(),
            held: Vec::new(),
            not_before: None,
            fenced: None,
            equal_as_of: None,
            propagated: Vec::new(),
            stats: PlanStats::default(),
        }
    }

    /// Notes the cluster's wanted state.
    pub fn set_view(&mut self, view: DesiredView) {
        if self.cluster.is_none() {
            self.cluster.clone_from(&view.cluster);
        }
        if !Arc::ptr_eq(&self.view.entries, &view.entries) {
            self.due.extend(differing(&self.view.entries, &view.entries, Packed::eq).cloned());
        }
        self.view = view;
    }

    /// Notes the cluster that the outside belongs to, as remembered from an earlier run.
    pub fn set_cluster(&mut self, cluster: Arc<str>) {
        self.cluster = Some(cluster);
    }

    /// Returns the cluster that the outside belongs to.
    pub fn cluster(&self) -> Option<&Arc<str>> {
        self.cluster.as_ref()
    }

    /// Notes a change that removed a value, which is strong evidence. It must precede the view without the value.
    pub fn saw_removal(&mut self, now: Time, removal: Removal) {
        self.evidence.saw(now, removal);
    }

    /// Notes that the view agreed with a list that was begun at this time.
    pub fn listed(&mut self, began: Time) {
        self.evidence.listed(began, self.options.confirm);
    }

    /// Notes the complete outside, read from `began` on.
    pub fn observed(&mut self, now: Time, began: Time, mut observed: Observed) {
        let known = self.observed_at.is_some();
        // A step in flight may have been read before or after its effect.
        for (name, state) in &self.names {
            if state.in_flight {
                match self.outside.get(name) {
                    Some(entry) => observed.entries.insert(name.clone(), entry),
                    None => observed.entries.remove(name),
                };
            }
        }
        for (name, before) in self.outside.replace(observed, &self.view.entries) {
            let after = self.outside.get(&name);
            self.guard.moved(now, &name, before.as_ref(), after.as_ref());
            let is_equal = |state: &NameState| state.is_equal;
            if self.rests(&name, before.as_ref()) || self.names.get(&name).is_some_and(is_equal) {
                self.saw_additions(now, &name, before.as_ref(), after.as_ref());
            }
            if known && self.names.get(&name).is_none_or(|state| !state.unverified) {
                self.stats.drift += 1;
                self.names.entry(name.clone()).or_default().repaired(now);
            }
            self.due.insert(name);
        }
        self.names.values_mut().filter(|state| !state.in_flight).for_each(NameState::verified);
        (self.observed_at, self.not_before) = (Some(began), None);
    }

    /// Returns whether everything outside is known, and every write was read back.
    pub fn is_read_back(&self) -> bool {
        let is_open = |state: &NameState| state.in_flight || state.unverified;
        self.observed_at.is_some() && !self.names.values().any(is_open)
    }

    /// Notes that everything outside was seen unchanged, as of `began`. Everything [is read back](Self::is_read_back).
    pub fn unchanged(&mut self, began: Time) {
        (self.observed_at, self.not_before) = (Some(began), None);
    }

    /// Returns whether a name, given its last state outside, was decided once and for all.
    fn rests(&self, name: &EntryName, outside: Option<&ObservedEntry>) -> bool {
        !self.due.contains(name) && (outside.is_some() || self.view.entries.contains_key(name))
    }

    /// Records values that another program has added to an equal name. The addition itself is evidence that they are not wanted.
    fn saw_additions(
        &mut self,
        now: Time,
        name: &EntryName,
        before: Option<&ObservedEntry>,
        after: Option<&ObservedEntry>,
    ) {
        let claimants = self.view.claimants(name);
        let is_wanted = |value: &EntryValue| claimants.iter().any(|entry| entry.members.contains_key(value));
        let was_there = |value: &EntryValue| before.is_some_and(|entry| entry.members.contains_key(value));
        let values = after.into_iter().flat_map(|entry| entry.members.keys());
        for value in values.filter(|value| !was_there(value) && !is_wanted(value)) {
            self.evidence.saw(now, Removal { name: name.clone(), value: Some(value.clone()) });
        }
    }

    /// Notes the state of these names outside.
    pub fn read(&mut self, now: Time, names: &BTreeSet<EntryName>, observed: &Observed) {
        for name in names {
            let after = observed.entries.get(name);
            let before = self.outside.set(name, after, &self.view.entries);
            self.guard.moved(now, name, before.as_ref(), after);
            self.due.insert(name.clone());
            if let Some(state) = self.names.get_mut(name) {
                state.verified();
            }
        }
        self.not_before = None;
    }

    /// Notes that the sink could not be read.
    pub fn not_observed(&mut self, now: Time) {
        self.not_before = Some(now + PROBE_INTERVAL);
    }

    /// Notes the outcome of a step.
    pub fn outcome(&mut self, now: Time, name: &EntryName, outcome: StepOutcome) {
        let state = self.names.entry(name.clone()).or_default();
        state.in_flight = false;
        match outcome {
            StepOutcome::Done => {
                (state.unverified, state.failures, state.problem, state.not_before) = (true, 0, None, None);
            }
            StepOutcome::Unknown(problem) => {
                state.unverified = true;
                state.failed(now, problem, UNKNOWN);
            }
            StepOutcome::Conflict(problem) => {
                self.stats.conflicts += 1;
                state.unverified = true;
                state.failed(now, problem, CONFLICT);
            }
            StepOutcome::Refused(problem) => state.failed(now, problem, REFUSED),
            StepOutcome::Unreachable(problem) => {
                state.problem = Some(problem);
                self.not_before = Some(now + PROBE_INTERVAL);
            }
            StepOutcome::Fenced(problem) => self.fenced = Some(problem),
        }
    }

    /// Returns the reason for which nothing is written any more, if another process writes the sink.
    pub fn fenced(&self) -> Option<&str> {
        self.fenced.as_deref()
    }

    /// Approves the held removals of this ID, and no others. `false` if there are none.
    pub fn approve(&mut self, id: &str) -> bool {
        let Some(held) = self.held.iter().find(|held| held.id == id) else { return false };
        if held.reason == HoldReason::AnotherCluster {
            self.cluster.clone_from(&self.view.cluster);
        } else {
            self.approved.extend(held.removals.iter().cloned());
        }
        true
    }

    /// Ends all pauses: refused steps are tried at once.
    pub fn retry(&mut self) {
        (self.not_before, self.fenced) = (None, None);
        self.names.values_mut().for_each(|state| state.not_before = None);
    }

    /// Returns the time of the cluster's state that the outside was last seen equal to. Its age is the age of the outside.
    pub fn equal_as_of(&self) -> Option<Time> {
        self.equal_as_of
    }

    /// Returns the time up to which the view is proven.
    pub fn view_as_of(&self) -> Option<Time> {
        self.view.as_of
    }

    /// Returns the number of names that are wanted, and of those that are outside and ours.
    pub fn counts(&self) -> (usize, usize) {
        (self.view.entries.len(), self.outside.ours())
    }

    /// Returns whether a value was seen behind a name of ours outside.
    pub(crate) fn is_outside(&self, name: &EntryName, value: &EntryValue) -> bool {
        let is_open = self.names.get(name).is_some_and(|state| state.in_flight || state.unverified);
        let entry = self.outside.get(name).filter(|entry| entry.mark != EntryMark::Foreign);
        !is_open && entry.is_some_and(|entry| entry.members.contains_key(value))
    }

    /// Returns the entries of the objects that ask for a name.
    pub(crate) fn claimants(&self, name: &EntryName) -> Vec<DesiredEntry> {
        self.view.claimants(name)
    }

    /// Returns the owner of a name: the one in its mark outside, or else the first object that asks for it.
    pub(crate) fn owner(&self, name: &EntryName) -> Option<Arc<EntryOwner>> {
        let marked = marked_owner(self.outside.get(name).as_ref());
        marked.or_else(|| self.claimants(name).into_iter().next().map(|entry| entry.owner))
    }

    /// Returns the names that cannot be written, with the problems.
    pub fn problems(&self) -> impl Iterator<Item = (&EntryName, &str)> {
        self.names.iter().filter_map(|(name, state)| Some((name, state.problem.as_deref()?)))
    }

    /// Takes the propagation times of the names seen equal since the last call.
    pub fn take_propagated(&mut self) -> Vec<Duration> {
        std::mem::take(&mut self.propagated)
    }

    /// Returns the counters.
    pub fn stats(&self) -> PlanStats {
        self.stats
    }

    /// Decides everything again in the next plan.
    #[cfg(test)]
    pub(in crate::plan) fn recheck(&mut self) {
        self.due.extend(self.view.entries.keys().cloned());
        self.due.extend(self.outside.names().cloned());
    }

    /// Returns the number of items held in memory beyond the view and the outside.
    #[cfg(test)]
    pub(in crate::plan) fn footprint(&self) -> usize {
        self.names.len() + self.due.len() + self.evidence.len() + self.approved.len() + self.held.len()
    }

    /// Plans the current work. Its steps count as begun: each needs an [`outcome`](Self::outcome).
    pub fn plan(&mut self, now: Time) -> SinkPlan {
        let mut plan = SinkPlan::default();
        let (Some(as_of), Some(observed_at)) = (self.view.as_of, self.observed_at) else { return plan };
        self.guard.serving(now, self.outside.serving());
        let mut round = Round { age: now.since(as_of), ..Round::default() };
        let is_another = self.view.cluster.is_some() && self.view.cluster != self.cluster;
        self.due.extend(self.names.keys().cloned());
        let decisions = self.decide(now, &mut plan, &mut round);
        self.resting.describe(&mut plan);
        if is_another {
            self.hold_all(decisions, &mut plan);
            return plan;
        }
        let decisions = self.guarded(now, decisions, &mut plan, &mut round);
        self.steps(now, decisions, &mut plan, &mut round);
        plan.held = std::mem::take(&mut round.held)
            .into_iter()
            .map(|(reason, removals)| HeldRemovals::new(reason, removals))
            .collect();
        self.held.clone_from(&plan.held);
        let (missing, names) = (&round.missing, &self.names);
        // A value that may be outside without having been seen there will be missing once it is.
        let may_be_outside = |removal: &Removal| {
            let sent = names.get(&removal.name).map(|state| &state.sent);
            sent.is_some_and(|sent| {
                removal.value.as_ref().map_or(!sent.is_empty(), |value| sent.contains(value))
            })
        };
        self.evidence.retain(|removal| missing.contains(removal) || may_be_outside(removal));
        self.approved.retain(|removal| missing.contains(removal) || round.losing.contains(removal));
        self.names.retain(|_, state| *state != NameState::default());
        plan.read = self
            .names
            .iter()
            .filter(|(_, state)| state.unverified && !state.in_flight)
            .map(|(name, _)| name.clone())
            .collect();
        plan.is_equal =
            !round.behind && plan.steps.is_empty() && plan.held.is_empty() && plan.read.is_empty();
        if plan.is_equal {
            self.outside.pack();
            let as_of = as_of.min(observed_at);
            self.equal_as_of = Some(self.equal_as_of.map_or(as_of, |known| known.max(as_of)));
        }
        plan.wake_at = round.wake_at;
        plan
    }

    /// Decides each name that is due, without the guard.
    fn decide(&mut self, now: Time, plan: &mut SinkPlan, round: &mut Round) -> Vec<(EntryName, Decision)> {
        let mut decisions = Vec::new();
        for name in &self.due {
            self.resting.remove(name);
            let claimants = self.view.claimants(name);
            let observed = self.outside.get(name);
            let mut since =
                self.names.get_mut(name).map(|state| std::mem::take(&mut state.since)).unwrap_or_default();
            let facts = Facts {
                now,
                name,
                claimants: &claimants,
                observed: observed.as_ref(),
                traits: self.traits,
                options: &self.options,
            };
            let mut decision = Decision::new(&facts, &mut since);
            decision.before = observed;
            if since != MemberTimes::default() {
                self.names.entry(name.clone()).or_default().since = since;
            }
            if decision.foreign {
                plan.foreign.insert(name.clone());
            }
            if decision.left_out > 0 {
                plan.left_out.insert(name.clone(), decision.left_out);
            }
            plan.conflicts.extend(decision.conflicts(name));
            round.wake(decision.wake_at);
            decisions.push((name.clone(), decision));
        }
        decisions
    }

    /// Holds every change, because another cluster answers.
    fn hold_all(&mut self, decisions: Vec<(EntryName, Decision)>, plan: &mut SinkPlan) {
        let differs = |decision: &Decision| !decision.losses.is_empty() || !is_as(decision);
        let removals: BTreeSet<_> = decisions
            .into_iter()
            .filter(|(_, decision)| !decision.foreign && differs(decision))
            .map(|(name, _)| Removal { name, value: None })
            .collect();
        plan.held = vec![HeldRemovals::new(HoldReason::AnotherCluster, removals)];
        self.held.clone_from(&plan.held);
    }

    /// Makes the steps that change the outside as decided.
    fn steps(
        &mut self,
        now: Time,
        decisions: Vec<(EntryName, Decision)>,
        plan: &mut SinkPlan,
        round: &mut Round,
    ) {
        let may_add = round.age <= self.options.add_when_stale;
        let is_down = self.not_before.is_some_and(|at| at > now);
        for (name, decision) in decisions {
            let before = decision.before.as_ref();
            let is_foreign = before.is_some_and(|entry| entry.mark == EntryMark::Foreign);
            if is_foreign || is_as(&decision) {
                if let Some(state) =
                    self.names.get_mut(&name).filter(|state| !state.in_flight && !state.unverified)
                {
                    state.settled(now);
                    self.propagated.extend(state.behind_since.take().map(|since| now.since(since)));
                }
                self.rest(&name, &decision);
                continue;
            }
            round.behind = true;
            plan.pending += 1;
            let state = self.names.entry(name.clone()).or_default();
            state.behind_since.get_or_insert(now);
            state.is_equal = false;
            if state.in_flight || state.unverified {
                continue;
            }
            let waits_until = if is_down { self.not_before } else { state.waits_until(now) };
            if waits_until.is_some() || !may_add || self.fenced.is_some() {
                round.wake(waits_until);
                continue;
            }
            if plan.steps.len() >= self.options.steps {
                round.wake(Some(now));
                continue;
            }
            self.guard.lose(now, round.lost.get(&name).copied().unwrap_or_default());
            let action = match decision.owner {
                Some(owner) => StepAction::Put { owner, members: decision.members },
                None if decision.members.is_empty() => StepAction::Delete,
                // Its last values drain.
                None => StepAction::Put {
                    owner: marked_owner(before).unwrap_or_default(),
                    members: decision.members,
                },
            };
            state.in_flight = true;
            state.sent = sent(&action);
            plan.steps.push(SinkStep { name, before: decision.before, action });
        }
    }

    /// Puts a name to rest if neither time nor a guard would change its decision.
    fn rest(&mut self, name: &EntryName, decision: &Decision) {
        let state = self.names.get_mut(name);
        let has_state = state.is_some_and(|state| {
            state.is_equal = false;
            let has_state = *state != NameState::default();
            state.is_equal = has_state && decision.is_final && !state.in_flight && !state.unverified;
            has_state
        });
        if decision.is_final && !has_state {
            self.due.remove(name);
            if self.outside.contains(name) || self.view.entries.contains_key(name) {
                self.resting.insert(name, decision);
            }
        }
    }
}

/// Returns the values that are outside after a step.
fn sent(action: &StepAction) -> BTreeSet<EntryValue> {
    match action {
        StepAction::Put { members, .. } => members.keys().cloned().collect(),
        StepAction::Delete => BTreeSet::new(),
    }
}

/// Returns whether the outside is as decided.
fn is_as(decision: &Decision) -> bool {
    let Some(entry) = &decision.before else { return decision.members.is_empty() };
    let is_same_owner = match (&entry.mark, &decision.owner) {
        (EntryMark::Ours(Some(mark)), Some(owner)) => mark.is(owner),
        _ => true,
    };
    let serving = |draining: bool| if draining { Serving::Draining } else { Serving::Active };
    let members = entry.members.iter().map(|(value, member)| (value, serving(member.draining)));
    is_same_owner
        && entry.tidy
        && (decision.owner.is_some() || !decision.members.is_empty())
        && members.eq(decision.members.iter().map(|(value, serving)| (value, *serving)))
}

/// Returns the owner that the mark outside names.
fn marked_owner(observed: Option<&ObservedEntry>) -> Option<Arc<EntryOwner>> {
    match &observed?.mark {
        EntryMark::Ours(Some(owner)) => Some(owner.clone()),
        EntryMark::Ours(None) | EntryMark::Foreign => None,
    }
}
