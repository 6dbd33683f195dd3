//! Dials: those of the pool, and those for a single request.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Connection, Hub};
use crate::backoff::Gate;
use crate::class::ConnectionId;
use crate::conn_state::ConnectionState;
use crate::connection::establish;
use crate::dialer::{DialAttempt, Io, Protocol};
use crate::error::{Fault, TransportError, TransportErrorKind};
use crate::lag::Expired;
use crate::pool::PoolKind;

/// A dedicated connection for one request, which is never in the pool: its owner ends it.
pub(crate) struct DedicatedIo {
    pub(crate) io: Box<dyn Io>,
    pub(crate) conn_state: Arc<ConnectionState>,
    /// Cancelled when the connection must end.
    pub(crate) withdrawn: CancellationToken,
}

impl Hub {
    /// Performs one dial in its own task: requests that wait for it may come and go.
    pub(super) async fn dial(self: Arc<Self>, pool_kind: PoolKind, attempt: DialAttempt) {
        let mut outcome =
            DialOutcome { hub: self.clone(), pool_kind, started: Instant::now(), failure: None };
        let (id, given_up) = {
            let mut state = self.state.lock();
            state.next_id += 1;
            (ConnectionId(state.next_id), state.dials.clone())
        };
        let conn_state = ConnectionState::new(id);
        let limit = self.options.connect_timeout;
        let connecting = async {
            let dialed = self.dialer.dial(attempt.clone()).await?;
            let (protocol, peer, superseded) =
                (dialed.protocol, dialed.peer.clone(), dialed.superseded.clone());
            let up =
                establish(dialed, pool_kind, &self.options, &self.lag_monitor, &conn_state, &attempt).await?;
            Ok((protocol, peer, superseded, up))
        };
        let connected = tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(TransportErrorKind::Closed),
            () = given_up.cancelled() => Err(TransportErrorKind::Outdated),
            result = self.lag_monitor.timeout(Some(limit), connecting) => match result {
                Ok(result) => result,
                Err(Expired) => Err(TransportErrorKind::ConnectTimeout { after: limit, stage: attempt.stage() }),
            },
        };
        match connected {
            Ok((protocol, peer, superseded, (sender, driver, limit))) => {
                tracing::debug!(%id, %peer, ?protocol, limit, "connected");
                outcome.failure = None;
                let connection =
                    Connection { sender: Some(sender), conn_state: conn_state.clone(), peer, superseded };
                self.admit(id, pool_kind, protocol, limit, connection);
                drop(outcome);
                // The dial's task becomes the connection's.
                driver.drive(self, conn_state).await;
            }
            Err(error_kind) => {
                tracing::debug!(%error_kind, attempt = attempt.number(), "dial failed");
                self.dialer.failed(&error_kind);
                conn_state.kill.cancel();
                conn_state.tasks.close();
                outcome.failure = (error_kind != TransportErrorKind::Outdated).then_some(error_kind);
                drop(outcome);
                conn_state.tasks.wait().await;
            }
        }
    }

    /// Dials HTTP/1.1 for one request, as the backoff of the cluster admits. If the server cannot be reached, that counts
    /// for all requests; if it rejects this connection, that does not affect others.
    pub(crate) async fn dial_dedicated(&self) -> Result<DedicatedIo, TransportError> {
        let started = Instant::now();
        let (attempt, conn_state, withdrawn) = {
            let mut state = self.state.lock();
            if let Some(why) = &state.parked {
                return Err(TransportErrorKind::Parked(why.clone()).into());
            }
            if let Gate::Closed { until, last } = state.backoff.gate(started) {
                return Err(TransportErrorKind::BackingOff { until, last }.into());
            }
            state.counters.dials += 1;
            state.counters.requests += 1;
            state.next_id += 1;
            let attempt =
                DialAttempt::new(self.uri.clone(), state.counters.dials, state.backoff.interval(started));
            (attempt.over_http1(), ConnectionState::new(ConnectionId(state.next_id)), state.dedicated.clone())
        };
        let limit = self.options.connect_timeout;
        let dialing = self.lag_monitor.timeout(Some(limit), self.dialer.dial(attempt.clone()));
        let Some(dialed) = withdrawn.run_until_cancelled(dialing).await else {
            return Err(self.withdrawal_reason().into());
        };
        let error_kind = match dialed {
            Ok(Ok(dialed)) if dialed.protocol == Protocol::Http1 => {
                return Ok(DedicatedIo { io: dialed.io, conn_state, withdrawn });
            }
            Ok(Ok(_)) => TransportErrorKind::protocol("HTTP/1.1 was wanted, and HTTP/2 came"),
            Ok(Err(error_kind)) => error_kind,
            Err(Expired) => TransportErrorKind::ConnectTimeout { after: limit, stage: attempt.stage() },
        };
        self.dialer.failed(&error_kind);
        let mut state = self.state.lock();
        let failure = Arc::new(error_kind.clone());
        state.counters.dial_failures += 1;
        state.counters.count_error(None, failure.clone());
        if error_kind.fault() == Fault::Network {
            state.backoff.failed(started, Instant::now(), failure);
        }
        Err(error_kind.into())
    }

    /// Returns the reason why dedicated connections have ended.
    pub(crate) fn withdrawal_reason(&self) -> TransportErrorKind {
        let parked = self.state.lock().parked.clone();
        parked
            .filter(|_| !self.stop.is_cancelled())
            .map_or(TransportErrorKind::Closed, TransportErrorKind::Parked)
    }
}

/// Ends the count of a dial in any case, also after a panic of the dialer.
struct DialOutcome {
    hub: Arc<Hub>,
    pool_kind: PoolKind,
    started: Instant,
    failure: Option<TransportErrorKind>,
}

impl Drop for DialOutcome {
    fn drop(&mut self) {
        let now = Instant::now();
        {
            let mut state = self.hub.state.lock();
            state.pool.dial_ended(self.pool_kind);
            let panicked =
                std::thread::panicking().then(|| TransportErrorKind::protocol("the dialer panicked"));
            if let Some(error_kind) = self.failure.take().or(panicked) {
                let error_kind = Arc::new(error_kind);
                state.counters.dial_failures += 1;
                state.counters.count_error(None, error_kind.clone());
                state.backoff.failed(self.started, now, error_kind);
            }
        }
        self.hub.changed.notify_waiters();
    }
}
