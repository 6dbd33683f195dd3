//! Rule of an injected fault.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Fault, Match, RequestAttributes};

/// Injected fault, with its matcher and hit limit.
#[derive(Debug)]
pub(crate) struct FaultRule {
    id: u64,
    fault: Fault,
    matching: Match,
    since: Instant,
    hits: AtomicU64,
    /// Maximum number of hits.
    limit: AtomicU64,
    ended: CancellationToken,
    hit_recorded: Notify,
}

impl FaultRule {
    pub(super) fn new(id: u64, fault: Fault, matching: Match) -> Self {
        Self {
            id,
            fault,
            matching,
            since: Instant::now(),
            hits: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
            ended: CancellationToken::new(),
            hit_recorded: Notify::new(),
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn fault(&self) -> &Fault {
        &self.fault
    }

    pub(super) fn matches(&self, attributes: &RequestAttributes) -> bool {
        self.matching.matches_attributes(attributes)
    }

    pub(super) fn covers_body_opened(&self, opened: Instant) -> bool {
        !self.matching.new_only || opened >= self.since
    }

    /// Counts a hit, unless the limit is reached; returns whether it counted.
    pub(super) fn hit(&self) -> bool {
        let limit = self.limit.load(Ordering::Acquire);
        let one_more = |hits: u64| (hits < limit).then_some(hits + 1);
        let hit_recorded = self.hits.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_ok();
        if hit_recorded {
            self.hit_recorded.notify_waiters();
        }
        hit_recorded
    }

    pub(super) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Acquire)
    }

    pub(super) fn limit_to(&self, times: u64) {
        self.limit.store(times, Ordering::Release);
    }

    pub(super) fn end(&self) {
        self.ended.cancel();
    }

    /// Waits until the fault is healed.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Waits until the fault has hit `times` times.
    pub(super) async fn wait_hits(&self, times: u64) {
        loop {
            let hit_recorded = self.hit_recorded.notified();
            tokio::pin!(hit_recorded);
            hit_recorded.as_mut().enable();
            if self.hits() >= times {
                return;
            }
            hit_recorded.await;
        }
    }
}
