//! The cluster that the examples talk to: a test server in the process, or yours with `-- --cluster`.

use anyhow::{Context, Result};
use serde_json::json;
use skopos::transport::kubeconfig::Kubeconfig;
use skopos::{FactoryOptions, InformerFactory, Transport, TransportOptions};
use skopos_testserver::TestServer;

/// A cluster, and the factory for its informers.
pub struct Cluster {
    /// How to reach it.
    pub config: kube::Config,
    /// Makes informers.
    pub factory: InformerFactory,
    /// The test server; `None` with `--cluster`.
    pub server: Option<TestServer>,
}

impl Cluster {
    /// A test server with some pods, or the cluster of your kubeconfig if `--cluster` is among the arguments.
    pub async fn connect() -> Result<Cluster> {
        if std::env::args().any(|argument| argument == "--cluster") {
            return Cluster::of(skopos::transport::infer_config().await?, None);
        }
        let server = TestServer::builder().tls(true).workloads(true).start().await?;
        server.load_pods(50);
        server.create(deployment("web", 3)).context("creating a deployment")?;
        let kubeconfig = server.kubeconfig();
        let config = Kubeconfig::parse(kubeconfig.as_bytes(), kubeconfig.len())?.config(None)?;
        Cluster::of(config, Some(server))
    }

    fn of(config: kube::Config, server: Option<TestServer>) -> Result<Cluster> {
        let transport = Transport::from_config(config.clone(), TransportOptions::default())?;
        let factory = InformerFactory::new(transport, FactoryOptions::default());
        Ok(Cluster { config, factory, server })
    }
}

/// A Deployment in the namespace `default`.
pub fn deployment(name: &str, replicas: u32) -> serde_json::Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "registry.example/main:1"}]},
            },
        },
    })
}

#[cfg(doctest)]
mod docs;
