//! N3: some time after the last trouble a process works, and the outside is as the cluster wants it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Outside;
use crate::history::{Address, At, AtOutside, Fact, KeyId, ProcessId, Record};
use crate::oracle::{Invariant, Verdict};

/// Within what time. The longest ways: a term that runs out, the first lists, and a removal that waits for a list that agrees; a name
/// that was changed by hand more often than it is put right in a minute.
const BOUND: Duration = Duration::from_secs(200);

/// A process that is there asks for something within this time: it stands for the Lease.
const ASKS: Duration = Duration::from_secs(30);

/// The outside, and since when nothing has happened to it, and to each name.
#[derive(Default)]
struct Calm {
    records: BTreeMap<KeyId, Record>,
    working: BTreeSet<ProcessId>,
    since: At,
    names: BTreeMap<KeyId, At>,
    /// When each process has asked for something last.
    asked: BTreeMap<ProcessId, At>,
    /// Whether it is still to be judged that somebody works.
    is_open: bool,
    /// Names that are still to be judged since the last time that something happened to them.
    open: BTreeSet<KeyId>,
}

/// What there is to recover from.
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
    /// Takes in what happens; returns what has to recover from it.
    fn take(&mut self, outside: &Outside<'_>, at: At, fact: &Fact) -> Disturbance {
        let all = |disturbs: bool| if disturbs { Disturbance::All } else { Disturbance::Nothing };
        let fact = match fact {
            Fact::Outside(fact) => fact,
            Fact::RolledBack { cluster, .. } => return all(*cluster == outside.cluster),
            _ => return Disturbance::Nothing,
        };
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

    /// Judges whether somebody works, if there is anybody.
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

    /// Judges the names to which nothing has happened for long enough.
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
            // Who works has begun before: a term that begins is something to recover from.
            if !self.working.is_empty() && !outside.has_trouble(at) {
                self.judge_name(outside, verdict, at, name);
            }
        }
    }

    /// Returns since when nothing has happened to a name.
    fn since(&self, name: KeyId) -> At {
        self.names.get(&name).map_or(self.since, |at| (*at).max(self.since))
    }

    /// Returns whether the cluster was well between two moments. If it was not, it has to recover first.
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
            // Of what serves no longer one is kept.
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
    /// Returns whether something is wrong with the outside at a moment.
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
