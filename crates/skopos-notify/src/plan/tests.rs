//! The failure cases of the notifier that need no network: the planner with a view and an outside.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use skopos_reflect::Time;

use super::*;
use crate::entry::{DesiredEntry, EntryName, EntryOwner, EntryValue, Readiness};
use crate::packed::Packed;
use crate::sink::{
    EntryMark, Observed, ObservedEntry, ObservedMember, Serving, SinkStep, SinkTraits, StepAction,
    StepOutcome,
};

/// A cluster, a planner and an outside, with their own clock.
pub(super) struct World {
    pub(super) now: Time,
    pub(super) planner: Planner,
    pub(super) outside: Observed,
    pub(super) wanted: BTreeMap<EntryName, Vec<DesiredEntry>>,
    /// Steps in their order, as lines.
    pub(super) log: Vec<String>,
    pub(super) cluster: &'static str,
    /// Time since which the view is no longer proven.
    pub(super) stale_since: Option<Time>,
    /// True if every plan decides every name.
    pub(super) recheck: bool,
    pub(super) drains: bool,
}

impl World {
    pub(super) fn new(drains: bool, options: PlanOptions) -> Self {
        let traits = SinkTraits { drains, most_values: Some(100) };
        Self {
            now: Time::ORIGIN + secs(1_000),
            planner: Planner::new(traits, options),
            outside: Observed::default(),
            wanted: BTreeMap::new(),
            log: Vec::new(),
            cluster: "a",
            stale_since: None,
            recheck: false,
            drains,
        }
    }

    fn dns() -> Self {
        Self::new(false, PlanOptions::default())
    }

    fn balancer() -> Self {
        Self::new(true, PlanOptions::default())
    }

    /// Adds an owner's request for a name with these values.
    pub(super) fn want(
        &mut self,
        name: &str,
        owner: &str,
        values: impl IntoIterator<Item = (EntryValue, Readiness)>,
    ) {
        let entry = DesiredEntry { owner: owned_by(owner), members: values.into_iter().collect() };
        let claimants = self.wanted.entry(name.into()).or_default();
        claimants.retain(|known| known.owner != entry.owner);
        claimants.push(entry);
        claimants.sort_by(|a, b| a.owner.cmp(&b.owner));
    }

    fn ready(&mut self, name: &str, owner: &str, count: u8) {
        self.want(name, owner, (0..count).map(|index| (address(index), Readiness::Ready)));
    }

    /// Removes a value, as seen by the watch.
    pub(super) fn goes(&mut self, name: &str, value: &EntryValue) {
        for claimant in self.wanted.get_mut(name).into_iter().flatten() {
            claimant.members.remove(value);
        }
        self.planner.saw_removal(self.now, Removal { name: name.into(), value: Some(value.clone()) });
    }

    /// Deletes the owner, as seen by the watch.
    pub(super) fn deleted(&mut self, name: &str, owner: &str) {
        let claimants = self.wanted.get_mut(name).unwrap();
        claimants.retain(|claimant| claimant.owner != owned_by(owner));
        if claimants.is_empty() {
            self.wanted.remove(name);
        }
        self.planner.saw_removal(self.now, Removal { name: name.into(), value: None });
    }

    pub(super) fn entries(&self) -> Arc<DesiredEntries> {
        Arc::new(self.wanted.iter().map(|(name, entries)| (name.clone(), Packed::new(entries))).collect())
    }

    pub(super) fn look(&mut self) {
        let as_of = self.stale_since.unwrap_or(self.now);
        let entries = self.entries();
        self.planner.set_view(DesiredView {
            entries,
            as_of: Some(as_of),
            cluster: Some(self.cluster.into()),
        });
    }

    /// Notes that a list agrees with the view.
    pub(super) fn list(&mut self) {
        self.planner.listed(self.now);
    }

    pub(super) fn observe(&mut self) {
        self.planner.observed(self.now, self.now, self.outside.clone());
    }

    /// Executes steps until none is due, without time passing.
    pub(super) fn settle(&mut self) -> SinkPlan {
        self.look();
        for _ in 0..100 {
            if self.recheck {
                self.planner.recheck();
            }
            let plan = self.planner.plan(self.now);
            for step in &plan.steps {
                self.apply(step);
                self.planner.outcome(self.now, &step.name, StepOutcome::Done);
            }
            if !plan.read.is_empty() {
                self.planner.read(self.now, &plan.read, &self.outside);
            }
            if plan.steps.is_empty() && plan.read.is_empty() {
                return plan;
            }
        }
        panic!("it does not come to rest: {:#?}", self.log);
    }

    pub(super) fn after(&mut self, time: Duration) -> SinkPlan {
        self.now = self.now + time;
        self.settle()
    }

    pub(super) fn apply(&mut self, step: &SinkStep) {
        self.log.push(step.to_string());
        let known = self.outside.entries.get(&step.name);
        assert_ne!(known.map(|entry| &entry.mark), Some(&EntryMark::Foreign), "N1: {step}");
        match &step.action {
            StepAction::Delete => drop(self.outside.entries.remove(&step.name)),
            StepAction::Put { owner, members } => {
                assert!(self.drains || members.values().all(|serving| *serving == Serving::Active), "{step}");
                let member = |serving: &Serving| ObservedMember {
                    draining: *serving == Serving::Draining,
                    connections: 1,
                };
                let members =
                    members.iter().map(|(value, serving)| (value.clone(), member(serving))).collect();
                let mark = EntryMark::Ours(Some(owner.clone()));
                self.outside.entries.insert(step.name.clone(), ObservedEntry { mark, members, tidy: true });
            }
        }
    }

    fn values(&self, name: &str) -> Vec<&str> {
        self.outside
            .entries
            .get(name)
            .into_iter()
            .flat_map(|entry| entry.members.keys())
            .map(|value| &**value)
            .collect()
    }

    fn active(&self, name: &str) -> usize {
        self.outside
            .entries
            .get(name)
            .map_or(0, |entry| entry.members.values().filter(|member| !member.draining).count())
    }

    fn age(&self) -> Duration {
        self.now.since(self.planner.equal_as_of().unwrap())
    }

    fn started(mut self) -> Self {
        self.observe();
        self.settle();
        self.log.clear();
        self
    }
}

pub(super) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(super) fn address(index: u8) -> EntryValue {
    format!("10.0.0.{index}").into()
}

pub(super) fn owned_by(owner: &str) -> Arc<EntryOwner> {
    let (name, uid) = owner.split_once('#').unwrap_or((owner, "1"));
    Arc::new(EntryOwner {
        resource: "service".into(),
        namespace: "default".into(),
        name: name.into(),
        uid: format!("{name}-{uid}").into(),
    })
}

fn reasons(plan: &SinkPlan) -> Vec<(HoldReason, usize)> {
    plan.held.iter().map(|held| (held.reason, held.removals.len())).collect()
}

const READY: Readiness = Readiness::Ready;

#[test]
fn desired_entry_is_added_and_reported_equal() {
    let mut world = World::dns();
    world.ready("web", "web", 2);
    world.observe();
    assert!(world.planner.equal_as_of().is_none());
    world.settle();
    assert_eq!(world.log, ["web: +10.0.0.0 +10.0.0.1 (service/default/web)"]);
    assert_eq!(world.age(), Duration::ZERO);
}

#[test]
fn plans_nothing_before_first_list() {
    let mut world = World::dns();
    world.ready("web", "web", 2);
    world.observe();
    let view = DesiredView { entries: world.entries(), as_of: None, cluster: None };
    world.planner.set_view(view);
    assert!(world.planner.plan(world.now).steps.is_empty());
}

#[test]
fn observed_removal_waits_briefly() {
    let mut world = World::dns();
    world.ready("web", "web", 2);
    let mut world = world.started();
    world.goes("web", &address(0));
    let plan = world.settle();
    assert!(world.log.is_empty() && plan.held.is_empty() && !plan.is_equal);
    assert_eq!(plan.wake_at, Some(world.now + Duration::from_millis(100)));
    world.after(Duration::from_millis(100));
    assert_eq!(world.log, ["web: -10.0.0.0 (service/default/web)"]);
}

#[test]
fn move_to_other_slice_keeps_value() {
    let mut world = World::dns();
    world.ready("web", "web", 2);
    let mut world = world.started();
    world.goes("web", &address(0));
    world.settle();
    world.ready("web", "web", 2);
    world.after(secs(1));
    assert!(world.log.is_empty());
    // No evidence is left: when it is missing later, it is not known to be gone.
    world.ready("web", "web", 1);
    let plan = world.after(secs(1));
    assert_eq!(reasons(&plan), [(HoldReason::Unconfirmed, 1)]);
}

// Case 2: the API server is gone for an hour.
#[test]
fn stale_view_adds_but_removes_nothing() {
    let mut world = World::dns();
    world.ready("web", "web", 2);
    let mut world = world.started();
    world.stale_since = Some(world.now);
    world.goes("web", &address(0));
    world.ready("new", "new", 1);
    let plan = world.after(secs(31));
    assert_eq!(reasons(&plan), [(HoldReason::Stale, 1)]);
    assert_eq!(world.log, ["new: +10.0.0.0 (service/default/new)"]);
    world.after(secs(3_600));
    world.ready("newer", "newer", 1);
    world.settle();
    assert_eq!(world.log.len(), 1, "no additions either after an hour");
    assert!(world.age() > secs(3_600));
    world.stale_since = None;
    world.observe();
    world.settle();
    assert_eq!(world.log.len(), 3);
    assert_eq!(world.age(), Duration::ZERO);
}

// Case 4: an answer with an empty list.
#[test]
fn an_empty_list_wipes_nothing() {
    let mut world = World::balancer();
    for service in 0..20 {
        world.ready(&format!("s{service}"), &format!("s{service}"), 2);
    }
    let mut world = world.started();
    let before = world.outside.clone();
    world.wanted.clear();
    let plan = world.settle();
    assert_eq!(reasons(&plan), [(HoldReason::Unconfirmed, 40)]);
    assert_eq!(plan.list_from, Some(world.now + secs(30)));
    // The list that agrees began too early.
    world.now = world.now + secs(29);
    world.list();
    assert_eq!(reasons(&world.settle()), [(HoldReason::Unconfirmed, 40)]);
    // And when it began late enough, it removes too much.
    world.now = world.now + secs(1);
    world.list();
    let plan = world.settle();
    assert_eq!(reasons(&plan), [(HoldReason::Fraction, 40)]);
    world.after(secs(86_400));
    assert_eq!(world.outside, before);
    assert!(world.age() >= secs(86_400));
}

// Case 5: another cluster behind the address.
#[test]
fn other_cluster_changes_nothing_until_approved() {
    let mut world = World::dns();
    world.ready("web", "web", 2);
    let mut world = world.started();
    world.cluster = "b";
    world.wanted.clear();
    world.ready("other", "other", 1);
    let plan = world.after(secs(1));
    assert_eq!(reasons(&plan), [(HoldReason::AnotherCluster, 2)]);
    world.now = world.now + secs(100);
    world.list();
    assert_eq!(reasons(&world.settle()), [(HoldReason::AnotherCluster, 2)]);
    assert!(world.log.is_empty());
    assert!(world.planner.approve(&plan.held[0].id));
    let plan = world.settle();
    assert_eq!(world.log, ["other: +10.0.0.0 (service/default/other)"]);
    assert_eq!(reasons(&plan), [(HoldReason::Unconfirmed, 2)]);
}

// Case 7: many objects are deleted on purpose.
#[test]
fn approval_releases_exactly_held_removals() {
    let mut world = World::dns();
    for service in 0..50 {
        world.ready(&format!("s{service}"), &format!("s{service}"), 1);
    }
    let mut world = world.started();
    for service in 0..20 {
        world.deleted(&format!("s{service}"), &format!("s{service}"));
    }
    world.settle();
    let plan = world.after(secs(1));
    assert_eq!(reasons(&plan), [(HoldReason::Fraction, 20)]);
    let id = plan.held[0].id.clone();
    assert!(!world.planner.approve("0"));
    // Another plan has another ID.
    world.deleted("s20", "s20");
    world.settle();
    let plan = world.after(secs(1));
    assert_ne!(plan.held[0].id, id);
    assert!(!world.planner.approve(&id));
    assert!(world.planner.approve(&plan.held[0].id));
    world.deleted("s21", "s21");
    world.settle();
    world.after(secs(1));
    assert_eq!(world.log.iter().filter(|line| line.ends_with(" delete")).count(), 22, "{:?}", world.log);
}

#[test]
fn gradual_removals_stop_at_fraction_limit() {
    let mut world = World::dns();
    for service in 0..20 {
        world.ready(&format!("s{service}"), &format!("s{service}"), 1);
    }
    let mut world = world.started();
    for service in 0..15 {
        world.deleted(&format!("s{service}"), &format!("s{service}"));
        world.settle();
        world.after(secs(10));
    }
    assert_eq!(world.log.len(), 10);
    assert_eq!(reasons(&world.settle()), [(HoldReason::Fraction, 5)]);
    // After ten minutes the remaining values are the baseline.
    world.after(secs(600));
    assert_eq!(world.log.len(), 15);
}

#[test]
fn replacing_all_of_a_rollout_is_no_loss() {
    let mut world = World::dns();
    world.ready("web", "web", 40);
    let mut world = world.started();
    for index in 0..40 {
        world.want("web", "web", (index + 1..41 + index).map(|index| (address(index), READY)));
        world.goes("web", &address(index));
        world.settle();
        assert_eq!(reasons(&world.after(secs(2))), []);
    }
    assert_eq!(world.values("web").len(), 40);
}

// Case 8: a selector that no longer matches is weak evidence, whatever was seen.
#[test]
fn selector_mismatch_alone_holds_removal() {
    let mut world = World::balancer();
    world.ready("web", "web", 2);
    let mut world = world.started();
    world.wanted.clear();
    assert_eq!(reasons(&world.after(secs(5))), [(HoldReason::Unconfirmed, 2)]);
    assert_eq!(world.active("web"), 2);
}

// Case 10: an answer did not come, but the update was done.
#[test]
fn unknown_outcome_is_read_before_next_write() {
    let mut world = World::dns();
    world.ready("web", "web", 2);
    world.observe();
    world.look();
    let plan = world.planner.plan(world.now);
    world.apply(&plan.steps[0]);
    world.planner.outcome(world.now, &"web".into(), StepOutcome::Unknown("no answer".into()));
    let plan = world.planner.plan(world.now);
    assert!(plan.steps.is_empty());
    assert_eq!(plan.read, BTreeSet::from(["web".into()]));
    world.planner.read(world.now, &plan.read, &world.outside);
    assert!(world.planner.plan(world.now).steps.is_empty(), "it was done");
    assert_eq!(world.planner.problems().count(), 0);
}

#[test]
fn unchanged_needs_every_write_read_back() {
    let mut world = World::dns();
    world.ready("web", "web", 2);
    assert!(!world.planner.is_read_back(), "it was never read");
    world.observe();
    world.look();
    assert!(world.planner.is_read_back());
    let plan = world.planner.plan(world.now);
    assert!(!world.planner.is_read_back(), "a write is under way");
    world.apply(&plan.steps[0]);
    world.planner.outcome(world.now, &"web".into(), StepOutcome::Done);
    assert!(!world.planner.is_read_back(), "only reading it tells");
    world.settle();
    assert!(world.planner.is_read_back());
    world.now = world.now + secs(10);
    world.planner.unchanged(world.now);
    world.settle();
    assert_eq!(world.planner.equal_as_of(), Some(world.now), "the age goes on");
}

#[test]
fn nothing_is_planned_once_another_process_writes() {
    let mut world = World::dns();
    world.ready("web", "web", 2);
    world.ready("other", "other", 1);
    world.observe();
    world.look();
    let plan = world.planner.plan(world.now);
    for step in &plan.steps {
        world.planner.outcome(world.now, &step.name, StepOutcome::Fenced("term 42 writes".into()));
    }
    for _ in 0..10 {
        let plan = world.after(secs(600));
        assert!(plan.steps.is_empty() && !plan.is_equal && plan.pending == 2);
    }
    assert_eq!(world.planner.fenced(), Some("term 42 writes"));
    // A command tries it again.
    world.planner.retry();
    assert_eq!(world.planner.plan(world.now).steps.len(), 2);
}

#[test]
fn repeated_unknown_outcomes_are_paced() {
    let mut world = World::dns();
    world.ready("web", "web", 1);
    world.observe();
    let mut tries = 0;
    for _ in 0..600 {
        world.now = world.now + secs(1) / 10;
        world.look();
        let plan = world.planner.plan(world.now);
        world.planner.read(world.now, &plan.read, &world.outside);
        for step in plan.steps {
            tries += 1;
            world.planner.outcome(world.now, &step.name, StepOutcome::Unknown("500".into()));
        }
    }
    assert!((6..=10).contains(&tries), "{tries} in a minute");
    world.after(secs(10));
    assert_eq!(world.log.len(), 1);
}

// Case 11 and 14: a refusal stops its name only, and is not retried fast.
#[test]
fn a_refusal_is_tried_again_after_ever_longer_pauses() {
    let mut world = World::dns();
    world.ready("bad", "bad", 1);
    world.observe();
    let mut tries = 0;
    for _ in 0..3_600 {
        world.now = world.now + secs(1);
        world.look();
        let plan = world.planner.plan(world.now);
        for step in plan.steps {
            tries += 1;
            world.planner.outcome(world.now, &step.name, StepOutcome::Refused("REFUSED".into()));
        }
    }
    assert!((8..=16).contains(&tries), "{tries} in an hour");
    assert_eq!(world.planner.problems().collect::<Vec<_>>(), [(&"bad".into(), "REFUSED")]);
    world.ready("good", "good", 1);
    world.settle();
    assert_eq!(world.log, ["good: +10.0.0.0 (service/default/good)"]);
}

// Case 9: a sink that is down is probed, not flooded.
#[test]
fn unreachable_sink_is_retried_every_10s() {
    let mut world = World::dns();
    (0..50).for_each(|service| world.ready(&format!("s{service}"), &format!("s{service}"), 1));
    world.observe();
    world.look();
    let plan = world.planner.plan(world.now);
    for step in &plan.steps {
        world.planner.outcome(world.now, &step.name, StepOutcome::Unreachable("refused".into()));
    }
    let plan = world.planner.plan(world.now);
    assert!(plan.steps.is_empty());
    assert_eq!(plan.wake_at, Some(world.now + secs(10)));
    world.after(secs(10));
    assert_eq!(world.log.len(), 50);
}

// Case 17: more values than the sink takes.
#[test]
fn of_too_many_values_a_stable_part_is_chosen() {
    let mut world = World::dns();
    world.ready("big", "big", 150);
    let mut world = world.started();
    let plan = world.settle();
    assert_eq!(plan.left_out, BTreeMap::from([("big".into(), 50)]));
    let before: BTreeSet<_> = world.values("big").into_iter().map(str::to_owned).collect();
    assert_eq!(before.len(), 100);
    world.goes("big", &address(7));
    world.settle();
    world.after(secs(1));
    let after: BTreeSet<_> = world.values("big").into_iter().map(str::to_owned).collect();
    assert_eq!(after.len(), 100);
    assert!(before.difference(&after).count() <= 1);
}

// Case 18: a record of another writer.
#[test]
fn foreign_entries_are_left_alone() {
    let mut world = World::dns();
    let foreign = ObservedEntry {
        mark: EntryMark::Foreign,
        members: BTreeMap::from_iter([(address(9), ObservedMember::default())]),
        tidy: true,
    };
    world.outside.entries.insert("web".into(), foreign.clone());
    world.outside.entries.insert("mail".into(), foreign);
    world.ready("web", "web", 1);
    let world = world.started();
    let mut world = world;
    let plan = world.settle();
    assert_eq!(plan.foreign, BTreeSet::from(["web".into()]));
    assert!(world.log.is_empty());
}

// Case 19: another program keeps changing our record.
#[test]
fn drift_is_put_right_but_not_fought_over() {
    let mut world = World::dns();
    world.ready("web", "web", 2);
    let mut world = world.started();
    for _ in 0..30 {
        world.outside.entries.get_mut("web").unwrap().members.remove(&address(0));
        world.observe();
        world.after(secs(1));
    }
    assert_eq!(world.log.len(), 3, "{:?}", world.log);
    assert!(world.planner.stats().drift >= 3);
    world.after(secs(60));
    assert_eq!(world.values("web").len(), 2);
}

// Case 20: two objects ask for one name.
#[test]
fn first_owner_keeps_name_until_removed() {
    let mut world = World::dns();
    world.want("web", "b", [(address(2), READY)]);
    let mut world = world.started();
    world.want("web", "a", [(address(1), READY)]);
    let plan = world.settle();
    assert_eq!(world.values("web"), ["10.0.0.2"]);
    assert_eq!(
        plan.conflicts,
        [NameConflict { name: "web".into(), owner: owned_by("b"), loser: owned_by("a") }]
    );
    world.deleted("web", "b");
    world.planner.saw_removal(world.now, Removal { name: "web".into(), value: Some(address(2)) });
    world.settle();
    world.after(secs(1));
    assert_eq!(world.values("web"), ["10.0.0.1"]);
}

// Case 22: an owner is deleted and created again.
#[test]
fn mark_of_recreated_owner_is_replaced() {
    let mut world = World::dns();
    world.want("web", "web#1", [(address(1), READY)]);
    let mut world = world.started();
    world.deleted("web", "web#1");
    world.want("web", "web#2", [(address(1), READY)]);
    world.settle();
    let mark = EntryMark::Ours(Some(owned_by("web#2")));
    assert_eq!(world.outside.entries["web"].mark, mark);
    assert_eq!(world.values("web"), ["10.0.0.1"]);
}

// Case 23: a deletion while no watch was open.
#[test]
fn deletion_during_downtime_needs_second_list() {
    let mut world = World::dns();
    (0..3).for_each(|service| world.ready(&format!("s{service}"), &format!("s{service}"), 1));
    let mut world = world.started();
    world.planner = Planner::new(SinkTraits::default(), PlanOptions::default());
    world.wanted.remove("s0");
    world.observe();
    assert_eq!(reasons(&world.settle()), [(HoldReason::Unconfirmed, 1)]);
    world.now = world.now + secs(30);
    world.list();
    world.settle();
    assert_eq!(world.log, ["s0: delete"]);
}

// Case 31: a pod that flaps.
#[test]
fn flapping_value_keeps_traffic() {
    let mut world = World::balancer();
    world.ready("web", "web", 2);
    let mut world = world.started();
    for _ in 0..20 {
        world.want("web", "web", [(address(0), Readiness::NotReady), (address(1), READY)]);
        world.after(secs(1));
        world.ready("web", "web", 2);
        world.after(secs(1));
    }
    assert!(world.log.is_empty());
    world.want("web", "web", [(address(0), Readiness::NotReady), (address(1), READY)]);
    world.settle();
    world.after(secs(5));
    assert_eq!(world.log, ["web: drain 10.0.0.0 (service/default/web)"]);
    // The other one fails too: a value that may answer is better than none.
    world.want("web", "web", [(address(0), Readiness::NotReady), (address(1), Readiness::NotReady)]);
    world.settle();
    let plan = world.after(secs(60));
    assert_eq!(world.active("web"), 1);
    assert_eq!(reasons(&plan), []);
}

// Cases 33 and 35: draining ends with the connections, or with the time limit.
#[test]
fn terminating_value_drains_before_removal() {
    let mut world = World::balancer();
    world.ready("web", "web", 3);
    let mut world = world.started();
    let terminating = |index: u8| (address(index), Readiness::Terminating);
    world.want("web", "web", [terminating(0), terminating(1), (address(2), READY)]);
    world.settle();
    assert_eq!(world.log, ["web: drain 10.0.0.0 drain 10.0.0.1 (service/default/web)"]);
    world.after(secs(10));
    assert_eq!(world.values("web").len(), 3);
    let entry = world.outside.entries.get_mut("web").unwrap();
    entry.members.get_mut(&address(0)).unwrap().connections = 0;
    world.observe();
    world.settle();
    assert_eq!(world.values("web"), ["10.0.0.1", "10.0.0.2"]);
    world.after(secs(50));
    assert_eq!(world.values("web"), ["10.0.0.2"]);
    assert_eq!(world.age(), secs(50), "since the last observation of everything");
}

// Case 34: a value returns while it drains, also after a restart.
#[test]
fn returning_value_is_undrained() {
    for restart in [false, true] {
        let mut world = World::balancer();
        world.ready("web", "web", 2);
        let mut world = world.started();
        world.want("web", "web", [(address(0), Readiness::Terminating), (address(1), READY)]);
        world.settle();
        if restart {
            world.planner =
                Planner::new(SinkTraits { drains: true, most_values: None }, PlanOptions::default());
            world.observe();
        }
        world.ready("web", "web", 2);
        world.settle();
        assert_eq!(world.log.last().unwrap(), "web: undrain 10.0.0.0 (service/default/web)");
    }
}

#[test]
fn last_value_stays_while_owner_exists() {
    let mut world = World::dns();
    world.ready("web", "web", 2);
    let mut world = world.started();
    world.goes("web", &address(0));
    world.goes("web", &address(1));
    world.settle();
    let plan = world.after(secs(1));
    assert_eq!(world.values("web").len(), 1);
    assert_eq!(reasons(&plan), [(HoldReason::LastOne, 1)]);
    world.deleted("web", "web");
    world.settle();
    world.after(secs(1));
    assert!(world.values("web").is_empty());
}

#[test]
fn removals_are_limited_per_minute() {
    let mut world = World::new(false, PlanOptions { per_minute: 5, fraction: 1.0, ..PlanOptions::default() });
    (0..20).for_each(|service| world.ready(&format!("s{service}"), &format!("s{service}"), 1));
    let mut world = world.started();
    (0..12).for_each(|service| world.deleted(&format!("s{service}"), &format!("s{service}")));
    world.settle();
    let plan = world.after(secs(1));
    assert_eq!(world.log.len(), 5);
    assert_eq!(reasons(&plan), [(HoldReason::Rate, 7)]);
    assert_eq!(plan.wake_at, Some(world.now + secs(60)));
    world.after(secs(60));
    assert_eq!(world.log.len(), 10);
    world.after(secs(60));
    assert_eq!(world.log.len(), 12);
}

#[test]
fn conflicting_name_is_read_again() {
    let mut world = World::dns();
    world.ready("web", "web", 1);
    world.observe();
    world.look();
    let plan = world.planner.plan(world.now);
    world.planner.outcome(world.now, &plan.steps[0].name, StepOutcome::Conflict("NXRRSET".into()));
    let foreign = ObservedEntry { mark: EntryMark::Foreign, members: BTreeMap::new(), tidy: true };
    world.outside.entries.insert("web".into(), foreign);
    let plan = world.planner.plan(world.now);
    world.planner.read(world.now, &plan.read, &world.outside);
    assert_eq!(world.after(secs(10)).foreign.len(), 1);
    assert!(world.log.is_empty());
}

// Case 19: a manual edit is repaired completely.
#[test]
fn manual_edit_is_repaired_immediately() {
    let mut world = World::dns();
    world.ready("web", "web", 1);
    let mut world = world.started();
    let members = &mut world.outside.entries.get_mut("web").unwrap().members;
    members.clear();
    members.insert(address(9), ObservedMember::default());
    world.observe();
    world.settle();
    world.after(secs(1));
    assert_eq!(world.values("web"), [&*address(0)]);
}

#[test]
fn repeated_manual_edit_is_repaired_immediately() {
    let mut world = World::dns();
    world.ready("web", "web", 1);
    let mut world = world.started();
    for other in [8, 9] {
        let members = &mut world.outside.entries.get_mut("web").unwrap().members;
        members.clear();
        members.insert(address(other), ObservedMember::default());
        world.observe();
        world.settle();
        world.after(secs(1));
        assert_eq!(world.values("web"), [&*address(0)]);
    }
}

#[test]
fn rewritten_value_is_no_addition_under_empty_view() {
    let mut world = World::dns();
    world.ready("web", "web", 3);
    let mut world = world.started();
    world.wanted.clear();
    world.settle();
    // Another program writes it again, while its removal is held.
    world.outside.entries.get_mut("web").unwrap().members.remove(&address(1));
    world.observe();
    world.settle();
    world.outside.entries.get_mut("web").unwrap().members.insert(address(1), ObservedMember::default());
    world.observe();
    world.after(secs(10));
    assert_eq!(world.values("web").len(), 3);
}

// Case 10: a value that was written and not yet seen there is replaced meanwhile.
#[test]
fn replaced_unverified_write_needs_no_list() {
    let mut world = World::dns();
    world.ready("web", "web", 1);
    world.observe();
    world.look();
    let plan = world.planner.plan(world.now);
    world.apply(&plan.steps[0]);
    world.planner.outcome(world.now, &"web".into(), StepOutcome::Done);
    world.planner.not_observed(world.now);
    // The sink is down, and the endpoint is replaced.
    world.goes("web", &address(0));
    world.want("web", "web", [(address(1), Readiness::Ready)]);
    world.look();
    let _ = world.planner.plan(world.now);
    world.now = world.now + secs(20);
    world.observe();
    world.after(secs(1));
    assert_eq!(world.values("web"), [&*address(1)]);
}

#[test]
fn replacements_are_not_counted_as_removals() {
    let mut world = World::new(false, PlanOptions { per_minute: 2, ..PlanOptions::default() });
    let names: Vec<_> = (0..20).map(|index| format!("s{index}")).collect();
    names.iter().for_each(|name| world.ready(name, name, 1));
    let mut world = world.started();
    for name in &names {
        world.goes(name, &address(0));
        world.want(name, name, [(address(1), Readiness::Ready)]);
    }
    world.settle();
    world.after(secs(1));
    for name in &names {
        assert_eq!(world.values(name), [&*address(1)]);
    }
    // A name that loses more than it has gained has a loss.
    for name in &names[..4] {
        world.deleted(name, name);
    }
    world.settle();
    assert_eq!(reasons(&world.after(secs(1))), [(HoldReason::Rate, 2)]);
}

#[test]
fn propagation_is_timed_from_view_to_observation() {
    let mut world = World::dns();
    world.ready("web", "web", 1);
    world.observe();
    world.look();
    let plan = world.planner.plan(world.now);
    world.apply(&plan.steps[0]);
    world.now = world.now + secs(2);
    world.planner.outcome(world.now, &"web".into(), StepOutcome::Done);
    assert!(world.planner.take_propagated().is_empty());
    world.now = world.now + secs(1);
    world.settle();
    assert_eq!(world.planner.take_propagated(), [secs(3)]);
    world.after(secs(5));
    assert!(world.planner.take_propagated().is_empty());
}

#[test]
fn a_plan_changes_a_bounded_number_of_names() {
    let mut world = World::new(false, PlanOptions { steps: 3, ..PlanOptions::default() });
    world.observe();
    for name in ["a", "b", "c", "d", "e", "f", "g"] {
        world.ready(name, name, 1);
    }
    world.look();
    let plan = world.planner.plan(world.now);
    assert_eq!((plan.steps.len(), plan.pending, plan.wake_at), (3, 7, Some(world.now)));
    for step in &plan.steps {
        world.apply(step);
        world.planner.outcome(world.now, &step.name, StepOutcome::Done);
    }
    world.settle();
    assert_eq!(world.outside.entries.len(), 7);
}
