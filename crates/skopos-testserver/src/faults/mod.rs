//! Fault injection.
//!
//! ```text
//!  connection ──▶ holes, kills, GOAWAY        (ConnectionControl, under TLS)
//!  request    ──▶ statuses, no answer, delay  (before the handler)
//!  body       ──▶ stall, half frame, garbage  (FaultyBody, around every body, also of streams that are open already)
//!  view       ──▶ lag                         (what reads that need not be newest, and watches, see)
//! ```

mod attributes;
mod body;
mod connection;
mod damage;
mod fault;
mod guard;
mod hostile;
mod matching;
mod rule;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use futures::task::AtomicWaker;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

pub(crate) use self::attributes::RequestAttributes;
pub(crate) use self::body::FaultyBody;
use self::connection::BlackHole;
pub use self::connection::{CloseMode, Connections, Direction};
pub(crate) use self::connection::{ConnectionControl, FaultyIo, ResettableStream};
pub use self::fault::{Damage, Fault, Lag};
pub use self::guard::{FaultGuard, Injection};
pub(crate) use self::hostile::hostile_body;
pub use self::matching::Match;
pub(crate) use self::rule::FaultRule;
use crate::connection::ConnectionId;
use crate::storage::Storage;

/// Active faults of a server. A cheap handle; clones share it.
///
/// Faults end when their [`FaultGuard`] is dropped or healed.
#[derive(Clone, Debug)]
pub struct Faults {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    rules: RwLock<Vec<Arc<FaultRule>>>,
    /// Length of `rules`, for a fast check that there are none.
    active: AtomicUsize,
    last_id: AtomicU64,
    bodies: Mutex<Vec<Arc<AtomicWaker>>>,
    connections: Mutex<BTreeMap<ConnectionId, Arc<ConnectionControl>>>,
    holes: Mutex<Vec<Arc<BlackHole>>>,
    stream_limit: Mutex<Option<u32>>,
    shutting_down: AtomicBool,
}

impl Faults {
    pub(crate) fn new() -> Self {
        Self { inner: Arc::default() }
    }

    /// Prepares a request fault; [`Injection::on`] selects the requests.
    ///
    /// ```
    /// # use skopos_testserver::{Fault, Match, TestServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = TestServer::builder().start().await?;
    /// let stalled = server.faults().inject(Fault::Stall).on(Match::watch().resource("pods"));
    /// // ... no event of pods reaches any client, on open watches and on new ones ...
    /// stalled.heal();
    /// # Ok(())
    /// # }
    /// ```
    pub fn inject(&self, fault: Fault) -> Injection {
        Injection::new(self.clone(), fault)
    }

    /// Closes all open connections; returns their number.
    pub fn kill_connections(&self, mode: CloseMode) -> usize {
        let connections = self.inner.connections.lock();
        connections.values().for_each(|connection| connection.kill(mode));
        connections.len()
    }

    /// Closes one connection; returns whether it was open.
    pub fn kill_connection(&self, id: ConnectionId, mode: CloseMode) -> bool {
        self.inner.connections.lock().get(&id).is_some_and(|connection| {
            connection.kill(mode);
            true
        })
    }

    /// Drops all packets silently; connections stay open. Data sent meanwhile arrives after healing, because TCP retransmits it.
    ///
    /// The kernel still accepts new connections; see [`TestServer::pause`](crate::TestServer::pause) for refused ones.
    pub fn black_hole(&self, connections: Connections, direction: Direction) -> FaultGuard {
        let hole = Arc::new(BlackHole::new(connections, direction));
        let open = self.inner.connections.lock();
        open.values()
            .filter(|connection| hole.covers_open(connection.id()))
            .for_each(|c| hole.add_connection(c));
        self.inner.holes.lock().push(hole.clone());
        drop(open);
        FaultGuard::from_black_hole(self.clone(), hole)
    }

    /// Tells all clients to reconnect: GOAWAY on HTTP/2, `Connection: close` on HTTP/1.1. Requests in flight finish.
    pub fn go_away(&self) -> usize {
        let connections = self.inner.connections.lock();
        connections.values().for_each(|connection| connection.go_away());
        connections.len()
    }

    /// Limits the concurrent streams of connections opened from now on (`None` is the server's own setting).
    pub fn limit_streams(&self, streams: Option<u32>) {
        *self.inner.stream_limit.lock() = streams;
    }

    /// Makes `/readyz` fail, as in the first phase of a shutdown.
    pub fn shutting_down(&self, yes: bool) {
        self.inner.shutting_down.store(yes, Ordering::Release);
    }

    /// Returns the number of active request faults.
    pub fn active(&self) -> usize {
        self.inner.active.load(Ordering::Acquire)
    }

    /// Returns the open connections.
    pub fn connections(&self) -> Vec<ConnectionId> {
        self.inner.connections.lock().keys().copied().collect()
    }
}

impl Faults {
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.inner.shutting_down.load(Ordering::Acquire)
    }

    pub(crate) fn stream_limit(&self) -> Option<u32> {
        *self.inner.stream_limit.lock()
    }

    /// Registers a new connection.
    pub(crate) fn connected(&self, id: ConnectionId) -> Arc<ConnectionControl> {
        let control = Arc::new(ConnectionControl::new(id));
        // Both locks, so that a hole that is added now swallows it exactly once.
        let mut connections = self.inner.connections.lock();
        for hole in self.inner.holes.lock().iter().filter(|hole| hole.covers_new()) {
            hole.add_connection(&control);
        }
        connections.insert(id, control.clone());
        control
    }

    pub(crate) fn disconnected(&self, id: ConnectionId) {
        self.inner.connections.lock().remove(&id);
    }

    /// Returns the faults of a request that are decided before it is handled; each counts a hit.
    pub(crate) fn request_rules(&self, attributes: &RequestAttributes) -> Vec<Arc<FaultRule>> {
        if self.active() == 0 {
            return Vec::new();
        }
        let rules = self.inner.rules.read();
        let mut found: Vec<_> = rules
            .iter()
            .filter(|rule| rule.fault().applies_to_request() && rule.matches(attributes))
            .cloned()
            .collect();
        found.retain(|rule| rule.hit());
        found
    }

    /// Returns the faults that may affect an open body; hits are counted where they are applied.
    pub(crate) fn body_rules(&self, attributes: &RequestAttributes, opened: Instant) -> Vec<Arc<FaultRule>> {
        let rules = self.inner.rules.read();
        let concerns = |rule: &&Arc<FaultRule>| {
            rule.fault().applies_to_body() && rule.matches(attributes) && rule.covers_body_opened(opened)
        };
        rules.iter().filter(concerns).cloned().collect()
    }

    /// Returns the newest revision that a lagging request may see.
    pub(crate) fn lag(&self, attributes: &RequestAttributes, storage: &Storage) -> Option<u64> {
        if self.active() == 0 {
            return None;
        }
        let rules = self.inner.rules.read();
        let limits =
            rules.iter().filter(|rule| rule.matches(attributes)).filter_map(|rule| match rule.fault() {
                Fault::Lag(Lag::Frozen { at }) => Some(*at),
                Fault::Lag(Lag::By(time)) => Some(match Instant::now().checked_sub(*time) {
                    Some(then) => storage.revision_at(then),
                    None => 0,
                }),
                _ => None,
            });
        limits.min()
    }

    /// Creates a waker that is woken whenever faults change.
    fn watch_changes(&self) -> Arc<AtomicWaker> {
        let waker = Arc::new(AtomicWaker::new());
        self.inner.bodies.lock().push(waker.clone());
        waker
    }

    fn unwatch_changes(&self, waker: &Arc<AtomicWaker>) {
        self.inner.bodies.lock().retain(|other| !Arc::ptr_eq(other, waker));
    }

    fn add(&self, rule: FaultRule) -> Arc<FaultRule> {
        let rule = Arc::new(rule);
        let mut rules = self.inner.rules.write();
        rules.push(rule.clone());
        self.inner.active.store(rules.len(), Ordering::Release);
        drop(rules);
        self.wake_bodies();
        rule
    }

    fn remove(&self, rule: &FaultRule) {
        rule.end();
        let mut rules = self.inner.rules.write();
        rules.retain(|other| other.id() != rule.id());
        self.inner.active.store(rules.len(), Ordering::Release);
        drop(rules);
        self.wake_bodies();
    }

    fn remove_hole(&self, hole: &Arc<BlackHole>) {
        self.inner.holes.lock().retain(|other| !Arc::ptr_eq(other, hole));
        hole.release();
    }

    fn next_id(&self) -> u64 {
        self.inner.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn wake_bodies(&self) {
        self.inner.bodies.lock().iter().for_each(|waker| waker.wake());
    }
}
