//! How do I read from the cache what I have just written?
//!
//! ```console
//! cargo run -p skopos-examples --example how_do_i_read_my_own_write
//! ```

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use skopos::{InformerOptions, ObjectKey};
use skopos_examples::Cluster;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let maps = cluster.factory.informer::<ConfigMap>(InformerOptions::namespace("default"))?;
    maps.wait_synced(Duration::from_secs(30)).await?;

    // Writes go through an ordinary kube client, here on the informers' own connections.
    let client = cluster.factory.transport().client("default");
    let map: ConfigMap = serde_json::from_value(
        serde_json::json!({"metadata": {"generateName": "mine-"}, "data": {"a": "1"}}),
    )?;
    let written = Api::<ConfigMap>::default_namespaced(client).create(&PostParams::default(), &map).await?;

    let revision = written.metadata.resource_version.unwrap_or_default().parse()?;
    let snapshot = maps.wait_for(&revision, Duration::from_secs(10)).await?;
    let name = written.metadata.name.unwrap_or_default();
    println!(
        "{:?}",
        snapshot.get(&ObjectKey::namespaced("default", &name)).map(|found| found.key().to_string())
    );
    cluster.factory.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
