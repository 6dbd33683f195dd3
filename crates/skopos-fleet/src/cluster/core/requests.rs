//! Requests to the server of a cluster, each within its caller's limit.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{Request, Response};
use kube::client::Body;
use skopos::transport::{TransportBody, TransportErrorKind, Upgrade};
use skopos::{Transport, TransportError};
use tokio::time::{Instant, timeout};

use super::ClusterInner;
use crate::cluster::session::Session;
use crate::error::FleetError;

impl ClusterInner {
    pub(crate) async fn session_within(&self, limit: Duration) -> Result<Session, FleetError> {
        let begun = Instant::now();
        if let Some(over) = self.closed_error() {
            return Err(over);
        }
        let session = timeout(limit, self.connection().session()).await;
        session.unwrap_or_else(|_| Err(self.deadline_error(begun, None)))
    }

    pub(crate) async fn request(
        &self,
        request: Request<Body>,
        limit: Duration,
    ) -> Result<Response<TransportBody>, FleetError> {
        self.send_within(limit, |transport| async move { transport.send(request).await }).await
    }

    pub(crate) async fn upgrade(
        &self,
        request: Request<Body>,
        limit: Duration,
    ) -> Result<Upgrade, FleetError> {
        self.send_within(limit, |transport| async move { transport.upgrade(request).await }).await
    }

    async fn send_within<T, F>(
        &self,
        limit: Duration,
        ask: impl FnOnce(Transport) -> F,
    ) -> Result<T, FleetError>
    where
        F: Future<Output = Result<T, TransportError>>,
    {
        let begun = Instant::now();
        self.check_reachable(false)?;
        let session = self.session_within(limit).await?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let result = match timeout(limit.saturating_sub(begun.elapsed()), ask(session.transport)).await {
            Ok(result) => result.map_err(|error| self.failed(error, begun)),
            Err(_) => Err(self.deadline_error(begun, None)),
        };
        if result.is_err() {
            self.request_failures.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    fn failed(&self, error: TransportError, begun: Instant) -> FleetError {
        let cluster = self.id.clone();
        match (error.kind(), &self.state().paused) {
            (TransportErrorKind::Parked(_), Some(paused)) => {
                FleetError::Paused { cluster, paused: paused.clone() }
            }
            (TransportErrorKind::Parked(why), None) => {
                FleetError::Unreachable { cluster, since: self.state().since, reason: why.clone() }
            }
            (TransportErrorKind::CallerDeadline { because, .. }, _) => {
                let reason = because.as_ref().map(|error_kind| error_kind.to_string().into());
                let reason = reason.unwrap_or_else(|| "no answer".into());
                FleetError::Deadline { cluster, waited: begun.elapsed(), reason }
            }
            (TransportErrorKind::Closed, _) => {
                self.closed_error().unwrap_or(FleetError::Transport { cluster, error })
            }
            _ => FleetError::Transport { cluster, error },
        }
    }
}
