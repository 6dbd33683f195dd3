//! One cluster: a unit of its own, whose trouble is nobody else's.
//!
//! ```text
//!  Cluster (handle) ──▶ Unit ─┬─ Link      connections and informer factory; made once, when somebody needs them
//!                             ├─ Kinds     what is kept in memory: started on first use, stopped when idle, within a budget
//!                             ├─ Documents discovery and OpenAPI, for when the server is down
//!                             ├─ introduction: asks who it is before what was kept of an earlier run is gone on with
//!                             ├─ Breaker   leaves a server alone that takes connections and answers nothing
//!                             ├─ Machine   how it stands: pure, from what is observed to what is said
//!                             └─ one task  that looks at all this once a second (tend)
//! ```

mod breaker;
mod documents;
mod introduction;
mod kinds;
mod machine;
mod observe;
mod options;
mod session;
mod stats;
mod tend;
mod unit;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use kube::client::Body;
use skopos::checkpoint::{Checkpoint, NoCheckpoint};
use skopos::transport::{TransportBody, Upgrade};
use skopos::{InformerFactory, LabelSelector, ResourceId, Transport};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::documents::{Document, DocumentRequest};
pub use self::kinds::{CachedKind, Ended, Fate};
pub use self::machine::{ClusterState, Condition, Paused, PausedBy};
pub use self::options::{Admits, ClusterOptions, Connector, InformerChoice};
pub(crate) use self::session::Ways;
pub use self::stats::{ClusterStats, KindStats};
pub(crate) use self::unit::{ListedAs, Unit, UnitParts};
use crate::error::FleetError;
use crate::id::ClusterId;
use crate::kubeconfig::KubeconfigPaths;
use crate::news::News;
use crate::spec::ClusterSpec;

/// One cluster of a fleet. Cheap to clone; every handle leads to the same connections and the same memory.
///
/// A call that may have to wait takes the longest time that it may take, and says within that what stood in the way.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) unit: Arc<Unit>,
    /// Of a cluster outside of any fleet: ends it with the last handle.
    _guard: Option<Arc<DropGuard>>,
}

impl Cluster {
    /// A cluster that is in no fleet, such as the host in which others are found. It ends when its last handle is dropped;
    /// [`Cluster::shutdown`] also waits for it.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn standalone(
        id: ClusterId,
        spec: ClusterSpec,
        options: ClusterOptions,
        connector: Connector,
    ) -> Self {
        let stop = CancellationToken::new();
        let guard = Arc::new(stop.clone().drop_guard());
        let labels = spec.labels().clone();
        let parts = UnitParts {
            id,
            labels,
            listed_as: ListedAs::default(),
            spec: Ok(spec),
            options: Arc::new(options),
            connector,
            keeper: None,
            replaces: false,
            ways: Ways::default(),
            news: News::new(),
            stop,
        };
        Self { unit: Unit::start(parts), _guard: Some(guard) }
    }

    pub(crate) fn of(unit: Arc<Unit>) -> Self {
        Self { unit, _guard: None }
    }

    /// Its name.
    pub fn id(&self) -> &ClusterId {
        &self.unit.id
    }

    /// Returns the name that its source uses, such as the kubeconfig's context; `None` if that is the cluster's name or there
    /// is no other.
    pub fn original_name(&self) -> Option<Arc<str>> {
        self.unit.listed_as.load().name.clone().filter(|name| **name != *self.id().as_str())
    }

    /// Returns the kubeconfig and the context that say how it is reached, if it is one of the operator's own kubeconfigs.
    pub fn context(&self) -> Option<(Arc<KubeconfigPaths>, Arc<str>)> {
        let listed_as = self.unit.listed_as.load();
        Some((listed_as.kubeconfig.clone()?, listed_as.name.clone()?))
    }

    /// Its labels.
    pub fn labels(&self) -> Arc<BTreeMap<String, String>> {
        self.unit.labels.load_full()
    }

    /// Whether its labels are those that `selector` asks for.
    pub fn matches(&self, selector: &LabelSelector) -> bool {
        selector.matches(&*self.labels())
    }

    /// Whether it has the name of a cluster that was listed by another source, or from another place of its own, and came in its
    /// stead: nothing that was known under the name may be taken for its own.
    pub fn replaces(&self) -> bool {
        self.unit.replaces
    }

    /// A number for the way in which it is reached. Of all clusters that had its name in a fleet, and all ways to them, no two have the
    /// same: what was asked by way of another number says nothing of this cluster.
    pub fn way(&self) -> u64 {
        self.unit.link().number
    }

    /// How it is reached; `None` if that cannot be used: [`Cluster::state`] says why.
    pub fn spec(&self) -> Option<ClusterSpec> {
        self.unit.link().spec.clone().ok()
    }

    /// How it stands. Takes no lock.
    pub fn state(&self) -> Arc<ClusterState> {
        self.unit.state()
    }

    /// How it stands, to wait for changes.
    pub fn states(&self) -> watch::Receiver<Arc<ClusterState>> {
        self.unit.states.subscribe()
    }

    /// A kind that is kept now, with or without content. Starts nothing.
    pub fn cached(&self, resource: &ResourceId) -> Option<CachedKind> {
        self.unit.kinds.get(resource).map(CachedKind::new)
    }

    /// All kinds that are kept now.
    pub fn kinds(&self) -> Vec<CachedKind> {
        self.unit.kinds.all().into_iter().map(CachedKind::new).collect()
    }

    /// The content of all kinds that are kept now, to be written. That is no use of them: it does not keep them from being
    /// stopped when nobody else uses them.
    pub fn checkpoints(&self) -> Vec<(ResourceId, Result<Checkpoint, NoCheckpoint>)> {
        let kinds = self.unit.kinds.all();
        kinds.iter().map(|kind| (kind.informer.resource().clone(), kind.informer.checkpoint())).collect()
    }

    /// A kind with its content, within `limit`.
    ///
    /// At once if there is content, of whatever age and however the cluster stands: the informer knows its age. Otherwise the
    /// kind is started, once for all who ask, and waited for; it goes on starting when the caller's time is over.
    ///
    /// # Errors
    /// At once when the cluster is paused, unreachable or gone, when its configuration cannot be used, when the server
    /// refuses the kind or it does not fit into the memory budget; when the server answers and has failed to list the kind
    /// three times in a row, as long as that goes on; and when `limit` has passed.
    pub async fn kind(&self, resource: &ResourceId, limit: Duration) -> Result<CachedKind, FleetError> {
        self.unit.kind(resource, limit).await
    }

    /// Sends a request to the server, with the fleet's credentials. `limit` bounds the time until the response's headers; its
    /// body is bounded by the deadlines of its class, or by [`RequestOptions`](skopos::transport::RequestOptions) in the
    /// request's extensions.
    ///
    /// # Errors
    /// At once when the cluster is paused or gone; when no answer came, with the reason. Any status is an answer.
    pub async fn request(
        &self,
        request: Request<Body>,
        limit: Duration,
    ) -> Result<Response<TransportBody>, FleetError> {
        self.unit.request(request, limit).await
    }

    /// Asks the server for another protocol ([`Transport::upgrade`]), with the fleet's credentials, on a connection of its own.
    /// `limit` bounds the time until it is there. The stream has to be ended when [`Tunnel::withdrawn`] says so: the cluster
    /// is paused, reached another way, or gone.
    ///
    /// [`Tunnel::withdrawn`]: skopos::transport::Tunnel::withdrawn
    ///
    /// # Errors
    /// As [`Cluster::request`].
    pub async fn upgrade(&self, request: Request<Body>, limit: Duration) -> Result<Upgrade, FleetError> {
        self.unit.upgrade(request, limit).await
    }

    /// A document in which the server describes itself, within `limit`: from memory while it is young
    /// ([`ClusterOptions::document_age`]), otherwise asked for, by one request for all who ask. While the server does not
    /// answer, the old one, whose age is known.
    ///
    /// # Errors
    /// When there is none, with the reason.
    pub async fn document(&self, request: &DocumentRequest, limit: Duration) -> Result<Document, FleetError> {
        self.unit.document(request, limit).await
    }

    /// The same document as it is now: what is kept counts if the server says that it is still that, after this call. While the
    /// server does not answer within `limit`, the old one, whose age is known.
    ///
    /// # Errors
    /// As [`Cluster::document`].
    pub async fn current_document(
        &self,
        request: &DocumentRequest,
        limit: Duration,
    ) -> Result<Document, FleetError> {
        self.unit.current_document(request, limit).await
    }

    /// A document that is kept, of whatever age; see [`Document::age`]. Asks nobody, and waits for nothing.
    pub fn kept_document(&self, request: &DocumentRequest) -> Option<Document> {
        self.unit.documents.get(request)
    }

    /// All documents that are kept.
    pub fn documents(&self) -> Vec<(DocumentRequest, Document)> {
        self.unit.documents.all()
    }

    /// The connections.
    ///
    /// # Errors
    /// When the configuration cannot be used, or the cluster is gone, or `limit` has passed.
    pub async fn transport(&self, limit: Duration) -> Result<Transport, FleetError> {
        self.unit.session_within(limit).await.map(|session| session.transport)
    }

    /// Returns the factory for informers beside the kept kinds, on the cluster's own connections. It is closed when the cluster is
    /// reached another way ([`way`](Cluster::way)) or leaves. What its informers keep does not count in the cluster's memory budget.
    ///
    /// # Errors
    /// As [`Cluster::transport`].
    pub async fn informers(&self, limit: Duration) -> Result<InformerFactory, FleetError> {
        self.unit.session_within(limit).await.map(|session| session.factory)
    }

    /// A client on these connections.
    ///
    /// # Errors
    /// As [`Cluster::transport`].
    pub async fn client(&self, default_namespace: &str, limit: Duration) -> Result<kube::Client, FleetError> {
        Ok(self.transport(limit).await?.client(default_namespace))
    }

    /// It is known to be switched off: nothing is asked of it, and what there is stays readable, with its age.
    pub fn pause(&self, paused: Paused) {
        self.unit.pause(paused);
    }

    /// It is switched on again, and serves as far as is known.
    pub fn resume(&self) {
        self.unit.resume(true);
    }

    /// There is reason to think that the server is there (again): connections are made and lists/watches retried now.
    pub fn wake(&self) {
        self.unit.wake();
    }

    /// Figures.
    pub fn stats(&self) -> ClusterStats {
        self.unit.stats()
    }

    /// Ends a standalone cluster, and waits until nothing is left of it, at most for `limit`; returns whether nothing is.
    /// Clusters of a fleet end with it, or by [`Fleet::leave`](crate::Fleet::leave).
    pub async fn shutdown(&self, limit: Duration) -> bool {
        match self._guard {
            Some(_) => self.unit.shutdown(limit).await,
            None => false,
        }
    }
}

impl PartialEq for Cluster {
    /// Whether it is the same member, not just one of the same name.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.unit, &other.unit)
    }
}

impl Eq for Cluster {}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({}, {})", self.id(), self.state())
    }
}
