use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use skopos_reflect::Time;
use tokio::sync::watch;

use crate::clock::BootClock;
use crate::end_reason::EndReason;
use crate::error::TermOver;

/// The right to write until another candidate may have it. Cheap to clone.
#[derive(Clone)]
pub struct Term {
    number: u64,
    lease: Arc<str>,
    shared: Arc<TermShared>,
}

/// State shared by the driver and all terms of an election.
#[derive(Debug)]
pub(crate) struct TermShared {
    clock: BootClock,
    state: watch::Sender<TermState>,
    /// The number of futures that run in a term.
    running: watch::Sender<usize>,
}

/// The current or last term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TermState {
    pub(crate) number: u64,
    pub(crate) until: Time,
    /// The reason why work must end, if so.
    pub(crate) ending: Option<EndReason>,
}

/// The time at which work is dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// As soon as the term ends, for any reason.
    Ending,
    /// As soon as another candidate may lead.
    Expired,
}

/// A future that runs in a term.
struct RunGuard<'a>(&'a TermShared);

impl Term {
    pub(crate) fn new(number: u64, lease: Arc<str>, shared: Arc<TermShared>) -> Self {
        Self { number, lease, shared }
    }

    /// Returns its number, for receivers that refuse writes after a higher one. It rises with each term of any candidate,
    /// unless the Lease is deleted or restored from a backup (`leaseTransitions`).
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the UID of the Lease. Compare numbers of terms only within one Lease: one that was deleted and created again
    /// counts from the beginning.
    pub fn lease_uid(&self) -> &str {
        &self.lease
    }

    /// Returns the remaining validity if no further renewal is acknowledged; `None` when it has ended.
    pub fn remaining(&self) -> Option<Duration> {
        let state = self.shared.state.borrow();
        let left = state.until.since(self.shared.clock.now());
        (state.number == self.number && state.ending.is_none() && !left.is_zero()).then_some(left)
    }

    /// Waits until it ends. Work in [`finish`](Term::finish) should then complete.
    pub async fn ended(&self) {
        let mut state = self.shared.state.subscribe();
        // The sender lives in the shared state.
        let _ = state.wait_for(|state| state.number != self.number || state.ending.is_some()).await;
    }

    /// Runs `work` until the term ends, and drops it then, at the latest when another candidate may lead. It runs in this
    /// task; other tasks and threads that it has started are not dropped.
    ///
    /// # Errors
    /// When the term ended before the work did.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, TermOver> {
        self.run_until(Until::Ending, work).await
    }

    /// Runs `work` while no other candidate can lead. If the holder steps down voluntarily, work has some seconds more to
    /// finish, and the Lease is released afterwards. [`ended`](Term::ended) reports that.
    ///
    /// # Errors
    /// When another candidate might lead before the work was done.
    pub async fn finish<T>(&self, work: impl Future<Output = T>) -> Result<T, TermOver> {
        self.run_until(Until::Expired, work).await
    }

    async fn run_until<T>(&self, until: Until, work: impl Future<Output = T>) -> Result<T, TermOver> {
        // Dropped after the work: it must no longer run then.
        let _running = RunGuard::begin(&self.shared);
        let mut work = pin!(work);
        let mut state = self.shared.state.subscribe();
        loop {
            let left = self.check(&state.borrow_and_update().clone(), until)?;
            tokio::select! {
                biased;
                _ = state.changed() => {}
                () = tokio::time::sleep(left) => {}
                done = self.poll_while_valid(work.as_mut()) => {
                    if let Some(done) = done {
                        return Ok(done);
                    }
                }
            }
        }
    }

    /// Returns the time for which work may continue.
    fn check(&self, state: &TermState, until: Until) -> Result<Duration, TermOver> {
        let over = |reason: EndReason| TermOver { number: self.number, reason };
        if state.number != self.number {
            return Err(over(EndReason::Expired));
        }
        let left = state.until.since(self.shared.clock.now());
        match &state.ending {
            Some(reason) if until == Until::Ending || left.is_zero() => Err(over(reason.clone())),
            None if left.is_zero() => Err(over(EndReason::Expired)),
            _ => Ok(left),
        }
    }

    /// Reads the clock before each step of the work: a timer is late if the machine has slept.
    async fn poll_while_valid<F: Future>(&self, mut work: Pin<&mut F>) -> Option<F::Output> {
        poll_fn(|context| {
            let state = self.shared.state.borrow().clone();
            match self.check(&state, Until::Expired) {
                Ok(_) => work.as_mut().poll(context).map(Some),
                Err(_) => Poll::Ready(None),
            }
        })
        .await
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term").field("number", &self.number).field("remaining", &self.remaining()).finish()
    }
}

impl TermShared {
    pub(crate) fn new(clock: BootClock) -> Self {
        let none = TermState { number: 0, until: Time::ORIGIN, ending: Some(EndReason::Expired) };
        Self { clock, state: watch::Sender::new(none), running: watch::Sender::new(0) }
    }

    /// Publishes the state of the term. The driver calls this.
    pub(crate) fn publish(&self, state: TermState) {
        self.state.send_if_modified(|known| {
            let changed = *known != state;
            *known = state;
            changed
        });
    }

    /// Waits until no work runs. Cancel safe.
    pub(crate) async fn idle(&self) {
        let _ = self.running.subscribe().wait_for(|running| *running == 0).await;
    }
}

impl<'a> RunGuard<'a> {
    fn begin(shared: &'a TermShared) -> Self {
        shared.running.send_modify(|running| *running += 1);
        Self(shared)
    }
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}
