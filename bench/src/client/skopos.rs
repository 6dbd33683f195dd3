//! An informer with one handler, as the README shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use skopos::{
    Event, FactoryOptions, HandlerOptions, InformerFactory, InformerOptions, Transport, TransportOptions,
    sync_handler,
};
use tokio::sync::Notify;

use super::report;
use crate::serve::LAST;
use crate::usage::Usage;

const LIMIT: Duration = Duration::from_secs(600);

pub(super) async fn run(config: kube::Config, typed: bool, before: Usage) -> Result<()> {
    let transport = Transport::from_config(config, TransportOptions::default())?;
    let factory = InformerFactory::new(transport, FactoryOptions::default());
    let pods = factory.informer::<Pod>(InformerOptions::all())?;
    let seen = Arc::new(Seen::default());
    let handler = pods.add_handler(counting(typed, seen.clone()), HandlerOptions::default())?;
    pods.wait_synced(LIMIT).await?;
    tokio::time::timeout(LIMIT, handler.synced()).await??;
    let objects = seen.objects.load(Ordering::Relaxed);
    report(objects, 0, before)?;
    seen.last.notified().await;
    report(objects, seen.events.load(Ordering::Relaxed), before)?;
    factory.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

#[derive(Default)]
struct Seen {
    objects: AtomicU64,
    events: AtomicU64,
    last: Notify,
}

fn counting(
    typed: bool,
    seen: Arc<Seen>,
) -> skopos::SyncHandler<impl Fn(Event<Pod>) + Send + Sync + 'static> {
    sync_handler(move |event: Event<Pod>| {
        if typed {
            let pod = event.object().decode().expect("a generated pod is a pod");
            std::hint::black_box(pod);
        }
        match event {
            Event::Added { initial: true, .. } => drop(seen.objects.fetch_add(1, Ordering::Relaxed)),
            event => {
                seen.events.fetch_add(1, Ordering::Relaxed);
                if event.object().name() == LAST {
                    seen.last.notify_one();
                }
            }
        }
    })
}
