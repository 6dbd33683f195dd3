use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use skopos_reflect::Time;
use tokio::sync::watch;

use crate::clock::BootClock;
use crate::{EndReason, TermOver};

/// The right to write, until another candidate may have it. Cheap to clone.
#[derive(Clone)]
pub struct Term {
    number: u64,
    lease: Arc<str>,
    shared: Arc<TermShared>,
}

/// What the driver and all terms of an election share.
#[derive(Debug)]
pub(crate) struct TermShared {
    clock: BootClock,
    state: watch::Sender<TermState>,
    /// How many futures run in a term.
    running: watch::Sender<usize>,
}

/// The term that there is, or was last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TermState {
    pub(crate) number: u64,
    pub(crate) until: Time,
    /// Work is to end, and why.
    pub(crate) ending: Option<EndReason>,
}

/// When work is dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// As soon as the term ends, for whatever reason.
    Ending,
    /// When another candidate may lead.
    Over,
}

/// A future that runs in a term.
struct Running<'a>(&'a TermShared);

// === impl Term ===

impl Term {
    pub(crate) fn new(number: u64, lease: Arc<str>, shared: Arc<TermShared>) -> Self {
        Self { number, lease, shared }
    }

    /// Its number, for writes that the receiver is to refuse when it has seen a higher one. It rises with each term of any candidate, as long as
    /// the Lease is neither deleted nor restored from a backup (`leaseTransitions`).
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the UID of the Lease. Numbers of terms can be compared only within one Lease: one that was deleted and created again counts from
    /// the beginning.
    pub fn lease_uid(&self) -> &str {
        &self.lease
    }

    /// For how long it is valid from now on, if no renewal is acknowledged any more; `None` when it has ended.
    pub fn remaining(&self) -> Option<Duration> {
        let state = self.shared.state.borrow();
        let left = state.until.since(self.shared.clock.now());
        (state.number == self.number && state.ending.is_none() && !left.is_zero()).then_some(left)
    }

    /// Waits until it ends: what needs a moment to finish, in [`finish`](Term::finish), begins to.
    pub async fn ended(&self) {
        let mut state = self.shared.state.subscribe();
        // The sender lives in what we share.
        let _ = state.wait_for(|state| state.number != self.number || state.ending.is_some()).await;
    }

    /// Runs `work` until the term ends, and drops it then, at the latest when another candidate may lead. It runs in this task; what it has
    /// started in other tasks and threads is not dropped.
    ///
    /// # Errors
    /// When the term ended before the work did.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, TermOver> {
        self.hold(Until::Ending, work).await
    }

    /// Runs `work` for as long as no other candidate can lead: where the holder steps down by itself, it has some seconds more to finish, and the
    /// Lease is released when it has. [`ended`](Term::ended) tells it.
    ///
    /// # Errors
    /// When another candidate might lead before the work was done.
    pub async fn finish<T>(&self, work: impl Future<Output = T>) -> Result<T, TermOver> {
        self.hold(Until::Over, work).await
    }

    async fn hold<T>(&self, until: Until, work: impl Future<Output = T>) -> Result<T, TermOver> {
        // Dropped after the work: what counts is that it runs no more.
        let _running = Running::begin(&self.shared);
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

    /// How long work may go on.
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

    /// Looks at the clock before each step of the work: a timer is late where the machine has slept.
    async fn poll_while_valid<F: Future>(&self, mut work: Pin<&mut F>) -> Option<F::Output> {
        poll_fn(|context| {
            let state = self.shared.state.borrow().clone();
            match self.check(&state, Until::Over) {
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

// === impl TermShared ===

impl TermShared {
    pub(crate) fn new(clock: BootClock) -> Self {
        let none = TermState { number: 0, until: Time::ORIGIN, ending: Some(EndReason::Expired) };
        Self { clock, state: watch::Sender::new(none), running: watch::Sender::new(0) }
    }

    /// The driver tells how the term stands.
    pub(crate) fn tell(&self, state: TermState) {
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

// === impl Running ===

impl<'a> Running<'a> {
    fn begin(shared: &'a TermShared) -> Self {
        shared.running.send_modify(|running| *running += 1);
        Self(shared)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}
