//! Lifecycle of a pooled connection: admitted, proven, retired, removed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Connection, Hub, State};
use crate::class::ConnectionId;
use crate::conn_state::ConnectionState;
use crate::dialer::Protocol;
use crate::error::TransportErrorKind;
use crate::pool::{Member, PoolKind};

/// Age below which a connection that ends without a response counts as a failed dial.
const FAILED_DIAL_AGE: Duration = Duration::from_secs(1);

/// Time for a caller to see a response that has arrived.
const READER_TIMEOUT: Duration = Duration::from_millis(250);

/// The error text of a 401.
const UNAUTHORIZED_MESSAGE: &str = "the server does not accept the credentials (401 Unauthorized)";

impl Hub {
    pub(super) fn admit(
        &self,
        id: ConnectionId,
        pool_kind: PoolKind,
        protocol: Protocol,
        limit: usize,
        connection: Connection,
    ) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let age = self.options.max_connection_age.mul_f64(0.8 + 0.4 * state.rng.f64());
        state.backoff.connected();
        if self.stop.is_cancelled() {
            connection.conn_state.kill(TransportErrorKind::Closed);
        } else if let Some(why) = &state.parked {
            connection.conn_state.kill(TransportErrorKind::Parked(why.clone()));
        }
        state.pool.add(Member {
            id,
            pool_kind,
            protocol,
            connection,
            limit,
            open: 0,
            ready: true,
            retired: None,
            created_at: now,
            retires_at: now + age,
            idle_since: now,
            served: 0,
        });
    }

    /// Records response headers: the server is healthy, and accepts the credentials or does not.
    pub(crate) fn response_received(&self, id: ConnectionId, accepted: bool) {
        let mut state = self.state.lock();
        match accepted {
            true => state.counters.credentials = None,
            false => state.counters.credentials_failed(true, UNAUTHORIZED_MESSAGE.into()),
        }
        let mut retired = false;
        if let Some(member) = state.pool.get(id) {
            member.served += 1;
            retired = member.retired.is_some();
        }
        state.backoff.response_received();
        drop(state);
        if retired {
            self.changed.notify_waiters();
        }
    }

    /// Stops new streams on this connection; open ones continue.
    pub(crate) fn retire(&self, id: ConnectionId, why: TransportErrorKind) {
        self.retire_locked(&mut self.state.lock(), id, Arc::new(why));
        self.changed.notify_waiters();
    }

    pub(super) fn retire_locked(&self, state: &mut State, id: ConnectionId, why: Arc<TransportErrorKind>) {
        let Some(member) = state.pool.retire(id, why.clone()) else { return };
        member.connection.sender = None;
        let idle_http1 = member.protocol == Protocol::Http1 && member.open == 0;
        if idle_http1 {
            member.connection.conn_state.kill.cancel();
        }
        if *why != TransportErrorKind::Outdated {
            tracing::debug!(%id, error = %why, "connection retired");
            state.counters.count_error(Some(id), why);
        }
    }

    /// Records that the connection takes no new streams, because of the server, the network or this transport.
    pub(crate) fn closing(&self, conn_state: &ConnectionState, error_kind: Option<TransportErrorKind>) {
        {
            let mut state = self.state.lock();
            let by_us = state.pool.get(conn_state.id).is_none_or(|m| m.retired.is_some());
            match (error_kind, by_us) {
                (Some(error_kind), _) => conn_state.record(error_kind),
                (None, true) => {}
                // hyper reports no error after a graceful GOAWAY, and when the socket has closed, which was recorded then.
                (None, false) => conn_state.record(TransportErrorKind::GoAway { code: "NO_ERROR".into() }),
            }
            let why = conn_state.first_error().cloned().unwrap_or(TransportErrorKind::Outdated);
            self.retire_locked(&mut state, conn_state.id, Arc::new(why));
        }
        self.changed.notify_waiters();
    }

    /// Waits until a response that arrived with the end of its connection is seen by its caller, or for
    /// [`READER_TIMEOUT`]. Only then is it known whether the connection was useful. A kube-apiserver ends connections
    /// this way with each 401 and with `--goaway-chance`; a proxy without keep-alive always does. hyper is then done
    /// with the connection before the caller has seen the response.
    pub(crate) async fn await_readers(&self, conn_state: &ConnectionState) {
        if !self.may_have_unread_response(conn_state) {
            return;
        }
        // Requests without a response wait for the reason.
        conn_state.finish();
        let seen = async {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                if !self.may_have_unread_response(conn_state) {
                    return;
                }
                changed.await;
            }
        };
        let _ = self.stop.run_until_cancelled(tokio::time::timeout(READER_TIMEOUT, seen)).await;
    }

    /// Returns whether the connection ended in order while a stream is open whose caller has not reported a response.
    fn may_have_unread_response(&self, conn_state: &ConnectionState) -> bool {
        let mut state = self.state.lock();
        let Some(member) = state.pool.get(conn_state.id) else { return false };
        let in_order = match conn_state.first_error() {
            Some(TransportErrorKind::GoAway { .. }) => true,
            // The end of a body without another end mark, or of a connection without notice.
            Some(TransportErrorKind::Eof) => member.protocol == Protocol::Http1,
            _ => false,
        };
        in_order && member.served == 0 && member.open > 0
    }

    /// Removes a connection that has ended completely.
    pub(crate) fn remove_closed(&self, conn_state: &ConnectionState) {
        let failed_dial = {
            let mut state = self.state.lock();
            let Some(member) = state.pool.remove(conn_state.id) else { return };
            if member.open > 0 {
                // The socket reported nothing and hyper still gave up: only an unanswered PING does that, and hyper does
                // not report it on a connection that takes no more requests.
                conn_state.record(TransportErrorKind::PingTimeout);
            }
            let error_kind = Arc::new(conn_state.finish());
            let now = Instant::now();
            if member.retired.is_none() && *error_kind != TransportErrorKind::Closed {
                state.counters.count_error(Some(conn_state.id), error_kind.clone());
            }
            let useless = member.served == 0 && now.duration_since(member.created_at) < FAILED_DIAL_AGE;
            let by_us = matches!(
                *error_kind,
                TransportErrorKind::Closed
                    | TransportErrorKind::Parked(_)
                    | TransportErrorKind::Suspended { .. }
            );
            let failed_dial = (useless && conn_state.first_error().is_some() && !by_us).then_some(error_kind);
            if let Some(error_kind) = &failed_dial {
                state.backoff.failed(member.created_at, now, error_kind.clone());
            }
            failed_dial
        };
        if let Some(error_kind) = failed_dial {
            self.dialer.failed(&error_kind);
        }
        self.changed.notify_waiters();
    }

    pub(crate) fn set_limit(&self, id: ConnectionId, limit: usize) {
        self.state.lock().pool.set_limit(id, limit);
        self.changed.notify_waiters();
    }

    /// Records that an HTTP/1.1 connection is ready for its next request.
    pub(crate) fn set_ready(&self, id: ConnectionId) {
        if let Some(member) = self.state.lock().pool.get(id) {
            member.ready = true;
        }
        self.changed.notify_waiters();
    }
}
