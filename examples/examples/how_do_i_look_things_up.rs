//! How do I find objects by namespace, label or an index of my own?
//!
//! ```console
//! cargo run -p skopos-examples --example how_do_i_look_things_up
//! ```

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use skopos::{InformerOptions, LabelSelector};
use skopos_examples::Cluster;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let options = InformerOptions::all().index("by_node", |pod: &Pod| pod.spec.as_ref()?.node_name.clone());
    let pods = cluster.factory.informer::<Pod>(options)?;
    pods.wait_synced(Duration::from_secs(30)).await?;

    // Reads that belong together take one snapshot.
    let snapshot = pods.snapshot();
    let Some(first) = snapshot.iter().next() else { return Ok(()) };
    println!("first in order: {}", first.key());

    let namespace = first.namespace().unwrap_or_default();
    println!("in namespace {namespace}: {}", snapshot.in_namespace(namespace).count());

    let selector = LabelSelector::parse("app in (web,api),!canary")?;
    println!("matching {selector}: {}", snapshot.select(&selector).count());

    if let Some(node) = first.raw().field("spec.nodeName") {
        println!("on node {node}: {}", snapshot.by_index("by_node", &node)?.count());
    }

    // Nothing was decoded so far. A typed view is made when it is asked for.
    let pod = first.decode()?;
    println!("phase of {}: {:?}", first.key(), pod.status.and_then(|status| status.phase));
    cluster.factory.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
