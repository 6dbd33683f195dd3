//! How do I work on what changes, with retries, and never twice on the same object at once?
//!
//! ```console
//! cargo run -p skopos-examples --example how_do_i_use_a_work_queue
//! ```

use std::time::Duration;

use anyhow::ensure;
use futures::future::join_all;
use k8s_openapi::api::apps::v1::Deployment;
use skopos::workqueue::{WorkQueue, WorkQueueOptions};
use skopos::{InformerOptions, ObjectKey, Store};
use skopos_examples::{Cluster, deployment};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let deployments = cluster.factory.informer::<Deployment>(InformerOptions::all())?;
    let queue = WorkQueue::new(WorkQueueOptions::named("deployments"));

    // The queue has the keys only. If it is full, the informer's changes wait for room: no key is lost.
    let handler = queue.fed_by(&deployments, |event| [event.key().clone()])?;
    deployments.wait_synced(Duration::from_secs(30)).await?;

    let workers = join_all((1..=2).map(|worker| work(worker, queue.clone(), deployments.store())));
    let script = async {
        if let Some(server) = &cluster.server {
            for replicas in 1..=5 {
                server.apply(deployment("web", replicas))?;
            }
            let gone = server.delete("deployments.apps", Some("default"), "web")?;
            let revision = gone["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse()?;
            deployments.wait_for(&revision, Duration::from_secs(10)).await?;
        }
        handler.wait_synced(Duration::from_secs(30)).await?;
        // A program that ends gives up what it would try again. This one has the time.
        while queue.stats().delayed > 0 || !queue.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // No more keys come after this, and the workers end when they have done what there is.
        handler.remove(Duration::from_secs(1)).await?;
        queue.shut_down_with_drain(Duration::from_secs(10)).await?;
        anyhow::Ok(())
    };
    let (_, done) = tokio::join!(workers, script);
    done?;

    let stats = queue.stats();
    println!("{} keys, {} of them tried again, {:?} each", stats.adds, stats.retries, stats.work.mean());
    cluster.factory.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

async fn work(worker: u32, queue: WorkQueue<ObjectKey>, store: Store<Deployment>) {
    while let Some(item) = queue.get().await {
        match reconcile(&item, item.failures(), &store).await {
            Ok(said) => {
                println!("worker {worker}: {}: {said}", *item);
                item.done();
            }
            Err(error) => {
                println!("worker {worker}: {}: {error}, again later", *item);
                item.retry();
            }
        }
    }
}

/// Looks at the newest state, whatever led to it. The first try fails, for the sake of the example.
async fn reconcile(key: &ObjectKey, failures: u32, store: &Store<Deployment>) -> anyhow::Result<String> {
    ensure!(failures > 0, "it does not work yet");
    let Some(object) = store.get(key) else { return Ok("it is gone".to_owned()) };
    let wanted = object.typed()?.spec.replicas;
    Ok(format!("{} replicas are wanted", wanted.unwrap_or(1)))
}
