//! How do I run code for each change, with the old and the new object?
//!
//! ```console
//! cargo run -p skopos-examples --example how_do_i_handle_changes
//! ```

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use skopos::{Event, HandlerOptions, InformerOptions, sync_handler};
use skopos_examples::{Cluster, deployment};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let deployments = cluster.factory.informer::<Deployment>(InformerOptions::all())?;

    let handler = deployments.add_handler(
        sync_handler(|event: Event<Deployment>| match event {
            Event::Added { object, initial, .. } => {
                println!("added    {} (initial: {initial})", object.key())
            }
            Event::Updated { old, new, .. } => {
                println!(
                    "updated  {} RV {} -> {}",
                    new.key(),
                    old.resource_version(),
                    new.resource_version()
                );
            }
            Event::Deleted { object, final_state_known, .. } => {
                println!("deleted  {} (final state known: {final_state_known})", object.key());
            }
        }),
        HandlerOptions::default(),
    )?;

    // Bounded: the error would say who is not synced, since when, and why. Then: this handler has seen all of it.
    deployments.wait_synced(Duration::from_secs(30)).await?;
    handler.wait_synced(Duration::from_secs(30)).await?;

    if let Some(server) = &cluster.server {
        server.apply(deployment("web", 5))?;
        let gone = server.delete("deployments.apps", Some("default"), "web")?;
        let revision = gone["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse()?;
        deployments.wait_for(&revision, Duration::from_secs(10)).await?;
    }

    // After this returns, no callback runs any more.
    handler.remove(Duration::from_secs(1)).await?;
    cluster.factory.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
