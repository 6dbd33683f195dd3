//! The way to a cluster: a transport and what lives on it, made once, when somebody needs it.

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
use super::unit::KEEPER_PATIENCE;
use crate::error::FleetError;
use crate::id::ClusterId;
use crate::keeper::Keeper;
use crate::spec::{ClusterSpec, SpecError};

/// Connections, and the informers on them.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) transport: Transport,
    pub(crate) factory: InformerFactory,
}

/// Numbers the ways to all clusters of a fleet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ways(Arc<AtomicU64>);

impl Ways {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// One way to a cluster: what is known of it, and the session once somebody has asked for it.
pub(crate) struct Link {
    pub(crate) number: u64,
    pub(crate) spec: Result<ClusterSpec, SpecError>,
    session: Shared<BoxFuture<'static, Result<Session, FleetError>>>,
    /// Cancelled when somebody has asked for the session.
    begun: CancellationToken,
    /// Told when somebody has asked for the session first.
    begins: Arc<Notify>,
    parked: Mutex<Option<Arc<str>>>,
    /// Cancelled when the server may be listed and watched: it is not another cluster than the one whose content is there.
    pub(crate) admitted: CancellationToken,
    woken: Notify,
    /// It was found to lead to another cluster than the one whose content is there.
    strange: AtomicBool,
    /// Cancelled: there is another way now.
    pub(crate) superseded: CancellationToken,
}

impl Link {
    /// Nothing is made yet: that begins with the first call of [`Link::session`].
    pub(crate) fn new(
        ways: &Ways,
        id: &ClusterId,
        spec: Result<ClusterSpec, SpecError>,
        options: &Arc<ClusterOptions>,
        connector: &Connector,
        keeper: Option<&Arc<dyn Keeper>>,
        begins: Arc<Notify>,
    ) -> Arc<Self> {
        let admitted = CancellationToken::new();
        let making = make(Making {
            id: id.clone(),
            spec: spec.clone(),
            options: options.clone(),
            connector: connector.clone(),
            keeper: keeper.cloned(),
            admitted: admitted.clone(),
        });
        Arc::new(Self {
            number: ways.next(),
            spec,
            session: making.boxed().shared(),
            begun: CancellationToken::new(),
            begins,
            parked: Mutex::default(),
            admitted,
            woken: Notify::new(),
            strange: AtomicBool::new(false),
            superseded: CancellationToken::new(),
        })
    }

    /// The session; made by the first who asks, for all who ask meanwhile. No connection is made for it.
    pub(crate) async fn session(&self) -> Result<Session, FleetError> {
        if !self.begun.is_cancelled() {
            self.begun.cancel();
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
        self.begun.is_cancelled()
    }

    /// Waits until somebody asks for the session.
    pub(crate) async fn begins(&self) {
        self.begun.cancelled().await;
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
        self.woken.notify_waiters();
    }

    /// The next [`Link::wake`] after this call.
    pub(crate) fn woken(&self) -> Notified<'_> {
        self.woken.notified()
    }

    /// It leads to another cluster than the one whose content is there. `false`: there is another way already, which will be asked
    /// itself.
    pub(crate) fn disown(&self) -> bool {
        self.strange.store(true, Ordering::SeqCst);
        !self.superseded.is_cancelled()
    }

    /// Another way has taken its place. Returns whether this one led to another cluster than the one whose content is there.
    pub(crate) fn supersede(&self) -> bool {
        self.superseded.cancel();
        self.strange.load(Ordering::SeqCst)
    }

    /// Ends it, if there is anything to end; `false` if something was left after `limit`.
    pub(crate) async fn close(&self, limit: Duration) -> bool {
        self.superseded.cancel();
        if !self.is_begun() {
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

/// What a session is made of.
struct Making {
    id: ClusterId,
    spec: Result<ClusterSpec, SpecError>,
    options: Arc<ClusterOptions>,
    connector: Connector,
    keeper: Option<Arc<dyn Keeper>>,
    admitted: CancellationToken,
}

/// Bytes of a list as it is sent for each byte that may be kept: what a transform leaves out is often half, and this is the bound on
/// a hostile server and not the budget.
const LISTED_PER_KEPT: u64 = 4;

async fn make(making: Making) -> Result<Session, FleetError> {
    let Making { id, spec, options, connector, keeper, admitted } = making;
    let unusable = |reason: String| FleetError::Config { cluster: id.clone(), reason: reason.into() };
    let spec = spec.map_err(|error| unusable(error.to_string()))?;
    // Certificates are parsed, and may be files.
    let transport = connector.connect(&id, spec, options.transport.clone()).await.map_err(unusable)?;
    let mut of_factory = options.factory.clone();
    if let Some(budget) = options.memory_budget {
        // The budget is looked after once a list is there. One that could never fit does not get that far.
        let most = &mut of_factory.machine.max_list_bytes;
        *most = (*most).min(budget.saturating_mul(LISTED_PER_KEPT));
    }
    let mut is_kept = false;
    if let Some(keeper) = keeper {
        let identity = tokio::time::timeout(KEEPER_PATIENCE, keeper.identity(&id)).await;
        of_factory.cluster = identity.ok().flatten();
        is_kept = of_factory.cluster.is_some();
    }
    if !is_kept {
        // Nothing is there that could be of another.
        admitted.cancel();
    }
    let factory = InformerFactory::new(transport.behind(admitted), of_factory);
    Ok(Session { transport, factory })
}
