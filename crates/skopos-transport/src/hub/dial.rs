//! Dials: those of the pool, and those for a single request.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Connection, Hub};
use crate::{
    backoff::Gate,
    class::ConnectionId,
    connection::establish,
    dialer::{DialAttempt, Io, Protocol},
    error::{Death, Fault, TransportError},
    patience::Expired,
    pool::Side,
    vitals::Vitals,
};

/// A dedicated connection for one request, which is never in the pool: its owner ends it.
pub(crate) struct Alone {
    pub(crate) io: Box<dyn Io>,
    pub(crate) vitals: Arc<Vitals>,
    /// Cancelled when the connection must end.
    pub(crate) withdrawn: CancellationToken,
}

impl Hub {
    /// Performs one dial in its own task: requests that wait for it may come and go.
    pub(super) async fn dial(self: Arc<Self>, side: Side, attempt: DialAttempt) {
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
                // The dial's task becomes the connection's.
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

    /// Dials HTTP/1.1 for one request, as the backoff of the cluster admits. If the server cannot be reached, that counts
    /// for all requests; if it rejects this connection, that does not affect others.
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

    /// Returns the reason why dedicated connections have ended.
    pub(crate) fn why_withdrawn(&self) -> Death {
        let parked = self.state.lock().parked.clone();
        parked.filter(|_| !self.stop.is_cancelled()).map_or(Death::Closed, Death::Parked)
    }
}

/// Ends the count of a dial in any case, also after a panic of the dialer.
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
