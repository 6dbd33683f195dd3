//! An informer with one handler, as the README shows.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use skopos::{
    Event, FactoryOptions, HandlerOptions, InformerFactory, InformerOptions, Transport, TransportOptions,
    sync_handler,
};

use super::Seen;

const LIMIT: Duration = Duration::from_secs(600);

pub(super) async fn run(config: kube::Config, typed: bool, seen: &Arc<Seen>) -> Result<()> {
    let transport = Transport::from_config(config, TransportOptions::default())?;
    let factory = InformerFactory::new(transport, FactoryOptions::default());
    let pods = factory.informer::<Pod>(InformerOptions::all())?;
    let handler = pods.add_handler(counting(typed, seen.clone()), HandlerOptions::default())?;
    pods.wait_synced(LIMIT).await?;
    handler.wait_synced(LIMIT).await?;
    seen.synced();
    // Until the process is told to end.
    std::future::pending().await
}

fn counting(
    typed: bool,
    seen: Arc<Seen>,
) -> skopos::SyncHandler<impl Fn(Event<Pod>) + Send + Sync + 'static> {
    sync_handler(move |event: Event<Pod>| {
        if typed {
            let pod = event.object().decode().expect("a generated pod is a pod");
            std::hint::black_box(&pod);
        }
        match event {
            Event::Added { initial: true, .. } => seen.object(),
            event => seen.event(event.object().name()),
        }
    })
}
