//! How do I restart without listing everything again?
//!
//! ```console
//! cargo run -p skopos-examples --example how_do_i_restart_without_a_relist
//! ```

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use skopos::checkpoint::{Checkpoint, CheckpointLimits};
use skopos::{FactoryOptions, Informer, InformerFactory, InformerOptions, Transport, TransportOptions};
use skopos_examples::Cluster;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let path = std::env::temp_dir().join(format!("pods-{}.skopos", std::process::id()));

    // The first run keeps what it has in a file. A service does so now and then, and in `spawn_blocking`. Whenever it is
    // killed, the old file or the new one is there.
    let pods = cluster.factory.informer::<Pod>(InformerOptions::all())?;
    pods.wait_synced(Duration::from_secs(30)).await?;
    let written = pods.checkpoint()?.save(&path)?;
    println!("{} pods in {} bytes", written.objects, written.bytes);
    drop(pods);
    cluster.factory.shutdown(Duration::from_secs(1)).await;

    // The second run begins with it: there is content before there is a connection, and it says how old it is.
    let transport = Transport::from_config(cluster.config.clone(), TransportOptions::default())?;
    let factory = InformerFactory::new(transport, FactoryOptions::default());
    let checkpoint = Checkpoint::load(&path, &CheckpointLimits::default());
    // A file that is damaged, cut off or of something else is refused as a whole; then one begins with a list.
    let options = match checkpoint {
        Ok(checkpoint) => InformerOptions::all().restored(checkpoint),
        Err(error) => {
            eprintln!("{error}: listing");
            InformerOptions::all()
        }
    };
    let pods: Informer<Pod> = factory.informer(options)?;
    println!("at once: {} pods, {}", pods.snapshot().len(), pods.freshness());

    // The watch goes on where the first run ended. Synced means that the server has confirmed it.
    pods.wait_synced(Duration::from_secs(30)).await?;
    let lists: u64 = pods.stats().lists_sent;
    println!("then: {} pods, {}, after {lists} lists", pods.snapshot().len(), pods.freshness());
    factory.shutdown(Duration::from_secs(1)).await;
    std::fs::remove_file(&path)?;
    Ok(())
}
