use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use skopos_wire::{ObjectKey, ResourceVersion};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::callbacks::EventHandler;
use super::options::HandlerOptions;
use super::queue::EventQueue;
use super::runner::{HandlerCounters, Runner};
use crate::error::{HandlerNotSynced, HandlerStillRuns};
use crate::store::{Closed, StoreCore};
use crate::sync::{deadline, spawn, timeout_at};

/// Adds a handler to a store and starts its task, which `tasks` tracks and `stop` ends.
///
/// The handler gets the current content as initial additions (or the first list, once there is one), and exactly the
/// changes after it.
///
/// # Errors
/// If the store was closed.
pub(crate) fn add<K, H>(
    store: &Arc<StoreCore>,
    handler: H,
    options: HandlerOptions,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<HandlerHandle, Closed>
where
    K: 'static,
    H: EventHandler<K>,
{
    if stop.is_cancelled() {
        return Err(Closed);
    }
    let shared = Arc::new(HandlerInner {
        name: options.name.clone(),
        queue: Arc::new(EventQueue::new(options.capacity)),
        counters: HandlerCounters::default(),
        synced: watch::Sender::new(false),
        stop: stop.child_token(),
        ended: CancellationToken::new(),
        store: store.clone(),
    });
    store.subscribe(&shared.queue)?;
    let runner = Runner::new(handler, options, shared.clone());
    // The guard fires however the task ends, also when the runtime drops it before it was first polled.
    let ended = shared.ended.clone().drop_guard();
    spawn(tasks, async move {
        let _ended = ended;
        runner.run().await;
    });
    Ok(HandlerHandle { shared })
}

/// A registered handler. Cheap to clone; dropping it leaves the handler running.
#[derive(Clone)]
pub struct HandlerHandle {
    shared: Arc<HandlerInner>,
}

/// State shared by the handle and the task.
pub(super) struct HandlerInner {
    pub(super) name: String,
    pub(super) queue: Arc<EventQueue>,
    pub(super) counters: HandlerCounters,
    pub(super) synced: watch::Sender<bool>,
    pub(super) stop: CancellationToken,
    pub(super) ended: CancellationToken,
    pub(super) store: Arc<StoreCore>,
}

/// The statistics of a handler.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HandlerStats {
    /// The handler's name.
    pub name: String,
    /// True once the handler has handled every object of the first list.
    pub synced: bool,
    /// Events that were handled, including those that were given up.
    pub handled: u64,
    /// Handled events with the coalesced flag.
    pub coalesced: u64,
    /// The number of panics of the handler.
    pub panics: u64,
    /// Events that were given up because the handler kept panicking.
    pub poisoned: u64,
    /// The last 16 of those events.
    pub last_poisoned: Vec<PoisonedEvent>,
    /// Full rounds of resync that were started.
    pub resyncs: u64,
    /// The number of waiting events, at most the capacity or one batch.
    pub waiting: usize,
    /// The maximum number of events that ever waited.
    pub deepest: usize,
    /// True while a difference of two snapshots is waiting or being processed: the handler lags far behind, or a list has
    /// replaced the content.
    pub catching_up: bool,
    /// The number of times that the queue was full and began to coalesce.
    pub overflows: u64,
    /// The RV of the object that was handled last.
    pub last_resource_version: Option<ResourceVersion>,
    /// True if the handler has ended: it was removed, or its informer was stopped.
    pub ended: bool,
}

/// An event that was given up because the handler kept panicking on it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoisonedEvent {
    /// The object that the event was about.
    pub key: ObjectKey,
    /// The object's RV.
    pub resource_version: ResourceVersion,
    /// The message of the last panic.
    pub panic: String,
    /// The number of attempts.
    pub attempts: u32,
}

impl HandlerHandle {
    /// Returns the name from the options.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns whether the handler has handled every object of the first list: each addition, and each deletion of an
    /// object that the first list had and the server no longer has. For restored content: once the server has confirmed it.
    pub fn has_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Waits until [`has_synced`](HandlerHandle::has_synced), for at most `limit`.
    ///
    /// # Errors
    /// At the deadline, with what is still to be handled; at once when the handler ends or has ended.
    pub async fn wait_synced(&self, limit: Duration) -> Result<(), HandlerNotSynced> {
        let begun = Instant::now();
        match timeout_at(deadline::from(begun, limit), self.synced()).await {
            Ok(synced) => Ok(synced?),
            Err(_) => Err(HandlerNotSynced::Late {
                name: self.shared.name.clone(),
                waited: begun.elapsed(),
                waiting: self.stats().waiting,
                freshness: self.shared.store.freshness().freshness(),
            }),
        }
    }

    /// Waits like [`wait_synced`](HandlerHandle::wait_synced), for callers with their own deadline.
    pub(crate) async fn synced(&self) -> Result<(), Closed> {
        let mut synced = self.shared.synced.subscribe();
        tokio::select! {
            biased;
            // Not an error while we hold the sender.
            synced = synced.wait_for(|synced| *synced) => synced.map(|_| ()).map_err(|_| Closed),
            () = self.shared.ended.cancelled() => Err(Closed),
        }
    }

    /// Returns the handler's statistics.
    pub fn stats(&self) -> HandlerStats {
        let shared = &self.shared;
        let queue = shared.queue.state();
        let mut stats = shared.counters.stats();
        stats.name.clone_from(&shared.name);
        stats.synced = self.has_synced();
        stats.waiting = queue.events;
        stats.deepest = queue.deepest;
        stats.catching_up |= queue.differences > 0;
        stats.overflows = queue.overflows;
        stats.ended = shared.ended.is_cancelled();
        stats
    }

    /// Tells the handler to end, and does not wait for it: a cancelled caller cannot wait.
    pub fn stop(&self) {
        self.shared.stop.cancel();
    }

    /// Removes the handler, and waits for at most `limit` until its last call is over. Afterwards no call of it runs and
    /// none will come; waiting events are dropped.
    ///
    /// A running call may continue for the `shutdown_limit` of the options; then its future is dropped at its current await. A
    /// second more than that is plenty. Removing twice, or after the informer was stopped, is fine. A handler
    /// that removes itself should do so in another task: within its own call it would wait for itself, until the
    /// `shutdown_limit`.
    ///
    /// # Errors
    /// At the deadline if a call still runs: the limit was shorter than the `shutdown_limit`, or the call blocks its thread. No
    /// other call will come all the same; removing it again waits again.
    pub async fn remove(&self, limit: Duration) -> Result<(), HandlerStillRuns> {
        let begun = Instant::now();
        self.shared.store.unsubscribe(&self.shared.queue);
        self.shared.stop.cancel();
        let ended = timeout_at(deadline::from(begun, limit), self.shared.ended.cancelled()).await;
        ended.map_err(|_| HandlerStillRuns { name: self.shared.name.clone(), waited: begun.elapsed() })
    }
}

impl fmt::Debug for HandlerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HandlerHandle").field(&self.shared.name).finish()
    }
}
