//! A cluster in the process, a notifier for it, and objects.
#![allow(dead_code, unreachable_pub, reason = "each test file is a crate that uses some of it")]

pub mod dns_proxy;
pub mod inventory;
pub mod receiver;
pub mod servers;
pub mod uml;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use skopos::transport::{Dialed, Protocol, TransportErrorKind, dialer_fn};
use skopos::{FactoryOptions, InformerFactory, Transport, TransportOptions};
use skopos_notify::EntryName;
use skopos_notify::desired::{ClaimSource, EndpointSource, ServiceSource, Template};
use skopos_notify::service::{
    Notifier, NotifierHandle, NotifierSink, SinkOptions, SinkReport, factory_options,
};
use skopos_notify::sink::memory::MemorySink;
use skopos_notify::sink::{Fence, Observed, Sink, SinkError, SinkStep, SinkTraits, StepOutcome};
use skopos_testserver::TestServer;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Far more than any operation takes; no real time where time is virtual.
pub const PLENTY: Duration = Duration::from_secs(7200);

pub struct Cluster {
    pub server: Arc<TestServer>,
    /// Connections fail while this is true.
    pub down: Arc<AtomicBool>,
    pub factory: InformerFactory,
}

pub struct Running {
    pub handle: NotifierHandle,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

pub fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Cluster {
    pub async fn new() -> Self {
        Self::with_server(TestServer::builder().start().await.expect("the server starts"))
    }

    /// Makes a cluster whose age is proven twice a second, for tests in real time.
    pub async fn quick() -> Self {
        let mut cluster = Self::new().await;
        let options = FactoryOptions { probe_interval: Duration::from_millis(500), ..options() };
        cluster.factory = InformerFactory::new(transport_to(&cluster.server, &cluster.down), options);
        cluster
    }

    pub fn with_server(server: TestServer) -> Self {
        let (server, down) = (Arc::new(server), Arc::new(AtomicBool::new(false)));
        // It may exist already.
        let _ = server
            .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}));
        let factory = factory_to(&server, &down);
        Self { server, down, factory }
    }

    pub fn run<S: Into<NotifierSink>>(&self, sinks: Vec<S>) -> Running {
        run(&self.factory, sinks)
    }

    /// Stops the API server, with all its connections.
    pub fn stop_server(&self) {
        self.down.store(true, Ordering::SeqCst);
        self.server.faults().kill_connections(skopos_testserver::CloseMode::Rst);
    }

    pub fn start_server(&self) {
        self.down.store(false, Ordering::SeqCst);
    }

    /// Writes a Service and its only slice, as the controllers of a cluster do.
    pub fn put(&self, service: &str, endpoints: &[(&str, &str)]) {
        let uid = match self.server.get("services", Some("default"), service) {
            Ok(known) => known["metadata"]["uid"].clone(),
            Err(_) => {
                self.server.create(service_object(service)).expect("a service")["metadata"]["uid"].clone()
            }
        };
        let slice = slice_object(service, &format!("{service}-1"), &uid, endpoints);
        let put = match self.server.get("endpointslices", Some("default"), &format!("{service}-1")) {
            Ok(_) => self.server.update(slice),
            Err(_) => self.server.create(slice),
        };
        put.expect("a slice");
    }

    /// Deletes a Service and its slice, as garbage collection does.
    pub fn delete(&self, service: &str) {
        self.server.delete("services", Some("default"), service).expect("a service");
        // The garbage collector may have been faster.
        let _ = self.server.delete("endpointslices", Some("default"), &format!("{service}-1"));
    }

    pub async fn end(self) {
        assert!(self.factory.shutdown(secs(10)).await.complete);
    }
}

impl Running {
    pub async fn until(&self, sink: usize, mut what: impl FnMut(&SinkReport) -> bool) -> SinkReport {
        #[allow(clippy::disallowed_methods, reason = "against real servers time is real")]
        let begun = std::time::Instant::now();
        let what = |report: &SinkReport| {
            assert!(begun.elapsed() < secs(100), "{report:#?}");
            what(report)
        };
        let waited = timeout(PLENTY, self.handle.sinks()[sink].wait_for(what)).await;
        waited.unwrap_or_else(|_| panic!("{:#?}", self.handle.reports())).expect("it runs")
    }

    /// Waits until a sink was seen equal to a state of the cluster that is younger than this moment.
    pub async fn equal(&self, sink: usize) -> SinkReport {
        let begun = tokio::time::Instant::now();
        self.until(sink, |report| {
            let age = report.outside_age_seconds.unwrap_or(f64::MAX);
            report.is_equal() && age < begun.elapsed().as_secs_f64()
        })
        .await
    }

    /// Ends at once, like a killed process.
    pub async fn kill(mut self) {
        self.tasks.shutdown().await;
    }

    pub async fn stop(mut self) {
        self.stop.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        timeout(PLENTY, ended).await.expect("it ends");
    }
}

pub fn run<S: Into<NotifierSink>>(factory: &InformerFactory, sinks: Vec<S>) -> Running {
    let notifier = Notifier::new(factory, sinks).expect("a notifier");
    let (handle, stop, mut tasks) = (notifier.handle(), CancellationToken::new(), JoinSet::new());
    tasks.spawn(notifier.run(stop.clone()));
    Running { handle, stop, tasks }
}

/// Makes a source of every Service of the test, by its name, with its endpoints.
pub fn endpoints(name: &str, ports: bool) -> ClaimSource {
    let places = if ports { &["service", "namespace", "port"][..] } else { &["service", "namespace"] };
    let name = Template::parse(name, places).expect("a template");
    ClaimSource::Endpoints(EndpointSource {
        headless: None,
        labels: BTreeMap::from([("app".into(), "*".into())]),
        name,
        ports,
    })
}

/// Makes a source of annotated Services.
pub fn annotated() -> ClaimSource {
    let annotation = "skopos.dev/hostname".to_owned();
    ClaimSource::Services(ServiceSource { annotation, types: Vec::new(), labels: BTreeMap::new() })
}

pub fn sink(name: &str, sink: impl Sink + 'static, source: ClaimSource) -> SinkOptions {
    SinkOptions::new(name, Arc::new(sink), vec![source])
}

/// A sink whose observations take a moment.
pub struct Slow(pub MemorySink);

#[async_trait::async_trait]
impl Sink for Slow {
    fn traits(&self) -> SinkTraits {
        self.0.traits()
    }

    fn name(&self, text: &str) -> Result<EntryName, String> {
        self.0.name(text)
    }

    fn value(&self, text: &str) -> Result<skopos_notify::EntryValue, String> {
        self.0.value(text)
    }

    async fn observe(&self) -> Result<Observed, SinkError> {
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.0.observe().await
    }

    async fn apply(&self, step: &SinkStep, fence: Option<&Fence>) -> StepOutcome {
        self.0.apply(step, fence).await
    }
}

/// Makes a sink that is observed more often than by default, for tests in real time.
pub fn quick(name: &str, to: impl Sink + 'static, source: ClaimSource) -> SinkOptions {
    let mut options = sink(name, to, source);
    options.observe_every = Duration::from_millis(250);
    options
}

pub fn service_object(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": name, "labels": {"app": name}},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]},
    })
}

/// Makes a slice whose endpoints are `(address, "ready" | "notReady" | "terminating")`.
pub fn slice_object(service: &str, name: &str, uid: &Value, endpoints: &[(&str, &str)]) -> Value {
    let endpoint = |(address, state): &(&str, &str)| {
        let ready = *state == "ready";
        json!({
            "addresses": [address],
            "conditions": {"ready": ready, "serving": *state != "notReady", "terminating": *state == "terminating"},
        })
    };
    let ports = if endpoints.is_empty() {
        json!([])
    } else {
        json!([{"name": "http", "port": 8080, "protocol": "TCP"}])
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "namespace": "default", "name": name, "labels": {"kubernetes.io/service-name": service, "app": service},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": service, "uid": uid, "controller": true}],
        },
        "ports": ports,
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

pub fn factory_to(server: &Arc<TestServer>, down: &Arc<AtomicBool>) -> InformerFactory {
    InformerFactory::new(transport_to(server, down), options())
}

fn options() -> FactoryOptions {
    FactoryOptions { audit_interval: None, seed: Some(7), ..factory_options() }
}

fn transport_to(server: &Arc<TestServer>, down: &Arc<AtomicBool>) -> Transport {
    let (server, down) = (server.clone(), down.clone());
    let dialer = dialer_fn(move |_| {
        let connected = if down.load(Ordering::SeqCst) {
            Err(std::io::ErrorKind::ConnectionRefused.into())
        } else {
            server.connect()
        };
        async move {
            let refused = |error: std::io::Error| TransportErrorKind::Refused {
                to: "memory".into(),
                reason: error.to_string().into(),
            };
            connected.map(|stream| Dialed::new(stream, Protocol::Http2)).map_err(refused)
        }
    });
    let config = kube::Config::new("http://memory.test".parse().expect("a URL"));
    let options = TransportOptions { seed: Some(7), ..TransportOptions::default() };
    Transport::with_dialer(config, options, dialer).expect("a transport")
}
