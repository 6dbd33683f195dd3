//! What everything of one transport shares: the pool under its lock, dials, deaths, and the pulse.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    backoff::{DialBackoff, Gate},
    class::ConnectionId,
    connection::{Sender, establish},
    dialer::{DialAttempt, Dialer, Io, Protocol},
    error::{Death, Fault, TransportError},
    options::TransportOptions,
    patience::{Expired, Patience},
    pool::{Member, Pick, Pool, Side},
    stats::{ConnectionStats, Counters, TransportStats},
    vitals::Vitals,
};

/// A jump of the wall clock against the monotonic one that means sleep.
const SUSPEND: Duration = Duration::from_secs(5);

/// How often clocks are compared and connections looked over.
const PULSE: Duration = Duration::from_secs(1);

/// A connection that dies so young, without a response, was none: it counts as a failed dial.
const YOUNG: Duration = Duration::from_secs(1);

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
    waiting: usize,
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

/// A place on a connection, given back when dropped.
pub(crate) struct Lease {
    pub(crate) hub: Arc<Hub>,
    pub(crate) vitals: Arc<Vitals>,
    pub(crate) sender: Option<Sender>,
    pub(crate) protocol: Protocol,
    /// The connection has brought responses before.
    pub(crate) used: bool,
}

/// A connection for one request, which is never the pool's: whoever has it ends it.
pub(crate) struct Alone {
    pub(crate) io: Box<dyn Io>,
    pub(crate) vitals: Arc<Vitals>,
    /// Cancelled when it shall end.
    pub(crate) withdrawn: CancellationToken,
}

enum Step {
    Go(Lease),
    Dial(DialAttempt),
    Wait,
    Closed {
        until: Instant,
        last: Arc<Death>,
    },
    /// The server is well, but has been dialed too often lately.
    Later {
        until: Instant,
    },
    Full {
        connections: usize,
    },
    Parked {
        why: Arc<str>,
    },
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
            waiting: 0,
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

    /// A place for one request. `wait`: while the cluster is down, wait for the next dials instead of failing at once.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        side: Side,
        avoid: Option<ConnectionId>,
        wait: bool,
    ) -> Result<Lease, TransportError> {
        let _waiting = Waiting::begin(self);
        let limit = self.options.connect_timeout;
        // A little longer than a dial, so that its own reason comes first.
        let mut give_up = std::pin::pin!(self.patience.sleep(limit + Duration::from_millis(50)));
        let mut waited = false;
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let mut again_at = None;
            let mut parked = false;
            match self.step(side, avoid) {
                Step::Go(lease) => return Ok(lease),
                Step::Full { connections } => return Err(Death::Exhausted { connections }.into()),
                Step::Later { until } => again_at = Some(until),
                Step::Parked { .. } if wait => parked = true,
                Step::Parked { why } => return Err(Death::Parked(why).into()),
                Step::Closed { until, .. } if wait => again_at = Some(until),
                Step::Closed { last, .. } if waited => return Err((*last).clone().into()),
                Step::Closed { until, last } => return Err(Death::BackingOff { until, last }.into()),
                Step::Wait => waited = true,
                Step::Dial(attempt) => {
                    waited = true;
                    self.tasks.spawn(self.clone().dial(side, attempt));
                }
            }
            let next_dial = async {
                match again_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = next_dial => {}
                () = &mut give_up, if !parked => return Err(self.no_connection(limit).into()),
            }
        }
    }

    fn step(self: &Arc<Self>, side: Side, avoid: Option<ConnectionId>) -> Step {
        let now = Instant::now();
        let mut state = self.state.lock();
        if let Some(why) = &state.parked {
            return Step::Parked { why: why.clone() };
        }
        let healthy = state.backoff.healthy();
        match state.pool.pick(side, avoid, healthy, now) {
            Pick::Use(id) => {
                state.counters.requests += 1;
                // pick() has just found it.
                let Some(member) = state.pool.get(id) else { return Step::Wait };
                Step::Go(Lease {
                    hub: self.clone(),
                    vitals: member.connection.vitals.clone(),
                    sender: member.connection.sender.clone(),
                    protocol: member.protocol,
                    used: member.served > 0,
                })
            }
            Pick::Wait => Step::Wait,
            Pick::Full { connections } => Step::Full { connections },
            Pick::Dial => match state.backoff.gate(now) {
                Gate::Open => {
                    if state.pool.shares_connections()
                        && let Err(until) = state.backoff.take(now)
                    {
                        state.pool.dial_over(side);
                        return Step::Later { until };
                    }
                    state.counters.dials += 1;
                    let rhythm = state.backoff.rhythm(now);
                    Step::Dial(DialAttempt::new(self.uri.clone(), state.counters.dials, rhythm))
                }
                Gate::Closed { until, last } => {
                    state.pool.dial_over(side);
                    Step::Closed { until, last }
                }
            },
        }
    }

    /// Why there is no connection after all that waiting.
    pub(crate) fn no_connection(&self, after: Duration) -> Death {
        if let Some(last) = self.trouble() {
            return (*last).clone();
        }
        let stage = match self.state.lock().pool.is_refused() {
            true => "waiting for the server to allow a stream",
            false => "waiting for a dial",
        };
        Death::ConnectTimeout { after, stage }
    }

    /// How the last dial failed, if none has succeeded since.
    pub(crate) fn trouble(&self) -> Option<Arc<Death>> {
        self.state.lock().backoff.last().cloned()
    }

    /// One dial, in a task of its own: requests that wait for it may come and go.
    async fn dial(self: Arc<Self>, side: Side, attempt: DialAttempt) {
        let mut outcome = DialOutcome { hub: self.clone(), side, started: Instant::now(), failure: None };
        let (id, given_up) = {
            let mut state = self.state.lock();
            state.next_id += 1;
            (ConnectionId(state.next_id), state.dials.clone())
        };
        let vitals = Vitals::new(id);
        let limit = self.options.connect_timeout;
        let connecting = async {
            let dialed = self.dialer.dial(attempt.clone()).await?;
            let (protocol, peer, superseded) =
                (dialed.protocol, dialed.peer.clone(), dialed.superseded.clone());
            let up = establish(dialed, side, &self.options, &self.patience, &vitals, &attempt).await?;
            Ok((protocol, peer, superseded, up))
        };
        let connected = tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Death::Closed),
            () = given_up.cancelled() => Err(Death::Outdated),
            result = self.patience.timeout(Some(limit), connecting) => match result {
                Ok(result) => result,
                Err(Expired) => Err(Death::ConnectTimeout { after: limit, stage: attempt.stage() }),
            },
        };
        match connected {
            Ok((protocol, peer, superseded, (sender, engine, limit))) => {
                tracing::debug!(%id, %peer, ?protocol, limit, "connected");
                outcome.failure = None;
                let connection =
                    Connection { sender: Some(sender), vitals: vitals.clone(), peer, superseded };
                self.admit(id, side, protocol, limit, connection);
                drop(outcome);
                // The dial's task goes on as the connection's.
                engine.attend(self, vitals).await;
            }
            Err(death) => {
                tracing::debug!(%death, attempt = attempt.number(), "dial failed");
                self.dialer.failed(&death);
                vitals.kill.cancel();
                vitals.tasks.close();
                outcome.failure = (death != Death::Outdated).then_some(death);
                drop(outcome);
                vitals.tasks.wait().await;
            }
        }
    }

    /// One dial of HTTP/1.1 for one request, as the backoff of the cluster admits. A server that cannot be reached is one
    /// for everybody; one that does not want this connection is as well as before.
    pub(crate) async fn dial_alone(&self) -> Result<Alone, TransportError> {
        let started = Instant::now();
        let (attempt, vitals, withdrawn) = {
            let mut state = self.state.lock();
            if let Some(why) = &state.parked {
                return Err(Death::Parked(why.clone()).into());
            }
            if let Gate::Closed { until, last } = state.backoff.gate(started) {
                return Err(Death::BackingOff { until, last }.into());
            }
            state.counters.dials += 1;
            state.counters.requests += 1;
            state.next_id += 1;
            let attempt =
                DialAttempt::new(self.uri.clone(), state.counters.dials, state.backoff.rhythm(started));
            (attempt.over_http1(), Vitals::new(ConnectionId(state.next_id)), state.alone.clone())
        };
        let limit = self.options.connect_timeout;
        let dialing = self.patience.timeout(Some(limit), self.dialer.dial(attempt.clone()));
        let Some(dialed) = withdrawn.run_until_cancelled(dialing).await else {
            return Err(self.why_withdrawn().into());
        };
        let death = match dialed {
            Ok(Ok(dialed)) if dialed.protocol == Protocol::Http1 => {
                return Ok(Alone { io: dialed.io, vitals, withdrawn });
            }
            Ok(Ok(_)) => Death::protocol("HTTP/1.1 was wanted, and HTTP/2 came"),
            Ok(Err(death)) => death,
            Err(Expired) => Death::ConnectTimeout { after: limit, stage: attempt.stage() },
        };
        self.dialer.failed(&death);
        let mut state = self.state.lock();
        let failure = Arc::new(death.clone());
        state.counters.dial_failures += 1;
        state.counters.death(None, failure.clone());
        if death.fault() == Fault::Network {
            state.backoff.failed(started, Instant::now(), failure);
        }
        Err(death.into())
    }

    /// Why connections that are not the pool's have ended.
    pub(crate) fn why_withdrawn(&self) -> Death {
        let parked = self.state.lock().parked.clone();
        parked.filter(|_| !self.stop.is_cancelled()).map_or(Death::Closed, Death::Parked)
    }

    fn admit(&self, id: ConnectionId, side: Side, protocol: Protocol, limit: usize, connection: Connection) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let age = self.options.max_connection_age.mul_f64(0.8 + 0.4 * state.rng.f64());
        state.backoff.connected();
        if self.stop.is_cancelled() {
            connection.vitals.kill(Death::Closed);
        } else if let Some(why) = &state.parked {
            connection.vitals.kill(Death::Parked(why.clone()));
        }
        state.pool.add(Member {
            id,
            side,
            protocol,
            connection,
            limit,
            open: 0,
            settled: true,
            retired: None,
            born: now,
            retires_at: now + age,
            idle_since: now,
            served: 0,
        });
    }

    /// The connection brought response headers: the server is well.
    pub(crate) fn served(&self, id: ConnectionId) {
        let mut state = self.state.lock();
        if let Some(member) = state.pool.get(id) {
            member.served += 1;
        }
        state.backoff.proven();
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

    /// No new streams on this connection; open ones go on.
    pub(crate) fn retire(&self, id: ConnectionId, why: Death) {
        self.retire_locked(&mut self.state.lock(), id, Arc::new(why));
        self.changed.notify_waiters();
    }

    fn retire_locked(&self, state: &mut State, id: ConnectionId, why: Arc<Death>) {
        let Some(member) = state.pool.retire(id, why.clone()) else { return };
        member.connection.sender = None;
        let idle_http1 = member.protocol == Protocol::Http1 && member.open == 0;
        if idle_http1 {
            member.connection.vitals.kill.cancel();
        }
        if *why != Death::Outdated {
            tracing::debug!(%id, death = %why, "connection retired");
            state.counters.death(Some(id), why);
        }
    }

    /// The connection takes no new streams any more, by the server's or the network's doing, or ours.
    pub(crate) fn closing(&self, vitals: &Vitals, death: Option<Death>) {
        {
            let mut state = self.state.lock();
            let by_us = state.pool.get(vitals.id).is_none_or(|m| m.retired.is_some());
            match (death, by_us) {
                (Some(death), _) => vitals.note(death),
                (None, true) => {}
                // hyper ends in peace after a graceful GOAWAY, and when the socket has closed, which was noted then.
                (None, false) => vitals.note(Death::GoAway { code: "NO_ERROR".into() }),
            }
            let why = vitals.symptom().cloned().unwrap_or(Death::Outdated);
            self.retire_locked(&mut state, vitals.id, Arc::new(why));
        }
        self.changed.notify_waiters();
    }

    /// Nothing is left of the connection.
    pub(crate) fn bury(&self, vitals: &Vitals) {
        let stillborn = {
            let mut state = self.state.lock();
            let Some(member) = state.pool.remove(vitals.id) else { return };
            if member.open > 0 {
                // The socket saw nothing and hyper gave up all the same: only a PING without an answer does that, and on a
                // connection that no longer takes requests hyper does not say so.
                vitals.note(Death::PingTimeout);
            }
            let death = Arc::new(vitals.finish());
            let now = Instant::now();
            if member.retired.is_none() && *death != Death::Closed {
                state.counters.death(Some(vitals.id), death.clone());
            }
            let useless = member.served == 0 && now.duration_since(member.born) < YOUNG;
            let by_us = matches!(*death, Death::Closed | Death::Parked(_) | Death::Suspended { .. });
            let stillborn = (useless && vitals.symptom().is_some() && !by_us).then_some(death);
            if let Some(death) = &stillborn {
                state.backoff.failed(member.born, now, death.clone());
            }
            stillborn
        };
        if let Some(death) = stillborn {
            self.dialer.failed(&death);
        }
        self.changed.notify_waiters();
    }

    pub(crate) fn set_limit(&self, id: ConnectionId, limit: usize) {
        self.state.lock().pool.set_limit(id, limit);
        self.changed.notify_waiters();
    }

    /// An HTTP/1.1 connection is ready for its next request.
    pub(crate) fn settled(&self, id: ConnectionId) {
        if let Some(member) = self.state.lock().pool.get(id) {
            member.settled = true;
        }
        self.changed.notify_waiters();
    }

    fn release(&self, vitals: &Vitals) {
        {
            let mut state = self.state.lock();
            let Some(member) = state.pool.release(vitals.id, Instant::now()) else { return };
            if member.protocol == Protocol::Http1 {
                member.settled = false;
                match member.retired {
                    Some(_) => vitals.kill.cancel(),
                    None => vitals.stirred.notify_one(),
                }
                return;
            }
        }
        self.changed.notify_waiters();
    }

    /// Starts the pulse, once. Needs a runtime, so the first request does it.
    pub(crate) fn ensure_pulse(self: &Arc<Self>) {
        let runs = std::mem::replace(&mut self.state.lock().pulse_runs, true);
        if !runs {
            self.tasks.spawn(self.clone().pulse());
        }
    }

    async fn pulse(self: Arc<Self>) {
        let mut last = (Instant::now(), self.options.wall_clock.now());
        loop {
            let due = last.0 + PULSE;
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep_until(due) => {}
            }
            let now = (Instant::now(), self.options.wall_clock.now());
            self.patience.lag(now.0.duration_since(due));
            if let (Some(before), Some(after)) = (last.1, now.1) {
                let wall = after.duration_since(before).unwrap_or_default();
                let jump = wall.saturating_sub(now.0.duration_since(last.0));
                if jump > SUSPEND {
                    self.suspended(jump);
                }
            }
            self.look_over(now.0);
            last = now;
        }
    }

    /// The machine slept. Whether a connection lives is unknown, and finding out takes longer than a new one.
    fn suspended(&self, by: Duration) {
        tracing::info!(?by, "suspend or VM pause: all connections are given up");
        let mut state = self.state.lock();
        state.counters.suspends += 1;
        for member in state.pool.members() {
            member.connection.vitals.kill(Death::Suspended { by });
        }
    }

    fn look_over(&self, now: Instant) {
        let mut state = self.state.lock();
        let mut outdated = state.pool.outdated(now);
        let superseded = |m: &&Member<Connection>| m.connection.superseded.is_cancelled();
        outdated.extend(state.pool.members().iter().filter(superseded).map(|m| m.id));
        for id in &outdated {
            self.retire_locked(&mut state, *id, Arc::new(Death::Outdated));
        }
        drop(state);
        if !outdated.is_empty() {
            self.changed.notify_waiters();
        }
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
            served: m.served,
            bytes_in: m.connection.vitals.bytes_in.load(Relaxed),
            bytes_out: m.connection.vitals.bytes_out.load(Relaxed),
            retired: m.retired.clone(),
        };
        TransportStats {
            connections: state.pool.members().iter().map(connection).collect(),
            dialing: state.pool.dialing(),
            waiting: state.waiting,
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
        }
    }
}

impl Lease {
    pub(crate) fn id(&self) -> ConnectionId {
        self.vitals.id
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // First, so that a retired connection sees that nobody can send any more.
        self.sender = None;
        self.hub.release(&self.vitals);
    }
}

/// Ends the count of a dial whatever happens to it, also a panic of the dialer.
struct DialOutcome {
    hub: Arc<Hub>,
    side: Side,
    started: Instant,
    failure: Option<Death>,
}

impl Drop for DialOutcome {
    fn drop(&mut self) {
        let now = Instant::now();
        {
            let mut state = self.hub.state.lock();
            state.pool.dial_over(self.side);
            let panicked = std::thread::panicking().then(|| Death::protocol("the dialer panicked"));
            if let Some(death) = self.failure.take().or(panicked) {
                let death = Arc::new(death);
                state.counters.dial_failures += 1;
                state.counters.death(None, death.clone());
                state.backoff.failed(self.started, now, death);
            }
        }
        self.hub.changed.notify_waiters();
    }
}

/// Counts a request that waits for a connection.
struct Waiting(Arc<Hub>);

impl Waiting {
    fn begin(hub: &Arc<Hub>) -> Self {
        hub.state.lock().waiting += 1;
        Self(hub.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}
