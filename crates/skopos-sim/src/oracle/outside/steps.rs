//! N1, N2 and N7: what is written, as it is sent and as it is done.

use std::collections::{BTreeMap, BTreeSet};

use super::{CONFIRM, Outside, VIEW};
use crate::history::{Address, At, AtOutside, KeyId, ProcessId, Record, Step};
use crate::oracle::{Invariant, Verdict};

pub(super) fn check(outside: &Outside<'_>, verdict: &mut Verdict) {
    let mut foreign: BTreeSet<KeyId> = BTreeSet::new();
    // When each process began to work, and whether in its first term.
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

/// A write is sent. `first`: when its sender began to work, if it has never worked before.
fn sent(outside: &Outside<'_>, verdict: &mut Verdict, at: At, name: KeyId, step: &Step, first: Option<At>) {
    let (before, after) = (own(step.before.as_ref()), own(step.after.as_ref()));
    let losses: Vec<_> = before.difference(&after).copied().collect();
    if losses.is_empty() || outside.is_excused(at) {
        return;
    }
    let (wanted, of) = (&outside.wanted, outside.focus(Some(name)));
    let key = || outside.case.key(name);
    let from = At(at.0.saturating_sub(At::after_start(VIEW).0));
    for value in &losses {
        verdict.exercise(Invariant::N2);
        let is_wanted = wanted.throughout(name, from, at, |state| state.wants(*value));
        verdict.demand(Invariant::N2, !is_wanted, at, of, || {
            format!("{value} of {} is removed, which the cluster has wanted for {VIEW:?}", key())
        });
        weak(outside, verdict, at, (name, *value), first);
    }
    if wanted.throughout(name, from, at, |state| state.lives) {
        verdict.exercise(Invariant::N7);
        verdict.demand(Invariant::N7, !after.is_empty(), at, of, || {
            format!("{losses:?} is all that {} has, and its Service lives", key())
        });
    }
}

/// N2: what nobody can have seen go waits for a list.
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
    // Something else may have happened just before, such as the deletion of another Service of this name.
    if departure.deselected && departure.at.since(there_since) >= VIEW {
        let waited = at.since(departure.at);
        verdict.demand(Invariant::N2, waited >= CONFIRM, at, of, || {
            format!("{value} of {} is removed {waited:?} after it is not selected any more", key())
        });
    }
    // A server that is behind may show it to one who has just begun, and then that it goes.
    let is_behind =
        || outside.case.weather.felt(outside.cluster, departure.at, at).any(|span| span.is_behind());
    // That the Service itself goes is seen, and all goes with it.
    let stays = |began: At| {
        let lived = outside.wanted.state(name, began).is_some_and(|state| state.lives);
        outside.wanted.throughout(name, began, at, |state| state.lives == lived)
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
