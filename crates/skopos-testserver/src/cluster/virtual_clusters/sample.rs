//! Sample: a host and virtual clusters with running workloads, for a demonstration.

use serde_json::{Value, json};
use skopos_wire::Status;
use thiserror::Error;

use super::{VirtualCluster, VirtualClusters};
use crate::server::{StartError, TestServer, WaitTimeout};

/// Reason why a sample did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SampleError {
    /// The host does not start.
    #[error("the host does not start: {0}")]
    Start(#[from] StartError),
    /// An object is refused: a duplicate or an invalid name.
    #[error("an object is refused: {0}")]
    Refused(Box<Status>),
    /// A virtual cluster does not come up in time.
    #[error("a virtual cluster does not come up: {0}")]
    Late(#[from] WaitTimeout),
}

impl VirtualClusters {
    /// Starts a host, and in it a virtual cluster of each name (in the namespace `vcluster-NAME`), all with ports and TLS.
    /// Deploys a small shop into each of them. Scaling the StatefulSet of one to zero stops its API server; scaling it up starts
    /// it again with its data. Returns when all are up.
    ///
    /// The host's kubeconfig is that of [`VirtualClusters::host`]; those of the virtual clusters are in its Secrets `vc-NAME`.
    ///
    /// # Errors
    /// If there is no port, a name is a duplicate or invalid, or a cluster is not up within 30 s.
    pub async fn sample<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Result<Self, SampleError> {
        let host = TestServer::builder().tls(true).workloads(true).start().await?;
        let virtuals =
            Self::on(host).servers(|_, _| TestServer::builder().workloads(true)).export_addresses().start();
        let clusters: Vec<VirtualCluster> = names.into_iter().map(VirtualCluster::new).collect();
        for cluster in &clusters {
            virtuals.create(cluster).map_err(refused)?;
        }
        for (number, cluster) in clusters.iter().enumerate() {
            virtuals.wait_up(cluster.namespace(), cluster.name()).await?;
            // A cluster that is up has a server.
            if let Some(server) = virtuals.server(cluster.namespace(), cluster.name()) {
                shop(number)
                    .into_iter()
                    .try_for_each(|object| server.create(object).map(drop))
                    .map_err(refused)?;
            }
        }
        Ok(virtuals)
    }
}

fn refused(status: Status) -> SampleError {
    SampleError::Refused(Box::new(status))
}

/// Returns the workloads of the virtual cluster of this number: a little more in each.
fn shop(number: usize) -> Vec<Value> {
    const NS: &str = "shop";
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": NS},
            "data": {"currency": "EUR", "region": format!("eu-{}", number + 1)}}),
    ];
    for (app, replicas) in [("cart", 2 + number % 3), ("checkout", 1), ("search", 1 + number % 2)] {
        let labels = json!({"app": app, "tier": "web"});
        objects.push(json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": app, "namespace": NS, "labels": labels},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": app}}, "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": app, "image": format!("registry.example/{app}:1.{number}"),
                    "ports": [{"containerPort": 8080}]}]}}}}));
        objects.push(json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": app, "namespace": NS, "labels": labels},
            "spec": {"selector": {"app": app}, "ports": [{"port": 80, "targetPort": 8080}]}}));
    }
    objects
}
