//! Leases of streams on connections: found, waited for, or dialed for.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Hub;
use crate::backoff::Gate;
use crate::class::ConnectionId;
use crate::conn_state::ConnectionState;
use crate::connection::Sender;
use crate::dialer::{DialAttempt, Protocol};
use crate::error::{TransportError, TransportErrorKind};
use crate::pool::{Pick, PoolKind};

/// A lease of one stream on a connection, given back when dropped.
pub(crate) struct Lease {
    pub(crate) hub: Arc<Hub>,
    pub(crate) conn_state: Arc<ConnectionState>,
    /// Taken by the request.
    pub(crate) sender: Option<Sender>,
    pub(crate) protocol: Protocol,
    /// Set if the connection has brought responses before.
    pub(crate) used: bool,
}

enum Step {
    Go(Lease),
    Dial(DialAttempt),
    Wait,
    Closed {
        until: Instant,
        last: Arc<TransportErrorKind>,
    },
    /// The server is healthy, but was dialed too often recently.
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
    /// Leases a stream for one request. With `wait`, waits for the next dials while the cluster is down, instead of failing
    /// at once.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        pool_kind: PoolKind,
        avoid: Option<ConnectionId>,
        wait: bool,
    ) -> Result<Lease, TransportError> {
        let _waiting = Waiting::new(self, pool_kind);
        let limit = self.options.connect_timeout;
        // Slightly longer than a dial, so that the dial's own error comes first.
        let wait_timeout = || self.lag_monitor.sleep(limit + Duration::from_millis(50));
        let mut give_up = wait_timeout();
        let mut waited = false;
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let mut again_at = None;
            let mut parked = false;
            match self.step(pool_kind, avoid) {
                Step::Go(lease) => return Ok(lease),
                Step::Full { connections } => {
                    return Err(TransportErrorKind::Exhausted { connections }.into());
                }
                Step::Later { until } => again_at = Some(until),
                Step::Parked { .. } if wait => parked = true,
                Step::Parked { why } => return Err(TransportErrorKind::Parked(why).into()),
                Step::Closed { until, .. } if wait => again_at = Some(until),
                Step::Closed { last, .. } if waited => return Err((*last).clone().into()),
                Step::Closed { until, last } => {
                    return Err(TransportErrorKind::BackingOff { until, last }.into());
                }
                Step::Wait => waited = true,
                Step::Dial(attempt) => {
                    waited = true;
                    self.tasks.spawn(self.clone().dial(pool_kind, attempt));
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
            if parked {
                // The wait so far was not a wait for a dial.
                give_up = wait_timeout();
            }
        }
    }

    fn step(self: &Arc<Self>, pool_kind: PoolKind, avoid: Option<ConnectionId>) -> Step {
        let now = Instant::now();
        let mut state = self.state.lock();
        if let Some(why) = &state.parked {
            return Step::Parked { why: why.clone() };
        }
        let healthy = state.backoff.is_healthy();
        match state.pool.pick(pool_kind, avoid, healthy, now) {
            Pick::Use(id) => {
                state.counters.requests += 1;
                // pick() has just found it.
                let Some(member) = state.pool.get(id) else { return Step::Wait };
                Step::Go(Lease {
                    hub: self.clone(),
                    conn_state: member.connection.conn_state.clone(),
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
                        && let Err(until) = state.backoff.take_token(now)
                    {
                        state.pool.dial_ended(pool_kind);
                        return Step::Later { until };
                    }
                    state.counters.dials += 1;
                    let interval = state.backoff.interval(now);
                    Step::Dial(DialAttempt::new(self.uri.clone(), state.counters.dials, interval))
                }
                Gate::Closed { until, last } => {
                    state.pool.dial_ended(pool_kind);
                    Step::Closed { until, last }
                }
            },
        }
    }

    /// Returns the reason why the wait brought no connection.
    pub(crate) fn no_connection(&self, after: Duration) -> TransportErrorKind {
        if let Some(last) = self.last_dial_error() {
            return (*last).clone();
        }
        let stage = match self.state.lock().pool.is_refused() {
            true => "waiting for the server to allow a stream",
            false => "waiting for a dial",
        };
        TransportErrorKind::ConnectTimeout { after, stage }
    }

    fn release(&self, conn_state: &ConnectionState) {
        {
            let mut state = self.state.lock();
            let Some(member) = state.pool.release(conn_state.id, Instant::now()) else { return };
            if member.protocol == Protocol::Http1 {
                member.ready = false;
                match member.retired {
                    Some(_) => conn_state.kill.cancel(),
                    None => conn_state.task_notify.notify_one(),
                }
                return;
            }
        }
        self.changed.notify_waiters();
    }
}

impl Lease {
    pub(crate) fn id(&self) -> ConnectionId {
        self.conn_state.id
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // First, so that a retired connection sees that no more requests can be sent.
        self.sender = None;
        self.hub.release(&self.conn_state);
    }
}

/// Counts a request that waits for a connection.
struct Waiting {
    hub: Arc<Hub>,
    pool_kind: PoolKind,
}

impl Waiting {
    fn new(hub: &Arc<Hub>, pool_kind: PoolKind) -> Self {
        hub.state.lock().pool.wait_started(pool_kind);
        Self { hub: hub.clone(), pool_kind }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.hub.state.lock().pool.wait_ended(self.pool_kind);
    }
}
