//! Recent lists from members, made because memory was behind. Until memory has caught up, they answer reads, so that no read
//! shows less than an earlier one.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use skopos::{RawObject, Read, ResourceId, Snapshot};
use skopos_fleet::{CachedKind, ClusterId, StopWatcher};
use tokio::time::Instant;

use super::single_flight::SingleFlight;

/// The listings of all kept resources. Cheap to clone; all clones share the same state.
#[derive(Clone, Default)]
pub(crate) struct Listings {
    kinds: Arc<Mutex<ByKind>>,
}

type ByKind = HashMap<(ClusterId, ResourceId), Arc<Listing>>;

/// The last list of one resource of one cluster.
pub(crate) struct Listing {
    /// The watcher of the end of the cached copy that the listing belongs to.
    stop_watcher: StopWatcher,
    /// The list under way, shared by all callers that need it at the same time.
    pub(super) single_flight: SingleFlight<Live>,
    ahead: Mutex<Option<Ahead>>,
}

/// The result of a read of the member, or the reason why it failed.
pub(super) type Live = Result<Read<RawObject>, Arc<str>>;

/// A list from the member that may be newer than the store.
struct Ahead {
    content: Snapshot<RawObject>,
    /// The time at which the list was complete.
    at: Instant,
}

impl Listings {
    /// Returns the listing of a resource.
    pub(crate) fn get(&self, cluster: &ClusterId, kind: &CachedKind) -> Arc<Listing> {
        let key = (cluster.clone(), kind.resource().clone());
        let mut kinds = self.kinds.lock();
        if let Some(listing) = kinds.get(&key).filter(|listing| listing.stop_watcher.is_of(kind)) {
            return listing.clone();
        }
        let gone: Vec<_> =
            kinds.extract_if(|_, listing| listing.stop_watcher.end_reason().is_some()).collect();
        let listing = Arc::new(Listing::new(kind.stop_watcher()));
        let before = kinds.insert(key, listing.clone());
        drop(kinds);
        drop((gone, before));
        listing
    }

    /// Drops the lists that no read uses any more. To be called now and then.
    pub(crate) fn tidy(&self) {
        let mut kinds = self.kinds.lock();
        let gone: Vec<_> =
            kinds.extract_if(|_, listing| listing.stop_watcher.end_reason().is_some()).collect();
        let old: Vec<_> = kinds.values().filter_map(|listing| listing.take_old()).collect();
        drop(kinds);
        drop((gone, old));
    }
}

impl Listing {
    fn new(stop_watcher: StopWatcher) -> Self {
        Self { stop_watcher, single_flight: SingleFlight::new(), ahead: Mutex::default() }
    }

    /// Records a list from the member.
    pub(super) fn listed(&self, content: &Snapshot<RawObject>) {
        let new = Ahead { content: content.clone(), at: Instant::now() };
        let before = self.ahead.lock().replace(new);
        drop(before);
    }

    /// Returns the last list from the member if it is newer than this content of the store.
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

    /// Removes a list that is too old to be returned as the newest state.
    fn take_old(&self) -> Option<Ahead> {
        self.ahead.lock().take_if(|ahead| !ahead.content.freshness().is_live())
    }
}
