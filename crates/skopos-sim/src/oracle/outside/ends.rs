//! N3: some time after the last trouble the outside is as the cluster wants it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Outside;
use crate::history::{Address, At, AtOutside, Fact, KeyId, ProcessId, Record};
use crate::oracle::{Invariant, Verdict};

/// Within what time. The longest ways: a term that runs out, the first lists, and a removal that waits for a list that agrees; a name
/// that was changed by hand more often than it is put right in a minute.
const BOUND: Duration = Duration::from_secs(200);

/// The outside, and since when nothing has happened to it, and to each name.
#[derive(Default)]
struct Calm {
    records: BTreeMap<KeyId, Record>,
    working: BTreeSet<ProcessId>,
    since: At,
    names: BTreeMap<KeyId, At>,
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
        match calm.take(outside, fact) {
            Disturbance::Nothing => {}
            Disturbance::Name(name) => {
                calm.names.insert(name, at);
                calm.open.insert(name);
            }
            Disturbance::All => {
                calm.since = at;
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
    fn take(&mut self, outside: &Outside<'_>, fact: &Fact) -> Disturbance {
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

    /// Judges the names to which nothing has happened for long enough.
    fn judge(&mut self, outside: &Outside<'_>, verdict: &mut Verdict, now: At) {
        let since = |name: &KeyId| self.names.get(name).map_or(self.since, |at| (*at).max(self.since));
        let due: Vec<_> = self.open.iter().filter(|name| since(name).plus(BOUND) <= now).copied().collect();
        for name in due {
            self.open.remove(&name);
            let from = self.names.get(&name).map_or(self.since, |at| (*at).max(self.since));
            let at = from.plus(BOUND);
            let is_clear = outside.case.weather.is_clear(outside.cluster, from, at);
            // Who works has begun before: a term that begins is something to recover from.
            if is_clear && !self.working.is_empty() && !outside.has_trouble(at) {
                self.judge_name(outside, verdict, at, name);
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
