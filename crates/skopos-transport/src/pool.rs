//! Choice of a connection for each request. Pure: no clock, no I/O; the connections themselves are opaque.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::class::{ConnectionId, RequestClass};
use crate::dialer::Protocol;
use crate::error::TransportErrorKind;
use crate::options::TransportOptions;

/// The kind of pool that serves a request. Lists and watches never share a connection: a list of 100 MB would hold up
/// events (and unread watches a list).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolKind {
    Watch,
    Other,
}

impl PoolKind {
    pub(crate) fn from_class(class: RequestClass) -> Self {
        match class {
            RequestClass::Watch => PoolKind::Watch,
            _ => PoolKind::Other,
        }
    }
}

/// The decision for a request that needs a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// Use this connection, on which one more stream has been counted.
    Use(ConnectionId),
    /// Dial, if the cluster's backoff admits it, because no connection fits. A dial has been counted.
    Dial,
    /// Wait for the dials under way.
    Wait,
    /// Fail: no connection fits, and the limit on connections is reached.
    Full { connections: usize },
}

/// All connections of one cluster.
#[derive(Debug)]
pub(crate) struct Pool<C> {
    members: Vec<Member<C>>,
    /// The waiting requests and the dials under way, per kind.
    waiting: [usize; 2],
    dialing: [usize; 2],
    max_connections: usize,
    max_connections_http1: usize,
    max_streams: usize,
    idle_timeout: Duration,
    idle_timeout_http1: Duration,
    /// The last protocol of the server, to judge how many concurrent dials are useful.
    protocol: Option<Protocol>,
}

/// One connection of the pool.
#[derive(Debug)]
pub(crate) struct Member<C> {
    pub(crate) id: ConnectionId,
    pub(crate) pool_kind: PoolKind,
    pub(crate) protocol: Protocol,
    pub(crate) connection: C,
    /// The number of concurrent streams that the server allows, as far as known.
    pub(crate) limit: usize,
    /// Our streams, counted from the decision to use one until the body is done or dropped.
    pub(crate) open: usize,
    /// Set if the connection is ready; HTTP/1.1 is not ready immediately after a response.
    pub(crate) ready: bool,
    /// The reason why it takes no new streams.
    pub(crate) retired: Option<Arc<TransportErrorKind>>,
    pub(crate) created_at: Instant,
    pub(crate) retires_at: Instant,
    pub(crate) idle_since: Instant,
    /// The number of responses that it brought.
    pub(crate) served: u64,
}

/// Concurrent dials to a healthy HTTP/1.1 server, where every request needs its own connection.
const MAX_PARALLEL_DIALS_HTTP1: usize = 8;

/// Time after which a connection on which the server allows no stream is replaced: another server may respond.
const NO_STREAMS_TIMEOUT: Duration = Duration::from_secs(5);

impl<C> Pool<C> {
    pub(crate) fn new(options: &TransportOptions) -> Self {
        Self {
            members: Vec::new(),
            waiting: [0, 0],
            dialing: [0, 0],
            max_connections: options.max_connections,
            max_connections_http1: options.max_connections_http1,
            max_streams: options.max_streams,
            idle_timeout: options.idle_timeout,
            idle_timeout_http1: options.idle_timeout_http1,
            protocol: None,
        }
    }

    /// Counts a request that begins to wait for a connection.
    pub(crate) fn wait_started(&mut self, pool_kind: PoolKind) {
        self.waiting[pool_kind as usize] += 1;
    }

    /// Ends the wait that [`Pool::wait_started`] counted: the request has a connection, or has given up.
    pub(crate) fn wait_ended(&mut self, pool_kind: PoolKind) {
        let waiting = &mut self.waiting[pool_kind as usize];
        *waiting = waiting.saturating_sub(1);
    }

    /// Returns the number of waiting requests.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.iter().sum()
    }

    /// Finds a connection with room for one more stream, for a waiting request. `healthy` means that no problem of the
    /// server is known.
    pub(crate) fn pick(
        &mut self,
        pool_kind: PoolKind,
        avoid: Option<ConnectionId>,
        healthy: bool,
        now: Instant,
    ) -> Pick {
        // The fullest that still has room, so that the others become idle and can be closed; among equals the youngest.
        let best = (self.members.iter_mut())
            .filter(|m| m.pool_kind == pool_kind && Some(m.id) != avoid && m.has_room())
            .max_by_key(|m| (m.open, m.created_at, m.id));
        if let Some(member) = best {
            member.open += 1;
            member.idle_since = now;
            return Pick::Use(member.id);
        }
        // One that has just responded takes the next request in a moment; its own task bounds that moment.
        let becoming_ready = (self.members.iter())
            .any(|m| m.pool_kind == pool_kind && Some(m.id) != avoid && m.is_becoming_ready());
        if becoming_ready {
            return Pick::Wait;
        }
        // An overloaded server may allow no streams: more connections would be more load, and no help.
        let refused =
            |m: &Member<C>| m.pool_kind == pool_kind && Some(m.id) != avoid && m.allows_no_streams();
        if self.members.iter().any(refused) {
            return Pick::Wait;
        }
        let dialing = self.dialing[pool_kind as usize];
        if dialing > 0 && !(healthy && dialing < self.useful_dials(pool_kind)) {
            return Pick::Wait;
        }
        if !healthy && self.dialing != [0, 0] {
            return Pick::Wait;
        }
        // Retired ones do not count: nothing may hinder their replacement. Their number is bounded by their streams.
        let taken =
            dialing + self.members.iter().filter(|m| m.pool_kind == pool_kind && m.retired.is_none()).count();
        if taken >= self.connection_limit() {
            return Pick::Full { connections: taken };
        }
        self.dialing[pool_kind as usize] += 1;
        Pick::Dial
    }

    /// Ends a dial that [`Pick::Dial`] counted, also one that was not started after all.
    pub(crate) fn dial_ended(&mut self, pool_kind: PoolKind) {
        let dialing = &mut self.dialing[pool_kind as usize];
        *dialing = dialing.saturating_sub(1);
    }

    pub(crate) fn add(&mut self, mut member: Member<C>) {
        member.limit = member.limit.min(self.max_streams);
        self.protocol = Some(member.protocol);
        self.members.push(member);
    }

    pub(crate) fn get(&mut self, id: ConnectionId) -> Option<&mut Member<C>> {
        self.members.iter_mut().find(|m| m.id == id)
    }

    pub(crate) fn members(&self) -> &[Member<C>] {
        &self.members
    }

    /// Returns whether a server allows no request at all on a connection.
    pub(crate) fn is_refused(&self) -> bool {
        self.members.iter().any(Member::allows_no_streams)
    }

    /// Returns whether requests share connections, as far as known.
    pub(crate) fn shares_connections(&self) -> bool {
        self.protocol != Some(Protocol::Http1)
    }

    pub(crate) fn dialing(&self) -> usize {
        self.dialing.iter().sum()
    }

    /// Sets the server's new limit of streams.
    pub(crate) fn set_limit(&mut self, id: ConnectionId, limit: usize) {
        let max = self.max_streams;
        if let Some(member) = self.get(id) {
            member.limit = limit.min(max);
        }
    }

    /// Ends a stream counted by [`Pick::Use`] and returns its connection.
    pub(crate) fn release(&mut self, id: ConnectionId, now: Instant) -> Option<&mut Member<C>> {
        let member = self.get(id)?;
        member.open = member.open.saturating_sub(1);
        member.idle_since = now;
        Some(member)
    }

    /// Stops new streams on this connection. Open ones may continue.
    pub(crate) fn retire(
        &mut self,
        id: ConnectionId,
        why: Arc<TransportErrorKind>,
    ) -> Option<&mut Member<C>> {
        let member = self.get(id).filter(|m| m.retired.is_none())?;
        member.retired = Some(why);
        Some(member)
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Member<C>> {
        let index = self.members.iter().position(|m| m.id == id)?;
        Some(self.members.swap_remove(index))
    }

    /// Returns the connections that are too old, or idle for too long.
    pub(crate) fn outdated(&self, now: Instant) -> Vec<ConnectionId> {
        (self.members.iter())
            .filter(|m| m.retired.is_none())
            .filter(|m| {
                let idle = match m.protocol {
                    Protocol::Http2 => self.idle_timeout,
                    Protocol::Http1 => self.idle_timeout_http1,
                };
                let idle = if m.allows_no_streams() { NO_STREAMS_TIMEOUT } else { idle };
                now >= m.retires_at || (m.open == 0 && now.duration_since(m.idle_since) >= idle)
            })
            .map(|m| m.id)
            .collect()
    }

    fn connection_limit(&self) -> usize {
        match self.protocol {
            Some(Protocol::Http1) => self.max_connections_http1,
            _ => self.max_connections,
        }
    }

    fn useful_dials(&self, pool_kind: PoolKind) -> usize {
        match self.protocol {
            Some(Protocol::Http1) => MAX_PARALLEL_DIALS_HTTP1.min(self.waiting[pool_kind as usize]),
            _ => 1,
        }
    }
}

impl<C> Member<C> {
    fn has_room(&self) -> bool {
        self.retired.is_none() && self.ready && self.open < self.limit
    }

    fn allows_no_streams(&self) -> bool {
        self.retired.is_none() && self.limit == 0 && self.open == 0
    }

    fn is_becoming_ready(&self) -> bool {
        self.retired.is_none() && !self.ready && self.open == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture {
        pool: Pool<()>,
        now: Instant,
        next: u64,
    }

    impl Fixture {
        fn new(options: TransportOptions) -> Self {
            Self { pool: Pool::new(&options), now: Instant::now(), next: 0 }
        }

        fn add(&mut self, pool_kind: PoolKind, protocol: Protocol, limit: usize) -> ConnectionId {
            self.next += 1;
            let id = ConnectionId(self.next);
            self.pool.add(Member {
                id,
                pool_kind,
                protocol,
                connection: (),
                limit,
                open: 0,
                ready: true,
                retired: None,
                created_at: self.now,
                retires_at: self.now + Duration::from_secs(3600),
                idle_since: self.now,
                served: 0,
            });
            id
        }

        fn dialed(&mut self, pool_kind: PoolKind, protocol: Protocol, limit: usize) -> ConnectionId {
            self.pool.dial_ended(pool_kind);
            self.add(pool_kind, protocol, limit)
        }

        fn pick(&mut self, pool_kind: PoolKind) -> Pick {
            self.pool.pick(pool_kind, None, true, self.now)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_connection_means_another_and_never_a_queue() {
        let mut t = Fixture::new(TransportOptions { max_connections: 2, ..Default::default() });
        assert_eq!(t.pick(PoolKind::Watch), Pick::Dial);
        assert_eq!(t.pick(PoolKind::Watch), Pick::Wait);
        let first = t.dialed(PoolKind::Watch, Protocol::Http2, 2);
        assert_eq!(t.pick(PoolKind::Watch), Pick::Use(first));
        assert_eq!(t.pick(PoolKind::Watch), Pick::Use(first));
        assert_eq!(t.pick(PoolKind::Watch), Pick::Dial);
        let second = t.dialed(PoolKind::Watch, Protocol::Http2, 2);
        assert_eq!(t.pick(PoolKind::Watch), Pick::Use(second));
        assert_eq!(t.pick(PoolKind::Watch), Pick::Use(second));
        assert_eq!(t.pick(PoolKind::Watch), Pick::Full { connections: 2 });
        t.pool.release(first, t.now);
        assert_eq!(t.pick(PoolKind::Watch), Pick::Use(first));
        // The server lowers its limit of streams.
        t.pool.set_limit(first, 1);
        t.pool.release(first, t.now);
        assert_eq!(t.pick(PoolKind::Watch), Pick::Full { connections: 2 });
    }

    #[tokio::test(start_paused = true)]
    async fn connection_without_streams_is_replaced_after_wait() {
        let mut t = Fixture::new(TransportOptions::default());
        let first = t.add(PoolKind::Watch, Protocol::Http2, 0);
        assert_eq!(t.pick(PoolKind::Watch), Pick::Wait);
        assert_eq!(t.pick(PoolKind::Other), Pick::Dial, "the other kind is not concerned");
        t.pool.set_limit(first, 1);
        assert_eq!(t.pick(PoolKind::Watch), Pick::Use(first));
        // Its open streams may last: a new request must not wait for their end.
        t.pool.set_limit(first, 0);
        assert_eq!(t.pick(PoolKind::Watch), Pick::Dial);
        t.pool.dial_ended(PoolKind::Watch);
        t.pool.release(first, t.now);
        assert_eq!(t.pick(PoolKind::Watch), Pick::Wait);
        assert_eq!(t.pool.outdated(t.now), []);
        assert_eq!(t.pool.outdated(t.now + NO_STREAMS_TIMEOUT), [first]);
        t.pool.retire(first, Arc::new(TransportErrorKind::Outdated));
        assert_eq!(t.pick(PoolKind::Watch), Pick::Dial);
    }

    #[tokio::test(start_paused = true)]
    async fn lists_and_watches_are_apart() {
        let mut t = Fixture::new(TransportOptions::default());
        let watch = t.add(PoolKind::Watch, Protocol::Http2, 100);
        assert_eq!(t.pick(PoolKind::Other), Pick::Dial);
        let list = t.dialed(PoolKind::Other, Protocol::Http2, 100);
        assert_eq!(t.pick(PoolKind::Other), Pick::Use(list));
        assert_eq!(t.pick(PoolKind::Watch), Pick::Use(watch));
    }

    #[tokio::test(start_paused = true)]
    async fn a_sick_server_meets_one_dial_at_a_time() {
        let mut t = Fixture::new(TransportOptions::default());
        assert_eq!(t.pool.pick(PoolKind::Watch, None, false, t.now), Pick::Dial);
        assert_eq!(t.pool.pick(PoolKind::Other, None, false, t.now), Pick::Wait);
        t.pool.dial_ended(PoolKind::Watch);
        assert_eq!(t.pool.pick(PoolKind::Other, None, false, t.now), Pick::Dial);
        assert_eq!(t.pool.dialing(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn replaces_retired_and_skips_avoided_connections() {
        let mut t = Fixture::new(TransportOptions { max_connections: 1, ..Default::default() });
        let first = t.add(PoolKind::Other, Protocol::Http2, 100);
        assert_eq!(t.pick(PoolKind::Other), Pick::Use(first));
        t.pool.retire(first, Arc::new(TransportErrorKind::PingTimeout));
        assert_eq!(t.pick(PoolKind::Other), Pick::Dial);
        let second = t.dialed(PoolKind::Other, Protocol::Http2, 100);
        assert_eq!(t.pick(PoolKind::Other), Pick::Use(second));
        let avoid = t.pool.pick(PoolKind::Other, Some(second), true, t.now);
        assert_eq!(avoid, Pick::Full { connections: 1 });
    }

    #[tokio::test(start_paused = true)]
    async fn http1_dials_once_per_waiting_request() {
        let mut t = Fixture::new(TransportOptions::default());
        let first = t.add(PoolKind::Other, Protocol::Http1, 1);
        assert_eq!(t.pick(PoolKind::Other), Pick::Use(first));
        // For any number of picks there is one dial per waiting request, up to the maximum.
        for waiting in 1..=MAX_PARALLEL_DIALS_HTTP1 {
            t.pool.wait_started(PoolKind::Other);
            assert_eq!(t.pick(PoolKind::Other), Pick::Dial);
            assert_eq!(t.pick(PoolKind::Other), Pick::Wait, "{waiting} wait");
        }
        t.pool.wait_started(PoolKind::Other);
        assert_eq!(t.pick(PoolKind::Other), Pick::Wait);
        t.pool.release(first, t.now).unwrap().ready = false;
        assert_eq!(t.pick(PoolKind::Other), Pick::Wait, "not ready for the next request yet");
        t.pool.get(first).unwrap().ready = true;
        assert_eq!(t.pick(PoolKind::Other), Pick::Use(first));
    }

    #[tokio::test(start_paused = true)]
    async fn old_and_idle_connections_are_found() {
        let mut t = Fixture::new(TransportOptions::default());
        let busy = t.add(PoolKind::Other, Protocol::Http2, 10);
        let idle = t.add(PoolKind::Watch, Protocol::Http2, 10);
        let idle1 = t.add(PoolKind::Watch, Protocol::Http1, 1);
        assert_eq!(t.pick(PoolKind::Other), Pick::Use(busy));
        assert_eq!(t.pool.outdated(t.now), []);
        assert_eq!(t.pool.outdated(t.now + Duration::from_secs(31)), [idle1]);
        assert_eq!(t.pool.outdated(t.now + Duration::from_secs(301)), [idle, idle1]);
        assert_eq!(t.pool.outdated(t.now + Duration::from_secs(3601)), [busy, idle, idle1]);
    }
}
