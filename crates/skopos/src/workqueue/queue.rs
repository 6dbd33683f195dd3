//! The asynchronous queue: the state machine behind a lock, and the clock.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::core::{AddError, MAX_DELAY, NextKey, WorkOutcome, WorkQueueCore};
use super::item::Item;
use super::lines::Priority;
use super::options::WorkQueueOptions;
use super::stats::WorkQueueStats;
use crate::sync::{Mutex, sleep_until, timeout_at};

/// A queue of keys for workers; see the [module](super).
///
/// Cheap to clone; all clones are the same queue. It has no task of its own, so that there is nothing to stop: dropping all
/// clones is fine. Only its async methods need a tokio runtime.
///
/// First in, first out: for waiting keys, and for those that are due at the same time.
///
/// # Example
/// A worker. Several of them may share a queue: no two get the same key at the same time.
/// ```no_run
/// use k8s_openapi::api::apps::v1::Deployment;
/// use skopos::workqueue::WorkQueue;
/// use skopos::{ObjectKey, Store};
///
/// async fn work(queue: WorkQueue<ObjectKey>, store: Store<Deployment>) {
///     while let Some(item) = queue.get().await {
///         let replicas = match store.get(&item).map(|object| object.decode()) {
///             Some(Ok(deployment)) => deployment.spec.replicas,
///             // It does not fit the type: later again, with the rate limit.
///             Some(Err(_)) => {
///                 item.retry();
///                 continue;
///             }
///             None => None,
///         };
///         println!("{}: {replicas:?}", *item);
///         item.done();
///     }
/// }
/// ```
pub struct WorkQueue<K> {
    shared: Arc<WorkQueueInner<K>>,
}

/// State shared by the clones and the items.
pub(super) struct WorkQueueInner<K> {
    core: Mutex<WorkQueueCore<K>>,
    /// Notifies a waiting worker that it has to check. A notified worker that leaves wakes the next one: see [`WakeNextOnDrop`].
    ready: Notify,
    /// Notifies that a key has ended, or the queue was shut down.
    settled: Notify,
}

/// A drain that was not complete at its deadline.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{name} was not drained within {limit:.1?}: {abandoned} keys were not begun and are forgotten, \
     {processing} are still worked on"
)]
#[non_exhaustive]
pub struct NotDrained {
    /// The queue's name.
    pub name: String,
    /// The time waited.
    pub limit: Duration,
    /// Keys that waited and were dropped.
    pub abandoned: usize,
    /// Keys held by workers that have not ended.
    pub processing: usize,
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    /// Creates an empty queue.
    pub fn new(options: WorkQueueOptions) -> Self {
        let core = Mutex::new(WorkQueueCore::new(&options));
        Self { shared: Arc::new(WorkQueueInner { core, ready: Notify::new(), settled: Notify::new() }) }
    }

    /// Adds a key. If it waits already, nothing changes; if it is being worked on, it is worked on again afterwards.
    ///
    /// # Errors
    /// If there are too many keys, or the queue was shut down.
    pub fn add(&self, key: K) -> Result<(), AddError> {
        self.add_with_priority(key, Priority::Normal)
    }

    /// Adds a key like [`WorkQueue::add`], in one of the two lines. A key that waits in the background moves to the front
    /// when it is added as normal; never the other way.
    ///
    /// # Errors
    /// As [`WorkQueue::add`].
    pub fn add_with_priority(&self, key: K, priority: Priority) -> Result<(), AddError> {
        self.shared.feed(|core, now| core.add(key, priority, now))
    }

    /// Adds a key like [`WorkQueue::add`], but waits for room while there are too many keys, for at most `limit`.
    ///
    /// The right method for a [handler](crate::Informer::add_handler), which then lags behind and loses nothing: its own
    /// queue coalesces.
    ///
    /// # Errors
    /// If there was no room in time, or the queue was shut down.
    pub async fn add_within(&self, key: K, limit: Duration) -> Result<(), AddError> {
        self.add_with_priority_within(key, Priority::Normal, limit).await
    }

    /// Adds a key like [`WorkQueue::add_within`], in one of the two lines.
    ///
    /// # Errors
    /// As [`WorkQueue::add_within`].
    pub async fn add_with_priority_within(
        &self,
        key: K,
        priority: Priority,
        limit: Duration,
    ) -> Result<(), AddError> {
        let deadline = Instant::now() + limit.min(MAX_DELAY);
        loop {
            // Created before the check, so that no event in between is missed.
            let settled = self.shared.settled.notified();
            let full = match self.add_with_priority(key.clone(), priority) {
                Err(full @ AddError::Full { .. }) => full,
                other => return other,
            };
            if timeout_at(deadline, settled).await.is_err() {
                return Err(full);
            }
        }
    }

    /// Adds a key after `delay` (at most ten years). If it is delayed already, the earlier time counts. Independent of
    /// additions without a delay.
    ///
    /// # Errors
    /// As [`WorkQueue::add`].
    pub fn add_after(&self, key: K, delay: Duration) -> Result<(), AddError> {
        self.shared.feed(|core, now| core.add_after(key, delay, now))
    }

    /// Adds a key that failed, after the wait of the rate limit. For a key that a worker holds there is [`Item::retry`].
    ///
    /// # Errors
    /// As [`WorkQueue::add`].
    pub fn add_rate_limited(&self, key: K) -> Result<(), AddError> {
        self.shared.feed(|core, now| core.add_rate_limited(key, now))
    }

    /// Resets the failures of a key, so that the next one counts as the first. [`Item::done`] does so too.
    pub fn forget(&self, key: &K) {
        self.shared.core.lock().forget(key);
    }

    /// Returns the number of retries of the key since it was last done. A key that is not in the queue has never failed.
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.shared.core.lock().failures(key)
    }

    /// Returns the next key, in the order of addition; waits for one. `None`: the queue was shut down, and no work is left.
    ///
    /// It waits like a stream, without a bound of its own. It may be cancelled at any time (in `tokio::time::timeout` or
    /// `select!`) without losing a key.
    pub async fn get(&self) -> Option<Item<K>> {
        let shared = &self.shared;
        let _wake_next = WakeNextOnDrop(shared);
        loop {
            let taken = shared.core.lock().take(Instant::now());
            let until = match taken {
                NextKey::Key(key, failures) => return Some(Item::new(shared.clone(), key, failures)),
                NextKey::Ended => return None,
                NextKey::Nothing { until } => until,
            };
            match until {
                // In both cases, check again.
                Some(until) => tokio::select! {
                    biased;
                    () = shared.ready.notified() => {}
                    () = sleep_until(until) => {}
                },
                None => shared.ready.notified().await,
            }
        }
    }

    /// Returns the queue's name.
    pub fn name(&self) -> String {
        self.shared.core.lock().name().to_owned()
    }

    /// Returns the number of keys that wait for a worker: without those that are delayed, or being worked on.
    pub fn len(&self) -> usize {
        self.shared.core.lock().len(Instant::now())
    }

    /// Returns whether no key waits for a worker.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the queue's statistics. Reads every key.
    pub fn stats(&self) -> WorkQueueStats {
        self.shared.core.lock().stats(Instant::now())
    }

    /// Shuts the queue down: refuses additions, and drops delayed keys. Waiting keys are still handed out; after the last
    /// one, [`WorkQueue::get`] returns `None`.
    pub fn shut_down(&self) {
        self.shared.core.lock().shut_down();
        self.shared.ready.notify_one();
        self.shared.settled.notify_waiters();
    }

    /// Shuts down, and waits until the workers have worked off all waiting keys, but at most for `limit`. Then the
    /// remaining keys are dropped, so that the workers end with the keys that they hold.
    ///
    /// # Errors
    /// At the deadline, with what was left.
    pub async fn shut_down_with_drain(&self, limit: Duration) -> Result<(), NotDrained> {
        let deadline = Instant::now() + limit.min(MAX_DELAY);
        self.shut_down();
        loop {
            // Created before the check, so that no event in between is missed.
            let settled = self.shared.settled.notified();
            if self.shared.core.lock().is_idle() {
                return Ok(());
            }
            if timeout_at(deadline, settled).await.is_err() {
                return self.shared.abandon(limit);
            }
        }
    }

    /// Returns whether the queue was shut down.
    pub fn is_shut_down(&self) -> bool {
        self.shared.core.lock().is_shut_down()
    }
}

impl<K: Clone + Eq + Hash> WorkQueueInner<K> {
    fn feed(
        &self,
        add: impl FnOnce(&mut WorkQueueCore<K>, Instant) -> Result<(), AddError>,
    ) -> Result<(), AddError> {
        add(&mut self.core.lock(), Instant::now())?;
        self.ready.notify_one();
        Ok(())
    }

    pub(super) fn finish(&self, key: &K, outcome: WorkOutcome) {
        self.core.lock().finish(key, outcome, Instant::now());
        self.wake_next();
        self.settled.notify_waiters();
    }

    fn abandon(&self, limit: Duration) -> Result<(), NotDrained> {
        let left = {
            let mut core = self.core.lock();
            let (abandoned, processing) = core.left();
            core.abandon();
            let name = core.name().to_owned();
            NotDrained { name, limit, abandoned, processing }
        };
        self.ready.notify_one();
        self.settled.notify_waiters();
        match left {
            // The last one has just ended.
            NotDrained { abandoned: 0, processing: 0, .. } => Ok(()),
            left => Err(left),
        }
    }

    /// Wakes one waiting worker, if it has a reason to check.
    fn wake_next(&self) {
        if self.core.lock().concerns_workers() {
            self.ready.notify_one();
        }
    }
}

/// A guard of a waiting worker. At least one of the waiting workers has seen the newest state, and keeps the time for the
/// first delayed key. When that one leaves, with a key or by cancellation, another one has to check.
struct WakeNextOnDrop<'a, K: Clone + Eq + Hash>(&'a WorkQueueInner<K>);

impl<K: Clone + Eq + Hash> Drop for WakeNextOnDrop<'_, K> {
    fn drop(&mut self) {
        self.0.wake_next();
    }
}

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Clone + Eq + Hash> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.stats();
        f.debug_struct("WorkQueue")
            .field("name", &stats.name)
            .field("waiting", &stats.depth)
            .field("delayed", &stats.delayed)
            .field("processing", &stats.processing)
            .field("shut_down", &stats.shut_down)
            .finish()
    }
}
