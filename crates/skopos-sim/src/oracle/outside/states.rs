//! N2 and N5: messages about the states of objects, when they are sent.

use std::collections::HashMap;

use super::{Outside, VIEW, oldest_view};
use crate::history::{At, AtOutside, ObjectState, UidId};
use crate::oracle::{Invariant, Verdict};

pub(super) fn check(outside: &Outside<'_>, verdict: &mut Verdict) {
    // The newest state of each object that was sent, in each epoch.
    let mut newest: HashMap<(UidId, u64), u64> = HashMap::new();
    for (at, fact) in outside.facts() {
        if let AtOutside::Notified { state, .. } = fact {
            newer(outside, verdict, at, state, &mut newest);
            departed(outside, verdict, at, state);
        }
    }
}

/// Checks N5: no older state after a newer one.
fn newer(
    outside: &Outside<'_>,
    verdict: &mut Verdict,
    at: At,
    state: &ObjectState,
    newest: &mut HashMap<(UidId, u64), u64>,
) {
    let newest = newest.entry((state.uid, state.epoch)).or_insert(state.rv);
    if *newest != state.rv {
        verdict.exercise(Invariant::N5);
    }
    verdict.demand(Invariant::N5, *newest <= state.rv, at, outside.focus(Some(state.key)), || {
        let (key, rv) = (outside.case.key(state.key), state.rv);
        format!("{key} is reported at {rv}, after it was reported at {newest}")
    });
    *newest = (*newest).max(state.rv);
}

/// Checks N2: no deletion of an object that exists.
fn departed(outside: &Outside<'_>, verdict: &mut Verdict, at: At, state: &ObjectState) {
    if !state.gone || outside.is_excused(at) {
        return;
    }
    let from = oldest_view(at);
    let lives = outside
        .wanted
        .throughout(state.key, from, at, |wanted| wanted.object.is_some_and(|(uid, _)| uid == state.uid));
    verdict.exercise(Invariant::N2);
    verdict.demand(Invariant::N2, !lives, at, outside.focus(Some(state.key)), || {
        format!("{} is reported as deleted, and has existed for {VIEW:?}", outside.case.key(state.key))
    });
}
