//! N4: some time after the last fault the receiver has acknowledged the state of each object.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Outside;
use crate::history::{At, AtOutside, KeyId, MessageId, ObjectState, Written};
use crate::oracle::{Invariant, Verdict};

/// States that the receiver took, and those that it has acknowledged.
#[derive(Default)]
pub(super) struct Acknowledged {
    /// The last state of each object that the receiver took.
    received: BTreeMap<KeyId, ObjectState>,
    sent: HashMap<MessageId, ObjectState>,
    acknowledged: HashSet<ObjectState>,
}

impl Acknowledged {
    pub(super) fn take(&mut self, fact: &AtOutside) {
        match fact {
            AtOutside::Notified { message, state, .. } => drop(self.sent.insert(*message, *state)),
            AtOutside::Received { state, .. } => drop(self.received.insert(state.key, *state)),
            AtOutside::Answered { message, outcome: Written::Done } => {
                self.acknowledged.extend(self.sent.get(message));
            }
            _ => {}
        }
    }

    /// Judges an object that is undisturbed for long enough.
    pub(super) fn judge(&self, outside: &Outside<'_>, verdict: &mut Verdict, at: At, key: KeyId) {
        let wanted = outside.wanted.state(key, at).and_then(|state| state.object);
        let received = self.received.get(&key);
        let is_known = match (wanted, received) {
            (None, None) => true,
            (Some(_), None) => false,
            (wanted, Some(state)) => {
                let known = (!state.gone).then_some((state.uid, state.stamp));
                known == wanted && self.acknowledged.contains(state)
            }
        };
        verdict.exercise(Invariant::N4);
        verdict.demand(Invariant::N4, is_known, at, outside.focus(Some(key)), || {
            let key = outside.case.key(key);
            format!("the receiver knows {received:?} of {key}, whose uid and stamp are {wanted:?}")
        });
    }
}
