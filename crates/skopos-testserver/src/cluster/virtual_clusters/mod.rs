//! Host cluster with virtual clusters, all in one process.
//!
//! ```text
//!  host: StatefulSet shop ─▶ Pod shop-0 on a node ─▶ API server of the virtual cluster listens
//!                            Pod shop-0 goes      ─▶ it is gone: connections die, its port refuses
//!        Secret vc-shop  ◀── written at each start
//! ```

mod chart;
mod controller;
mod registry;
mod sample;
mod syncer;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use skopos_wire::Status;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::chart::VirtualCluster;
use self::controller::Controller;
use self::registry::{InstanceRegistry, Options};
pub use self::sample::SampleError;
use self::syncer::ClusterId;
use crate::pod_ports::{PodPorts, PodStream};
use crate::serve::MemoryStream;
use crate::server::{TestServer, TestServerBuilder, WaitTimeout};
use crate::write;

/// Virtual clusters in a host, each with its own API server that starts and stops with its pods. Clones are handles to the same
/// clusters; when the last is dropped, the virtual clusters end.
///
/// ```
/// use skopos_testserver::{TestServer, VirtualCluster, VirtualClusters};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let host = TestServer::builder().workloads(true).start().await?;
/// let virtuals = VirtualClusters::on(host.clone()).start();
/// virtuals.create(&VirtualCluster::new("shop"))?;
/// virtuals.wait_up("vcluster-shop", "shop").await?;
/// // Its Service's name leads to its API server, until it is scaled to zero.
/// let address = virtuals.address("shop.vcluster-shop").unwrap();
/// virtuals.scale("vcluster-shop", "shop", 0)?;
/// virtuals.wait_down("vcluster-shop", "shop").await?;
/// assert!(tokio::net::TcpStream::connect(address).await.is_err());
/// # virtuals.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct VirtualClusters {
    inner: Arc<Inner>,
}

/// Options of [`VirtualClusters`].
#[derive(Debug)]
#[must_use]
pub struct VirtualClustersBuilder {
    host: TestServer,
    options: Options,
}

/// State of a virtual cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VirtualState {
    /// The API server answers.
    Up,
    /// There is data, but no API server.
    Down,
    /// It never started, or was deleted with its data.
    Absent,
}

#[derive(Debug)]
struct Inner {
    host: TestServer,
    registry: Arc<InstanceRegistry>,
    stopped: CancellationToken,
    tasks: TaskTracker,
}

/// Timeout of the waiting functions.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Port of the API server in a pod.
const API_PORT: u16 = 8443;

impl VirtualClustersBuilder {
    /// Sets the options of the API servers, by namespace and name; the default is a plain builder.
    pub fn servers(
        mut self,
        servers: impl Fn(&str, &str) -> TestServerBuilder + Send + Sync + 'static,
    ) -> Self {
        self.options.servers = Box::new(servers);
        self
    }

    /// Uses no ports and no TLS: clients connect through [`VirtualClusters::connect`] only, also under tokio's paused clock.
    pub fn in_memory(mut self) -> Self {
        self.options.in_memory = true;
        self
    }

    /// Puts the real address into the Secrets `vc-NAME` (the chart's `exportKubeConfig.server`) instead of
    /// `https://localhost:8443`, so that kubectl can use them.
    pub fn export_addresses(mut self) -> Self {
        self.options.export_addresses = true;
        self
    }

    /// Starts the controller of the host's virtual clusters, including those that exist already.
    pub fn start(self) -> VirtualClusters {
        let Self { host, options } = self;
        let registry = Arc::new(InstanceRegistry::new());
        let (stopped, tasks) = (CancellationToken::new(), TaskTracker::new());
        *host.state().pod_ports.write() = pod_ports(registry.clone(), options.in_memory);
        let (stop, seen, known) = (stopped.clone(), host.clone(), registry.clone());
        tasks.spawn(async move {
            let controller = Controller { host: &seen, registry: &known, options: &options };
            stop.run_until_cancelled(controller.run()).await;
        });
        VirtualClusters { inner: Arc::new(Inner { host, registry, stopped, tasks }) }
    }
}

impl VirtualClusters {
    /// Returns the options; [`VirtualClustersBuilder::start`] starts. The host must run workloads
    /// ([`TestServerBuilder::workloads`]), or pods are never created.
    pub fn on(host: TestServer) -> VirtualClustersBuilder {
        let options = Options {
            servers: Box::new(|_, _| TestServer::builder()),
            in_memory: false,
            export_addresses: false,
        };
        VirtualClustersBuilder { host, options }
    }

    /// Returns the host cluster.
    pub fn host(&self) -> &TestServer {
        &self.inner.host
    }

    /// Creates the objects of the chart's release; it starts a moment later.
    ///
    /// # Errors
    /// The API server's errors: 409 if an object exists already, 404 if a foreign namespace does not.
    pub fn create(&self, cluster: &VirtualCluster) -> Result<(), Status> {
        let mut objects =
            cluster.own_namespace().into_iter().chain(cluster.manifests()).chain(cluster.release_secret());
        objects.try_for_each(|object| self.host().create(object).map(drop))
    }

    /// Scales a StatefulSet or else a Deployment, as `kubectl scale` does.
    ///
    /// # Errors
    /// 404.
    pub fn scale(&self, namespace: &str, name: &str, replicas: u32) -> Result<(), Status> {
        let resource = match self.host().get("statefulsets", Some(namespace), name) {
            Ok(_) => "statefulsets",
            Err(_) => "deployments",
        };
        write::scale_object(self.host().state(), resource, namespace, name, replicas)
    }

    /// Returns the state.
    pub fn state(&self, namespace: &str, name: &str) -> VirtualState {
        self.inner.registry.state(&id(namespace, name))
    }

    /// Returns the API server, up or down, with its content, requests and faults. `None` until its first start, and after
    /// deletion.
    pub fn server(&self, namespace: &str, name: &str) -> Option<TestServer> {
        self.inner.registry.server(&id(namespace, name))
    }

    /// Returns namespace and name of all clusters that have started and are not deleted.
    pub fn names(&self) -> Vec<(String, String)> {
        self.inner.registry.ids().into_iter().map(|id| (id.namespace, id.name)).collect()
    }

    /// Resolves a Service's name: `NAME.NAMESPACE` or `NAME.NAMESPACE.svc`, with or without a port. The address is stable while
    /// the cluster has its data, and refuses connections while it is down.
    pub fn address(&self, service: &str) -> Option<SocketAddr> {
        let port = self.by_service(service)?.port();
        (port != 0).then(|| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// Opens an in-memory connection to the API server behind a Service's name. It is served without TLS.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if no such cluster has started yet, [`io::ErrorKind::ConnectionRefused`] while it is down.
    pub fn connect(&self, service: &str) -> io::Result<MemoryStream> {
        let server = self.by_service(service);
        let server =
            server.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such virtual cluster"))?;
        server.connect()
    }

    /// Waits until the API server answers, at most 30 s.
    ///
    /// # Errors
    /// When the time is over.
    pub async fn wait_up(&self, namespace: &str, name: &str) -> Result<(), WaitTimeout> {
        self.wait(namespace, name, VirtualState::Up).await
    }

    /// Waits until there is data and no API server any more, at most 30 s.
    ///
    /// # Errors
    /// When the time is over.
    pub async fn wait_down(&self, namespace: &str, name: &str) -> Result<(), WaitTimeout> {
        self.wait(namespace, name, VirtualState::Down).await
    }

    /// Waits until the cluster is deleted with its data, at most 30 s.
    ///
    /// # Errors
    /// When the time is over.
    pub async fn wait_gone(&self, namespace: &str, name: &str) -> Result<(), WaitTimeout> {
        self.wait(namespace, name, VirtualState::Absent).await
    }

    /// Ends all virtual clusters, and waits until none of their tasks and connections is left. The host keeps running.
    pub async fn stop(&self) {
        self.inner.stopped.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        for id in self.inner.registry.ids() {
            if let Some(instance) = self.inner.registry.remove(&id) {
                instance.server.stop().await;
            }
        }
    }

    async fn wait(&self, namespace: &str, name: &str, wanted: VirtualState) -> Result<(), WaitTimeout> {
        let mut changes = self.inner.registry.changes();
        let reached = changes.wait_for(|_| self.state(namespace, name) == wanted);
        // The sender is in `self`.
        if let Ok(Ok(_)) = tokio::time::timeout(WAIT_TIMEOUT, reached).await {
            return Ok(());
        }
        Err(WaitTimeout {
            within: WAIT_TIMEOUT,
            connections: self.host().connections(),
            watches: self.host().open_watches(),
            resource_version: self.host().resource_version(),
        })
    }

    fn by_service(&self, service: &str) -> Option<TestServer> {
        let host = service.split_once(':').map_or(service, |(host, _)| host);
        let (name, rest) = host.split_once('.')?;
        let namespace = rest.split_once('.').map_or(rest, |(namespace, _)| namespace);
        self.server(namespace, name)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stopped.cancel();
    }
}

/// Returns the function that connects to the API servers in the pods of virtual clusters.
fn pod_ports(registry: Arc<InstanceRegistry>, in_memory: bool) -> PodPorts {
    PodPorts::new(move |pod, port| {
        let labels = &pod["metadata"]["labels"];
        let of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let server = match (port, labels["app"].as_str()) {
            (API_PORT, Some("vcluster")) => {
                registry.server(&id(&of(&pod["metadata"]["namespace"]), &of(&labels["release"])))
            }
            _ => None,
        };
        Box::pin(async move {
            let server = server.ok_or(io::ErrorKind::ConnectionRefused)?;
            let stream: Box<dyn PodStream> = match in_memory {
                true => Box::new(server.connect()?),
                false => Box::new(TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).await?),
            };
            Ok(stream)
        })
    })
}

fn id(namespace: &str, name: &str) -> ClusterId {
    ClusterId { namespace: namespace.to_owned(), name: name.to_owned() }
}
