//! Helpers of these tests: servers by name, a fleet with in-memory connections to them, and objects.
#![allow(unreachable_pub, reason = "the words of one crate of tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use skopos::transport::{Dialed, Protocol, TransportErrorKind, dialer_fn};
use skopos::{FactoryOptions, ResourceId, Transport, TransportOptions};
use skopos_fleet::{
    Cluster, ClusterId, ClusterOptions, ClusterSpec, Condition, Connector, Fleet, FleetOptions,
};
use skopos_testserver::{TestServer, TestServerBuilder, VirtualClusters};
use tokio::time::Instant;

/// Servers by the host of their URL, and the connections to them.
#[derive(Clone, Default)]
pub struct World {
    servers: Arc<Mutex<BTreeMap<String, TestServer>>>,
    /// The hosts to which dials never end.
    holes: Arc<Mutex<Vec<String>>>,
    /// The virtual clusters behind the names of their Services.
    pub virtuals: Arc<Mutex<Option<VirtualClusters>>>,
    pub connects: Arc<AtomicUsize>,
    pub dials: Arc<Mutex<BTreeMap<String, usize>>>,
}

/// A limit far above any real duration; virtual time makes it free.
pub const PLENTY: Duration = Duration::from_secs(60);

pub fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn id(name: &str) -> ClusterId {
    ClusterId::new(name).expect("a name")
}

pub fn resource(plural: &str, kind: &str) -> ResourceId {
    ResourceId { group: String::new(), version: "v1".into(), plural: plural.into(), kind: kind.into() }
}

pub fn config_maps() -> ResourceId {
    resource("configmaps", "ConfigMap")
}

pub fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": name}, "data": {"key": name}})
}

/// Returns the spec of a server of the world.
pub fn spec(name: &str) -> ClusterSpec {
    ClusterSpec::from_config(kube::Config::new(format!("http://{name}").parse().expect("a url")))
}

/// Returns deterministic options without audits.
pub fn options() -> ClusterOptions {
    ClusterOptions {
        transport: TransportOptions { seed: Some(7), ..TransportOptions::default() },
        factory: FactoryOptions { audit_interval: None, seed: Some(7), ..FactoryOptions::default() },
        ..ClusterOptions::default()
    }
}

impl World {
    /// Makes a server with a config map of its own name.
    pub fn server(&self, name: &str) -> TestServer {
        self.server_with(name, TestServer::builder())
    }

    pub fn server_with(&self, name: &str, builder: TestServerBuilder) -> TestServer {
        let server = builder.start_in_memory().expect("the server starts");
        server.create(config_map(name)).expect("a config map");
        self.servers.lock().insert(name.to_owned(), server.clone());
        server
    }

    /// Adds another name of a server.
    pub fn put(&self, name: &str, server: &TestServer) {
        self.servers.lock().insert(name.to_owned(), server.clone());
    }

    /// Makes connections to this name hang.
    pub fn hole(&self, name: &str) {
        self.holes.lock().push(name.to_owned());
    }

    pub fn dials_of(&self, name: &str) -> usize {
        self.dials.lock().get(name).copied().unwrap_or(0)
    }

    pub fn connector(&self) -> Connector {
        let world = self.clone();
        Connector::new(move |_, spec, options| {
            world.connects.fetch_add(1, Ordering::SeqCst);
            let (world, name) = (world.clone(), spec.server().host().unwrap_or_default().to_owned());
            let dialer = dialer_fn(move |_| {
                let (world, name) = (world.clone(), name.clone());
                async move { world.dial(&name).await }
            });
            Transport::with_dialer(spec.config(), options, dialer)
        })
    }

    pub async fn dial(&self, name: &str) -> Result<Dialed, TransportErrorKind> {
        *self.dials.lock().entry(name.to_owned()).or_default() += 1;
        if self.holes.lock().iter().any(|hole| hole == name) {
            std::future::pending::<()>().await;
        }
        if let Some(virtuals) = self.virtuals.lock().clone().filter(|_| name.ends_with(".svc")) {
            let connected = virtuals.connect(name);
            let refused = |error: std::io::Error| TransportErrorKind::Refused {
                to: name.into(),
                reason: error.to_string().into(),
            };
            return connected.map(|stream| Dialed::new(stream, Protocol::Http2)).map_err(refused);
        }
        let server = self.servers.lock().get(name).cloned();
        let refused =
            |reason: String| TransportErrorKind::Refused { to: "memory".into(), reason: reason.into() };
        let server = server.ok_or_else(|| refused("nobody is there".into()))?;
        let stream = server.connect().map_err(|error| refused(error.to_string()))?;
        Ok(Dialed::new(stream, Protocol::Http2))
    }

    pub fn fleet(&self) -> Fleet {
        self.fleet_with(options())
    }

    pub fn fleet_with(&self, cluster: ClusterOptions) -> Fleet {
        self.fleet_of(FleetOptions { cluster, ..FleetOptions::default() })
    }

    pub fn fleet_of(&self, options: FleetOptions) -> Fleet {
        Fleet::new(FleetOptions { connector: self.connector(), ..options })
    }
}

pub fn join(fleet: &Fleet, name: &str) -> Cluster {
    fleet.join(id(name), spec(name)).expect("joined")
}

/// Returns the number of requests received by the server.
pub fn requests(server: &TestServer, verb: &str, resource: &str) -> usize {
    let of =
        |r: &&skopos_testserver::RequestRecord| r.verb == verb && r.resource.as_deref() == Some(resource);
    server.requests().iter().filter(of).count()
}

/// Returns the names of a resource's objects in the cluster's memory.
pub fn names(cluster: &Cluster, resource: &ResourceId) -> Vec<String> {
    let kind = cluster.cached(resource).expect("the kind runs");
    kind.informer().snapshot().iter().map(|object| object.name().to_owned()).collect()
}

pub async fn until_condition(cluster: &Cluster, wanted: Condition) {
    let mut states = cluster.states();
    let reached = states.wait_for(|state| state.condition == wanted);
    let reached = tokio::time::timeout(secs(600), reached).await;
    assert!(reached.is_ok(), "{} did not become {wanted}: {}", cluster.id(), cluster.state());
}

/// Waits for a condition without a better signal.
pub async fn eventually(what: &str, mut reached: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < PLENTY, "not within {PLENTY:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
