//! Lifecycle of a pooled connection: admitted, proven, retired, removed.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Connection, Hub, State};
use crate::{
    class::ConnectionId,
    dialer::Protocol,
    error::Death,
    pool::{Member, Side},
    vitals::Vitals,
};

/// Age below which a connection that ends without a response counts as a failed dial.
const YOUNG: Duration = Duration::from_secs(1);

/// Time for a caller to see a response that has arrived.
const UNSEEN: Duration = Duration::from_millis(250);

/// The error text of a 401.
const UNAUTHORIZED: &str = "the server does not accept the credentials (401 Unauthorized)";

impl Hub {
    pub(super) fn admit(
        &self,
        id: ConnectionId,
        side: Side,
        protocol: Protocol,
        limit: usize,
        connection: Connection,
    ) {
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

    /// Records response headers: the server is healthy, and accepts the credentials or does not.
    pub(crate) fn served(&self, id: ConnectionId, accepted: bool) {
        let mut state = self.state.lock();
        match accepted {
            true => state.counters.credentials = None,
            false => state.counters.credentials_failed(true, UNAUTHORIZED.into()),
        }
        let mut retired = false;
        if let Some(member) = state.pool.get(id) {
            member.served += 1;
            retired = member.retired.is_some();
        }
        state.backoff.proven();
        drop(state);
        if retired {
            self.changed.notify_waiters();
        }
    }

    /// Stops new streams on this connection; open ones continue.
    pub(crate) fn retire(&self, id: ConnectionId, why: Death) {
        self.retire_locked(&mut self.state.lock(), id, Arc::new(why));
        self.changed.notify_waiters();
    }

    pub(super) fn retire_locked(&self, state: &mut State, id: ConnectionId, why: Arc<Death>) {
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

    /// Records that the connection takes no new streams, because of the server, the network or this transport.
    pub(crate) fn closing(&self, vitals: &Vitals, death: Option<Death>) {
        {
            let mut state = self.state.lock();
            let by_us = state.pool.get(vitals.id).is_none_or(|m| m.retired.is_some());
            match (death, by_us) {
                (Some(death), _) => vitals.note(death),
                (None, true) => {}
                // hyper reports no error after a graceful GOAWAY, and when the socket has closed, which was recorded then.
                (None, false) => vitals.note(Death::GoAway { code: "NO_ERROR".into() }),
            }
            let why = vitals.symptom().cloned().unwrap_or(Death::Outdated);
            self.retire_locked(&mut state, vitals.id, Arc::new(why));
        }
        self.changed.notify_waiters();
    }

    /// Waits until a response that arrived with the end of its connection is seen by its caller, or for [`UNSEEN`]. Only
    /// then is it known whether the connection was useful. A kube-apiserver ends connections this way with each 401 and
    /// with `--goaway-chance`; a proxy without keep-alive always does. hyper is then done with the connection before the
    /// caller has seen the response.
    pub(crate) async fn read_out(&self, vitals: &Vitals) {
        if !self.may_be_unseen(vitals) {
            return;
        }
        // Requests without a response wait for the reason.
        vitals.finish();
        let seen = async {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                if !self.may_be_unseen(vitals) {
                    return;
                }
                changed.await;
            }
        };
        let _ = self.stop.run_until_cancelled(tokio::time::timeout(UNSEEN, seen)).await;
    }

    /// Returns whether the connection ended in order while a stream is open whose caller has not reported a response.
    fn may_be_unseen(&self, vitals: &Vitals) -> bool {
        let mut state = self.state.lock();
        let Some(member) = state.pool.get(vitals.id) else { return false };
        let in_order = match vitals.symptom() {
            Some(Death::GoAway { .. }) => true,
            // The end of a body without another end mark, or of a connection without notice.
            Some(Death::Eof) => member.protocol == Protocol::Http1,
            _ => false,
        };
        in_order && member.served == 0 && member.open > 0
    }

    /// Removes a connection that has ended completely.
    pub(crate) fn bury(&self, vitals: &Vitals) {
        let stillborn = {
            let mut state = self.state.lock();
            let Some(member) = state.pool.remove(vitals.id) else { return };
            if member.open > 0 {
                // The socket reported nothing and hyper still gave up: only an unanswered PING does that, and hyper does
                // not report it on a connection that takes no more requests.
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

    /// Records that an HTTP/1.1 connection is ready for its next request.
    pub(crate) fn settled(&self, id: ConnectionId) {
        if let Some(member) = self.state.lock().pool.get(id) {
            member.settled = true;
        }
        self.changed.notify_waiters();
    }
}
