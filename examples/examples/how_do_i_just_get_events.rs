//! How do I watch without a cache, and not stop when the server closes the watch?
//!
//! ```console
//! cargo run -p skopos-examples --example how_do_i_just_get_events
//! ```

use futures::StreamExt;
use serde_json::json;
use skopos::{RawWatch, RawWatchItem, Target};
use skopos_examples::Cluster;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let transport = cluster.factory.transport().clone();
    let target = Target::new("", "v1", "configmaps").in_namespace("default");
    let mut events = RawWatch::builder(transport.clone(), target).from_now();

    // The first item is a bookmark: it says after which RV the events come.
    println!("{:?}", events.next().await);
    let Some(server) = &cluster.server else { return Ok(()) };
    for name in ["before", "after"] {
        server.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}))?;
        loop {
            match events.next().await {
                Some(RawWatchItem::Event(event)) => match event.object() {
                    Some(object) if object.name() == name => break println!("{event:?}"),
                    _ => {}
                },
                Some(other) => println!("not everything is known: {other:?}"),
                None => return Ok(()),
            }
        }
        // The server ends all watches; the stream goes on.
        server.close_watches();
    }
    transport.shutdown(std::time::Duration::from_secs(1)).await;
    Ok(())
}
