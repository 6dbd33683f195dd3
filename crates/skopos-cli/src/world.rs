//! Objects for the test server, and the changes that keep happening to them.
use std::time::Duration;

use serde_json::{Value, json};
use skopos_testserver::{PodGenerator, TestServer};

use crate::error::CliError;

/// Some objects of a test server that keep changing.
#[derive(Debug)]
pub(crate) struct World {
    things: Vec<Thing>,
    rng: fastrand::Rng,
    serial: u64,
}

/// One object that may change.
#[derive(Debug, Clone)]
struct Thing {
    resource: &'static str,
    namespace: Option<String>,
    name: String,
}

const DEMO_NAMESPACE: &str = "demo";
/// Pods whose names are remembered at most; more do not make the changes more varied.
const REMEMBERED: usize = 5000;

impl World {
    /// Realistic pods, in several namespaces.
    pub(crate) fn of_pods(server: &TestServer, pods: u32) -> Result<Self, CliError> {
        let pods = pods as usize;
        server.load_pods(pods);
        let namespace = match pods > REMEMBERED {
            true => PodGenerator::new(0).namespace_names().next(),
            false => None,
        };
        let (listed, _) = server.list("pods", namespace.as_deref()).map_err(CliError::new)?;
        let things = listed.iter().take(REMEMBERED).map(|pod| Thing::of("pods", pod)).collect();
        Ok(Self { things, rng: fastrand::Rng::new(), serial: 0 })
    }

    /// A small cluster: nodes and their leases, deployments with pods of their own, configuration, and many pods.
    pub(crate) fn of_cluster(server: &TestServer, pods: u32) -> Result<Self, CliError> {
        const NODES: usize = 6;
        const DEPLOYMENTS: [&str; 8] =
            ["cart", "catalog", "checkout", "gateway", "mailer", "orders", "search", "web"];
        const CONFIGMAPS: usize = 24;
        ensure(server, namespace(DEMO_NAMESPACE))?;
        ensure(server, namespace("kube-node-lease"))?;
        let mut world = Self::of_pods(server, pods)?;
        for i in 0..NODES {
            let name = format!("node-{i}");
            world.create(server, "nodes", node(&name))?;
            world.create(server, "leases", lease(&name))?;
        }
        for name in DEPLOYMENTS {
            world.create(server, "deployments", deployment(name))?;
        }
        for i in 0..CONFIGMAPS {
            world.create(server, "configmaps", configmap(&format!("settings-{i:02}")))?;
        }
        Ok(world)
    }

    /// Lets one thing happen to one object. Objects that somebody else deleted are forgotten.
    pub(crate) fn change(&mut self, server: &TestServer) {
        self.serial += 1;
        let Some(index) = self.pick() else { return };
        let thing = self.things[index].clone();
        let (namespace, name) = (thing.namespace.as_deref(), thing.name.as_str());
        let Ok(mut object) = server.get(thing.resource, namespace, name) else {
            self.things.swap_remove(index);
            return;
        };
        let replaced = thing.resource == "pods" && self.rng.u8(..100) < 10;
        if replaced {
            self.things.swap_remove(index);
            let successor = successor(&object, self.serial);
            if server.delete("pods", namespace, name).is_ok() {
                // A name that is taken is no harm: one pod less.
                let _ = self.create(server, "pods", successor);
            }
            return;
        }
        touch(thing.resource, &mut object, self.serial, &mut self.rng);
        // Somebody with kubectl may have been faster.
        let _ = server.update(object);
    }

    /// An object to change: any kind as likely as a third of the pods, so that every kind shows life.
    fn pick(&mut self) -> Option<usize> {
        const TRIES: usize = 8;
        if self.things.is_empty() {
            return None;
        }
        let mut index = self.rng.usize(..self.things.len());
        if self.rng.bool() {
            for _ in 0..TRIES {
                if self.things[index].resource != "pods" {
                    break;
                }
                index = self.things.len() - 1 - self.rng.usize(..self.things.len().min(64));
            }
        }
        Some(index)
    }

    fn create(&mut self, server: &TestServer, resource: &'static str, object: Value) -> Result<(), CliError> {
        let created = server.create(object).map_err(CliError::new)?;
        self.things.push(Thing::of(resource, &created));
        Ok(())
    }
}

impl Thing {
    fn of(resource: &'static str, object: &Value) -> Self {
        let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
        Self { resource, namespace: text("namespace"), name: text("name").unwrap_or_default() }
    }
}

/// How many changes are due, at a given rate.
#[derive(Debug)]
pub(crate) struct Pace {
    per_second: f64,
    owed: f64,
}

impl Pace {
    /// So many changes per second.
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second: per_second.into(), owed: 0.0 }
    }

    /// How many are due now that so much time has passed since the last question. After a long pause at most those of
    /// one second.
    pub(crate) fn due(&mut self, passed: Duration) -> u32 {
        self.owed += self.per_second * passed.as_secs_f64().min(1.0);
        let due = self.owed.floor();
        self.owed -= due;
        due as u32
    }
}

/// Changes what changes in such an object in real life.
fn touch(resource: &str, object: &mut Value, serial: u64, rng: &mut fastrand::Rng) {
    match resource {
        "configmaps" => object["data"]["revision"] = json!(serial.to_string()),
        "leases" => object["spec"]["renewTime"] = json!(micro_time()),
        "deployments" => object["spec"]["replicas"] = json!(rng.u8(1..6)),
        "nodes" => object["metadata"]["labels"]["demo.skopos.dev/load"] = json!(rng.u8(..100).to_string()),
        _ => object["metadata"]["annotations"]["demo.skopos.dev/revision"] = json!(serial.to_string()),
    }
}

/// The pod that takes another's place: the same, under a new name.
fn successor(pod: &Value, serial: u64) -> Value {
    let name = pod["metadata"]["name"].as_str().unwrap_or("pod");
    let stem = name.rsplit_once('-').map_or(name, |(stem, _)| stem);
    let mut next = pod.clone();
    next["metadata"] = json!({
        "name": format!("{stem}-{serial:05x}"),
        "namespace": pod["metadata"]["namespace"],
        "labels": pod["metadata"]["labels"],
        "annotations": pod["metadata"]["annotations"],
        "ownerReferences": pod["metadata"]["ownerReferences"],
    });
    if let Some(metadata) = next["metadata"].as_object_mut() {
        metadata.retain(|_, value| !value.is_null());
    }
    next
}

/// Creates an object unless it is there.
fn ensure(server: &TestServer, object: Value) -> Result<(), CliError> {
    match server.create(object) {
        Err(status) if status.code != 409 => Err(CliError::new(status)),
        _ => Ok(()),
    }
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "nodeInfo": {"kubeletVersion": "v1.36.0", "operatingSystem": "linux", "architecture": "amd64"}
        }
    })
}

fn lease(name: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micro_time()}
    })
}

fn configmap(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": DEMO_NAMESPACE},
        "data": {"revision": "0", "log-level": "info"}
    })
}

fn deployment(name: &str) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": DEMO_NAMESPACE, "labels": labels},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": name, "image": format!("registry.example/{name}:1.0")}]}
            }
        }
    })
}

/// The present as a MicroTime: `2026-01-02T03:04:05.678901Z`.
fn micro_time() -> String {
    format!("{:.6}", jiff::Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_kept_however_it_is_asked() {
        let mut pace = Pace::new(20);
        let due: u32 = (0..100).map(|_| pace.due(Duration::from_millis(33))).sum();
        assert_eq!(due, 66);
        assert_eq!(pace.due(Duration::from_secs(3600)), 20, "a laptop that slept does not catch up");
        assert_eq!(Pace::new(0).due(Duration::from_secs(1)), 0);
    }

    #[test]
    fn times_are_micro_times() {
        let time = micro_time();
        assert_eq!(time.len(), "2026-01-02T03:04:05.678901Z".len(), "{time}");
    }

    #[tokio::test]
    async fn the_cluster_keeps_changing_and_does_not_drain() {
        let server = TestServer::builder().start().await.unwrap();
        let mut world = World::of_cluster(&server, 50).unwrap();
        let kinds = ["pods", "nodes", "leases", "deployments", "configmaps"];
        let before = kinds.map(|kind| server.count(kind));
        assert!(before.iter().all(|count| *count > 0), "{before:?}");
        let version = server.resource_version();
        for _ in 0..500 {
            world.change(&server);
        }
        // Some changes set what is set already, and make no version.
        assert!(server.resource_version() >= version + 400, "{}", server.resource_version() - version);
        assert_eq!(kinds.map(|kind| server.count(kind)), before);
        server.stop().await;
    }
}
