//! How do I test my controller without a cluster?
//!
//! ```console
//! cargo run -p skopos-examples --example how_do_i_test_my_controller
//! ```
//!
//! `is_it_there` stands for the code under test; the server is started, broken and stopped around it.

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use skopos_testserver::{Fault, Match, TestServer};

async fn is_it_there(client: kube::Client) -> Result<bool> {
    Ok(Api::<ConfigMap>::namespaced(client, "default").get_opt("settings").await?.is_some())
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = TestServer::builder().start().await?;
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = kube::Client::try_from(config)?;

    assert!(!is_it_there(client.clone()).await?);
    server.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "default"}}))?;
    assert!(is_it_there(client.clone()).await?);

    let fault =
        server.faults().inject(Fault::status(503, 0)).on(Match::get().resource("configmaps")).times(1);
    assert!(is_it_there(client.clone()).await.is_err());
    drop(fault);
    println!("the controller was asked {} times", server.requests().len());
    server.stop().await;
    Ok(())
}
