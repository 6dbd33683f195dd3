//! What the merged content of each member is a copy of, and so what may be said of its age.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use skopos::{Freshness, Snapshot, Store};
use skopos_fleet::ClusterId;
use skopos_wire::RawObject;

/// Which copy of each member the merged content follows.
///
/// Another copy may run already, started by another reader or for a cluster in the place of this one, while the feed waits
/// for its next attempt: that one's proof says nothing of the content that is shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Follows {
    copies: Arc<Mutex<Copies>>,
}

/// One time of following; a later one of the same member is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn(u64);

#[derive(Debug, Default)]
struct Copies {
    turns: u64,
    of: BTreeMap<ClusterId, (Turn, Followed)>,
}

#[derive(Clone, Debug)]
enum Followed {
    /// Each change is told as it comes. That the feed is behind by what it takes to be woken is not counted: nothing but that
    /// would be known of most moments.
    Now(Store<RawObject>),
    /// Everything was told up to this, and nothing behind it.
    Until(Snapshot<RawObject>),
}

// === impl Follows ===

impl Follows {
    /// The content is that of the store, and what changes there is told from here on.
    pub(crate) fn begin(&self, id: &ClusterId, store: Store<RawObject>) -> Turn {
        let mut copies = self.copies.lock();
        copies.turns += 1;
        let turn = Turn(copies.turns);
        let before = copies.of.insert(id.clone(), (turn, Followed::Now(store)));
        drop(copies);
        drop(before);
        turn
    }

    /// Nothing more is told. `all` was; `None` where that is not sure. Changes nothing if another turn has begun.
    pub(crate) fn end(&self, id: &ClusterId, turn: Turn, all: Option<Snapshot<RawObject>>) {
        let mut copies = self.copies.lock();
        if copies.of.get(id).is_none_or(|(current, _)| *current != turn) {
            return;
        }
        let before = match all {
            Some(all) => copies.of.insert(id.clone(), (turn, Followed::Until(all))),
            None => copies.of.remove(id),
        };
        drop(copies);
        drop(before);
    }

    /// There is no content of the member any more.
    pub(crate) fn forget(&self, id: &ClusterId) {
        let before = self.copies.lock().of.remove(id);
        drop(before);
    }

    /// How old the merged content of the member is; `None` if nothing is proven of it.
    pub(crate) fn freshness(&self, id: &ClusterId) -> Option<Freshness> {
        let followed = self.copies.lock().of.get(id).map(|(_, followed)| followed.clone());
        Some(match followed? {
            Followed::Now(store) => store.freshness(),
            Followed::Until(snapshot) => snapshot.freshness(),
        })
    }
}
