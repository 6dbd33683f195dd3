use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use skopos::transport::ConfigError;
use skopos::{FactoryOptions, InformerOptions, ResourceId, Transform, Transport, TransportOptions};

use crate::id::ClusterId;
use crate::spec::ClusterSpec;

/// What each cluster of a fleet may use, and how it behaves.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Kinds whose informers start when the cluster joins, and are not stopped for being idle. Default: none.
    pub kinds: Vec<ResourceId>,
    /// Fetch discovery, the index of OpenAPI and the version as soon as the cluster answers, so that they are there when it
    /// does not any more. Default: false, which leaves a cluster alone until somebody asks for something.
    pub prefetch_documents: bool,
    /// Which kinds may be kept. It is asked time and again: what may not be kept any more is let go within a second or two.
    /// Default: all.
    pub admits: Admits,
    /// An informer that nobody has used for so long is stopped, unless its cluster does not answer: then it is kept, with
    /// its age. Default 10 min; `None`: never.
    pub idle_stop: Option<Duration>,
    /// What the objects of one cluster may take, in bytes of their JSON; above it the kinds go that were not used for the
    /// longest time. A list of more than four times as much, as the server sends it, is given up while it comes. Default
    /// 256 MiB; `None`: no bound but that of `factory.machine.max_list_bytes`.
    pub memory_budget: Option<u64>,
    /// How many kinds of one cluster may be kept at once. Default 64.
    pub max_kinds: usize,
    /// A kind that did not fit is not tried again for so long, unless there is room. Default 10 min.
    pub budget_memory: Duration,
    /// How old discovery and OpenAPI documents may be without asking again. Default 30 s.
    pub document_age: Duration,
    /// How many such documents one cluster may have kept. Default 256.
    pub max_documents: usize,
    /// What they may take together, in bytes. Default 64 MiB, which is also the most for one of them.
    pub max_document_bytes: usize,
    /// How long a cluster that was live may fail before it is called unreachable. Default 5 s.
    pub unreachable_after: Duration,
    /// How long the end of one cluster may take. Default 2 s.
    pub shutdown_limit: Duration,
    /// How connections behave.
    pub transport: TransportOptions,
    /// How informers behave.
    pub factory: FactoryOptions,
    /// What the informer of a kind keeps: transform, indexes, scope. Default: all namespaces, without managedFields.
    pub informer: InformerChoice,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            kinds: Vec::new(),
            prefetch_documents: false,
            admits: Admits::default(),
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
            informer: InformerChoice::default(),
        }
    }
}

/// Chooses the kinds that may be kept.
#[derive(Clone)]
pub struct Admits(Arc<dyn Fn(&ResourceId) -> bool + Send + Sync>);

impl Admits {
    /// Those that this function says. It is asked often, and must not wait for anything.
    pub fn new(admits: impl Fn(&ResourceId) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(admits))
    }

    /// Whether this kind may be kept.
    pub fn admits(&self, resource: &ResourceId) -> bool {
        (self.0)(resource)
    }
}

impl Default for Admits {
    fn default() -> Self {
        Self::new(|_| true)
    }
}

impl fmt::Debug for Admits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Admits")
    }
}

/// Chooses the options of the informer of a kind.
#[derive(Clone)]
pub struct InformerChoice(Arc<Choose>);

type Choose = dyn Fn(&ClusterId, &ResourceId) -> InformerOptions + Send + Sync;

impl InformerChoice {
    /// What this function says.
    pub fn new(choose: impl Fn(&ClusterId, &ResourceId) -> InformerOptions + Send + Sync + 'static) -> Self {
        Self(Arc::new(choose))
    }

    pub(crate) fn options(&self, cluster: &ClusterId, resource: &ResourceId) -> InformerOptions {
        (self.0)(cluster, resource)
    }
}

impl Default for InformerChoice {
    fn default() -> Self {
        Self::new(|_, _| InformerOptions::all().transform(Transform::DropManagedFields))
    }
}

impl fmt::Debug for InformerChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InformerChoice")
    }
}

/// Makes the transport of a cluster. It is called once per cluster and change of its configuration, and makes no connection.
#[derive(Clone)]
pub struct Connector {
    connect: Arc<Connect>,
    /// It may read files, and so runs in a thread for that.
    blocks: bool,
}

type Connect =
    dyn Fn(&ClusterId, &ClusterSpec, TransportOptions) -> Result<Transport, ConfigError> + Send + Sync;

impl Connector {
    /// TCP and TLS, where the cluster's address policy admits it.
    pub fn tcp() -> Self {
        Self::new(|_, spec, mut options| {
            options.addresses = spec.addresses().guard();
            Transport::from_config(spec.config(), options)
        })
    }

    /// Another way, such as pipes in memory. The cluster's address policy is then the function's business.
    pub fn new(
        connect: impl Fn(&ClusterId, &ClusterSpec, TransportOptions) -> Result<Transport, ConfigError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self { connect: Arc::new(connect), blocks: true }
    }

    /// Returns the same connector, called without a thread of its own: for functions that read no files, such as those of
    /// simulations, where no other thread may take part.
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

    /// Makes a transport, in a thread that may read files if it has to.
    ///
    /// # Errors
    /// The reason why there is none, in words.
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
