//! The way to a cluster: a transport and what lives on it, made once, when somebody needs it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use skopos::{InformerFactory, Transport};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::options::{ClusterOptions, Connector};
use crate::error::FleetError;
use crate::id::ClusterId;
use crate::spec::{ClusterSpec, SpecError};

/// Connections, and the informers on them.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) transport: Transport,
    pub(crate) factory: InformerFactory,
}

/// One way to a cluster: what is known of it, and the session once somebody has asked for it.
pub(crate) struct Link {
    pub(crate) spec: Result<ClusterSpec, SpecError>,
    session: Shared<BoxFuture<'static, Result<Session, FleetError>>>,
    begun: AtomicBool,
    /// Told when somebody has asked for the session first.
    begins: Arc<Notify>,
    parked: Mutex<Option<Arc<str>>>,
    /// Cancelled: there is another way now.
    pub(crate) superseded: CancellationToken,
}

impl Link {
    /// Nothing is made yet: that begins with the first call of [`Link::session`].
    pub(crate) fn new(
        id: &ClusterId,
        spec: Result<ClusterSpec, SpecError>,
        options: &Arc<ClusterOptions>,
        connector: &Connector,
        begins: Arc<Notify>,
    ) -> Arc<Self> {
        let making = make(id.clone(), spec.clone(), options.clone(), connector.clone());
        Arc::new(Self {
            spec,
            session: making.boxed().shared(),
            begun: AtomicBool::new(false),
            begins,
            parked: Mutex::default(),
            superseded: CancellationToken::new(),
        })
    }

    /// The session; made by the first who asks, for all who ask meanwhile. No connection is made for it.
    pub(crate) async fn session(&self) -> Result<Session, FleetError> {
        if !self.begun.swap(true, Ordering::Relaxed) {
            self.begins.notify_one();
        }
        let session = self.session.clone().await?;
        // It may have been parked while it was being made.
        let parked = self.parked.lock();
        if let Some(why) = &*parked {
            session.transport.park(why.clone());
        }
        Ok(session)
    }

    /// The session, if it was made.
    pub(crate) fn made(&self) -> Option<&Session> {
        self.session.peek()?.as_ref().ok()
    }

    /// Whether anybody has asked for the session.
    pub(crate) fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Why no session can be made, if that was found.
    pub(crate) fn unusable(&self) -> Option<Arc<str>> {
        if let Err(error) = &self.spec {
            return Some(error.to_string().into());
        }
        match self.session.peek()? {
            Err(FleetError::Config { reason, .. }) => Some(reason.clone()),
            _ => None,
        }
    }

    /// Nothing is asked of the cluster until [`Link::wake`].
    pub(crate) fn park(&self, why: Arc<str>) {
        let mut parked = self.parked.lock();
        *parked = Some(why.clone());
        if let Some(session) = self.made() {
            session.transport.park(why);
        }
    }

    /// There is reason to think that the server is there (again).
    pub(crate) fn wake(&self) {
        let mut parked = self.parked.lock();
        *parked = None;
        if let Some(session) = self.made() {
            session.transport.wake();
            session.factory.retry_now();
        }
    }

    /// Ends it, if there is anything to end; `false` if something was left after `limit`.
    pub(crate) async fn close(&self, limit: Duration) -> bool {
        self.superseded.cancel();
        if !self.begun.load(Ordering::Relaxed) {
            return true;
        }
        let deadline = Instant::now() + limit;
        match tokio::time::timeout_at(deadline, self.session.clone()).await {
            Ok(Ok(session)) => {
                session.factory.shutdown(deadline.saturating_duration_since(Instant::now())).await.complete
            }
            Ok(Err(_)) => true,
            Err(_) => false,
        }
    }
}

async fn make(
    id: ClusterId,
    spec: Result<ClusterSpec, SpecError>,
    options: Arc<ClusterOptions>,
    connector: Connector,
) -> Result<Session, FleetError> {
    let unusable = |reason: String| FleetError::Config { cluster: id.clone(), reason: reason.into() };
    let spec = spec.map_err(|error| unusable(error.to_string()))?;
    let transport = {
        let (id, options) = (id.clone(), options.transport.clone());
        // Certificates are parsed, and may be files.
        tokio::task::spawn_blocking(move || connector.connect(&id, &spec, options)).await
    };
    let transport = transport.map_err(|panic| unusable(panic.to_string()))?;
    let transport = transport.map_err(|error| unusable(error.to_string()))?;
    let factory = InformerFactory::new(transport.clone(), options.factory.clone());
    Ok(Session { transport, factory })
}
