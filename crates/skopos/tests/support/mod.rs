//! Helpers of this crate's tests: a server, a factory that is connected to it, and objects.
#![allow(dead_code, unreachable_pub, reason = "each test file is a crate that uses some of it")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use skopos::transport::{Dialed, Protocol, dialer_fn};
use skopos::{FactoryOptions, InformerFactory, Transport, TransportOptions};
use skopos_testserver::{TestServer, TestServerBuilder};

/// A server, and a factory that reaches it over connections in memory, so that virtual time works.
pub struct World {
    pub server: Arc<TestServer>,
    pub factory: InformerFactory,
}

/// A timeout far beyond what anything takes; in virtual time it costs nothing.
pub const PLENTY: Duration = Duration::from_secs(60);

pub fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub async fn world() -> World {
    world_with(TestServer::builder(), quiet()).await
}

pub async fn world_with(server: TestServerBuilder, options: FactoryOptions) -> World {
    let server = Arc::new(server.start().await.expect("the server starts"));
    for namespace in ["a", "b", "c"] {
        server.create(namespace_object(namespace)).expect("a namespace");
    }
    let factory = InformerFactory::new(transport_to(&server), options);
    World { server, factory }
}

/// Returns options for a deterministic factory without audits.
pub fn quiet() -> FactoryOptions {
    FactoryOptions { audit_interval: None, seed: Some(7), ..FactoryOptions::default() }
}

/// Makes a transport that uses HTTP/2 over pipes in memory.
pub fn transport_to(server: &Arc<TestServer>) -> Transport {
    let server = Arc::downgrade(server);
    let dialer = dialer_fn(move |_| {
        let connected = server.upgrade().map(|server| server.connect());
        async move {
            let refused = |reason: String| skopos::transport::TransportErrorKind::Refused {
                to: "memory".into(),
                reason: reason.into(),
            };
            match connected {
                Some(Ok(stream)) => Ok(Dialed::new(stream, Protocol::Http2)),
                Some(Err(error)) => Err(refused(error.to_string())),
                None => Err(refused("the server is gone".to_owned())),
            }
        }
    });
    let config = kube::Config::new("http://memory.test".parse().expect("a url"));
    let options = TransportOptions { seed: Some(7), ..TransportOptions::default() };
    Transport::with_dialer(config, options, dialer).expect("a transport")
}

pub fn namespace_object(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

pub fn config_map(namespace: &str, name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name, "labels": {"value": value}},
        "data": {"value": value},
    })
}

impl World {
    /// Creates a config map, and returns its resource version.
    pub fn create(&self, namespace: &str, name: &str, value: &str) -> u64 {
        revision(&self.server.create(config_map(namespace, name, value)).expect("created"))
    }

    /// Creates or changes a config map, and returns its resource version.
    pub fn put(&self, namespace: &str, name: &str, value: &str) -> u64 {
        let object = config_map(namespace, name, value);
        let put = match self.server.get("configmaps", Some(namespace), name) {
            Ok(_) => self.server.update(object),
            Err(_) => self.server.create(object),
        };
        revision(&put.expect("put"))
    }

    pub fn delete(&self, namespace: &str, name: &str) {
        self.server.delete("configmaps", Some(namespace), name).expect("deleted");
    }

    /// Returns the number of requests of this verb for this resource that have reached the server.
    pub fn requests(&self, verb: &str, resource: &str) -> usize {
        let of =
            |r: &&skopos_testserver::RequestRecord| r.verb == verb && r.resource.as_deref() == Some(resource);
        self.server.requests().iter().filter(of).count()
    }

    /// Returns the number of lists that were not probes.
    pub fn lists(&self, resource: &str) -> usize {
        let requests = self.server.requests();
        let of = |r: &&skopos_testserver::RequestRecord| {
            r.verb == "list" && r.resource.as_deref() == Some(resource)
        };
        requests.iter().filter(of).filter(|r| r.query_param("limit").as_deref() != Some("1")).count()
    }
}

pub fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|rv| rv.parse().ok()).expect("a resource version")
}

/// Waits for a condition without a better signal, in virtual or real time.
pub async fn eventually(what: &str, mut reached: impl FnMut() -> bool) {
    eventually_within(PLENTY, what, &mut reached).await;
}

pub async fn eventually_within(limit: Duration, what: &str, mut reached: impl FnMut() -> bool) {
    let begun = tokio::time::Instant::now();
    while !reached() {
        assert!(begun.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until an earlier list or probe no longer proves the content to be of this very moment: it would be fresh enough
/// for every read.
pub async fn until_nothing_is_of_this_moment() {
    tokio::time::sleep(secs(1)).await;
}
