//! Looks after all connections at once: one look a second costs less than a timer for each.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::vitals::{Breach, Vitals};
use crate::config::Limits;

/// All connections.
#[derive(Debug)]
pub(super) struct Guard {
    limits: Limits,
    open: Mutex<Open>,
    emptied: Notify,
    accepted: AtomicU64,
    closed: [AtomicU64; 5],
}

#[derive(Debug, Default)]
struct Open {
    last_id: u64,
    connections: HashMap<u64, Arc<Vitals>>,
    /// Oldest first; may hold some that are no longer half open.
    half_open: VecDeque<Weak<Vitals>>,
    half_open_now: usize,
}

/// Counts of a listener, as they are when asked.
#[derive(Clone, Debug)]
pub struct ListenStats {
    guard: Arc<Guard>,
}

/// A connection's place among the others.
#[derive(Debug)]
pub(super) struct Place {
    guard: Arc<Guard>,
    id: u64,
    pub(super) vitals: Arc<Vitals>,
}

const LOOK: Duration = Duration::from_secs(1);

/// Why connections were closed, in the order of the counters.
const REASONS: [&str; 5] = ["no_request", "idle", "stalled", "resets", "half_open"];

// === impl Guard ===

impl Guard {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            open: Mutex::default(),
            emptied: Notify::new(),
            accepted: AtomicU64::new(0),
            closed: Default::default(),
        })
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn connections(&self) -> usize {
        self.open.lock().connections.len()
    }

    /// Takes a connection in; where too many are half open, the oldest of those goes.
    pub(super) fn enter(self: &Arc<Self>, close: CancellationToken) -> Place {
        let vitals = Vitals::new(close);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.lock();
        open.last_id += 1;
        let id = open.last_id;
        open.connections.insert(id, vitals.clone());
        open.half_open.push_back(Arc::downgrade(&vitals));
        open.half_open_now += 1;
        let mut victims = Vec::new();
        while open.half_open_now > self.limits.half_open as usize {
            let Some(oldest) = open.half_open.pop_front() else { break };
            if let Some(oldest) = oldest.upgrade().filter(|vitals| vitals.settle()) {
                open.half_open_now -= 1;
                victims.push(oldest);
            }
        }
        // Places of the past, in front; the rest is left to later calls.
        while open.half_open.front().is_some_and(|v| v.upgrade().is_none_or(|v| !v.is_half_open())) {
            open.half_open.pop_front();
        }
        drop(open);
        for victim in victims {
            self.closed[4].fetch_add(1, Ordering::Relaxed);
            victim.close.cancel();
        }
        Place { guard: self.clone(), id, vitals }
    }

    /// A request of a connection has come.
    pub(super) fn opened(&self, vitals: &Vitals) {
        if vitals.is_half_open() {
            let mut open = self.open.lock();
            open.half_open_now -= usize::from(vitals.settle());
        }
    }

    /// Closes what breaks a limit, until told to stop.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(looks.tick()).await.is_some() {
            let all: Vec<Arc<Vitals>> = self.open.lock().connections.values().cloned().collect();
            let now = Instant::now();
            for vitals in all {
                if let Some(breach) = vitals.breach(&self.limits, now) {
                    self.end(&vitals, breach);
                }
            }
        }
    }

    /// Ends a connection that breaks a limit. One that is only idle gets a second in which to end in order, since a request
    /// may be on its way.
    fn end(&self, vitals: &Vitals, breach: Breach) {
        let retires = breach == Breach::Idle && !vitals.retire.is_cancelled();
        let is_known = vitals.retire.is_cancelled() || vitals.close.is_cancelled();
        match retires {
            true => vitals.retire.cancel(),
            false => vitals.close.cancel(),
        }
        if !is_known {
            self.closed[index(breach)].fetch_add(1, Ordering::Relaxed);
            tracing::debug!(?breach, "connection closed");
        }
    }

    /// Waits until there is no connection.
    pub(super) async fn emptied(&self) {
        loop {
            let notified = self.emptied.notified();
            if self.connections() == 0 {
                return;
            }
            notified.await;
        }
    }

    fn leave(&self, id: u64) {
        let mut open = self.open.lock();
        let Some(left) = open.connections.remove(&id) else { return };
        open.half_open_now -= usize::from(left.settle());
        if open.connections.is_empty() {
            self.emptied.notify_waiters();
        }
    }
}

fn index(breach: Breach) -> usize {
    match breach {
        Breach::NoRequest => 0,
        Breach::Idle => 1,
        Breach::Stalled => 2,
        Breach::Resets => 3,
    }
}

// === impl Place ===

impl Drop for Place {
    fn drop(&mut self) {
        self.guard.leave(self.id);
    }
}

// === impl ListenStats ===

impl ListenStats {
    pub(super) fn of(guard: Arc<Guard>) -> Self {
        Self { guard }
    }

    /// Connections that are open now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.guard.connections()
    }

    /// Those of them that have not sent a complete request yet.
    #[must_use]
    pub fn half_open(&self) -> usize {
        self.guard.open.lock().half_open_now
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.guard.accepted.load(Ordering::Relaxed)
    }

    /// Connections closed for breaking a limit: its name and how many.
    pub fn closed(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        REASONS.iter().zip(&self.guard.closed).map(|(name, count)| (*name, count.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn too_many_half_open_connections_cost_the_oldest_ones() {
        let guard = Guard::new(Limits { half_open: 3, ..Limits::default() });
        let places: Vec<Place> = (0..10).map(|_| guard.enter(CancellationToken::new())).collect();
        let closed: Vec<bool> = places.iter().map(|place| place.vitals.close.is_cancelled()).collect();
        assert_eq!(closed, [true, true, true, true, true, true, true, false, false, false]);
        drop(places);
        assert_eq!((guard.connections(), guard.open.lock().half_open_now), (0, 0));
    }

    #[tokio::test]
    async fn those_that_have_asked_something_stay() {
        let guard = Guard::new(Limits { half_open: 2, ..Limits::default() });
        let busy = guard.enter(CancellationToken::new());
        let _flight = busy.vitals.begin(http::Version::HTTP_11);
        guard.opened(&busy.vitals);
        let _others: Vec<Place> = (0..20).map(|_| guard.enter(CancellationToken::new())).collect();
        assert!(!busy.vitals.close.is_cancelled());
    }
}
