//! One cluster, with state and tasks of its own, isolated from failures of the others.
//!
//! ```text
//!  Cluster ──▶ ClusterInner ─┬─ ClusterConnection  transport and informer factory; made once, on first use
//!                            ├─ Kinds              resources in memory: started on first use, stopped when idle, within a budget
//!                            ├─ Documents          discovery and OpenAPI, for when the server is down
//!                            ├─ identity           checks the identity before content of an earlier run resumes
//!                            ├─ Breaker            sends nothing to a server that connects and never answers
//!                            ├─ Machine            state: pure, from observations to conditions
//!                            └─ supervisor         one task that checks all this once a second
//! ```

mod breaker;
mod core;
mod documents;
mod health;
mod identity;
mod kinds;
mod machine;
mod options;
mod persistence;
mod session;
mod state;
mod stats;
mod supervisor;

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

pub(crate) use self::core::{ClusterInner, ClusterParts, ListedAs};
pub use self::documents::{Document, DocumentRequest};
pub use self::kinds::{CachedKind, StopReason, StopWatcher};
pub use self::options::{ClusterOptions, Connector, InformerConfig, KindFilter};
pub use self::persistence::{CheckpointStats, Persistence, RestoredState};
pub(crate) use self::session::Generations;
pub use self::state::{ClusterState, Condition};
pub use self::stats::{ClusterStats, KindStats};
pub(crate) use self::supervisor::start;
use crate::change_signal::ChangeSignal;
use crate::error::FleetError;
use crate::id::ClusterId;
use crate::incident::Incidents;
use crate::kubeconfig::KubeconfigPaths;
use crate::pause::Paused;
use crate::spec::ClusterSpec;

/// A cluster of a fleet. Cheap to clone; all handles share the same connections and the same memory.
///
/// A call that may wait takes a limit. If it expires, the error states the reason.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) inner: Arc<ClusterInner>,
    /// Shuts a cluster outside of any fleet down when its last handle is dropped.
    _guard: Option<Arc<DropGuard>>,
}

impl Cluster {
    /// Creates a cluster outside of any fleet, such as the host in which others are discovered. It ends when its last
    /// handle is dropped; [`Cluster::shutdown`] also waits for it.
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
        let parts = ClusterParts {
            id,
            labels,
            listed_as: ListedAs::default(),
            spec: Ok(spec),
            options: Arc::new(options),
            connector,
            persistence: None,
            is_replacement: false,
            generations: Generations::default(),
            changes: ChangeSignal::new(),
            incidents: Incidents::default(),
            stop,
        };
        Self { inner: start(parts), _guard: Some(guard) }
    }

    pub(crate) fn from_inner(inner: Arc<ClusterInner>) -> Self {
        Self { inner, _guard: None }
    }

    /// Returns its name.
    pub fn id(&self) -> &ClusterId {
        &self.inner.id
    }

    /// Returns the name that its source uses, such as the kubeconfig's context; `None` if that is the cluster's name or
    /// there is no other.
    pub fn original_name(&self) -> Option<Arc<str>> {
        self.inner.listed_as.load().name.clone().filter(|name| **name != *self.id().as_str())
    }

    /// Returns the kubeconfig and the context that say how it is reached, if it is one of the operator's own
    /// kubeconfigs.
    pub fn context(&self) -> Option<(Arc<KubeconfigPaths>, Arc<str>)> {
        let listed_as = self.inner.listed_as.load();
        Some((listed_as.kubeconfig.clone()?, listed_as.name.clone()?))
    }

    /// Returns its labels.
    pub fn labels(&self) -> Arc<BTreeMap<String, String>> {
        self.inner.labels.load_full()
    }

    /// Returns whether the cluster's labels match `selector`.
    pub fn matches(&self, selector: &LabelSelector) -> bool {
        selector.matches(&*self.labels())
    }

    /// Returns whether the cluster replaced one of the same name from another source, or from another place of its
    /// source. What was known under the name must not be attributed to it.
    pub fn is_replacement(&self) -> bool {
        self.inner.is_replacement
    }

    /// Returns the number of the current connection. It is unique among all connections of all clusters that had this
    /// name in a fleet: responses obtained over a connection of another number say nothing about this cluster.
    pub fn generation(&self) -> u64 {
        self.inner.connection().generation
    }

    /// Returns the spec; `None` if it is unusable: [`Cluster::state`] has the reason.
    pub fn spec(&self) -> Option<ClusterSpec> {
        self.inner.connection().spec.clone().ok()
    }

    /// Returns the state. Takes no lock.
    pub fn state(&self) -> Arc<ClusterState> {
        self.inner.state()
    }

    /// Returns a receiver of the state, to wait for changes.
    pub fn states(&self) -> watch::Receiver<Arc<ClusterState>> {
        self.inner.states.subscribe()
    }

    /// Returns a resource that is cached now, with or without content. Starts nothing.
    pub fn cached(&self, resource: &ResourceId) -> Option<CachedKind> {
        self.inner.kinds.get(resource).map(CachedKind::new)
    }

    /// Returns all resources that are cached now.
    pub fn kinds(&self) -> Vec<CachedKind> {
        self.inner.kinds.all().into_iter().map(CachedKind::new).collect()
    }

    /// Returns checkpoints of all resources that are cached now. This does not count as a use: unused resources still
    /// become idle.
    pub fn checkpoints(&self) -> Vec<(ResourceId, Result<Checkpoint, NoCheckpoint>)> {
        let kinds = self.inner.kinds.all();
        kinds.iter().map(|kind| (kind.informer.resource().clone(), kind.informer.checkpoint())).collect()
    }

    /// Returns a cached resource with its content, within `limit`.
    ///
    /// Returns at once if there is content, of any age and in any state of the cluster: the informer knows its age.
    /// Otherwise starts the resource, once for all callers, and waits for its content. The start continues after the
    /// caller's limit.
    ///
    /// # Errors
    /// At once when the cluster is paused, unreachable or gone, when its configuration is unusable, when the server
    /// refuses the resource or it does not fit into the memory budget; when the server answers and has failed to list
    /// the resource three times in a row, while this lasts; and when `limit` has passed.
    pub async fn kind(&self, resource: &ResourceId, limit: Duration) -> Result<CachedKind, FleetError> {
        self.inner.kind(resource, limit).await
    }

    /// Sends a request to the server, with the fleet's credentials. `limit` bounds the time until the response's
    /// headers. The body is bounded by the deadlines of its class, or by
    /// [`RequestOptions`](skopos::transport::RequestOptions) in the request's extensions.
    ///
    /// # Errors
    /// At once when the cluster is paused or gone; when there was no response, with the reason. Any status is a
    /// response.
    pub async fn request(
        &self,
        request: Request<Body>,
        limit: Duration,
    ) -> Result<Response<TransportBody>, FleetError> {
        self.inner.request(request, limit).await
    }

    /// Upgrades to another protocol ([`Transport::upgrade`]), with the fleet's credentials, on a connection of its own.
    /// `limit` bounds the time until the upgrade. The caller has to end the stream when [`Tunnel::withdrawn`] fires:
    /// the cluster is paused, reached over another connection, or gone.
    ///
    /// [`Tunnel::withdrawn`]: skopos::transport::Tunnel::withdrawn
    ///
    /// # Errors
    /// As [`Cluster::request`].
    pub async fn upgrade(&self, request: Request<Body>, limit: Duration) -> Result<Upgrade, FleetError> {
        self.inner.upgrade(request, limit).await
    }

    /// Returns a document in which the server describes itself, within `limit`. Returns the cached one while it is
    /// young ([`ClusterOptions::document_age`]), otherwise fetches it once for all callers. While the server does not
    /// answer, returns the old one, with its age.
    ///
    /// # Errors
    /// When there is none, with the reason.
    pub async fn document(&self, request: &DocumentRequest, limit: Duration) -> Result<Document, FleetError> {
        self.inner.document(request, limit).await
    }

    /// Returns the document as it is now: a cached one only if the server confirms it after this call. If the server
    /// does not answer within `limit`, returns the old one, with its age.
    ///
    /// # Errors
    /// As [`Cluster::document`].
    pub async fn current_document(
        &self,
        request: &DocumentRequest,
        limit: Duration,
    ) -> Result<Document, FleetError> {
        self.inner.current_document(request, limit).await
    }

    /// Returns a cached document of any age; see [`Document::age`]. Sends no request, and does not wait.
    pub fn kept_document(&self, request: &DocumentRequest) -> Option<Document> {
        self.inner.documents.get(request)
    }

    /// Returns all cached documents.
    pub fn documents(&self) -> Vec<(DocumentRequest, Document)> {
        self.inner.documents.all()
    }

    /// Returns the transport.
    ///
    /// # Errors
    /// When the configuration is unusable, the cluster is gone, or `limit` has passed.
    pub async fn transport(&self, limit: Duration) -> Result<Transport, FleetError> {
        self.inner.session_within(limit).await.map(|session| session.transport)
    }

    /// Returns the factory for informers beside the cached resources, on the cluster's own connections. It is closed
    /// when the connection changes ([`generation`](Cluster::generation)) or the cluster leaves. Its informers do not count in the
    /// cluster's memory budget.
    ///
    /// # Errors
    /// As [`Cluster::transport`].
    pub async fn informers(&self, limit: Duration) -> Result<InformerFactory, FleetError> {
        self.inner.session_within(limit).await.map(|session| session.factory)
    }

    /// Returns a client on these connections.
    ///
    /// # Errors
    /// As [`Cluster::transport`].
    pub async fn client(&self, default_namespace: &str, limit: Duration) -> Result<kube::Client, FleetError> {
        Ok(self.transport(limit).await?.client(default_namespace))
    }

    /// Marks the cluster as switched off. No requests are sent to it; its data stays readable, with its age.
    pub fn pause(&self, paused: Paused) {
        self.inner.pause(paused);
    }

    /// Marks the cluster as switched on again, and serving as far as is known.
    pub fn resume(&self) {
        self.inner.resume(true);
    }

    /// Retries connections, lists and watches now, because the server is probably up (again).
    pub fn wake(&self) {
        self.inner.wake();
    }

    /// Returns statistics.
    pub fn stats(&self) -> ClusterStats {
        self.inner.stats()
    }

    /// Shuts down a standalone cluster, and waits at most `limit`. Returns whether nothing is left. Clusters of a fleet
    /// end with it, or by [`Fleet::leave`](crate::Fleet::leave).
    pub async fn shutdown(&self, limit: Duration) -> bool {
        match self._guard {
            Some(_) => self.inner.shutdown(limit).await,
            None => false,
        }
    }
}

impl PartialEq for Cluster {
    /// Returns whether both are the same member, not just of the same name.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Cluster {}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({}, {})", self.id(), self.state())
    }
}
