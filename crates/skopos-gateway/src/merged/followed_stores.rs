//! The stores that the merged content of each member is copied from, and the age of this content.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use skopos::transport::WallClock;
use skopos::{Freshness, Snapshot, Store};
use skopos_fleet::ClusterId;
use skopos_wire::RawObject;
use tokio::time::Instant;

/// The store that the merged content of each member follows.
///
/// Another store may exist already, for another reader or for a cluster that replaces this one, while the feed waits for
/// its next attempt. That store's proof of age does not apply to the content shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct FollowedStores {
    stores: Arc<Mutex<Stores>>,
    clock: WallClock,
}

/// One period of following a store; each later period of the same member has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FollowId(u64);

#[derive(Debug, Default)]
struct Stores {
    last_id: u64,
    by_member: BTreeMap<ClusterId, (FollowId, Followed)>,
}

#[derive(Clone, Debug)]
enum Followed {
    /// A live copy of the store; each change is passed on immediately. The feed's wake-up delay is not counted: otherwise the
    /// content would be of known age at almost no moment. The proof is that of a list ahead of the store, if there was
    /// one.
    Now(Store<RawObject>, Option<Proof>),
    /// A copy that has ended; everything up to this snapshot was passed on, and nothing later.
    Until(Snapshot<RawObject>),
}

/// The time at which content was the newest, by both clocks: the monotonic clock stops while the machine sleeps.
#[derive(Clone, Copy, Debug)]
struct Proof {
    at: Instant,
    clock: SystemTime,
}

/// Ages of the members' contents at one moment, from which their current ages follow.
#[derive(Debug)]
pub(crate) struct Ages {
    now: Proof,
    by_member: BTreeMap<ClusterId, Age>,
    clock: WallClock,
}

/// Age of a member's content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Age {
    /// True if the source of the content is healthy.
    live: bool,
    /// The upper bound of the age; `None` if nothing is proven.
    pub(crate) bound: Option<Duration>,
}

impl FollowedStores {
    /// Makes a value that follows nothing yet.
    pub(crate) fn new(clock: WallClock) -> Self {
        Self { stores: Arc::default(), clock }
    }

    /// Begins to follow a store: the content equals the store's, and each later change of the store is passed on.
    pub(crate) fn begin(&self, id: &ClusterId, store: Store<RawObject>) -> FollowId {
        let mut stores = self.stores.lock();
        stores.last_id += 1;
        let follow_id = FollowId(stores.last_id);
        let before = stores.by_member.insert(id.clone(), (follow_id, Followed::Now(store, None)));
        drop(stores);
        drop(before);
        follow_id
    }

    /// Ends a period of following. `all` is the last content if it was passed on completely; `None` if that is not certain. Does nothing
    /// if another period has begun.
    pub(crate) fn end(&self, id: &ClusterId, follow_id: FollowId, all: Option<Snapshot<RawObject>>) {
        let mut stores = self.stores.lock();
        if stores.by_member.get(id).is_none_or(|(current, _)| *current != follow_id) {
            return;
        }
        let before = match all {
            Some(all) => stores.by_member.insert(id.clone(), (follow_id, Followed::Until(all))),
            None => stores.by_member.remove(id),
        };
        drop(stores);
        drop(before);
    }

    /// Records that the member was listed ahead of a store, if that store is the one followed: `take` shows the content,
    /// and its age is known from then on.
    pub(crate) fn listed(
        &self,
        id: &ClusterId,
        store: &Store<RawObject>,
        content: &Snapshot<RawObject>,
        take: impl FnOnce(),
    ) {
        let mut stores = self.stores.lock();
        let followed = stores.by_member.get_mut(id).map(|(_, followed)| followed);
        let Some(Followed::Now(_, ahead)) = followed.filter(|followed| followed.is_of(store)) else { return };
        // Under the lock, so that a switch to another store happens before or after.
        take();
        *ahead = content.age().map(|age| Proof::from_age(age, &self.clock));
    }

    /// Removes the member, which has no content any more.
    pub(crate) fn forget(&self, id: &ClusterId) {
        let before = self.stores.lock().by_member.remove(id);
        drop(before);
    }

    /// Returns the age of each member's merged content. Call it before reading the content, which only gets newer.
    pub(crate) fn ages(&self) -> Ages {
        let now = Proof::from_age(Duration::ZERO, &self.clock);
        let stores = self.stores.lock();
        let age = |(_, followed): &(FollowId, Followed)| followed.age(&self.clock);
        let by_member = stores.by_member.iter().map(|(id, copy)| (id.clone(), age(copy))).collect();
        Ages { now, by_member, clock: self.clock.clone() }
    }
}

impl Followed {
    fn is_of(&self, store: &Store<RawObject>) -> bool {
        matches!(self, Self::Now(own, _) if own.is_same(store))
    }

    fn age(&self, clock: &WallClock) -> Age {
        match self {
            Self::Now(store, None) => Age::from_freshness(&store.freshness()),
            Self::Now(store, Some(ahead)) => {
                let bound = Some(ahead.age(clock));
                Age::from_freshness(&store.freshness()).or(Age { live: true, bound })
            }
            Self::Until(snapshot) => Age::from_freshness(&snapshot.freshness()),
        }
    }
}

impl Proof {
    /// Makes the proof of content that has this age now.
    fn from_age(age: Duration, clock: &WallClock) -> Self {
        let (now, clock) = (Instant::now(), clock.now());
        Self { at: now.checked_sub(age).unwrap_or(now), clock: clock.checked_sub(age).unwrap_or(clock) }
    }

    fn age(self, clock: &WallClock) -> Duration {
        self.at.elapsed().max(clock.now().duration_since(self.clock).unwrap_or_default())
    }
}

impl Ages {
    /// Returns the member's age now; `None` if nothing was known of it.
    pub(crate) fn get(&self, id: &ClusterId) -> Option<Age> {
        let Age { live, bound } = *self.by_member.get(id)?;
        Some(Age { live, bound: bound.map(|age| age.saturating_add(self.now.age(&self.clock))) })
    }
}

impl Age {
    fn from_freshness(freshness: &Freshness) -> Self {
        Self { live: freshness.is_live(), bound: freshness.age() }
    }

    /// Returns the younger of two ages of the same content.
    fn or(self, other: Self) -> Self {
        let is_younger = |age: Self| (age.live, age.bound.is_some(), std::cmp::Reverse(age.bound));
        if is_younger(self) >= is_younger(other) { self } else { other }
    }

    pub(crate) fn is_within(self, max_age: Duration) -> bool {
        self.live && self.bound.is_some_and(|age| age <= max_age)
    }
}
