//! Looks after all connections at once: one look a second costs less than a timer for each.

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

/// All connections.
#[derive(Debug)]
pub(super) struct Guard {
    limits: Limits,
    open: Mutex<Open>,
    /// Notified when a connection has ended.
    left: Notify,
    accepted: AtomicU64,
    closed: [AtomicU64; REASONS.len()],
    /// How many connections there may be now.
    permitted: AtomicUsize,
}

#[derive(Debug, Default)]
struct Open {
    last_id: u64,
    connections: HashMap<u64, Arc<Vitals>>,
    half_open: OldestFirst,
    /// By network, those of which no caller is known.
    unknown: HashMap<SourceNetwork, OldestFirst>,
}

/// Connections in some state, oldest first. The queue may hold some that have left it.
#[derive(Debug, Default)]
struct OldestFirst {
    queue: VecDeque<Weak<Vitals>>,
    count: usize,
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

/// At the limit of connections as many idle ones are closed at once, if no caller is known of them.
const MAX_CLOSED_AT_ONCE: usize = 64;

/// How long a connection that has to make room gets to end in order.
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

    /// Takes a connection in. Where too many are half open, or of callers who are not known and from the same network, the
    /// oldest of those goes.
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

    /// A request of a connection has come.
    pub(super) fn opened(&self, vitals: &Vitals) {
        if vitals.is_half_open() {
            let mut open = self.open.lock();
            open.half_open.count -= usize::from(vitals.settle());
        }
    }

    /// Counts a connection no longer among the unknown ones once a caller is known.
    pub(super) fn answered(&self, vitals: &Vitals) {
        if vitals.is_unknown() && vitals.record.is_known() {
            self.open.lock().know(vitals);
        }
    }

    /// Waits until there are fewer connections than `permitted` says, which is asked again and again. Idle ones are closed for that:
    /// those of which no caller is known first, and then the one that was idle for the longest time.
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

    /// Returns the connections to close for others: some of those of which no caller is known, idle ones first, or the one of a known
    /// caller that was idle for the longest time.
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
        // Half of them at most: a client that has just connected is about to send its first request.
        let count = MAX_CLOSED_AT_ONCE.min(unknown.len().div_ceil(2));
        unknown.into_iter().take(count).map(|(_, vitals)| vitals).collect()
    }

    /// Closes the connections of clients that are not accepted under these settings.
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
    /// Counts a connection no longer among the unknown ones of its network.
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

    /// Takes out the oldest ones while there are more than `most`. `leave` has a connection leave the state, and returns whether it
    /// was in it.
    fn shrink(&mut self, most: usize, leave: impl Fn(&Vitals) -> bool) -> Vec<Arc<Vitals>> {
        let mut victims = Vec::new();
        while self.count > most {
            let Some(oldest) = self.queue.pop_front() else { break };
            if let Some(oldest) = oldest.upgrade().filter(|vitals| leave(vitals)) {
                self.count -= 1;
                victims.push(oldest);
            }
        }
        // Connections that are gone, in front; the rest is left to later calls.
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

    /// Connections that are open now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.guard.connections()
    }

    /// Those of them that have not sent a complete request yet.
    #[must_use]
    pub fn half_open(&self) -> usize {
        self.guard.open.lock().half_open.count
    }

    /// Connections that there may be now: as many as are configured, and as the process has descriptors for.
    #[must_use]
    pub fn permitted(&self) -> usize {
        self.guard.permitted.load(Ordering::Relaxed)
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
