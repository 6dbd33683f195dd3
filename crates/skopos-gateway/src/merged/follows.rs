//! What the merged content of each member is a copy of, and so what may be said of its age.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use skopos::{Freshness, Snapshot, Store};
use skopos_fleet::ClusterId;
use skopos_wire::RawObject;
use tokio::time::Instant;

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

/// How old the contents of the members were at one moment, and so how old they are by now.
#[derive(Debug)]
pub(crate) struct Ages {
    at: Instant,
    /// The monotonic clock stands still while the machine sleeps.
    clock: SystemTime,
    of: BTreeMap<ClusterId, Age>,
}

/// How old content is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Age {
    /// Nothing is wrong with what it is a copy of.
    live: bool,
    /// At most; `None` if nothing is proven.
    pub(crate) most: Option<Duration>,
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

    /// How old the merged content of each member is. To be asked before the content is looked at, which only gets newer.
    pub(crate) fn ages(&self) -> Ages {
        let (at, clock) = (Instant::now(), SystemTime::now());
        let age = |followed: &Followed| Age::of(&followed.freshness());
        let copies = self.copies.lock();
        let of = copies.of.iter().map(|(id, (_, followed))| (id.clone(), age(followed))).collect();
        Ages { at, clock, of }
    }
}

impl Followed {
    fn freshness(&self) -> Freshness {
        match self {
            Self::Now(store) => store.freshness(),
            Self::Until(snapshot) => snapshot.freshness(),
        }
    }
}

// === impl Ages ===

impl Ages {
    /// How old that content of the member is now; `None` if nothing was known of it.
    pub(crate) fn of(&self, id: &ClusterId) -> Option<Age> {
        let Age { live, most } = *self.of.get(id)?;
        let passed = self.at.elapsed().max(self.clock.elapsed().unwrap_or_default());
        Some(Age { live, most: most.map(|age| age.saturating_add(passed)) })
    }
}

// === impl Age ===

impl Age {
    fn of(freshness: &Freshness) -> Self {
        Self { live: freshness.is_live(), most: freshness.age() }
    }

    pub(crate) fn is_within(self, max_age: Duration) -> bool {
        self.live && self.most.is_some_and(|age| age <= max_age)
    }
}
