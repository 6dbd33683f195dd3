//! A server, a factory connected to it, running controllers, and the records of their reconcilers.
#![allow(dead_code, unreachable_pub, reason = "each test file is a crate that uses some of it")]

use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use parking_lot::Mutex;
use serde_json::{Value, json};
use skopos::{
    FactoryOptions, Informer, InformerFactory, InformerOptions, Transport, TransportOptions,
    test_server_dialer,
};
use skopos_controller::{ControllerError, ControllerHandle, ControllerService, ControllerStats};
use skopos_testserver::TestServer;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// A timeout far above any duration, which costs no time where time is virtual.
pub const PLENTY: Duration = Duration::from_secs(3600);

pub fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub struct World {
    pub server: Arc<TestServer>,
    pub factory: InformerFactory,
}

/// A controller in a task.
pub struct Running {
    pub handle: ControllerHandle,
    stop: CancellationToken,
    task: Task<Result<(), ControllerError>>,
}

/// A future that runs beside the test, and ends with it.
pub struct Task<T>(JoinSet<T>);

/// Lines that tests wait for.
#[derive(Clone, Default)]
pub struct Diary(Arc<Mutex<Vec<String>>>);

impl World {
    pub async fn new() -> Self {
        let server = Arc::new(TestServer::builder().start().await.expect("the server starts"));
        for namespace in ["a", "default"] {
            // `default` may be there.
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            let _ = server.create(object);
        }
        let options = FactoryOptions { audit_interval: None, seed: Some(7), ..FactoryOptions::default() };
        let factory = InformerFactory::new(transport_to(&server), options);
        Self { server, factory }
    }

    pub fn informer<K>(&self) -> Informer<K>
    where
        K: Resource<DynamicType = ()> + 'static,
        K::Scope: 'static,
    {
        self.factory.informer(InformerOptions::all()).expect("an informer")
    }

    pub fn run<K: 'static>(&self, service: ControllerService<K>) -> Running {
        let (handle, stop) = (service.handle(), CancellationToken::new());
        let task = Task::start(service.run(stop.clone()));
        Running { handle, stop, task }
    }

    /// Creates or changes a config map.
    pub fn put(&self, namespace: &str, name: &str, value: &str) -> Value {
        let object = config_map(namespace, name, value);
        let put = match self.server.get("configmaps", Some(namespace), name) {
            Ok(_) => self.server.update(object),
            Err(_) => self.server.create(object),
        };
        put.expect("put")
    }

    pub async fn end(self) {
        assert!(self.factory.shutdown(secs(10)).await.complete);
    }
}

impl<T: Send + 'static> Task<T> {
    pub fn start(future: impl Future<Output = T> + Send + 'static) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(future);
        Self(tasks)
    }

    pub async fn end(mut self) -> T {
        self.0.join_next().await.expect("a task").expect("no panic")
    }
}

impl Running {
    pub async fn stop(self) -> ControllerStats {
        self.stop.cancel();
        timeout(PLENTY, self.task.end()).await.expect("it ends").expect("no error");
        self.handle.stats()
    }
}

impl Diary {
    pub fn add(&self, line: String) {
        self.0.lock().push(line);
    }

    pub fn count(&self, line: &str) -> usize {
        self.0.lock().iter().filter(|known| *known == line).count()
    }

    /// Waits until it has these lines, at least as often as given.
    pub async fn has(&self, lines: &[&str]) {
        let has = |line: &&str| self.count(line) >= lines.iter().filter(|other| *other == line).count();
        let waited = timeout(PLENTY, until(|| lines.iter().all(has))).await;
        waited.unwrap_or_else(|_| panic!("{lines:?} are not all in {:?}", self.0.lock()));
    }
}

/// Waits until a condition holds.
pub async fn until(holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PLENTY, waiting).await.expect("the condition never held");
}

/// Makes an HTTP/2 transport over in-memory pipes.
pub fn transport_to(server: &Arc<TestServer>) -> Transport {
    let config = kube::Config::new("http://memory.test".parse().expect("a URL"));
    let options = TransportOptions { seed: Some(7), ..TransportOptions::default() };
    Transport::with_dialer(config, options, test_server_dialer(server)).expect("a transport")
}

pub fn config_map(namespace: &str, name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name, "labels": {"value": value}},
        "data": {"value": value},
    })
}

/// Makes a secret that belongs to a config map.
pub fn secret(name: &str, config: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": "a", "name": name, "labels": {"config": config}},
    })
}

/// Makes a secret owned by a config map.
pub fn child(name: &str, owner: &Value) -> Value {
    let (owner, uid) = (&owner["metadata"]["name"], &owner["metadata"]["uid"]);
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": "a", "name": name, "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "controller": true}
        ]},
    })
}

pub fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("a revision")
}
