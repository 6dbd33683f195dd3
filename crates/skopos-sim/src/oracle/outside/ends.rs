//! N3 and N4: some time after the last fault a process works, the outside is as the cluster wants it, and the receiver knows each
//! object.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Outside;
use super::acknowledged::Acknowledged;
use crate::history::{Address, At, AtOutside, Fact, KeyId, ProcessId, Record};
use crate::oracle::{Invariant, Verdict};

/// Maximum recovery time. The longest cases are an expired term, the first lists, a removal that waits for a list that agrees,
/// and a name with more manual changes than the repairs per minute.
const BOUND: Duration = Duration::from_secs(200);

/// Time within which a running process sends a request as a candidate for the Lease.
const ASKS: Duration = Duration::from_secs(30);

/// The outside, and the times since which it and each name are undisturbed.
#[derive(Default)]
struct Calm {
    records: BTreeMap<KeyId, Record>,
    acknowledged: Acknowledged,
    working: BTreeSet<ProcessId>,
    since: At,
    names: BTreeMap<KeyId, At>,
    /// Time of each process' last request.
    asked: BTreeMap<ProcessId, At>,
    /// True if it must still be judged whether a process works.
    is_open: bool,
    /// Names that must still be judged since their last disturbance.
    open: BTreeSet<KeyId>,
}

/// Kind of a disturbance.
enum Disturbance {
    Nothing,
    Name(KeyId),
    All,
}

pub(super) fn check(outside: &Outside<'_>, verdict: &mut Verdict) {
    let mut calm = Calm::default();
    for (at, fact) in outside.case.facts() {
        // Facts of one moment belong together.
        calm.judge(outside, verdict, at);
        match calm.take(outside, at, fact) {
            Disturbance::Nothing => {}
            Disturbance::Name(name) => {
                calm.names.insert(name, at);
                calm.open.insert(name);
            }
            Disturbance::All => {
                (calm.since, calm.is_open) = (at, true);
                calm.open = outside.wanted.names().chain(calm.records.keys().copied()).collect();
            }
        }
        if matches!(fact, Fact::Settled) {
            return;
        }
    }
}

impl Calm {
    /// Takes a fact; returns what must recover from it.
    fn take(&mut self, outside: &Outside<'_>, at: At, fact: &Fact) -> Disturbance {
        let all = |disturbs: bool| if disturbs { Disturbance::All } else { Disturbance::Nothing };
        let fact = match fact {
            Fact::Outside(fact) => fact,
            Fact::RolledBack { cluster, .. } => return all(*cluster == outside.cluster),
            _ => return Disturbance::Nothing,
        };
        self.acknowledged.take(fact);
        match fact {
            AtOutside::Applied { name, after, .. } => {
                self.set(*name, after.as_ref());
                Disturbance::Nothing
            }
            AtOutside::Edited { name, after } => {
                self.set(*name, after.as_ref());
                Disturbance::Name(*name)
            }
            AtOutside::Requested { process, .. } => {
                self.asked.insert(*process, at);
                Disturbance::Nothing
            }
            AtOutside::Began { process, .. } => all(self.working.insert(*process)),
            AtOutside::Ended { process, .. } => all(self.working.remove(process)),
            AtOutside::Service { object, .. } => Disturbance::Name(object.key),
            AtOutside::Slice { service, .. } => Disturbance::Name(*service),
            AtOutside::TroubleBegan { .. } | AtOutside::TroubleEnded { .. } => Disturbance::All,
            _ => Disturbance::Nothing,
        }
    }

    fn set(&mut self, name: KeyId, record: Option<&Record>) {
        match record {
            Some(record) => drop(self.records.insert(name, record.clone())),
            None => drop(self.records.remove(&name)),
        }
    }

    /// Judges whether a process works, if any is running.
    fn judge_work(&mut self, outside: &Outside<'_>, verdict: &mut Verdict, now: At) {
        let (from, at) = (self.since, self.since.plus(BOUND));
        if !self.is_open || at > now || !self.is_clear(outside, from, at) {
            return;
        }
        self.is_open = false;
        let is_there = |asked: &At| at.since(*asked) < ASKS;
        if !outside.has_trouble(at) && self.asked.values().any(is_there) {
            verdict.exercise(Invariant::N3);
            verdict.demand(Invariant::N3, !self.working.is_empty(), at, outside.focus(None), || {
                format!("no process works {BOUND:?} after the last trouble")
            });
        }
    }

    /// Judges the names that are undisturbed for long enough.
    fn judge(&mut self, outside: &Outside<'_>, verdict: &mut Verdict, now: At) {
        self.judge_work(outside, verdict, now);
        let due: Vec<_> =
            self.open.iter().filter(|name| self.since(**name).plus(BOUND) <= now).copied().collect();
        for name in due {
            let from = self.since(name);
            let at = from.plus(BOUND);
            if at > now || !self.is_clear(outside, from, at) {
                continue;
            }
            self.open.remove(&name);
            // A working process began earlier: the beginning of a term is a disturbance.
            if !self.working.is_empty() && !outside.has_trouble(at) {
                self.judge_name(outside, verdict, at, name);
                self.acknowledged.judge(outside, verdict, at, name);
            }
        }
    }

    /// Returns the time since which a name is undisturbed.
    fn since(&self, name: KeyId) -> At {
        self.names.get(&name).map_or(self.since, |at| (*at).max(self.since))
    }

    /// Returns whether the cluster was well between two moments. If it was not, it must recover first.
    fn is_clear(&mut self, outside: &Outside<'_>, from: At, to: At) -> bool {
        let felt = outside.case.weather.felt(outside.cluster, from, to);
        match felt.map(|span| span.over().unwrap_or(to)).max() {
            None => true,
            Some(over) => {
                self.since = self.since.max(over.plus(Duration::from_nanos(1)));
                false
            }
        }
    }

    fn judge_name(&self, outside: &Outside<'_>, verdict: &mut Verdict, at: At, name: KeyId) {
        let record = self.records.get(&name);
        if record.is_some_and(|record| record.owner.is_none()) {
            return;
        }
        let there: BTreeSet<Address> =
            record.into_iter().flat_map(|record| record.values.iter().copied()).collect();
        let state = outside.wanted.state(name, at);
        let is_as_wanted = match state.filter(|state| state.asked) {
            None => there.is_empty(),
            // One of the values that no longer serve is kept.
            Some(state) if state.ready().is_empty() => there.len() <= 1,
            Some(state) => there == state.ready(),
        };
        verdict.exercise(Invariant::N3);
        verdict.demand(Invariant::N3, is_as_wanted, at, outside.focus(Some(name)), || {
            let wanted = state.map(|state| &state.members);
            format!("{} has {there:?} after {BOUND:?}, and is to have {wanted:?}", outside.case.key(name))
        });
    }
}

impl Outside<'_> {
    /// Returns whether the outside has a fault at a moment.
    pub(super) fn has_trouble(&self, at: At) -> bool {
        let mut troubles = 0;
        for (when, fact) in self.facts() {
            match fact {
                _ if when > at => break,
                AtOutside::TroubleBegan { .. } => troubles += 1,
                AtOutside::TroubleEnded { .. } => troubles -= 1,
                _ => {}
            }
        }
        troubles > 0
    }
}
