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

use super::core::ClusterInner;
use super::machine::Failure;
use super::session::ClusterConnection;

/// Interval between attempts to reach a silent server.
const RETRY_INTERVAL: Duration = Duration::from_secs(15);

/// Timeout of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// Circuit breaker: closed while the server answers.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    failure: Failure,
    next_try: Instant,
    attempt_result: Option<oneshot::Receiver<()>>,
}

impl Breaker {
    /// Opens the breaker for a silent server. Only the breaker's own attempts are sent from now on.
    pub(crate) fn open(&mut self, connection: &ClusterConnection, silence: &Failure, now: Instant) {
        let reason: Arc<str> = format!("it takes connections and does not answer: {}", silence.reason).into();
        connection.park(reason.clone());
        let failure = Failure { reason, ..silence.clone() };
        self.open = Some(Open { failure, next_try: now + RETRY_INTERVAL, attempt_result: None });
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Closes the breaker, because the connection is new, or because a caller has reported the server up or down.
    pub(crate) fn close(&mut self) {
        self.open = None;
    }

    /// Returns start and evidence of the silence while the breaker is open. Starts an attempt when one is due.
    pub(crate) fn check(
        &mut self,
        inner: &Arc<ClusterInner>,
        connection: &Arc<ClusterConnection>,
        now: Instant,
    ) -> Option<Failure> {
        let open = self.open.as_mut()?;
        match open.attempt_result.as_mut().map(oneshot::Receiver::try_recv) {
            Some(Ok(())) => {
                self.open = None;
                connection.wake();
                return None;
            }
            Some(Err(oneshot::error::TryRecvError::Closed)) => open.attempt_result = None,
            _ => {}
        }
        if open.attempt_result.is_none() && now >= open.next_try {
            open.next_try = now + RETRY_INTERVAL;
            open.attempt_result = Some(start_attempt(inner, connection));
        }
        Some(open.failure.clone())
    }
}

/// Sends a request on a connection of its own; reports any response.
fn start_attempt(inner: &Arc<ClusterInner>, connection: &Arc<ClusterConnection>) -> oneshot::Receiver<()> {
    let (answered, outcome) = oneshot::channel();
    let (inner, connection) = (inner.clone(), connection.clone());
    let task = inner.clone();
    task.tasks.spawn(async move {
        let attempt_result = connection.superseded.run_until_cancelled(attempt(&inner, &connection));
        if let Some(Some(true)) = inner.stop.run_until_cancelled(attempt_result).await {
            // The supervisor has dropped the receiver, or reads it at the check that follows.
            let _ = answered.send(());
            inner.wakeup.notify_one();
        }
    });
    outcome
}

async fn attempt(inner: &ClusterInner, connection: &ClusterConnection) -> bool {
    let Ok(spec) = connection.spec.clone() else { return false };
    let options = TransportOptions { max_connections: 1, ..inner.options.transport.clone() };
    let Ok(transport) = inner.connector.connect(&inner.id, spec, options).await else { return false };
    let answers = request_version(&transport).await;
    transport.shutdown(Duration::from_secs(1)).await;
    answers
}

async fn request_version(transport: &Transport) -> bool {
    let options = RequestOptions {
        class: Some(RequestClass::Probe),
        deadline: Some(ATTEMPT_TIMEOUT),
        ..RequestOptions::default()
    };
    let request = Request::get("/version").extension(options).body(Body::empty());
    let Ok(request) = request else { return false };
    transport.send(request).await.is_ok()
}
