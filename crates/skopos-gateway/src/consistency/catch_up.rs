//! Catching up: what memory lacks of a requirement comes from the watch, is proven by a probe, or is listed from the member.

use std::sync::Arc;
use std::time::Duration;

use skopos::{Informer, ObjectKey, RawObject, Read, ResourceVersion, Snapshot};
use skopos_fleet::{CachedKind, ClusterId};
use tokio::time::{Instant, timeout};

use super::{Floors, Listing, Requirement};

/// One kind of one cluster whose memory has to meet a requirement.
pub(crate) struct CatchUp<'a> {
    pub(crate) cluster: &'a ClusterId,
    pub(crate) kind: &'a CachedKind,
    pub(crate) requirement: &'a Requirement,
    pub(crate) floors: &'a Floors,
    pub(crate) listing: &'a Arc<Listing>,
}

/// How long the watch may take to bring what a caller was told, before the member is asked: at least, and for each object that a
/// list would have to bring.
const WATCH_GRACE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_micros(20));

// === impl CatchUp ===

impl CatchUp<'_> {
    /// Waits a moment for what the watch brings, if nothing else is missing from `content`. The member is asked for `alternative`
    /// objects where that comes to nothing, so to wait for longer than for these is not worth it.
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

    /// Returns what there is in memory: what the member has listed, while the store's content is behind that, or that content.
    pub(crate) fn content(&self) -> Snapshot<RawObject> {
        let content = self.informer().snapshot();
        self.listing.ahead_of(&content).unwrap_or(content)
    }

    /// Has a probe prove the content, or the member list it. One read serves all callers that wait at the same time.
    ///
    /// # Errors
    /// Why there is neither within `limit`, if that is known.
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
        match timeout(limit, self.listing.turns.ask(read)).await {
            Ok(read) => read.map_err(Some),
            Err(_) => Err(None),
        }
    }

    /// Has memory listed again that has lost a change which a write's answer showed.
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
