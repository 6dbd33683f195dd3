use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use skopos_reflect::Time;

use super::options::PlanOptions;
use super::sink_plan::NameConflict;
use crate::entry::{DesiredEntry, EntryName, EntryOwner, EntryValue, Readiness};
use crate::sink::{EntryMark, ObservedEntry, ObservedMember, Serving, SinkTraits};

/// Facts about one name.
pub(super) struct Facts<'a> {
    pub(super) now: Time,
    pub(super) name: &'a EntryName,
    pub(super) claimants: &'a [DesiredEntry],
    pub(super) observed: Option<&'a ObservedEntry>,
    pub(super) traits: SinkTraits,
    pub(super) options: &'a PlanOptions,
}

/// Times since which values of one name fail, or drain.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MemberTimes {
    pub(super) not_ready: BTreeMap<EntryValue, Time>,
    pub(super) draining: BTreeMap<EntryValue, Time>,
}

/// The wanted change of one name, before the guard has checked it.
#[derive(Debug, Default)]
pub(super) struct Decision {
    /// The entry outside.
    pub(super) before: Option<ObservedEntry>,
    /// The owner; `None` if no object asks for the name any more.
    pub(super) owner: Option<Arc<EntryOwner>>,
    /// The values, if every loss is held.
    pub(super) members: BTreeMap<EntryValue, Serving>,
    /// Values that lose their traffic, or are removed.
    pub(super) losses: Vec<Loss>,
    /// Other objects that ask for the name and do not get it.
    pub(super) losers: Vec<Arc<EntryOwner>>,
    /// Number of values left out because the sink takes no more.
    pub(super) left_out: usize,
    /// True if the entry outside is not ours.
    pub(super) foreign: bool,
    /// True if the decision stays the same as long as the view and the outside do.
    pub(super) is_final: bool,
    /// Time of the next decision.
    pub(super) wake_at: Option<Time>,
}

/// A value that will lose its traffic, or be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loss {
    pub(super) value: EntryValue,
    pub(super) kind: LossKind,
    /// True if an object still asks for it.
    pub(super) is_wanted: bool,
    /// The traffic afterwards; `None` removes the value.
    pub(super) after: Option<Serving>,
}

/// Reason for a loss. Where a last value must stay, values are kept in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LossKind {
    /// It is being deleted, but still answers.
    Terminating,
    /// It fails its checks.
    NotReady,
    /// There are more values than the sink takes.
    Surplus,
    /// The cluster no longer has it.
    Missing,
    /// It has drained and has no traffic to lose.
    Drained,
}

impl Decision {
    pub(super) fn new(facts: &Facts<'_>, since: &mut MemberTimes) -> Self {
        let mut decision = Self::default();
        if facts.observed.is_some_and(|entry| entry.mark == EntryMark::Foreign) {
            (decision.foreign, decision.is_final) = (!facts.claimants.is_empty(), true);
            return decision;
        }
        let entry = pick(facts.claimants, facts.observed);
        decision.owner = entry.map(|entry| entry.owner.clone());
        decision.losers = facts
            .claimants
            .iter()
            .map(|entry| &entry.owner)
            .filter(|owner| Some(*owner) != decision.owner.as_ref())
            .cloned()
            .collect();
        let nobody = BTreeMap::new();
        let wanted = entry.map_or(&nobody, |entry| &entry.members);
        let chosen = choose(facts, wanted);
        decision.left_out =
            chosen.as_ref().map_or(0, |chosen| ready(wanted).count().saturating_sub(chosen.len()));
        let is_chosen = |value: &EntryValue| chosen.as_ref().is_none_or(|chosen| chosen.contains(value));
        for value in ready(wanted).filter(|value| is_chosen(value)) {
            decision.members.insert(value.clone(), Serving::Active);
        }
        let outside = facts.observed.iter().flat_map(|entry| &entry.members);
        for (value, member) in outside {
            let kind = match wanted.get(value) {
                Some(Readiness::Ready) if is_chosen(value) => continue,
                Some(Readiness::Ready) => LossKind::Surplus,
                Some(Readiness::NotReady) => LossKind::NotReady,
                Some(Readiness::Terminating) => LossKind::Terminating,
                None => LossKind::Missing,
            };
            decision.lose(facts, since, value, *member, kind);
        }
        since.not_ready.retain(|value, _| wanted.get(value) == Some(&Readiness::NotReady));
        let is_draining = |value: &EntryValue| {
            facts.observed.and_then(|entry| entry.members.get(value)).is_some_and(|member| member.draining)
        };
        since.draining.retain(|value, _| is_draining(value));
        decision.is_final = decision.losses.is_empty() && decision.wake_at.is_none();
        decision
    }

    /// Returns the objects that ask for the name and do not get it.
    pub(super) fn conflicts(&self, name: &EntryName) -> impl Iterator<Item = NameConflict> {
        let conflict = |(owner, loser): (&Arc<EntryOwner>, &Arc<EntryOwner>)| NameConflict {
            name: name.clone(),
            owner: owner.clone(),
            loser: loser.clone(),
        };
        self.owner.iter().flat_map(|owner| self.losers.iter().map(move |loser| (owner, loser))).map(conflict)
    }

    fn lose(
        &mut self,
        facts: &Facts<'_>,
        since: &mut MemberTimes,
        value: &EntryValue,
        member: ObservedMember,
        kind: LossKind,
    ) {
        let now = facts.now;
        let is_wanted = facts.claimants.iter().any(|claimant| claimant.members.contains_key(value));
        if member.draining {
            let began = *since.draining.entry(value.clone()).or_insert(now);
            self.members.insert(value.clone(), Serving::Draining);
            let until = began + facts.options.drain;
            if member.connections == 0 || until <= now {
                self.losses.push(Loss {
                    value: value.clone(),
                    kind: LossKind::Drained,
                    is_wanted,
                    after: None,
                });
            } else {
                self.wake(until);
            }
            return;
        }
        self.members.insert(value.clone(), Serving::Active);
        if kind == LossKind::NotReady {
            let settled = *since.not_ready.entry(value.clone()).or_insert(now) + facts.options.settle;
            if settled > now {
                return self.wake(settled);
            }
        }
        let after = facts.traits.drains.then_some(Serving::Draining);
        self.losses.push(Loss { value: value.clone(), kind, is_wanted, after });
    }

    fn wake(&mut self, at: Time) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }

    /// Counts the values outside that get traffic.
    pub(super) fn served(&self) -> usize {
        self.before.iter().flat_map(ObservedEntry::serving).count()
    }

    /// Counts the values that get traffic afterwards.
    pub(super) fn serving(&self) -> usize {
        self.members.values().filter(|serving| **serving == Serving::Active).count()
    }

    /// Carries out a loss.
    pub(super) fn allow(&mut self, loss: &Loss) {
        match loss.after {
            Some(serving) => self.members.insert(loss.value.clone(), serving),
            None => self.members.remove(&loss.value),
        };
    }
}

/// Returns the object that gets the name. The owner that the mark outside names keeps it while it asks for it.
fn pick<'a>(claimants: &'a [DesiredEntry], observed: Option<&ObservedEntry>) -> Option<&'a DesiredEntry> {
    let marked = observed.and_then(|entry| match &entry.mark {
        EntryMark::Ours(Some(mark)) => claimants.iter().find(|claimant| mark.is(&claimant.owner)),
        _ => None,
    });
    marked.or(claimants.first())
}

fn ready(wanted: &BTreeMap<EntryValue, Readiness>) -> impl Iterator<Item = &EntryValue> {
    wanted.iter().filter(|(_, readiness)| **readiness == Readiness::Ready).map(|(value, _)| value)
}

/// Chooses as many values as the sink takes, so that a change of one value changes at most one of the chosen (rendezvous hashing).
fn choose(facts: &Facts<'_>, wanted: &BTreeMap<EntryValue, Readiness>) -> Option<BTreeSet<EntryValue>> {
    let most = facts.traits.most_values.filter(|most| wanted.len() > *most)?;
    let mut values: Vec<_> = ready(wanted).map(|value| (Reverse(weight(facts.name, value)), value)).collect();
    values.sort_unstable();
    Some(values.into_iter().take(most).map(|(_, value)| value.clone()).collect())
}

fn weight(name: &EntryName, value: &EntryValue) -> [u8; 32] {
    Sha256::new()
        .chain_update(name.as_str())
        .chain_update([0])
        .chain_update(value.as_bytes())
        .finalize()
        .into()
}
