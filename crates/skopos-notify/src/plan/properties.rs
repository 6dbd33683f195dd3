//! The invariants of the notifier over random stories: N1 nothing foreign is changed (asserted by the model of the outside), N2 no removal without
//! evidence, N3 equal in the end, N7 the last value of a living name stays, N8 nothing grows with the length of an outage.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use skopos_reflect::Time;

use super::tests::{World, address, secs};
use super::{DesiredView, PlanOptions};
use crate::entry::{EntryValue, Readiness};
use crate::sink::ObservedMember;

/// Event of a random story.
#[derive(Clone, Debug)]
enum Happening {
    Wanted { name: u8, value: u8, readiness: Readiness },
    SeenToGo { name: u8, value: u8 },
    Vanishes { name: u8, value: u8 },
    OwnerDeleted { name: u8 },
    OwnerVanishes { name: u8 },
    Everything { vanishes: bool },
    Stale(bool),
    List,
    Foreign { name: u8 },
    Drift { name: u8, value: u8 },
    Connections(u32),
    Time(u16),
}

/// Times since which values are missing, and whether that is confirmed, computed independently of the planner.
#[derive(Default)]
struct Oracle {
    missing: BTreeMap<(String, Option<EntryValue>), (Time, bool)>,
}

fn happening() -> impl Strategy<Value = Happening> {
    use Happening::*;
    let readiness = prop_oneof![4 => Just(Readiness::Ready), 1 => Just(Readiness::NotReady), 1 => Just(Readiness::Terminating)];
    prop_oneof![
        6 => (0..4_u8, 0..4_u8, readiness).prop_map(|(name, value, readiness)| Wanted { name, value, readiness }),
        3 => (0..4_u8, 0..4_u8).prop_map(|(name, value)| SeenToGo { name, value }),
        3 => (0..4_u8, 0..4_u8).prop_map(|(name, value)| Vanishes { name, value }),
        1 => (0..4_u8).prop_map(|name| OwnerDeleted { name }),
        1 => (0..4_u8).prop_map(|name| OwnerVanishes { name }),
        1 => Just(Everything { vanishes: true }),
        2 => any::<bool>().prop_map(Stale),
        2 => Just(List),
        1 => (0..4_u8).prop_map(|name| Foreign { name }),
        1 => (0..4_u8, 0..4_u8).prop_map(|(name, value)| Drift { name, value }),
        1 => (0..2_u32).prop_map(Connections),
        6 => (0..60_u16).prop_map(Time),
    ]
}

fn name(name: u8) -> String {
    format!("n{name}")
}

fn happens(world: &mut World, oracle: &mut Oracle, happening: &Happening) {
    match happening {
        Happening::Wanted { name: of, value, readiness } => {
            let mut members = world
                .wanted
                .get(&*name(*of))
                .map(|claimants| claimants[0].members.clone())
                .unwrap_or_default();
            members.insert(address(*value), *readiness);
            world.want(&name(*of), &name(*of), members);
        }
        Happening::SeenToGo { name: of, value } => {
            world.goes(&name(*of), &address(*value));
            oracle.saw(world.now, &name(*of), Some(address(*value)));
        }
        Happening::Vanishes { name: of, value } => {
            if let Some(claimants) = world.wanted.get_mut(&*name(*of)) {
                claimants[0].members.remove(&address(*value));
            }
        }
        Happening::OwnerDeleted { name: of } if world.wanted.contains_key(&*name(*of)) => {
            world.deleted(&name(*of), &name(*of));
            oracle.saw(world.now, &name(*of), None);
        }
        Happening::OwnerVanishes { name: of } => drop(world.wanted.remove(&*name(*of))),
        Happening::Everything { vanishes } if *vanishes => world.wanted.clear(),
        Happening::Stale(stale) => {
            world.stale_since = if *stale { world.stale_since.or(Some(world.now)) } else { None };
        }
        // A view that is not proven does not agree with a list.
        Happening::List if world.stale_since.is_none() => {
            world.list();
            oracle.listed(world);
        }
        Happening::Foreign { name: of } => {
            let entry = world.outside.entries.get_mut(&*name(*of));
            if let Some(entry) = entry {
                entry.mark = crate::sink::EntryMark::Foreign;
                world.observe();
            }
        }
        Happening::Drift { name: of, value } => {
            if let Some(entry) = world
                .outside
                .entries
                .get_mut(&*name(*of))
                .filter(|entry| entry.mark != crate::sink::EntryMark::Foreign)
            {
                if entry.members.insert(address(*value), ObservedMember::default()).is_none() {
                    // Another program added the value, so it is known not to be wanted.
                    oracle.saw(world.now, &name(*of), Some(address(*value)));
                }
                world.observe();
            }
        }
        Happening::Connections(count) => {
            world
                .outside
                .entries
                .values_mut()
                .flat_map(|entry| &mut entry.members)
                .for_each(|(_, member)| member.connections = *count);
            world.observe();
        }
        Happening::Time(secs) => world.now = world.now + Duration::from_secs((*secs).into()),
        _ => {}
    }
}

impl Oracle {
    fn saw(&mut self, now: Time, name: &str, value: Option<EntryValue>) {
        self.missing.insert((name.to_owned(), value), (now, true));
    }

    fn listed(&mut self, world: &World) {
        for (since, sure) in self.missing.values_mut() {
            *sure |= *since + secs(30) <= world.now;
        }
    }

    /// Updates the missing values from the wanted ones.
    fn look(&mut self, world: &World) {
        for of in (0..4).map(name) {
            let claimants = world.wanted.get(&*of);
            for value in (0..4).map(address) {
                let is_wanted = claimants.is_some_and(|claimants| claimants[0].members.contains_key(&value));
                self.note(world.now, (of.clone(), Some(value)), is_wanted);
            }
            self.note(world.now, (of, None), claimants.is_some());
        }
    }

    fn note(&mut self, now: Time, key: (String, Option<EntryValue>), is_wanted: bool) {
        if is_wanted {
            self.missing.remove(&key);
        } else {
            self.missing.entry(key).or_insert((now, false));
        }
    }

    fn is_sure(&self, name: &str, value: Option<&EntryValue>) -> bool {
        self.missing.get(&(name.to_owned(), value.cloned())).is_some_and(|(_, sure)| *sure)
    }
}

/// Plans and executes one step after the other, and checks each.
fn settle(world: &mut World, oracle: &mut Oracle) -> Result<(), TestCaseError> {
    oracle.look(world);
    world.look();
    for _ in 0..50 {
        let plan = world.planner.plan(world.now);
        for step in &plan.steps {
            let of = step.name.as_str();
            let claimed = world.wanted.get(of).map(|claimants| claimants[0].clone());
            for value in step.losses() {
                let stale = world.stale_since.map(|since| world.now.since(since)).unwrap_or_default();
                prop_assert!(stale <= secs(30), "N2: stale: {step}");
                let is_wanted = claimed.as_ref().is_some_and(|entry| entry.members.contains_key(value));
                let sure = if claimed.is_some() {
                    oracle.is_sure(of, Some(value))
                } else {
                    oracle.is_sure(of, None)
                };
                prop_assert!(is_wanted || sure, "N2: no evidence for {value}: {step}");
            }
            world.apply(step);
            let active = world
                .outside
                .entries
                .get(of)
                .map_or(0, |entry| entry.members.values().filter(|member| !member.draining).count());
            let had =
                step.before.iter().flat_map(|entry| entry.members.values()).any(|member| !member.draining);
            prop_assert!(claimed.is_none() || !had || active > 0, "N7: {step}");
            world.planner.outcome(world.now, &step.name, crate::sink::StepOutcome::Done);
        }
        if !plan.read.is_empty() {
            world.planner.read(world.now, &plan.read, &world.outside);
        } else if plan.steps.is_empty() {
            return Ok(());
        }
    }
    Err(TestCaseError::fail(format!("it does not come to rest: {:#?}", world.log)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_story_breaks_an_invariant(drains in any::<bool>(), story in prop::collection::vec(happening(), 1..60)) {
        let mut world = World::new(drains, PlanOptions::default());
        world.observe();
        let mut oracle = Oracle::default();
        for happening in &story {
            happens(&mut world, &mut oracle, happening);
            settle(&mut world, &mut oracle)?;
        }
        // N3: the faults end, lists agree, time passes.
        world.stale_since = None;
        for _ in 0..15 {
            world.now = world.now + secs(61);
            world.outside.entries.values_mut().flat_map(|entry| &mut entry.members).for_each(|(_, member)| member.connections = 0);
            world.observe();
            oracle.look(&world);
            world.look();
            world.list();
            oracle.listed(&world);
            settle(&mut world, &mut oracle)?;
        }
        for of in (0..4).map(name) {
            let outside = world.outside.entries.get(&*of);
            if outside.is_some_and(|entry| entry.mark == crate::sink::EntryMark::Foreign) {
                continue;
            }
            let serving: Vec<_> = outside.into_iter().flat_map(|entry| &entry.members).filter(|(_, member)| !member.draining).map(|(value, _)| value).collect();
            let wanted = world.wanted.get(&*of).map(|claimants| &claimants[0].members);
            let ready: Vec<_> = wanted.into_iter().flatten().filter(|(_, readiness)| **readiness == Readiness::Ready).map(|(value, _)| value).collect();
            let keeps_last = ready.is_empty() && wanted.is_some() && serving.len() <= 1;
            prop_assert!(serving == ready || keeps_last, "N3: {of}: {serving:?} for {wanted:?}: {:#?}", world.log);
        }
    }

    #[test]
    fn recheck_of_settled_name_changes_nothing(drains in any::<bool>(), story in prop::collection::vec(happening(), 1..60)) {
        let of = |recheck| World { recheck, ..World::new(drains, PlanOptions::default()) };
        let mut worlds = [of(false), of(true)];
        worlds.iter_mut().for_each(World::observe);
        for happening in &story {
            let plans = worlds.each_mut().map(|world| {
                happens(world, &mut Oracle::default(), happening);
                let plan = world.settle();
                let conflicts: BTreeSet<_> = plan.conflicts.iter().map(|conflict| (conflict.name.clone(), conflict.loser.clone())).collect();
                (plan.held, plan.foreign, conflicts, plan.left_out, plan.pending, plan.is_equal, plan.wake_at, plan.list_from)
            });
            prop_assert_eq!(&plans[0], &plans[1]);
            prop_assert_eq!(&worlds[0].log, &worlds[1].log);
        }
    }

    #[test]
    fn an_outage_leaves_nothing_behind(changes in 1..2_000_u32) {
        // N8: memory depends on the current state, not on the history.
        let mut world = World::new(true, PlanOptions::default());
        world.observe();
        world.want("n0", "n0", [(address(0), Readiness::Ready)]);
        settle(&mut world, &mut Oracle::default())?;
        world.planner.not_observed(world.now);
        for change in 0..changes {
            let value = address((change % 200) as u8);
            world.want("n0", "n0", [(value.clone(), Readiness::Ready)]);
            world.planner.set_view(DesiredView { entries: world.entries(), as_of: Some(world.now), cluster: Some("a".into()) });
            world.planner.saw_removal(world.now, super::Removal { name: "n0".into(), value: Some(value) });
            let _ = world.planner.plan(world.now);
        }
        prop_assert!(world.planner.footprint() <= 8, "{}", world.planner.footprint());
    }
}
