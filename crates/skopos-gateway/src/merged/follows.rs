//! What the merged content of each member is a copy of, and so what may be said of its age.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use skopos::{Freshness, Snapshot, Store};
use skopos_fleet::ClusterId;
use skopos_wire::RawObject;
use tokio::time::Instant;

use crate::clock::Clock;

/// Which copy of each member the merged content follows.
///
/// Another copy may run already, started by another reader or for a cluster in the place of this one, while the feed waits
/// for its next attempt: that one's proof says nothing of the content that is shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Follows {
    copies: Arc<Mutex<Copies>>,
    clock: Clock,
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
    /// would be known of most moments. With the proof of what was listed ahead of the store, if anything was.
    Now(Store<RawObject>, Option<Proof>),
    /// Everything was told up to this, and nothing behind it.
    Until(Snapshot<RawObject>),
}

/// When content was the newest, by both clocks: the monotonic one stands still while the machine sleeps.
#[derive(Clone, Copy, Debug)]
struct Proof {
    at: Instant,
    clock: SystemTime,
}

/// How old the contents of the members were at one moment, and so how old they are by now.
#[derive(Debug)]
pub(crate) struct Ages {
    now: Proof,
    of: BTreeMap<ClusterId, Age>,
    clock: Clock,
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
    /// Follows nothing yet.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { copies: Arc::default(), clock }
    }

    /// The content is that of the store, and what changes there is told from here on.
    pub(crate) fn begin(&self, id: &ClusterId, store: Store<RawObject>) -> Turn {
        let mut copies = self.copies.lock();
        copies.turns += 1;
        let turn = Turn(copies.turns);
        let before = copies.of.insert(id.clone(), (turn, Followed::Now(store, None)));
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

    /// Takes in what the member has listed ahead of a store, if it is that store which is followed: `take` shows the content, and its
    /// age is known from then on.
    pub(crate) fn listed(
        &self,
        id: &ClusterId,
        store: &Store<RawObject>,
        content: &Snapshot<RawObject>,
        take: impl FnOnce(),
    ) {
        let mut copies = self.copies.lock();
        let followed = copies.of.get_mut(id).map(|(_, followed)| followed);
        let Some(Followed::Now(_, ahead)) = followed.filter(|followed| followed.is_of(store)) else { return };
        // With the lock held: whoever follows another copy instead does so before or after.
        take();
        *ahead = content.age().map(|age| Proof::of_age(age, &self.clock));
    }

    /// There is no content of the member any more.
    pub(crate) fn forget(&self, id: &ClusterId) {
        let before = self.copies.lock().of.remove(id);
        drop(before);
    }

    /// How old the merged content of each member is. To be asked before the content is looked at, which only gets newer.
    pub(crate) fn ages(&self) -> Ages {
        let now = Proof::of_age(Duration::ZERO, &self.clock);
        let copies = self.copies.lock();
        let age = |(_, followed): &(Turn, Followed)| followed.age(&self.clock);
        let of = copies.of.iter().map(|(id, copy)| (id.clone(), age(copy))).collect();
        Ages { now, of, clock: self.clock.clone() }
    }
}

impl Followed {
    fn is_of(&self, store: &Store<RawObject>) -> bool {
        matches!(self, Self::Now(own, _) if own.is_same(store))
    }

    fn age(&self, clock: &Clock) -> Age {
        match self {
            Self::Now(store, None) => Age::of(&store.freshness()),
            Self::Now(store, Some(ahead)) => {
                let most = Some(ahead.age(clock));
                Age::of(&store.freshness()).or(Age { live: true, most })
            }
            Self::Until(snapshot) => Age::of(&snapshot.freshness()),
        }
    }
}

// === impl Proof ===

impl Proof {
    /// Makes that of content that is so old now.
    fn of_age(age: Duration, clock: &Clock) -> Self {
        let (now, clock) = (Instant::now(), clock.now());
        Self { at: now.checked_sub(age).unwrap_or(now), clock: clock.checked_sub(age).unwrap_or(clock) }
    }

    fn age(self, clock: &Clock) -> Duration {
        self.at.elapsed().max(clock.now().duration_since(self.clock).unwrap_or_default())
    }
}

// === impl Ages ===

impl Ages {
    /// How old that content of the member is now; `None` if nothing was known of it.
    pub(crate) fn of(&self, id: &ClusterId) -> Option<Age> {
        let Age { live, most } = *self.of.get(id)?;
        Some(Age { live, most: most.map(|age| age.saturating_add(self.now.age(&self.clock))) })
    }
}

// === impl Age ===

impl Age {
    fn of(freshness: &Freshness) -> Self {
        Self { live: freshness.is_live(), most: freshness.age() }
    }

    /// Returns the younger of two ages of the same content.
    fn or(self, other: Self) -> Self {
        let is_younger = |age: Self| (age.live, age.most.is_some(), std::cmp::Reverse(age.most));
        if is_younger(self) >= is_younger(other) { self } else { other }
    }

    pub(crate) fn is_within(self, max_age: Duration) -> bool {
        self.live && self.most.is_some_and(|age| age <= max_age)
    }
}
