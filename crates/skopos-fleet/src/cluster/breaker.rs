//! Circuit breaker for a server that accepts connections and answers nothing.
//!
//! A server that refuses connections receives no requests. One that accepts connections and never answers would receive
//! requests from every informer and every freshness probe. So once a server is found silent, everything on its
//! connections waits. One small request at a time, on a connection of its own, finds out whether it answers again.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use kube::client::Body;
use skopos::transport::{RequestClass, RequestOptions};
use skopos::{Transport, TransportOptions};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::session::Link;
use super::unit::Unit;

/// Interval between attempts to reach a silent server.
const TRY_EVERY: Duration = Duration::from_secs(15);

/// Timeout of one attempt.
const TRY_FOR: Duration = Duration::from_secs(10);

/// Circuit breaker: closed while the server answers.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    since: Instant,
    reason: Arc<str>,
    next_try: Instant,
    trying: Option<oneshot::Receiver<()>>,
}

impl Breaker {
    /// Opens the breaker for a silent server. Only the breaker's own attempts are sent from now on.
    pub(crate) fn open(&mut self, link: &Link, since: Instant, reason: &str, now: Instant) {
        let reason: Arc<str> = format!("it takes connections and does not answer: {reason}").into();
        link.park(reason.clone());
        self.open = Some(Open { since, reason, next_try: now + TRY_EVERY, trying: None });
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Closes the breaker, because the link is new, or because a caller has reported the server up or down.
    pub(crate) fn forget(&mut self) {
        self.open = None;
    }

    /// Returns start and evidence of the silence while the breaker is open. Starts an attempt when one is due.
    pub(crate) fn check(
        &mut self,
        unit: &Arc<Unit>,
        link: &Arc<Link>,
        now: Instant,
    ) -> Option<(Instant, Arc<str>)> {
        let open = self.open.as_mut()?;
        match open.trying.as_mut().map(oneshot::Receiver::try_recv) {
            Some(Ok(())) => {
                self.open = None;
                link.wake();
                return None;
            }
            Some(Err(oneshot::error::TryRecvError::Closed)) => open.trying = None,
            _ => {}
        }
        if open.trying.is_none() && now >= open.next_try {
            open.next_try = now + TRY_EVERY;
            open.trying = Some(begin_try(unit, link));
        }
        Some((open.since, open.reason.clone()))
    }
}

/// Sends a request on a connection of its own; reports any response.
fn begin_try(unit: &Arc<Unit>, link: &Arc<Link>) -> oneshot::Receiver<()> {
    let (answered, outcome) = oneshot::channel();
    let (unit, link) = (unit.clone(), link.clone());
    let task = unit.clone();
    task.tasks.spawn(async move {
        let trying = link.superseded.run_until_cancelled(try_once(&unit, &link));
        if let Some(Some(true)) = unit.stop.run_until_cancelled(trying).await {
            // The tender has dropped the receiver, or reads it at the check that follows.
            let _ = answered.send(());
            unit.stirred.notify_one();
        }
    });
    outcome
}

async fn try_once(unit: &Unit, link: &Link) -> bool {
    let Ok(spec) = link.spec.clone() else { return false };
    let options = TransportOptions { max_connections: 1, ..unit.options.transport.clone() };
    let Ok(transport) = unit.connector.connect(&unit.id, spec, options).await else { return false };
    let answers = ask(&transport).await;
    transport.shutdown(Duration::from_secs(1)).await;
    answers
}

async fn ask(transport: &Transport) -> bool {
    let options = RequestOptions {
        class: Some(RequestClass::Probe),
        deadline: Some(TRY_FOR),
        ..RequestOptions::default()
    };
    let request = Request::get("/version").extension(options).body(Body::empty());
    let Ok(request) = request else { return false };
    transport.send(request).await.is_ok()
}
