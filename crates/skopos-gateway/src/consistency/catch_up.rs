//! Catch-up of memory with a requirement: by waiting for the watch, by a probe that proves the content, or by a list from the
//! member.

use std::sync::Arc;
use std::time::Duration;

use skopos::{Informer, ObjectKey, RawObject, Read, ResourceVersion, Snapshot};
use skopos_fleet::{CachedKind, ClusterId};
use tokio::time::{Instant, timeout};

use super::{Floors, Listing, Requirement};

/// One resource of one cluster whose memory has to meet a requirement.
pub(crate) struct CatchUp<'a> {
    pub(crate) cluster: &'a ClusterId,
    pub(crate) kind: &'a CachedKind,
    pub(crate) requirement: &'a Requirement,
    pub(crate) floors: &'a Floors,
    pub(crate) listing: &'a Arc<Listing>,
}

/// The time given to the watch before the member is asked: a minimum, and an addition for each object that a list would
/// return.
const WATCH_GRACE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_micros(20));

impl CatchUp<'_> {
    /// Waits briefly for the watch, if nothing else is missing from `content`. The alternative is a list of `alternative`
    /// objects from the member, so a wait longer than that list takes is not worth it.
    pub(crate) async fn await_watch(
        &self,
        content: &Snapshot<RawObject>,
        alternative: usize,
        limit: Duration,
    ) -> Option<Snapshot<RawObject>> {
        self.report_lost(content);
        if !self.requirement.waits_for_watch(content) {
            return None;
        }
        let (least, each) = WATCH_GRACE;
        let list = each.saturating_mul(u32::try_from(alternative).unwrap_or(u32::MAX));
        let grace = list.clamp(least, (limit / 3).max(least));
        self.informer().wait_until(|content| self.requirement.is_met_by(content), grace).await.ok()
    }

    /// Returns the content of memory. While the store is behind the member's last list, returns that list instead.
    pub(crate) fn content(&self) -> Snapshot<RawObject> {
        let content = self.informer().snapshot();
        self.listing.ahead_of(&content).unwrap_or(content)
    }

    /// Starts a probe of the content or a list from the member. All callers that wait at the same time share one read.
    ///
    /// # Errors
    /// The reason for the failure, if one is known, when neither succeeds within `limit`.
    pub(crate) async fn ask(&self, limit: Duration) -> Result<Read<RawObject>, Option<Arc<str>>> {
        let listing = self.listing.clone();
        let kind = self.kind.clone();
        let read = async move {
            let read = kind.informer().read_since(Instant::now(), limit).await;
            let read = read.map_err(|error| Arc::<str>::from(error.to_string()))?;
            if read.source == skopos::Source::Live {
                listing.listed(&read.snapshot);
            }
            Ok(read)
        };
        match timeout(limit, self.listing.single_flight.run(read)).await {
            Ok(read) => read.map_err(Some),
            Err(_) => Err(None),
        }
    }

    /// Starts a relist if memory has lost a change that the answer to a write showed.
    fn report_lost(&self, content: &Snapshot<RawObject>) {
        let is_lost =
            |(key, version): &(&ObjectKey, u64)| self.informer().check(key, &ResourceVersion::from(*version));
        let lost = self.requirement.lost(content).filter(is_lost);
        let lost: Vec<ObjectKey> = lost.map(|(key, _)| key.clone()).collect();
        if !lost.is_empty() {
            let resource = self.kind.resource();
            self.floors.lost(self.cluster, &resource.group, &resource.plural, &lost);
        }
    }

    fn informer(&self) -> &Informer<RawObject> {
        self.kind.informer()
    }
}
