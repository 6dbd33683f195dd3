use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::core::WorkOutcome;
use super::queue::WorkQueueInner;

/// A key that is held by a worker. No other worker gets it while this exists.
///
/// It ends exactly once, with one of the three methods that take it, or when it is dropped: by a `?`, by a panic, by a
/// cancelled future. Work that was not reported as done is not done, so a dropped key is [tried again](Item::retry).
#[must_use = "dropped, the key is tried again later: say done() when it is"]
pub struct Item<K: Clone + Eq + Hash> {
    shared: Arc<WorkQueueInner<K>>,
    key: K,
    failures: u32,
    outcome: WorkOutcome,
}

impl<K: Clone + Eq + Hash> Item<K> {
    pub(super) fn new(shared: Arc<WorkQueueInner<K>>, key: K, failures: u32) -> Self {
        Self { shared, key, failures, outcome: WorkOutcome::Retry }
    }

    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns the number of failed attempts before: [`WorkQueue::num_requeues`](super::WorkQueue::num_requeues) when the
    /// key was handed out.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Marks the work as done, and resets the failures. If the key was added meanwhile, it waits for a worker again.
    pub fn done(mut self) {
        self.outcome = WorkOutcome::Done;
    }

    /// Marks the work as failed: the key comes again when the rate limit permits it, or at once if it was added meanwhile.
    /// Once the queue is shut down, it does not come again.
    pub fn retry(self) {}

    /// Marks the work as done for now, and resets the failures; the key comes again after `delay` in any case. Once the
    /// queue is shut down, it does not.
    pub fn done_until(mut self, delay: Duration) {
        self.outcome = WorkOutcome::Again(delay);
    }
}

impl<K: Clone + Eq + Hash> Drop for Item<K> {
    fn drop(&mut self) {
        self.shared.finish(&self.key, self.outcome);
    }
}

impl<K: Clone + Eq + Hash> Deref for Item<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K: Clone + Eq + Hash + fmt::Debug> fmt::Debug for Item<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item").field("key", &self.key).field("failures", &self.failures).finish()
    }
}
