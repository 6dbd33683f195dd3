//! Pods of the test server, and the changes that keep happening to them.
use serde_json::{Value, json};
use skopos_console::error::CliError;
use skopos_testserver::{PodGenerator, TestServer};

/// Pods of a test server that keep changing.
#[derive(Debug)]
pub(crate) struct World {
    pods: Vec<Name>,
    rng: fastrand::Rng,
    serial: u64,
}

/// A pod that may change.
#[derive(Debug, Clone)]
struct Name {
    namespace: Option<String>,
    name: String,
}

/// Maximum number of remembered pod names. More would not make the changes more varied.
const REMEMBERED: usize = 5000;

impl World {
    /// Creates realistic pods in several namespaces.
    pub(crate) fn with_pods(server: &TestServer, pods: u32) -> Result<Self, CliError> {
        let pods = pods as usize;
        server.load_pods(pods);
        let namespace = match pods > REMEMBERED {
            true => PodGenerator::new(0).namespace_names().next(),
            false => None,
        };
        let (listed, _) = server.list("pods", namespace.as_deref()).map_err(CliError::new)?;
        let pods = listed.iter().take(REMEMBERED).map(Name::from_pod).collect();
        Ok(Self { pods, rng: fastrand::Rng::new(), serial: 0 })
    }

    /// Makes one change to one pod. Pods that another client deleted are forgotten.
    pub(crate) fn change(&mut self, server: &TestServer) {
        self.serial += 1;
        if self.pods.is_empty() {
            return;
        }
        let index = self.rng.usize(..self.pods.len());
        let Name { namespace, name } = self.pods[index].clone();
        let namespace = namespace.as_deref();
        let Ok(mut pod) = server.get("pods", namespace, &name) else {
            self.pods.swap_remove(index);
            return;
        };
        if self.rng.u8(..100) >= 10 {
            pod["metadata"]["annotations"]["demo.skopos.dev/revision"] = json!(self.serial.to_string());
            // Another client may have been faster.
            let _ = server.update(pod);
            return;
        }
        self.pods.swap_remove(index);
        let successor = successor(&pod, self.serial);
        if server.delete("pods", namespace, &name).is_ok()
            // A name that is taken does no harm: there is one pod less.
            && let Ok(created) = server.create(successor)
        {
            self.pods.push(Name::from_pod(&created));
        }
    }
}

impl Name {
    fn from_pod(pod: &Value) -> Self {
        let text = |field: &str| pod["metadata"][field].as_str().map(str::to_owned);
        Self { namespace: text("namespace"), name: text("name").unwrap_or_default() }
    }
}

/// Returns the replacement of a deleted pod: the same pod under a new name.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn churn_keeps_pod_count_constant() {
        let server = TestServer::builder().start().await.unwrap();
        let mut world = World::with_pods(&server, 50).unwrap();
        let before = server.count("pods");
        assert!(before > 0);
        let version = server.resource_version();
        for _ in 0..500 {
            world.change(&server);
        }
        assert!(server.resource_version() >= version + 500, "{}", server.resource_version() - version);
        assert_eq!(server.count("pods"), before);
        server.stop().await;
    }
}
