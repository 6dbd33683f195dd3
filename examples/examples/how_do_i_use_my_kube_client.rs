//! How do I get connections that notice their own death under a plain `kube::Client`?
//!
//! ```console
//! cargo run -p skopos-examples --example how_do_i_use_my_kube_client
//! ```

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use skopos::{Transport, TransportOptions};
use skopos_examples::Cluster;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let transport = Transport::from_config(cluster.config.clone(), TransportOptions::default())?;

    let pods: Api<Pod> = Api::all(transport.client("default"));
    println!("{} pods", pods.list(&ListParams::default().limit(500)).await?.items.len());

    println!("{:?}", transport.stats());
    transport.shutdown(std::time::Duration::from_secs(1)).await;
    Ok(())
}
