//! The service of a controller: workers that take keys while the view is fresh, within terms if there is an election.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use skopos::workqueue::Item;
use skopos::{HandlerHandle, ObjectKey};
use skopos_lease::{Candidate, Term};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::context::{Context, Inner};
use crate::error::{ControllerError, ReconcileError};
use crate::handle::{ControllerHandle, ControllerStatus, PUT_OFF, Shared};
use crate::waiting_keys::WaitingKeys;

/// The result of a reconciliation that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The key is reconciled again when one of its objects changes.
    Done,
    /// The key is reconciled again after this delay, or earlier when one of its objects changes.
    RequeueAfter(Duration),
}

/// A controller that is ready to run.
#[must_use = "it does nothing until it runs"]
pub struct ControllerService<K> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) sources: Vec<Source>,
    pub(crate) reconciler: Reconciler<K>,
    pub(crate) candidate: Option<Candidate>,
}

/// The reconciler of the controller.
pub(crate) type Reconciler<K> =
    Arc<dyn Fn(Context<K>) -> BoxFuture<'static, Result<Outcome, ReconcileError>> + Send + Sync>;

/// A registration of a handler that adds keys to the queue.
pub(crate) type Source = Box<dyn FnOnce(Arc<Shared>) -> Result<HandlerHandle, ControllerError> + Send + Sync>;

/// The end of one attempt.
enum Attempt {
    Ended(Result<Outcome, ReconcileError>),
    Panicked(String),
    TimedOut,
}

/// The interval at which the age of a stale view is checked. Proofs of an age come every half minute, and after an outage at
/// once.
const STALE_POLL_INTERVAL: Duration = Duration::from_millis(100);

impl<K: 'static> ControllerService<K> {
    /// Returns a handle.
    pub fn handle(&self) -> ControllerHandle {
        ControllerHandle::new(self.shared.clone())
    }

    /// Runs until `stop`. Running reconciliations then have [`shutdown_limit`](crate::ControllerOptions::shutdown_limit) to end.
    ///
    /// # Errors
    /// When one of the informers was shut down before.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), ControllerError> {
        // Nothing continues if this future is dropped.
        let mut handlers = Handlers { shared: self.shared.clone(), handles: Vec::new() };
        for start in std::mem::take(&mut self.sources) {
            handlers.handles.push(start(self.shared.clone())?);
        }
        // Waiting keys are not reconciled any more: the next process lists them again.
        let stopping = async {
            stop.cancelled().await;
            let _ = self.shared.queue.shut_down_with_drain(Duration::ZERO).await;
            sleep(self.shared.options.shutdown_limit).await;
        };
        tokio::select! {
            biased;
            () = self.work_in_terms(&stop) => {}
            () = stopping => {}
        }
        Ok(())
    }

    async fn work_in_terms(&self, stop: &CancellationToken) {
        let Some(mut candidate) = self.candidate.clone() else { return self.work(None).await };
        loop {
            self.shared.set_status(ControllerStatus::Standby);
            let term = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                term = candidate.term() => term,
            };
            let Ok(term) = term else { return };
            tracing::info!(controller = self.shared.options.name, term = term.number(), "leads");
            // Dropped with the term, the workers' keys are retried in the next one.
            match term.run(self.work(Some(&term))).await {
                Ok(()) => return,
                Err(over) => {
                    let (controller, running) =
                        (&self.shared.options.name, self.shared.queue.stats().processing);
                    tracing::info!(controller, running, %over, "on standby");
                }
            }
        }
    }

    /// Runs the workers until the queue has ended.
    async fn work(&self, term: Option<&Term>) {
        self.shared.set_status(ControllerStatus::Working);
        let waiting = WaitingKeys::new(&self.shared);
        let workers = self.shared.options.workers.max(1);
        tokio::select! {
            _ = join_all((0..workers).map(|_| self.work_one_by_one(&waiting, term))) => {}
            () = waiting.follow_views() => {}
        }
    }

    async fn work_one_by_one(&self, waiting: &WaitingKeys<'_>, term: Option<&Term>) {
        loop {
            self.await_fresh_view().await;
            let item = tokio::select! {
                item = waiting.next() => item,
                item = self.shared.queue.get() => match item {
                    Some(item) => item,
                    None => return,
                },
            };
            if let Some(item) = waiting.admit(item) {
                self.reconcile(item, term).await;
            }
        }
    }

    /// Waits until no view is too old, or the queue has ended.
    async fn await_fresh_view(&self) {
        while self.shared.stale().is_some() && !self.shared.queue.is_shut_down() {
            sleep(STALE_POLL_INTERVAL).await;
        }
    }

    async fn reconcile(&self, item: Item<ObjectKey>, term: Option<&Term>) {
        let deadline = Instant::now() + self.shared.options.time_limit;
        let Some(context) = self.context(&item, deadline, term) else {
            self.shared.count(|stats| stats.put_off_stale += 1);
            return item.done_until(PUT_OFF);
        };
        let gap = context.gap();
        let dropped = Dropped { shared: &self.shared, key: item.key().clone(), gap, armed: true };
        let attempt = self.attempt(context).await;
        let succeeded = matches!(attempt, Attempt::Ended(Ok(_)));
        dropped.disarm(succeeded);
        self.conclude(item, attempt);
    }

    /// Returns the view of a reconciliation; `None` if it is too old by now.
    fn context(&self, key: &ObjectKey, deadline: Instant, term: Option<&Term>) -> Option<Context<K>> {
        let seen: Vec<_> = self.shared.views().iter().map(|view| view.look()).collect();
        let max_age = self.shared.options.max_age;
        if !seen.iter().all(|seen| seen.freshness.is_within(max_age)) {
            return None;
        }
        let primary = seen.first()?.snapshot::<K>()?.clone();
        Some(Context {
            inner: Arc::new(Inner {
                key: key.clone(),
                primary,
                seen,
                gap: self.shared.take_gap(key),
                failures: self.shared.queue.num_requeues(key),
                deadline,
                term: term.cloned(),
                own_writes: self.shared.own_writes.clone(),
                manager: self.shared.options.name.clone(),
            }),
        })
    }

    async fn attempt(&self, context: Context<K>) -> Attempt {
        let limit = context.deadline().saturating_duration_since(Instant::now());
        // The call itself may panic, too.
        let run = AssertUnwindSafe(async { (self.reconciler)(context).await }).catch_unwind();
        match timeout(limit, run).await {
            Ok(Ok(result)) => Attempt::Ended(result),
            Ok(Err(panic)) => Attempt::Panicked(text_of(&*panic)),
            Err(_) => Attempt::TimedOut,
        }
    }

    fn conclude(&self, item: Item<ObjectKey>, attempt: Attempt) {
        let (controller, key) = (&self.shared.options.name, item.key().clone());
        match attempt {
            Attempt::Ended(Ok(Outcome::Done)) => {
                self.shared.count(|stats| stats.succeeded += 1);
                item.done();
            }
            Attempt::Ended(Ok(Outcome::RequeueAfter(delay))) => {
                self.shared.count(|stats| stats.requeued += 1);
                item.done_until(delay);
            }
            Attempt::Ended(Err(error)) if error.is_terminal() => {
                self.shared.count(|stats| stats.failed_terminally += 1);
                tracing::error!(controller, %key, %error, "failed; it is reconciled again when one of its objects changes");
                item.done();
            }
            Attempt::Ended(Err(error)) => {
                self.shared.count(|stats| stats.failed += 1);
                tracing::warn!(controller, %key, %error, attempt = item.failures() + 1, "failed; it is retried");
                item.retry();
            }
            Attempt::Panicked(panic) => {
                self.shared.count(|stats| stats.panicked += 1);
                tracing::error!(controller, %key, panic, "the reconciler panicked; the key is retried");
                item.retry();
            }
            Attempt::TimedOut => {
                self.shared.count(|stats| stats.timed_out += 1);
                let limit = self.shared.options.time_limit;
                tracing::error!(controller, %key, ?limit, "dropped after its time limit; the key is retried");
                item.retry();
            }
        }
    }
}

impl<K> fmt::Debug for ControllerService<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerService").field("name", &self.shared.options.name).finish_non_exhaustive()
    }
}

/// The handlers of a running controller.
struct Handlers {
    shared: Arc<Shared>,
    handles: Vec<HandlerHandle>,
}

impl Drop for Handlers {
    fn drop(&mut self) {
        self.handles.iter().for_each(HandlerHandle::stop);
        self.shared.close();
    }
}

/// A running reconciliation. It is counted if it is dropped with its term, and restores the gap record if it did not succeed.
struct Dropped<'a> {
    shared: &'a Shared,
    key: ObjectKey,
    gap: bool,
    armed: bool,
}

impl Dropped<'_> {
    fn disarm(mut self, succeeded: bool) {
        self.armed = false;
        self.gap &= !succeeded;
    }
}

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.shared.missed(&self.key, self.gap);
        if self.armed {
            self.shared.count(|stats| stats.dropped += 1);
        }
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}
