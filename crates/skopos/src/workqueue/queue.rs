//! The queue to be awaited: the state machine behind a lock, and the clock.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::core::{AddError, Core, LONGEST_DELAY, Outcome, Taken};
use super::item::Item;
use super::lines::Priority;
use super::options::WorkQueueOptions;
use super::stats::WorkQueueStats;
use crate::sync::{Mutex, sleep_until, timeout_at};

/// A queue of keys for workers; see the [module](super).
///
/// Cheap to clone; all clones are the same queue. Nothing runs in it by itself, so that there is nothing to stop: dropping
/// all clones is fine. It needs no tokio runtime but where it is awaited.
///
/// First in, first out: of keys that wait, and of those that are due at the same time.
pub struct WorkQueue<K> {
    shared: Arc<Shared<K>>,
}

/// What the clones and the items share.
pub(super) struct Shared<K> {
    core: Mutex<Core<K>>,
    /// There may be something for a worker that waits. Whoever was told and leaves tells the next one: see [`Baton`].
    ready: Notify,
    /// A key has ended, or the queue was shut down.
    settled: Notify,
}

/// A drain that was not complete when its time was over.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{name} was not drained within {limit:.1?}: {abandoned} keys were not begun and are forgotten, \
     {processing} are still worked on"
)]
#[non_exhaustive]
pub struct NotDrained {
    /// The queue's name.
    pub name: String,
    /// How long it was waited.
    pub limit: Duration,
    /// Keys that waited and are forgotten now.
    pub abandoned: usize,
    /// Keys in the hands of workers that have not ended.
    pub processing: usize,
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    /// An empty queue.
    pub fn new(options: WorkQueueOptions) -> Self {
        let core = Mutex::new(Core::new(&options));
        Self { shared: Arc::new(Shared { core, ready: Notify::new(), settled: Notify::new() }) }
    }

    /// The key is to be worked on. If it waits already, nothing changes; if it is being worked on, it is worked on again
    /// afterwards.
    ///
    /// # Errors
    /// If there are too many keys, or the queue was shut down.
    pub fn add(&self, key: K) -> Result<(), AddError> {
        self.add_with_priority(key, Priority::Normal)
    }

    /// As [`WorkQueue::add`], in one of the two lines. A key that waits in the background comes to the front when it is added as
    /// normal; never the other way.
    ///
    /// # Errors
    /// As [`WorkQueue::add`].
    pub fn add_with_priority(&self, key: K, priority: Priority) -> Result<(), AddError> {
        self.shared.feed(|core, now| core.add(key, priority, now))
    }

    /// As [`WorkQueue::add`], but while there are too many keys it waits for room, for at most `limit`.
    ///
    /// The right one for a [handler](crate::Informer::add_handler), which then lags behind and loses nothing: its own queue
    /// coalesces.
    ///
    /// # Errors
    /// If there was no room in time, or the queue was shut down.
    pub async fn add_within(&self, key: K, limit: Duration) -> Result<(), AddError> {
        self.add_with_priority_within(key, Priority::Normal, limit).await
    }

    /// As [`WorkQueue::add_within`], in one of the two lines.
    ///
    /// # Errors
    /// As [`WorkQueue::add_within`].
    pub async fn add_with_priority_within(
        &self,
        key: K,
        priority: Priority,
        limit: Duration,
    ) -> Result<(), AddError> {
        let deadline = Instant::now() + limit.min(LONGEST_DELAY);
        loop {
            // Made before looking, so that what happens in between is not missed.
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

    /// The key is to be worked on in `delay` (at most ten years). If it is delayed already, the earlier time counts.
    /// Additions without a delay are not touched by it, and do not touch it.
    ///
    /// # Errors
    /// As [`WorkQueue::add`].
    pub fn add_after(&self, key: K, delay: Duration) -> Result<(), AddError> {
        self.shared.feed(|core, now| core.add_after(key, delay, now))
    }

    /// The key failed: it is to be worked on after the time that the rate limit says. For the key in a worker's hands there
    /// is [`Item::retry`].
    ///
    /// # Errors
    /// As [`WorkQueue::add`].
    pub fn add_rate_limited(&self, key: K) -> Result<(), AddError> {
        self.shared.feed(|core, now| core.add_rate_limited(key, now))
    }

    /// Forgets that a key failed, so that the next failure counts as the first. [`Item::done`] does it by itself.
    pub fn forget(&self, key: &K) {
        self.shared.core.lock().forget(key);
    }

    /// How often the key was to be tried again since it was done. A key that is not in the queue has never failed.
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.shared.core.lock().failures(key)
    }

    /// The next key, in the order of addition; waits for one. `None`: the queue was shut down, and there is nothing left to
    /// do.
    ///
    /// It waits for the next thing, as a stream does, and has no bound of its own. It may be cancelled at any time (in `tokio::time::timeout` or `select!`) without losing
    /// a key.
    pub async fn get(&self) -> Option<Item<K>> {
        let shared = &self.shared;
        let _baton = Baton(shared);
        loop {
            let taken = shared.core.lock().take(Instant::now());
            let until = match taken {
                Taken::Key(key, failures) => return Some(Item::new(shared.clone(), key, failures)),
                Taken::Ended => return None,
                Taken::Nothing { until } => until,
            };
            match until {
                // Either way, there is something to look at.
                Some(until) => tokio::select! {
                    biased;
                    () = shared.ready.notified() => {}
                    () = sleep_until(until) => {}
                },
                None => shared.ready.notified().await,
            }
        }
    }

    /// How many keys wait for a worker: without those that are delayed, or worked on.
    pub fn len(&self) -> usize {
        self.shared.core.lock().len(Instant::now())
    }

    /// Whether no key waits for a worker.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Figures. Looks at every key.
    pub fn stats(&self) -> WorkQueueStats {
        self.shared.core.lock().stats(Instant::now())
    }

    /// Nothing can be added any more, and delayed keys are forgotten. What waits is still handed out; when nothing is left,
    /// [`WorkQueue::get`] returns `None`.
    pub fn shut_down(&self) {
        self.shared.core.lock().shut_down();
        self.shared.ready.notify_one();
        self.shared.settled.notify_waiters();
    }

    /// Shuts down, and waits until the workers have done all that waited, but at most for `limit`; then what still waits is
    /// forgotten, so that the workers end with what they have in hand.
    ///
    /// # Errors
    /// When the time is over, with what was left.
    pub async fn shut_down_with_drain(&self, limit: Duration) -> Result<(), NotDrained> {
        let deadline = Instant::now() + limit.min(LONGEST_DELAY);
        self.shut_down();
        loop {
            // Made before looking, so that what happens in between is not missed.
            let settled = self.shared.settled.notified();
            if self.shared.core.lock().is_idle() {
                return Ok(());
            }
            if timeout_at(deadline, settled).await.is_err() {
                return self.shared.abandon(limit);
            }
        }
    }

    /// Whether it was shut down.
    pub fn is_shut_down(&self) -> bool {
        self.shared.core.lock().is_shut_down()
    }
}

impl<K: Clone + Eq + Hash> Shared<K> {
    fn feed(&self, add: impl FnOnce(&mut Core<K>, Instant) -> Result<(), AddError>) -> Result<(), AddError> {
        add(&mut self.core.lock(), Instant::now())?;
        self.ready.notify_one();
        Ok(())
    }

    pub(super) fn finish(&self, key: &K, outcome: Outcome) {
        self.core.lock().finish(key, outcome, Instant::now());
        self.pass_on();
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
            // The last one ended just now.
            NotDrained { abandoned: 0, processing: 0, .. } => Ok(()),
            left => Err(left),
        }
    }

    /// Wakes one worker that waits, if it has a reason to look.
    fn pass_on(&self) {
        if self.core.lock().concerns_workers() {
            self.ready.notify_one();
        }
    }
}

/// Held by a worker that waits. Of all that wait, one at least has seen the newest state, and keeps the time for the first
/// delayed key; when it leaves, with a key or because it was cancelled, another one has to look.
struct Baton<'a, K: Clone + Eq + Hash>(&'a Shared<K>);

impl<K: Clone + Eq + Hash> Drop for Baton<'_, K> {
    fn drop(&mut self) {
        self.0.pass_on();
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
