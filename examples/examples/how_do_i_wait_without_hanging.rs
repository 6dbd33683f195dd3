//! What happens when the cluster is gone: do my calls return?
//!
//! ```console
//! cargo run -p skopos-examples --example how_do_i_wait_without_hanging
//! ```

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use skopos::InformerOptions;
use skopos_examples::Cluster;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    if let Some(server) = &cluster.server {
        server.pause().await;
    }
    let pods = cluster.factory.informer::<Pod>(InformerOptions::all())?;

    // Returns within its limit. The error names who is not synced, since when, after how many attempts, and why.
    match pods.wait_synced(Duration::from_secs(2)).await {
        Ok(()) => println!("synced"),
        Err(error) => println!("{error}"),
    }

    // The informer goes on trying meanwhile: when the server is back, so is the cache.
    if let Some(server) = &cluster.server {
        server.resume().await?;
        pods.wait_synced(Duration::from_secs(10)).await?;
        println!("{} pods, {}", pods.store().len(), pods.freshness());
    }

    let report = cluster.factory.shutdown(Duration::from_secs(1)).await;
    println!("{report:?}");
    println!(
        "after it: {}",
        pods.wait_synced(Duration::from_secs(1)).await.err().map_or("ok".into(), |e| e.to_string())
    );
    Ok(())
}
