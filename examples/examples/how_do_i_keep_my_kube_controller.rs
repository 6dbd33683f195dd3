//! How do I keep my kube-runtime controller, and get a better cache under it?
//!
//! `Informer::kube_watcher` takes the place of kube-runtime's `watcher`; all behind it stays. With kube-runtime's feature
//! `unstable-runtime-stream-control`, `Controller::for_stream(stream, reader)` does the same as `applier` here.
//!
//! ```console
//! cargo run -p skopos-examples --example how_do_i_keep_my_kube_controller
//! ```

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube_runtime::controller::{Action, Config, applier, trigger_self};
use kube_runtime::{WatchStreamExt, reflector};
use skopos::InformerOptions;
use skopos_examples::Cluster;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let pods = cluster.factory.informer::<Pod>(InformerOptions::all())?;

    // Was: let stream = watcher(api, watcher::Config::default());
    let stream = pods.kube_watcher()?;
    let (reader, writer) = reflector::store();
    let stream = reflector(writer, stream).applied_objects();

    let reconcile = |pod: Arc<Pod>, _context: Arc<()>| {
        Box::pin(async move {
            println!("reconciling {}", pod.metadata.name.as_deref().unwrap_or_default());
            Ok::<_, std::convert::Infallible>(Action::await_change())
        })
    };
    let on_error = |_, _: &std::convert::Infallible, _| Action::requeue(Duration::from_secs(5));
    let queue = trigger_self(stream, ());
    let controller = applier(reconcile, on_error, Arc::new(()), reader, queue, Config::default());

    // A real controller would run until it is told to stop.
    let _ = tokio::time::timeout(Duration::from_secs(2), controller.for_each(|_| async {})).await;
    cluster.factory.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
