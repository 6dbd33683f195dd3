//! Shared state of one transport: the pool under its lock, dials, errors, and the ticker.

mod dial;
mod lease;
mod lifecycle;
mod ticker;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use lease::Lease;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backoff::DialBackoff;
use crate::class::ConnectionId;
use crate::conn_state::ConnectionState;
use crate::connection::Sender;
use crate::dialer::{Dialer, Protocol};
use crate::error::TransportErrorKind;
use crate::lag::LagMonitor;
use crate::options::TransportOptions;
use crate::pool::{Member, Pool, PoolKind};
use crate::stats::{ConnectionStats, Counters, TransportStats};

/// Time within which a healthy connection's answer to a PING arrives and is read.
const PING_RESPONSE_TIME: Duration = Duration::from_secs(2);

/// The shared state. It owns its tasks; the owner of the hub cancels [`Hub::stop`].
pub(crate) struct Hub {
    pub(crate) options: TransportOptions,
    pub(crate) lag_monitor: LagMonitor,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
    uri: http::Uri,
    dialer: Arc<dyn Dialer>,
    state: Mutex<State>,
    /// Notified of changes that requests may wait for.
    changed: Notify,
}

struct State {
    pool: Pool<Connection>,
    backoff: DialBackoff,
    counters: Counters,
    rng: fastrand::Rng,
    next_id: u64,
    ticker_runs: bool,
    /// The reason while nothing is dialed.
    parked: Option<Arc<str>>,
    /// Cancelled to give up the dials under way; they then do not count.
    dials: CancellationToken,
    /// Cancelled to end dedicated connections.
    dedicated: CancellationToken,
}

struct Connection {
    /// Taken when the connection retires: hyper then ends it after the last stream.
    sender: Option<Sender>,
    conn_state: Arc<ConnectionState>,
    peer: Arc<str>,
    /// Cancelled when new requests should use a newer connection.
    superseded: CancellationToken,
}

impl Hub {
    pub(crate) fn new(uri: http::Uri, options: TransportOptions, dialer: Arc<dyn Dialer>) -> Arc<Self> {
        let mut rng = match options.seed {
            Some(seed) => fastrand::Rng::with_seed(seed),
            None => fastrand::Rng::new(),
        };
        // Enough to replace all connections of both pool kinds.
        let burst = u32::try_from(options.max_connections * 2).unwrap_or(u32::MAX);
        let stop = CancellationToken::new();
        let state = State {
            pool: Pool::new(&options),
            backoff: DialBackoff::new(options.backoff.clone(), burst, rng.fork()),
            counters: Counters::default(),
            rng,
            next_id: 0,
            ticker_runs: false,
            parked: None,
            dials: CancellationToken::new(),
            dedicated: stop.child_token(),
        };
        Arc::new(Self {
            lag_monitor: LagMonitor::default(),
            stop,
            tasks: TaskTracker::new(),
            uri,
            dialer,
            state: Mutex::new(state),
            changed: Notify::new(),
            options,
        })
    }

    /// Returns the error of the last dial, if none has succeeded since.
    pub(crate) fn last_dial_error(&self) -> Option<Arc<TransportErrorKind>> {
        self.state.lock().backoff.last_error().cloned()
    }

    /// Handles a 401. When this returns, the connections that were superseded have been retired.
    pub(crate) async fn rejected(&self) {
        self.dialer.rejected().await;
        self.retire_outdated(Instant::now());
    }

    pub(crate) fn count_resend(&self) {
        self.state.lock().counters.resent += 1;
    }

    /// Counts a request that failed without its connection being at fault.
    pub(crate) fn count_error(&self, connection: Option<ConnectionId>, error_kind: &TransportErrorKind) {
        self.state.lock().counters.count_error(connection, Arc::new(error_kind.clone()));
    }

    /// Stops dials until [`Hub::wake`], and ends the open connections.
    pub(crate) fn park(&self, why: Arc<str>) {
        let mut state = self.state.lock();
        state.parked = Some(why.clone());
        std::mem::take(&mut state.dials).cancel();
        std::mem::replace(&mut state.dedicated, self.stop.child_token()).cancel();
        for member in state.pool.members() {
            member.connection.conn_state.kill(TransportErrorKind::Parked(why.clone()));
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Makes dials due now, because the server may be up.
    pub(crate) fn wake(&self) {
        let mut state = self.state.lock();
        state.parked = None;
        state.backoff.reset();
        // A dial that started earlier may hang on an address that did not respond.
        std::mem::take(&mut state.dials).cancel();
        drop(state);
        self.changed.notify_waiters();
    }

    /// Ends everything now.
    pub(crate) fn close(&self) {
        self.stop.cancel();
        for member in self.state.lock().pool.members() {
            member.connection.conn_state.kill(TransportErrorKind::Closed);
        }
        self.tasks.close();
        self.changed.notify_waiters();
    }

    pub(crate) fn stats(&self, credential_refreshes: u64) -> TransportStats {
        use std::sync::atomic::Ordering::Relaxed;
        let now = Instant::now();
        let state = self.state.lock();
        let connection = |m: &Member<Connection>| ConnectionStats {
            id: m.id,
            for_watches: m.pool_kind == PoolKind::Watch,
            protocol: m.protocol,
            peer: m.connection.peer.clone(),
            open_streams: m.open,
            max_streams: m.limit,
            age: now.duration_since(m.created_at),
            silent: now.saturating_duration_since(m.connection.conn_state.last_read()),
            doubtful: m.protocol == Protocol::Http2
                && now.saturating_duration_since(m.connection.conn_state.last_read())
                    >= self.options.ping_interval + PING_RESPONSE_TIME,
            served: m.served,
            bytes_in: m.connection.conn_state.bytes_in.load(Relaxed),
            bytes_out: m.connection.conn_state.bytes_out.load(Relaxed),
            retired: m.retired.clone(),
        };
        TransportStats {
            connections: state.pool.members().iter().map(connection).collect(),
            dialing: state.pool.dialing(),
            waiting: state.pool.waiting(),
            dials: state.counters.dials,
            dial_failures: state.counters.dial_failures,
            requests: state.counters.requests,
            resent: state.counters.resent,
            errors: state.counters.errors.clone(),
            last_error: state.counters.last_error.clone(),
            down: state.backoff.down(),
            suspends: state.counters.suspends,
            lagged: self.lag_monitor.total_lag(),
            credential_refreshes,
            credentials: state.counters.credentials.clone(),
        }
    }

    /// Records that there are no credentials to send.
    pub(crate) fn credentials_missing(&self, error_kind: &TransportErrorKind) {
        self.state.lock().counters.credentials_failed(false, error_kind.to_string().into());
    }
}
