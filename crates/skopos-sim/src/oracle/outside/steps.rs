//! N1, N2 and N7: writes, when they are sent and when they are executed.

use std::collections::{BTreeMap, BTreeSet};

use super::{CONFIRM, Outside, VIEW, oldest_view};
use crate::history::{Address, At, AtOutside, KeyId, ProcessId, Record, Step};
use crate::oracle::{Invariant, Verdict};

pub(super) fn check(outside: &Outside<'_>, verdict: &mut Verdict) {
    let mut foreign: BTreeSet<KeyId> = BTreeSet::new();
    // Time at which each process began to work, and whether in its first term.
    let mut began: BTreeMap<ProcessId, (At, bool)> = BTreeMap::new();
    for (at, fact) in outside.facts() {
        match fact {
            AtOutside::Began { process, .. } => {
                let is_first = !began.contains_key(process);
                began.insert(*process, (at, is_first));
            }
            AtOutside::Sent { process, name, step, .. } => {
                let first = began.get(process).filter(|(_, first)| *first).map(|(at, _)| *at);
                sent(outside, verdict, at, *name, step, first);
            }
            AtOutside::Applied { name, before, after, .. } => {
                let is_foreign = before.as_ref().is_some_and(|record| record.owner.is_none());
                let of = outside.focus(Some(*name));
                verdict.demand(Invariant::N1, !is_foreign, at, of, || {
                    format!("{} was not the notifier's, and is now {after:?}", outside.case.key(*name))
                });
                foreign.remove(name);
            }
            AtOutside::Edited { name, after } => {
                foreign.remove(name);
                if after.as_ref().is_some_and(|record| record.owner.is_none()) {
                    foreign.insert(*name);
                }
            }
            AtOutside::Read { whole: true, .. } => {
                let is_asked =
                    |name: &KeyId| outside.wanted.state(*name, at).is_some_and(|state| state.asked);
                if foreign.iter().any(is_asked) {
                    verdict.exercise(Invariant::N1);
                }
            }
            _ => {}
        }
    }
}

/// Judges a write that is sent. `first`: the time at which its sender began to work, if it has never worked before.
fn sent(outside: &Outside<'_>, verdict: &mut Verdict, at: At, name: KeyId, step: &Step, first: Option<At>) {
    let (before, after) = (own(step.before.as_ref()), own(step.after.as_ref()));
    let losses: Vec<_> = before.difference(&after).copied().collect();
    if losses.is_empty() || outside.is_excused(at) {
        return;
    }
    let (wanted, of) = (&outside.wanted, outside.focus(Some(name)));
    let key = || outside.case.key(name);
    let from = oldest_view(at);
    for value in &losses {
        verdict.exercise(Invariant::N2);
        let is_wanted = wanted.throughout(name, from, at, |state| state.wants(*value));
        verdict.demand(Invariant::N2, !is_wanted, at, of, || {
            format!("{value} of {} is removed, which the cluster has wanted for {VIEW:?}", key())
        });
        weak(outside, verdict, at, (name, *value), first);
    }
    if wanted.throughout(name, from, at, |state| state.lives()) {
        verdict.exercise(Invariant::N7);
        verdict.demand(Invariant::N7, !after.is_empty(), at, of, || {
            format!("{losses:?} is all that {} has, and its Service lives", key())
        });
    }
}

/// Checks N2: a removal that cannot have been seen waits for a list.
fn weak(
    outside: &Outside<'_>,
    verdict: &mut Verdict,
    at: At,
    (name, value): (KeyId, Address),
    first: Option<At>,
) {
    let Some((departure, there_since)) = outside.wanted.departure(name, value, at) else { return };
    let of = outside.focus(Some(name));
    let key = || outside.case.key(name);
    // Another event may have come just before, such as the deletion of another Service of this name.
    if departure.deselected && departure.at.since(there_since) >= VIEW {
        let waited = at.since(departure.at);
        verdict.demand(Invariant::N2, waited >= CONFIRM, at, of, || {
            format!("{value} of {} is removed {waited:?} after it is not selected any more", key())
        });
    }
    // A lagging server may show the value to a process that has just begun, and then its removal.
    let is_behind =
        || outside.case.weather.felt(outside.cluster, departure.at, at).any(|span| span.is_behind());
    // The deletion of the Service itself is seen, and all values go with it.
    let stays = |began: At| {
        let lived = outside.wanted.state(name, began).is_some_and(|state| state.lives());
        outside.wanted.throughout(name, began, at, |state| state.lives() == lived)
    };
    if let Some(began) = first.filter(|began| departure.at < *began && stays(*began))
        && !is_behind()
    {
        let waited = at.since(began);
        verdict.demand(Invariant::N2, waited >= CONFIRM, at, of, || {
            format!(
                "{value} of {} went before the notifier began, and is removed {waited:?} after that",
                key()
            )
        });
    }
}

/// Returns the values of a record with the notifier's mark.
fn own(record: Option<&Record>) -> BTreeSet<Address> {
    let own = record.filter(|record| record.owner.is_some());
    own.into_iter().flat_map(|record| record.values.iter().copied()).collect()
}
