//! How old is what I read?
//!
//! ```console
//! cargo run -p skopos-examples --example how_old_is_my_cache
//! ```

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use skopos::InformerOptions;
use skopos_examples::Cluster;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let pods = cluster.factory.informer::<Pod>(InformerOptions::all())?;
    pods.wait_synced(Duration::from_secs(30)).await?;

    // A snapshot is immutable and belongs to one resourceVersion.
    let snapshot = pods.snapshot();
    println!("{} pods at RV {}: {}", snapshot.len(), snapshot.resource_version(), pods.freshness());

    // "At most 5 s old, and tell me within 2 s": from memory if that is proven, else from the server.
    let read = pods.read(Duration::from_secs(5), Duration::from_secs(2)).await?;
    println!("{} pods, {}, from {:?}", read.snapshot.len(), read.freshness(), read.source);

    // When the server goes away the content stays, and says so.
    if let Some(server) = &cluster.server {
        server.pause().await;
        let error = pods.read(Duration::ZERO, Duration::from_secs(2)).await.err();
        println!(
            "without the server: {}; a read of age 0 says: {}",
            pods.freshness(),
            error.map_or("ok".into(), |e| e.to_string())
        );
    }
    cluster.factory.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
