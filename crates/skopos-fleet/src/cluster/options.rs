use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use skopos::transport::ConfigError;
use skopos::{FactoryOptions, InformerOptions, ResourceId, Transform, Transport, TransportOptions};

use crate::id::ClusterId;
use crate::spec::ClusterSpec;

/// Limits and behaviour of each cluster of a fleet.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Resources whose informers start when the cluster joins, and are not stopped for being idle. Default: none.
    pub kinds: Vec<ResourceId>,
    /// Fetch discovery, the index of OpenAPI and the version as soon as the cluster answers, so that they are available
    /// when it is down. Default: false, which sends no request to a cluster before first use.
    pub prefetch_documents: bool,
    /// Filter of the resources that may be cached. It is called repeatedly: a resource that is no longer admitted is
    /// dropped within a second or two. Default: all.
    pub admits: KindFilter,
    /// Idle time after which an unused informer is stopped. While its cluster does not answer it is retained, with its
    /// age. Default 10 min; `None`: never.
    pub idle_stop: Option<Duration>,
    /// Memory budget for the objects of one cluster, in bytes of their JSON; above it the least recently used resources
    /// are evicted. A list of more than four times this size on the wire is aborted while it is read. Default 256 MiB;
    /// `None`: no bound but `factory.machine.max_list_bytes`.
    pub memory_budget: Option<u64>,
    /// Limit on cached resources per cluster. Default 64.
    pub max_kinds: usize,
    /// Time for which a resource that did not fit is not retried, unless there is room. Default 10 min.
    pub budget_memory: Duration,
    /// Age up to which discovery and OpenAPI documents are served without revalidation. Default 30 s.
    pub document_age: Duration,
    /// Limit on cached documents per cluster. Default 256.
    pub max_documents: usize,
    /// Limit on the bytes of all cached documents together, and of each alone. Default 64 MiB.
    pub max_document_bytes: usize,
    /// Time for which a live cluster may fail before it becomes unreachable. Default 5 s.
    pub unreachable_after: Duration,
    /// Timeout of shutting down one cluster. Default 2 s.
    pub shutdown_limit: Duration,
    /// Options of the connections.
    pub transport: TransportOptions,
    /// Options of the informers.
    pub factory: FactoryOptions,
    /// Options of each resource's informer: transform, indexes, scope. Default: all namespaces, without managedFields.
    pub informer: InformerConfig,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            kinds: Vec::new(),
            prefetch_documents: false,
            admits: KindFilter::default(),
            idle_stop: Some(Duration::from_secs(600)),
            memory_budget: Some(256 << 20),
            max_kinds: 64,
            budget_memory: Duration::from_secs(600),
            document_age: Duration::from_secs(30),
            max_documents: 256,
            max_document_bytes: 64 << 20,
            unreachable_after: Duration::from_secs(5),
            shutdown_limit: Duration::from_secs(2),
            transport: TransportOptions::default(),
            factory: FactoryOptions::default(),
            informer: InformerConfig::default(),
        }
    }
}

/// Filter of the resources that may be cached.
#[derive(Clone)]
pub struct KindFilter(Arc<dyn Fn(&ResourceId) -> bool + Send + Sync>);

impl KindFilter {
    /// Creates a filter from a function. It is called often, and must not block.
    pub fn new(admits: impl Fn(&ResourceId) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(admits))
    }

    /// Returns whether this resource may be cached.
    pub fn admits(&self, resource: &ResourceId) -> bool {
        (self.0)(resource)
    }
}

impl Default for KindFilter {
    fn default() -> Self {
        Self::new(|_| true)
    }
}

impl fmt::Debug for KindFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KindFilter")
    }
}

/// Options of informers, chosen per resource.
#[derive(Clone)]
pub struct InformerConfig(Arc<Choose>);

type Choose = dyn Fn(&ClusterId, &ResourceId) -> InformerOptions + Send + Sync;

impl InformerConfig {
    /// Creates a choice from a function.
    pub fn new(choose: impl Fn(&ClusterId, &ResourceId) -> InformerOptions + Send + Sync + 'static) -> Self {
        Self(Arc::new(choose))
    }

    pub(crate) fn options(&self, cluster: &ClusterId, resource: &ResourceId) -> InformerOptions {
        (self.0)(cluster, resource)
    }
}

impl Default for InformerConfig {
    fn default() -> Self {
        Self::new(|_, _| InformerOptions::all().transform(Transform::DropManagedFields))
    }
}

impl fmt::Debug for InformerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InformerConfig")
    }
}

/// Factory of the transport of a cluster. It is called once per cluster and change of its configuration, and opens no
/// connection.
#[derive(Clone)]
pub struct Connector {
    connect: Arc<Connect>,
    /// Set if the function may read files, and so runs in a blocking thread.
    blocks: bool,
}

type Connect =
    dyn Fn(&ClusterId, &ClusterSpec, TransportOptions) -> Result<Transport, ConfigError> + Send + Sync;

impl Connector {
    /// Connects by TCP and TLS, restricted by the cluster's address policy.
    pub fn tcp() -> Self {
        Self::new(|_, spec, mut options| {
            options.addresses = spec.addresses().filter();
            options.via = spec.via().cloned();
            Transport::from_config(spec.config(), options)
        })
    }

    /// Connects by a function, for example through pipes in memory. The function then has to enforce the cluster's
    /// address policy.
    pub fn new(
        connect: impl Fn(&ClusterId, &ClusterSpec, TransportOptions) -> Result<Transport, ConfigError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self { connect: Arc::new(connect), blocks: true }
    }

    /// Returns the same connector, called in the current thread. It is for functions that read no files, such as those
    /// of simulations, which allow no other thread.
    #[must_use]
    pub fn in_place(self) -> Self {
        Self { blocks: false, ..self }
    }

    /// Sends a header with every request to every cluster.
    #[must_use]
    pub fn with_header(self, name: http::HeaderName, value: http::HeaderValue) -> Self {
        let blocks = self.blocks;
        let connector = Self::new(move |id, spec, options| {
            (self.connect)(id, &spec.clone().with_header(name.clone(), value.clone()), options)
        });
        Self { blocks, ..connector }
    }

    /// Makes a transport, in a blocking thread if the function may read files.
    ///
    /// # Errors
    /// The reason why there is no transport, in words.
    pub(crate) async fn connect(
        &self,
        id: &ClusterId,
        spec: ClusterSpec,
        options: TransportOptions,
    ) -> Result<Transport, String> {
        let made = match self.blocks {
            true => {
                let (connect, id) = (self.connect.clone(), id.clone());
                let made = tokio::task::spawn_blocking(move || connect(&id, &spec, options)).await;
                made.map_err(|panic| panic.to_string())?
            }
            false => (self.connect)(id, &spec, options),
        };
        made.map_err(|error| error.to_string())
    }
}

impl Default for Connector {
    fn default() -> Self {
        Self::tcp()
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}
