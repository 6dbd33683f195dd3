//! Listings: what members have listed lately because memory was behind. Until memory has caught up, reads are answered from there, so
//! that no read shows less than one before it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use skopos::{RawObject, Read, ResourceId, Snapshot};
use skopos_fleet::{CachedKind, ClusterId, Fate};
use tokio::time::Instant;

use super::turns::Turns;

/// The listings of all kinds that are kept. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Listings {
    kinds: Arc<Mutex<ByKind>>,
}

type ByKind = HashMap<(ClusterId, ResourceId), Arc<Listing>>;

/// What was listed of one kind of one cluster.
pub(crate) struct Listing {
    /// Of the copy that it belongs to.
    fate: Fate,
    /// What is being listed, for all who need it at the same time.
    pub(super) turns: Turns<Live>,
    ahead: Mutex<Option<Ahead>>,
}

/// A read of the member, or why there is none.
pub(super) type Live = Result<Read<RawObject>, Arc<str>>;

/// A list of the member that the store may be behind.
struct Ahead {
    content: Snapshot<RawObject>,
    /// When it was there.
    at: Instant,
}

// === impl Listings ===

impl Listings {
    /// Returns the listing of a kind.
    pub(crate) fn of(&self, cluster: &ClusterId, kind: &CachedKind) -> Arc<Listing> {
        let key = (cluster.clone(), kind.resource().clone());
        let mut kinds = self.kinds.lock();
        if let Some(listing) = kinds.get(&key).filter(|listing| listing.fate.is_of(kind)) {
            return listing.clone();
        }
        let gone: Vec<_> = kinds.extract_if(|_, listing| listing.fate.end_reason().is_some()).collect();
        let listing = Arc::new(Listing::new(kind.fate()));
        let before = kinds.insert(key, listing.clone());
        drop(kinds);
        drop((gone, before));
        listing
    }

    /// Drops what no read is answered from any more: to be called now and then.
    pub(crate) fn tidy(&self) {
        let mut kinds = self.kinds.lock();
        let gone: Vec<_> = kinds.extract_if(|_, listing| listing.fate.end_reason().is_some()).collect();
        let old: Vec<_> = kinds.values().filter_map(|listing| listing.take_old()).collect();
        drop(kinds);
        drop((gone, old));
    }
}

// === impl Listing ===

impl Listing {
    fn new(fate: Fate) -> Self {
        Self { fate, turns: Turns::new(), ahead: Mutex::default() }
    }

    /// Takes in what the member has listed.
    pub(super) fn listed(&self, content: &Snapshot<RawObject>) {
        let new = Ahead { content: content.clone(), at: Instant::now() };
        let before = self.ahead.lock().replace(new);
        drop(before);
    }

    /// Returns what was listed from the member, if that is newer than this content of the store.
    pub(crate) fn ahead_of(&self, store: &Snapshot<RawObject>) -> Option<Snapshot<RawObject>> {
        let mut ahead = self.ahead.lock();
        let is_newer = |ahead: &Ahead| {
            let listed = &ahead.content;
            listed.epoch() == store.epoch()
                && store.resource_version() < listed.resource_version()
                && !store.is_proven_after(ahead.at)
        };
        if ahead.as_ref().is_some_and(is_newer) {
            return ahead.as_ref().map(|ahead| ahead.content.clone());
        }
        let gone = ahead.take();
        drop(ahead);
        drop(gone);
        None
    }

    /// Nothing that is so old is shown for the newest state.
    fn take_old(&self) -> Option<Ahead> {
        self.ahead.lock().take_if(|ahead| !ahead.content.freshness().is_live())
    }
}
