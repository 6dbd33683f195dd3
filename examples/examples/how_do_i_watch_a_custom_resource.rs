//! How do I watch a kind that I have no Rust type for, or only its metadata?
//!
//! ```console
//! cargo run -p skopos-examples --example how_do_i_watch_a_custom_resource
//! ```

use std::time::Duration;

use kube::api::{ApiResource, GroupVersionKind};
use serde_json::json;
use skopos::InformerOptions;
use skopos_examples::Cluster;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    if let Some(server) = &cluster.server {
        server.create(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.dev"},
            "spec": {
                "group": "example.dev", "scope": "Namespaced",
                "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
            },
        }))?;
        server.create(json!({
            "apiVersion": "example.dev/v1", "kind": "Widget",
            "metadata": {"name": "first", "namespace": "default"}, "spec": {"size": 3},
        }))?;
    }
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.dev", "v1", "Widget"), "widgets");

    let widgets = cluster.factory.dynamic(&resource, InformerOptions::all())?;
    widgets.wait_synced(Duration::from_secs(30)).await?;
    for widget in widgets.snapshot().iter() {
        println!("{}: size {}", widget.key(), widget.decode()?.data["spec"]["size"]);
    }

    // Metadata only: the server sends nothing else, and nothing else is kept.
    let metadata = cluster.factory.dynamic_metadata(&resource, InformerOptions::all())?;
    metadata.wait_synced(Duration::from_secs(30)).await?;
    println!("{} widgets by their metadata", metadata.store().len());
    cluster.factory.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
