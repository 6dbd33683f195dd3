//! The task of one handler.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use skopos_wire::ResourceVersion;
use tokio::time::Instant;

use super::callbacks::EventHandler;
use super::event::Event;
use super::handle::{HandlerInner, HandlerStats, PoisonedEvent};
use super::options::HandlerOptions;
use super::panic::text_of;
use super::queue::{DifferenceWalk, QueueItem};
use crate::sync::{Mutex, deadline, sleep, sleep_until, timeout};

pub(super) struct Runner<K, H> {
    handler: H,
    options: HandlerOptions,
    shared: Arc<HandlerInner>,
    walk: Option<DifferenceWalk>,
    next_resync: Option<Instant>,
    kind: PhantomData<fn() -> K>,
}

/// An error: the call was still running after the `shutdown_limit`.
struct Stopped;

impl<K: 'static, H: EventHandler<K>> Runner<K, H> {
    pub(super) fn new(handler: H, options: HandlerOptions, shared: Arc<HandlerInner>) -> Self {
        let next_resync = options.resync.filter(|period| !period.is_zero()).map(deadline::after);
        Self { handler, options, shared, walk: None, next_resync, kind: PhantomData }
    }

    /// Delivers events until the handler is removed or its informer stops.
    pub(super) async fn run(mut self) {
        while let Some(event) = self.next().await {
            if self.deliver(event).await.is_err() {
                break;
            }
            // A handler that is always ready must yield the thread to other tasks from time to time.
            tokio::task::coop::consume_budget().await;
        }
        self.shared.store.unsubscribe(&self.shared.queue);
        self.shared.queue.clear();
        // A walk that was stopped in the middle has not reported its end.
        self.shared.counters.edit(|stats| stats.catching_up = false);
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.shared.stop.is_cancelled() {
                return None;
            }
            if let Some(event) = self.walk.as_mut().and_then(DifferenceWalk::next) {
                return Some(event);
            }
            self.end_walk();
            self.resync_if_due();
            let due = self.next_resync;
            tokio::select! {
                biased;
                () = self.shared.stop.cancelled() => return None,
                taken = self.shared.queue.take() => match taken {
                    QueueItem::Event(event) => return Some(event),
                    QueueItem::Walk(walk) => {
                        self.shared.counters.edit(|stats| stats.catching_up = true);
                        self.walk = Some(walk);
                    }
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
        }
    }

    fn end_walk(&mut self) {
        if let Some(walk) = self.walk.take() {
            self.shared.counters.edit(|stats| stats.catching_up = false);
            if walk.completes_first_list() {
                self.shared.synced.send_replace(true);
            }
        }
    }

    /// Queues every object if a resync is due and nothing else waits; otherwise it stays due.
    fn resync_if_due(&mut self) {
        let (Some(period), Some(due)) = (self.options.resync, self.next_resync) else { return };
        let now = Instant::now();
        if now < due || !self.shared.queue.is_empty() {
            return;
        }
        if self.shared.store.resync(&self.shared.queue) {
            self.shared.counters.edit(|stats| stats.resyncs += 1);
        }
        self.next_resync = Some(deadline::from(now, period));
    }

    async fn deliver(&self, event: Event) -> Result<(), Stopped> {
        let mut backoff = self.options.retry_backoff;
        for attempt in 1.. {
            let Some(panic) = self.call(event.clone()).await? else { break };
            self.shared.counters.edit(|stats| stats.panics += 1);
            let name = &self.shared.name;
            if attempt > self.options.retries {
                tracing::error!(handler = %name, object = %event.key(), %panic, attempt, "a handler keeps panicking: this event is given up");
                self.shared.counters.poison(&event, panic, attempt);
                break;
            }
            tracing::warn!(handler = %name, object = %event.key(), %panic, attempt, "a handler panicked: it gets the event again");
            self.pause(backoff).await?;
            backoff = backoff.saturating_mul(2);
        }
        self.shared.counters.handled(&event);
        Ok(())
    }

    /// Calls the handler once; returns its panic's message if it panicked.
    async fn call(&self, event: Event) -> Result<Option<String>, Stopped> {
        // The block makes sure that a closure that panics before it returns a future is caught, too.
        let call = AssertUnwindSafe(async { self.handler.handle(event.cast()).await }).catch_unwind();
        let call = async { call.await.err().map(|panic| text_of(&*panic)) };
        tokio::pin!(call);
        tokio::select! {
            biased;
            done = &mut call => Ok(done),
            () = self.shared.stop.cancelled() => {
                let in_time = timeout(self.options.shutdown_limit, call).await.is_ok();
                if !in_time {
                    tracing::warn!(handler = %self.shared.name, "a handler was removed in the middle of a call");
                }
                Err(Stopped)
            }
        }
    }

    async fn pause(&self, time: Duration) -> Result<(), Stopped> {
        tokio::select! {
            biased;
            () = self.shared.stop.cancelled() => Err(Stopped),
            () = sleep(time) => Ok(()),
        }
    }
}

/// The counters of a runner.
#[derive(Default)]
pub(super) struct HandlerCounters(Mutex<CountersInner>);

#[derive(Default)]
struct CountersInner {
    stats: HandlerStats,
    last_rv: Option<ResourceVersion>,
    poisoned: VecDeque<PoisonedEvent>,
}

impl HandlerCounters {
    pub(super) fn stats(&self) -> HandlerStats {
        let counts = self.0.lock();
        let mut stats = counts.stats.clone();
        stats.last_resource_version.clone_from(&counts.last_rv);
        stats.last_poisoned = counts.poisoned.iter().cloned().collect();
        stats
    }

    fn edit(&self, edit: impl FnOnce(&mut HandlerStats)) {
        edit(&mut self.0.lock().stats);
    }

    fn handled(&self, event: &Event) {
        let mut counts = self.0.lock();
        counts.stats.handled += 1;
        counts.stats.coalesced += u64::from(event.flags().coalesced);
        counts.last_rv = Some(event.object().resource_version().clone());
    }

    fn poison(&self, event: &Event, panic: String, attempts: u32) {
        let mut counts = self.0.lock();
        counts.stats.poisoned += 1;
        if counts.poisoned.len() == MAX_STORED_POISONED {
            counts.poisoned.pop_front();
        }
        let resource_version = event.object().resource_version().clone();
        counts.poisoned.push_back(PoisonedEvent {
            key: event.key().clone(),
            resource_version,
            panic,
            attempts,
        });
    }
}

/// The number of given-up events that are stored.
const MAX_STORED_POISONED: usize = 16;
