//! Connection to a cluster: a transport and its informer factory, made once on first use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use skopos::{InformerFactory, Transport};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::options::{ClusterOptions, Connector};
use super::persistence::{PERSISTENCE_TIMEOUT, Persistence};
use crate::error::FleetError;
use crate::id::ClusterId;
use crate::spec::ClusterSpec;
use crate::spec_error::SpecError;

/// A transport and the informer factory on it.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) transport: Transport,
    pub(crate) factory: InformerFactory,
}

/// Numbers of the connections to all clusters of a fleet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Generations(Arc<AtomicU64>);

impl Generations {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// A connection to a cluster: its spec, and the session once a caller has requested it.
pub(crate) struct ClusterConnection {
    pub(crate) generation: u64,
    pub(crate) spec: Result<ClusterSpec, SpecError>,
    session: Shared<BoxFuture<'static, Result<Session, FleetError>>>,
    /// Cancelled at the first request for the session.
    requested: CancellationToken,
    /// Notified at the first request for the session.
    on_request: Arc<Notify>,
    parked: Mutex<Option<Arc<str>>>,
    /// Cancelled when lists and watches may start: the cached content, if any, belongs to this server's cluster.
    pub(crate) admitted: CancellationToken,
    woken: Notify,
    /// Set if the connection was found to lead to another cluster than the one whose content is cached.
    foreign: AtomicBool,
    /// Cancelled when another connection has replaced this one.
    pub(crate) superseded: CancellationToken,
}

impl ClusterConnection {
    /// Creates a connection without connecting. The session is made at the first call of
    /// [`ClusterConnection::session`].
    pub(crate) fn new(
        generations: &Generations,
        id: &ClusterId,
        spec: Result<ClusterSpec, SpecError>,
        options: &Arc<ClusterOptions>,
        connector: &Connector,
        persistence: Option<&Arc<dyn Persistence>>,
        on_request: Arc<Notify>,
    ) -> Arc<Self> {
        let admitted = CancellationToken::new();
        let making = new_session(SessionParts {
            id: id.clone(),
            spec: spec.clone(),
            options: options.clone(),
            connector: connector.clone(),
            persistence: persistence.cloned(),
            admitted: admitted.clone(),
        });
        Arc::new(Self {
            generation: generations.next(),
            spec,
            session: making.boxed().shared(),
            requested: CancellationToken::new(),
            on_request,
            parked: Mutex::default(),
            admitted,
            woken: Notify::new(),
            foreign: AtomicBool::new(false),
            superseded: CancellationToken::new(),
        })
    }

    /// Returns the session. The first caller makes it, concurrent callers share it. This opens no connection.
    pub(crate) async fn session(&self) -> Result<Session, FleetError> {
        if !self.requested.is_cancelled() {
            self.requested.cancel();
            self.on_request.notify_one();
        }
        let session = self.session.clone().await?;
        // The connection may have been parked while the session was being made.
        let parked = self.parked.lock();
        if let Some(why) = &*parked {
            session.transport.park(why.clone());
        }
        Ok(session)
    }

    /// Returns the session if it was made.
    pub(crate) fn existing(&self) -> Option<&Session> {
        self.session.peek()?.as_ref().ok()
    }

    /// Returns whether a caller has requested the session.
    pub(crate) fn is_requested(&self) -> bool {
        self.requested.is_cancelled()
    }

    /// Waits until a caller requests the session.
    pub(crate) async fn requested(&self) {
        self.requested.cancelled().await;
    }

    /// Returns the reason why no session can be made, if one is known.
    pub(crate) fn unusable(&self) -> Option<Arc<str>> {
        if let Err(error) = &self.spec {
            return Some(error.to_string().into());
        }
        match self.session.peek()? {
            Err(FleetError::Config { reason, .. }) => Some(reason.clone()),
            _ => None,
        }
    }

    /// Stops all requests to the cluster until [`ClusterConnection::wake`].
    pub(crate) fn park(&self, why: Arc<str>) {
        let mut parked = self.parked.lock();
        *parked = Some(why.clone());
        if let Some(session) = self.existing() {
            session.transport.park(why);
        }
    }

    /// Unparks the connection and retries now, because the server is probably up (again).
    pub(crate) fn wake(&self) {
        let mut parked = self.parked.lock();
        *parked = None;
        if let Some(session) = self.existing() {
            session.transport.wake();
            session.factory.retry_now();
        }
        self.woken.notify_waiters();
    }

    /// Returns a future that completes at the next [`ClusterConnection::wake`] after this call.
    pub(crate) fn woken(&self) -> Notified<'_> {
        self.woken.notified()
    }

    /// Marks the connection as leading to another cluster than the one whose content is cached. Returns `false` if
    /// another connection has replaced it already; the identity check of that connection decides then.
    pub(crate) fn mark_foreign(&self) -> bool {
        self.foreign.store(true, Ordering::SeqCst);
        !self.superseded.is_cancelled()
    }

    /// Marks the connection as replaced. Returns whether it led to another cluster than the one whose content is
    /// cached.
    pub(crate) fn supersede(&self) -> bool {
        self.superseded.cancel();
        self.foreign.load(Ordering::SeqCst)
    }

    /// Closes the session, if there is one. Returns `false` if something was left after `limit`.
    pub(crate) async fn close(&self, limit: Duration) -> bool {
        self.superseded.cancel();
        if !self.is_requested() {
            return true;
        }
        let began = Instant::now();
        match tokio::time::timeout(limit, self.session.clone()).await {
            Ok(Ok(session)) => session.factory.shutdown(limit.saturating_sub(began.elapsed())).await.complete,
            Ok(Err(_)) => true,
            Err(_) => false,
        }
    }
}

/// Parameters of [`new_session`].
struct SessionParts {
    id: ClusterId,
    spec: Result<ClusterSpec, SpecError>,
    options: Arc<ClusterOptions>,
    connector: Connector,
    persistence: Option<Arc<dyn Persistence>>,
    admitted: CancellationToken,
}

/// Wire bytes of a list allowed per retained byte. Transforms often drop half of an object; this limit guards against
/// hostile servers and is not the memory budget.
const WIRE_BYTES_PER_RETAINED: u64 = 4;

async fn new_session(parts: SessionParts) -> Result<Session, FleetError> {
    let SessionParts { id, spec, options, connector, persistence, admitted } = parts;
    let unusable = |reason: String| FleetError::Config { cluster: id.clone(), reason: reason.into() };
    let spec = spec.map_err(|error| unusable(error.to_string()))?;
    // The connector parses certificates and may read files.
    let transport = connector.connect(&id, spec, options.transport.clone()).await.map_err(unusable)?;
    let mut factory_options = options.factory.clone();
    if let Some(budget) = options.memory_budget {
        // The budget is enforced once a list is complete. This bound rejects a list that could never fit while it is
        // read.
        let most = &mut factory_options.machine.max_list_bytes;
        *most = (*most).min(budget.saturating_mul(WIRE_BYTES_PER_RETAINED));
    }
    let mut has_checkpoints = false;
    if let Some(persistence) = persistence {
        let identity = tokio::time::timeout(PERSISTENCE_TIMEOUT, persistence.identity(&id)).await;
        factory_options.cluster = identity.ok().flatten();
        has_checkpoints = factory_options.cluster.is_some();
    }
    if !has_checkpoints {
        // There is no content that could belong to another cluster.
        admitted.cancel();
    }
    let factory = InformerFactory::new(transport.behind(admitted), factory_options);
    Ok(Session { transport, factory })
}
