//! Supervision of all connections. One check per second costs less than a timer for each.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::SourceNetwork;
use super::tls::Settings;
use super::vitals::{Breach, Vitals};
use crate::config::Limits;

/// The supervisor of all connections.
#[derive(Debug)]
pub(super) struct Guard {
    limits: Limits,
    open: Mutex<Open>,
    /// Notified when a connection has ended.
    left: Notify,
    accepted: AtomicU64,
    closed: [AtomicU64; REASONS.len()],
    /// The number of connections currently permitted.
    permitted: AtomicUsize,
}

#[derive(Debug, Default)]
struct Open {
    last_id: u64,
    connections: HashMap<u64, Arc<Vitals>>,
    half_open: OldestFirst,
    /// The connections without a known caller, by network.
    unknown: HashMap<SourceNetwork, OldestFirst>,
}

/// Connections in one state, oldest first. The queue may contain some that have left the state.
#[derive(Debug, Default)]
struct OldestFirst {
    queue: VecDeque<Weak<Vitals>>,
    count: usize,
}

/// Counters of a listener, read at the time of the call.
#[derive(Clone, Debug)]
pub struct ListenStats {
    guard: Arc<Guard>,
}

/// The registration of a connection.
#[derive(Debug)]
pub(super) struct Place {
    guard: Arc<Guard>,
    id: u64,
    pub(super) vitals: Arc<Vitals>,
}

const LOOK: Duration = Duration::from_secs(1);

/// The reasons for closing connections, in the order of the counters.
const REASONS: [&str; 9] = [
    "no_request",
    "idle",
    "stalled",
    "resets",
    "half_open",
    "unauthenticated_per_address",
    "connections",
    "client_ca",
    "frames",
];

/// The maximum number of idle connections without a known caller that are closed at once when the limit is reached.
const MAX_CLOSED_AT_ONCE: usize = 64;

/// The time that a connection gets to end in order when it has to make room.
const RETIREMENT: Duration = Duration::from_millis(50);

// === impl Guard ===

impl Guard {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        let permitted = AtomicUsize::new(limits.connections as usize);
        Arc::new(Self {
            limits,
            open: Mutex::default(),
            left: Notify::new(),
            accepted: AtomicU64::new(0),
            closed: Default::default(),
            permitted,
        })
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn connections(&self) -> usize {
        self.open.lock().connections.len()
    }

    /// Registers a connection. If too many are half open, or too many of one network have no known caller, the oldest of those
    /// is closed.
    pub(super) fn enter(self: &Arc<Self>, source: SourceNetwork, close: CancellationToken) -> Place {
        let vitals = Vitals::new(source, close);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.lock();
        open.last_id += 1;
        let id = open.last_id;
        open.connections.insert(id, vitals.clone());
        open.half_open.push(&vitals);
        let half_open = open.half_open.shrink(self.limits.half_open as usize, Vitals::settle);
        let of_network = open.unknown.entry(source).or_default();
        of_network.push(&vitals);
        let unknown = of_network.shrink(self.limits.unauthenticated_per_address as usize, Vitals::know);
        drop(open);
        for (victims, reason) in [(half_open, 4), (unknown, 5)] {
            for victim in victims {
                self.close(&victim, reason);
            }
        }
        Place { guard: self.clone(), id, vitals }
    }

    /// Records a complete request on a connection.
    pub(super) fn opened(&self, vitals: &Vitals) {
        if vitals.is_half_open() {
            let mut open = self.open.lock();
            open.half_open.count -= usize::from(vitals.settle());
        }
    }

    /// Stops counting a connection as unknown once a caller is known.
    pub(super) fn answered(&self, vitals: &Vitals) {
        if vitals.is_unknown() && vitals.record.is_known() {
            self.open.lock().know(vitals);
        }
    }

    /// Waits until there are fewer connections than `permitted` returns, which is called repeatedly. Closes idle connections
    /// for that: first those without a known caller, then the one that was idle longest.
    pub(super) async fn make_room(&self, permitted: impl Fn() -> usize) {
        loop {
            let left = self.left.notified();
            let most = permitted();
            self.permitted.store(most, Ordering::Relaxed);
            if self.connections() < most {
                return;
            }
            self.close_victims().await;
            let _ = tokio::time::timeout(LOOK, left).await;
        }
    }

    async fn close_victims(&self) {
        let victims = self.victims();
        for victim in victims.iter().filter(|victim| !victim.retire.is_cancelled()) {
            self.closed[6].fetch_add(1, Ordering::Relaxed);
            victim.retire.cancel();
        }
        if !victims.is_empty() {
            let _ = tokio::time::timeout(RETIREMENT, self.left.notified()).await;
        }
        for victim in victims.iter().filter(|victim| victim.may_be_closed()) {
            victim.close.cancel();
        }
    }

    /// Returns the connections to close for others: some without a known caller, idle ones first, or else the one with a known
    /// caller that was idle longest.
    fn victims(&self) -> Vec<Arc<Vitals>> {
        let all: Vec<Arc<Vitals>> = self.open.lock().connections.values().cloned().collect();
        let (known, unknown): (Vec<_>, Vec<_>) = all.into_iter().partition(|vitals| vitals.record.is_known());
        let mut unknown: Vec<_> =
            unknown.into_iter().filter_map(|vitals| Some((vitals.overdue()?, vitals))).collect();
        if unknown.is_empty() {
            let idle = known.into_iter().filter_map(|vitals| Some((vitals.idle_since()?, vitals)));
            return idle.min_by_key(|(since, _)| *since).map(|(_, idlest)| idlest).into_iter().collect();
        }
        unknown.sort_by_key(|(overdue, _)| *overdue);
        // At most half of them: a client that has just connected is about to send its first request.
        let count = MAX_CLOSED_AT_ONCE.min(unknown.len().div_ceil(2));
        unknown.into_iter().take(count).map(|(_, vitals)| vitals).collect()
    }

    /// Closes the connections of clients that these settings do not accept.
    pub(super) fn recheck(&self, settings: &Settings) {
        let all: Vec<Arc<Vitals>> = self.open.lock().connections.values().cloned().collect();
        for vitals in all.iter().filter(|vitals| !vitals.is_accepted_by(settings)) {
            self.close(vitals, 7);
        }
    }

    fn close(&self, vitals: &Vitals, reason: usize) {
        self.closed[reason].fetch_add(1, Ordering::Relaxed);
        vitals.close.cancel();
    }

    /// Closes connections that exceed a limit, until cancelled.
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

    /// Ends a connection that exceeds a limit. One that is only idle gets a second to end in order, because a request may be
    /// on its way.
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
            let notified = self.left.notified();
            if self.connections() == 0 {
                return;
            }
            notified.await;
        }
    }

    fn leave(&self, id: u64) {
        let mut open = self.open.lock();
        let Some(left) = open.connections.remove(&id) else { return };
        open.half_open.count -= usize::from(left.settle());
        open.know(&left);
        drop(open);
        self.left.notify_waiters();
    }
}

// === impl Open ===

impl Open {
    /// Stops counting a connection among the unknown ones of its network.
    fn know(&mut self, vitals: &Vitals) {
        if !vitals.know() {
            return;
        }
        let Some(of_network) = self.unknown.get_mut(&vitals.source) else { return };
        of_network.count -= 1;
        if of_network.count == 0 {
            self.unknown.remove(&vitals.source);
        }
    }
}

// === impl OldestFirst ===

impl OldestFirst {
    fn push(&mut self, vitals: &Arc<Vitals>) {
        self.queue.push_back(Arc::downgrade(vitals));
        self.count += 1;
    }

    /// Removes and returns the oldest connections while there are more than `most`. `leave` removes a connection from the
    /// state and returns whether it was in it.
    fn shrink(&mut self, most: usize, leave: impl Fn(&Vitals) -> bool) -> Vec<Arc<Vitals>> {
        let mut victims = Vec::new();
        while self.count > most {
            let Some(oldest) = self.queue.pop_front() else { break };
            if let Some(oldest) = oldest.upgrade().filter(|vitals| leave(vitals)) {
                self.count -= 1;
                victims.push(oldest);
            }
        }
        // Removes ended connections from the front; later calls remove the rest.
        while self.queue.front().is_some_and(|oldest| oldest.strong_count() == 0) {
            self.queue.pop_front();
        }
        if self.queue.len() > 2 * self.count + 64 {
            self.queue.retain(|vitals| vitals.strong_count() > 0);
        }
        victims
    }
}

fn index(breach: Breach) -> usize {
    match breach {
        Breach::NoRequest => 0,
        Breach::Idle => 1,
        Breach::Stalled => 2,
        Breach::Resets => 3,
        Breach::Frames => 8,
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

    /// Returns the number of open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.guard.connections()
    }

    /// Returns the number of open connections that have not sent a complete request yet.
    #[must_use]
    pub fn half_open(&self) -> usize {
        self.guard.open.lock().half_open.count
    }

    /// Returns the number of connections currently permitted, by the configuration and by the file descriptors of the process.
    #[must_use]
    pub fn permitted(&self) -> usize {
        self.guard.permitted.load(Ordering::Relaxed)
    }

    /// Returns the number of connections accepted so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.guard.accepted.load(Ordering::Relaxed)
    }

    /// Returns the number of connections closed for exceeding each limit, with its name.
    pub fn closed(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        REASONS.iter().zip(&self.guard.closed).map(|(name, count)| (*name, count.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> SourceNetwork {
        std::net::SocketAddr::from(([10, 0, 0, last], 1)).into()
    }

    #[tokio::test]
    async fn too_many_half_open_connections_cost_the_oldest_ones() {
        let guard = Guard::new(Limits { half_open: 3, ..Limits::default() });
        let places: Vec<Place> = (0..10).map(|_| guard.enter(source(1), CancellationToken::new())).collect();
        let closed: Vec<bool> = places.iter().map(|place| place.vitals.close.is_cancelled()).collect();
        assert_eq!(closed, [true, true, true, true, true, true, true, false, false, false]);
        drop(places);
        assert_eq!((guard.connections(), guard.open.lock().half_open.count), (0, 0));
    }

    #[tokio::test]
    async fn unknown_callers_of_one_network_cost_that_network_its_oldest_connections() {
        let limits = Limits { unauthenticated_per_address: 3, ..Limits::default() };
        let guard = Guard::new(limits);
        let known = guard.enter(source(1), CancellationToken::new());
        known.vitals.record.caller_known();
        guard.answered(&known.vitals);
        let other = guard.enter(source(2), CancellationToken::new());
        let places: Vec<Place> = (0..5).map(|_| guard.enter(source(1), CancellationToken::new())).collect();
        let closed: Vec<bool> = places.iter().map(|place| place.vitals.close.is_cancelled()).collect();
        assert_eq!(closed, [true, true, false, false, false]);
        assert!(!known.vitals.close.is_cancelled() && !other.vitals.close.is_cancelled());
        drop((known, other, places));
        assert!(guard.open.lock().unknown.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn room_is_made_by_idle_connections_without_a_known_caller_first() {
        let guard = Guard::new(Limits::default());
        let enter = || {
            let place = guard.enter(source(1), CancellationToken::new());
            drop(place.vitals.begin(http::Version::HTTP_11));
            place
        };
        let pause = || tokio::time::advance(Duration::from_millis(1));
        let known = enter();
        known.vitals.record.caller_known();
        tokio::time::advance(Duration::from_secs(1)).await;
        let first = enter();
        pause().await;
        let (second, busy) = (enter(), enter());
        let _flight = busy.vitals.begin(http::Version::HTTP_11);
        let victims = || guard.victims().iter().map(Arc::as_ptr).collect::<Vec<_>>();
        let of = |place: &Place| Arc::as_ptr(&place.vitals);
        assert_eq!(victims(), [of(&first)]);
        drop((first, second));
        assert_eq!(victims(), [of(&known)], "a request has a moment in which to show who sends it");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(victims(), [of(&busy)]);
        busy.vitals.record.caller_known();
        assert_eq!(victims(), [of(&known)]);
        drop(known);
        assert!(victims().is_empty(), "known callers are not interrupted");

        let room = guard.make_room(|| 1);
        tokio::pin!(room);
        assert!(tokio::time::timeout(Duration::from_secs(60), &mut room).await.is_err());
        drop((busy, _flight));
        room.await;
    }

    #[tokio::test]
    async fn those_that_have_asked_something_stay() {
        let guard = Guard::new(Limits { half_open: 2, ..Limits::default() });
        let busy = guard.enter(source(1), CancellationToken::new());
        let _flight = busy.vitals.begin(http::Version::HTTP_11);
        guard.opened(&busy.vitals);
        let _others: Vec<Place> = (0..20).map(|_| guard.enter(source(1), CancellationToken::new())).collect();
        assert!(!busy.vitals.close.is_cancelled());
    }
}
