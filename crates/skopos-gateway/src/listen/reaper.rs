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
use super::activity::{ConnectionActivity, LimitExceeded};
use super::tls::Settings;
use crate::config::Limits;

/// The supervisor of all connections.
#[derive(Debug)]
pub(super) struct ConnectionReaper {
    limits: Limits,
    open: Mutex<Open>,
    /// Notified when a connection has ended.
    removed: Notify,
    accepted: AtomicU64,
    closed: [AtomicU64; REASONS.len()],
    /// The number of connections currently permitted.
    permitted: AtomicUsize,
}

#[derive(Debug, Default)]
struct Open {
    last_id: u64,
    connections: HashMap<u64, Arc<ConnectionActivity>>,
    half_open: OldestFirst,
    /// The connections without a known caller, by network.
    unknown: HashMap<SourceNetwork, OldestFirst>,
}

/// Connections in one state, oldest first. The queue may contain some that have left the state.
#[derive(Debug, Default)]
struct OldestFirst {
    queue: VecDeque<Weak<ConnectionActivity>>,
    count: usize,
}

/// Counters of a listener, read at the time of the call.
#[derive(Clone, Debug)]
pub(crate) struct ListenStats {
    reaper: Arc<ConnectionReaper>,
}

/// The registration of a connection.
#[derive(Debug)]
pub(super) struct Registration {
    reaper: Arc<ConnectionReaper>,
    id: u64,
    pub(super) activity: Arc<ConnectionActivity>,
}

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

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
const RETIRE_TIMEOUT: Duration = Duration::from_millis(50);

impl ConnectionReaper {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        let permitted = AtomicUsize::new(limits.connections as usize);
        Arc::new(Self {
            limits,
            open: Mutex::default(),
            removed: Notify::new(),
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
    pub(super) fn register(
        self: &Arc<Self>,
        source: SourceNetwork,
        close: CancellationToken,
    ) -> Registration {
        let activity = ConnectionActivity::new(source, close);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.lock();
        open.last_id += 1;
        let id = open.last_id;
        open.connections.insert(id, activity.clone());
        open.half_open.push(&activity);
        let half_open =
            open.half_open.shrink(self.limits.half_open as usize, ConnectionActivity::mark_settled);
        let of_network = open.unknown.entry(source).or_default();
        of_network.push(&activity);
        let unknown = of_network
            .shrink(self.limits.unauthenticated_per_address as usize, ConnectionActivity::mark_known);
        drop(open);
        for (victims, reason) in [(half_open, 4), (unknown, 5)] {
            for victim in victims {
                self.close(&victim, reason);
            }
        }
        Registration { reaper: self.clone(), id, activity }
    }

    /// Records a complete request on a connection.
    pub(super) fn request_received(&self, activity: &ConnectionActivity) {
        if activity.is_half_open() {
            let mut open = self.open.lock();
            open.half_open.count -= usize::from(activity.mark_settled());
        }
    }

    /// Stops counting a connection as unknown once a caller is known.
    pub(super) fn request_answered(&self, activity: &ConnectionActivity) {
        if activity.is_unknown() && activity.record.is_known() {
            self.open.lock().mark_known(activity);
        }
    }

    /// Waits until there are fewer connections than `permitted` returns, which is called repeatedly. Closes idle connections
    /// for that: first those without a known caller, then the one that was idle longest.
    pub(super) async fn make_room(&self, permitted: impl Fn() -> usize) {
        loop {
            let removed = self.removed.notified();
            let max = permitted();
            self.permitted.store(max, Ordering::Relaxed);
            if self.connections() < max {
                return;
            }
            self.close_victims().await;
            let _ = tokio::time::timeout(CHECK_INTERVAL, removed).await;
        }
    }

    async fn close_victims(&self) {
        let victims = self.victims();
        for victim in victims.iter().filter(|victim| !victim.retire.is_cancelled()) {
            self.closed[6].fetch_add(1, Ordering::Relaxed);
            victim.retire.cancel();
        }
        if !victims.is_empty() {
            let _ = tokio::time::timeout(RETIRE_TIMEOUT, self.removed.notified()).await;
        }
        for victim in victims.iter().filter(|victim| victim.may_be_closed()) {
            victim.close.cancel();
        }
    }

    /// Returns the connections to close for others: some without a known caller, idle ones first, or else the one with a known
    /// caller that was idle longest.
    fn victims(&self) -> Vec<Arc<ConnectionActivity>> {
        let all: Vec<Arc<ConnectionActivity>> = self.open.lock().connections.values().cloned().collect();
        let (known, unknown): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|activity| activity.record.is_known());
        let mut unknown: Vec<_> =
            unknown.into_iter().filter_map(|activity| Some((activity.overdue()?, activity))).collect();
        if unknown.is_empty() {
            let idle = known.into_iter().filter_map(|activity| Some((activity.idle_since()?, activity)));
            return idle.min_by_key(|(since, _)| *since).map(|(_, idlest)| idlest).into_iter().collect();
        }
        unknown.sort_by_key(|(overdue, _)| *overdue);
        // At most half of them: a client that has just connected is about to send its first request.
        let count = MAX_CLOSED_AT_ONCE.min(unknown.len().div_ceil(2));
        unknown.into_iter().take(count).map(|(_, activity)| activity).collect()
    }

    /// Closes the connections of clients that these settings do not accept.
    pub(super) fn recheck(&self, settings: &Settings) {
        let all: Vec<Arc<ConnectionActivity>> = self.open.lock().connections.values().cloned().collect();
        for activity in all.iter().filter(|activity| !activity.is_accepted_by(settings)) {
            self.close(activity, 7);
        }
    }

    fn close(&self, activity: &ConnectionActivity, reason: usize) {
        self.closed[reason].fetch_add(1, Ordering::Relaxed);
        activity.close.cancel();
    }

    /// Closes connections that exceed a limit, until cancelled.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            let all: Vec<Arc<ConnectionActivity>> = self.open.lock().connections.values().cloned().collect();
            let now = Instant::now();
            for activity in all {
                if let Some(exceeded_limit) = activity.exceeded_limit(&self.limits, now) {
                    self.close_exceeding(&activity, exceeded_limit);
                }
            }
        }
    }

    /// Ends a connection that exceeds a limit. One that is only idle gets a second to end in order, because a request may be
    /// on its way.
    fn close_exceeding(&self, activity: &ConnectionActivity, exceeded_limit: LimitExceeded) {
        let retires = exceeded_limit == LimitExceeded::Idle && !activity.retire.is_cancelled();
        let is_known = activity.retire.is_cancelled() || activity.close.is_cancelled();
        match retires {
            true => activity.retire.cancel(),
            false => activity.close.cancel(),
        }
        if !is_known {
            self.closed[index(exceeded_limit)].fetch_add(1, Ordering::Relaxed);
            tracing::debug!(breach = ?exceeded_limit, "connection closed");
        }
    }

    /// Waits until there is no connection.
    pub(super) async fn wait_until_empty(&self) {
        loop {
            let notified = self.removed.notified();
            if self.connections() == 0 {
                return;
            }
            notified.await;
        }
    }

    fn unregister(&self, id: u64) {
        let mut open = self.open.lock();
        let Some(removed) = open.connections.remove(&id) else { return };
        open.half_open.count -= usize::from(removed.mark_settled());
        open.mark_known(&removed);
        drop(open);
        self.removed.notify_waiters();
    }
}

impl Open {
    /// Stops counting a connection among the unknown ones of its network.
    fn mark_known(&mut self, activity: &ConnectionActivity) {
        if !activity.mark_known() {
            return;
        }
        let Some(of_network) = self.unknown.get_mut(&activity.source) else { return };
        of_network.count -= 1;
        if of_network.count == 0 {
            self.unknown.remove(&activity.source);
        }
    }
}

impl OldestFirst {
    fn push(&mut self, activity: &Arc<ConnectionActivity>) {
        self.queue.push_back(Arc::downgrade(activity));
        self.count += 1;
    }

    /// Removes and returns the oldest connections while there are more than `max`. `leave_state` takes a connection
    /// out of the state and returns whether it was in it.
    fn shrink(
        &mut self,
        max: usize,
        leave_state: impl Fn(&ConnectionActivity) -> bool,
    ) -> Vec<Arc<ConnectionActivity>> {
        let mut victims = Vec::new();
        while self.count > max {
            let Some(oldest) = self.queue.pop_front() else { break };
            if let Some(oldest) = oldest.upgrade().filter(|activity| leave_state(activity)) {
                self.count -= 1;
                victims.push(oldest);
            }
        }
        // Removes ended connections from the front; later calls remove the rest.
        while self.queue.front().is_some_and(|oldest| oldest.strong_count() == 0) {
            self.queue.pop_front();
        }
        if self.queue.len() > 2 * self.count + 64 {
            self.queue.retain(|activity| activity.strong_count() > 0);
        }
        victims
    }
}

fn index(exceeded_limit: LimitExceeded) -> usize {
    match exceeded_limit {
        LimitExceeded::NoRequest => 0,
        LimitExceeded::Idle => 1,
        LimitExceeded::Stalled => 2,
        LimitExceeded::Resets => 3,
        LimitExceeded::Frames => 8,
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.reaper.unregister(self.id);
    }
}

impl ListenStats {
    pub(super) fn new(reaper: Arc<ConnectionReaper>) -> Self {
        Self { reaper }
    }

    /// Returns the number of open connections.
    pub(crate) fn connections(&self) -> usize {
        self.reaper.connections()
    }

    /// Returns the number of open connections that have not sent a complete request yet.
    pub(crate) fn half_open(&self) -> usize {
        self.reaper.open.lock().half_open.count
    }

    /// Returns the number of connections currently permitted, by the configuration and by the file descriptors of the process.
    pub(crate) fn permitted(&self) -> usize {
        self.reaper.permitted.load(Ordering::Relaxed)
    }

    /// Returns the number of connections accepted so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.reaper.accepted.load(Ordering::Relaxed)
    }

    /// Returns the number of connections closed for exceeding each limit, with its name.
    pub(crate) fn closed(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        REASONS.iter().zip(&self.reaper.closed).map(|(name, count)| (*name, count.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> SourceNetwork {
        std::net::SocketAddr::from(([10, 0, 0, last], 1)).into()
    }

    #[tokio::test]
    async fn excess_half_open_connections_close_oldest() {
        let reaper = ConnectionReaper::new(Limits { half_open: 3, ..Limits::default() });
        let registrations: Vec<Registration> =
            (0..10).map(|_| reaper.register(source(1), CancellationToken::new())).collect();
        let closed: Vec<bool> =
            registrations.iter().map(|registration| registration.activity.close.is_cancelled()).collect();
        assert_eq!(closed, [true, true, true, true, true, true, true, false, false, false]);
        drop(registrations);
        assert_eq!((reaper.connections(), reaper.open.lock().half_open.count), (0, 0));
    }

    #[tokio::test]
    async fn unknown_callers_close_oldest_of_same_network() {
        let limits = Limits { unauthenticated_per_address: 3, ..Limits::default() };
        let reaper = ConnectionReaper::new(limits);
        let known = reaper.register(source(1), CancellationToken::new());
        known.activity.record.caller_known();
        reaper.request_answered(&known.activity);
        let other = reaper.register(source(2), CancellationToken::new());
        let registrations: Vec<Registration> =
            (0..5).map(|_| reaper.register(source(1), CancellationToken::new())).collect();
        let closed: Vec<bool> =
            registrations.iter().map(|registration| registration.activity.close.is_cancelled()).collect();
        assert_eq!(closed, [true, true, false, false, false]);
        assert!(!known.activity.close.is_cancelled() && !other.activity.close.is_cancelled());
        drop((known, other, registrations));
        assert!(reaper.open.lock().unknown.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn evicts_idle_unauthenticated_connections_first() {
        let reaper = ConnectionReaper::new(Limits::default());
        let register = || {
            let registration = reaper.register(source(1), CancellationToken::new());
            drop(registration.activity.begin(http::Version::HTTP_11));
            registration
        };
        let pause = || tokio::time::advance(Duration::from_millis(1));
        let known = register();
        known.activity.record.caller_known();
        tokio::time::advance(Duration::from_secs(1)).await;
        let first = register();
        pause().await;
        let (second, busy) = (register(), register());
        let _flight = busy.activity.begin(http::Version::HTTP_11);
        let victims = || reaper.victims().iter().map(Arc::as_ptr).collect::<Vec<_>>();
        let of = |registration: &Registration| Arc::as_ptr(&registration.activity);
        assert_eq!(victims(), [of(&first)]);
        drop((first, second));
        assert_eq!(victims(), [of(&known)], "a request has a moment in which to show who sends it");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(victims(), [of(&busy)]);
        busy.activity.record.caller_known();
        assert_eq!(victims(), [of(&known)]);
        drop(known);
        assert!(victims().is_empty(), "known callers are not interrupted");

        let room = reaper.make_room(|| 1);
        tokio::pin!(room);
        assert!(tokio::time::timeout(Duration::from_secs(60), &mut room).await.is_err());
        drop((busy, _flight));
        room.await;
    }

    #[tokio::test]
    async fn those_that_have_asked_something_stay() {
        let reaper = ConnectionReaper::new(Limits { half_open: 2, ..Limits::default() });
        let busy = reaper.register(source(1), CancellationToken::new());
        let _flight = busy.activity.begin(http::Version::HTTP_11);
        reaper.request_received(&busy.activity);
        let _others: Vec<Registration> =
            (0..20).map(|_| reaper.register(source(1), CancellationToken::new())).collect();
        assert!(!busy.activity.close.is_cancelled());
    }
}
