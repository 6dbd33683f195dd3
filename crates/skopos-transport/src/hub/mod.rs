//! What everything of one transport shares: the pool under its lock, dials, deaths, and the pulse.

mod dial;
mod lease;
mod lives;
mod pulse;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) use lease::Lease;

use crate::{
    backoff::DialBackoff,
    class::ConnectionId,
    connection::Sender,
    dialer::{Dialer, Protocol},
    error::Death,
    options::TransportOptions,
    patience::Patience,
    pool::{Member, Pool, Side},
    stats::{ConnectionStats, Counters, TransportStats},
    vitals::Vitals,
};

/// Within this the answer to a PING comes on a connection that is well, and is read.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);

/// The shared state. It owns its tasks; whoever owns the hub cancels [`Hub::stop`].
pub(crate) struct Hub {
    pub(crate) options: TransportOptions,
    pub(crate) patience: Patience,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
    uri: http::Uri,
    dialer: Arc<dyn Dialer>,
    state: Mutex<State>,
    /// Something changed that requests may wait for.
    changed: Notify,
}

struct State {
    pool: Pool<Connection>,
    backoff: DialBackoff,
    counters: Counters,
    rng: fastrand::Rng,
    next_id: u64,
    pulse_runs: bool,
    /// Nothing is dialed, and why.
    parked: Option<Arc<str>>,
    /// Cancelled: the dials under way are given up, and count for nothing.
    dials: CancellationToken,
    /// Cancelled: the connections that are not the pool's end.
    alone: CancellationToken,
}

struct Connection {
    /// Taken away when the connection retires: hyper then ends it after the last stream.
    sender: Option<Sender>,
    vitals: Arc<Vitals>,
    peer: Arc<str>,
    /// Cancelled: new requests are better off on a new one.
    superseded: CancellationToken,
}

impl Hub {
    pub(crate) fn new(uri: http::Uri, options: TransportOptions, dialer: Arc<dyn Dialer>) -> Arc<Self> {
        let mut rng = match options.seed {
            Some(seed) => fastrand::Rng::with_seed(seed),
            None => fastrand::Rng::new(),
        };
        // Enough for all connections of both sides to be made anew.
        let burst = u32::try_from(options.max_connections * 2).unwrap_or(u32::MAX);
        let stop = CancellationToken::new();
        let state = State {
            pool: Pool::new(&options),
            backoff: DialBackoff::new(options.backoff.clone(), burst, rng.fork()),
            counters: Counters::default(),
            rng,
            next_id: 0,
            pulse_runs: false,
            parked: None,
            dials: CancellationToken::new(),
            alone: stop.child_token(),
        };
        Arc::new(Self {
            patience: Patience::default(),
            stop,
            tasks: TaskTracker::new(),
            uri,
            dialer,
            state: Mutex::new(state),
            changed: Notify::new(),
            options,
        })
    }

    /// How the last dial failed, if none has succeeded since.
    pub(crate) fn trouble(&self) -> Option<Arc<Death>> {
        self.state.lock().backoff.last().cloned()
    }

    /// The server answered 401. Connections that another has superseded since then are retired when this is done.
    pub(crate) async fn rejected(&self) {
        self.dialer.rejected().await;
        self.look_over(Instant::now());
    }

    pub(crate) fn resent(&self) {
        self.state.lock().counters.resent += 1;
    }

    /// A request ended badly without its connection being at fault.
    pub(crate) fn count(&self, connection: Option<ConnectionId>, death: &Death) {
        self.state.lock().counters.death(connection, Arc::new(death.clone()));
    }

    /// Nothing is dialed until [`Hub::wake`], and what stands ends.
    pub(crate) fn park(&self, why: Arc<str>) {
        let mut state = self.state.lock();
        state.parked = Some(why.clone());
        std::mem::take(&mut state.dials).cancel();
        std::mem::replace(&mut state.alone, self.stop.child_token()).cancel();
        for member in state.pool.members() {
            member.connection.vitals.kill(Death::Parked(why.clone()));
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// The server may be there: dials are due now.
    pub(crate) fn wake(&self) {
        let mut state = self.state.lock();
        state.parked = None;
        state.backoff.forget();
        // One that began before may be stuck where nobody answered.
        std::mem::take(&mut state.dials).cancel();
        drop(state);
        self.changed.notify_waiters();
    }

    /// Ends everything now.
    pub(crate) fn close(&self) {
        self.stop.cancel();
        for member in self.state.lock().pool.members() {
            member.connection.vitals.kill(Death::Closed);
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
            for_watches: m.side == Side::Watch,
            protocol: m.protocol,
            peer: m.connection.peer.clone(),
            open_streams: m.open,
            max_streams: m.limit,
            age: now.duration_since(m.born),
            silent: now.saturating_duration_since(m.connection.vitals.heard()),
            doubtful: m.protocol == Protocol::Http2
                && now.saturating_duration_since(m.connection.vitals.heard())
                    >= self.options.ping_interval + ANSWERED_WITHIN,
            served: m.served,
            bytes_in: m.connection.vitals.bytes_in.load(Relaxed),
            bytes_out: m.connection.vitals.bytes_out.load(Relaxed),
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
            deaths: state.counters.deaths.clone(),
            last_death: state.counters.last_death.clone(),
            down: state.backoff.down(),
            suspends: state.counters.suspends,
            lagged: self.patience.lagged(),
            credential_refreshes,
            credentials: state.counters.credentials.clone(),
        }
    }

    /// There are no credentials to send.
    pub(crate) fn has_no_credentials(&self, death: &Death) {
        self.state.lock().counters.credentials_failed(false, death.to_string().into());
    }
}
