//! What an informer costs that has nothing to do: many of them, each its own list/watch, in one process on one cluster.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use skopos::{FactoryOptions, InformerFactory, InformerOptions, Transport, TransportOptions};

use crate::run::Server;
use crate::usage::Usage;

pub(crate) async fn run(informers: usize) -> Result<()> {
    let server = Server::start(0).await?;
    let transport = Transport::from_config(server.config().await?, TransportOptions::default())?;
    let factory = InformerFactory::new(transport.clone(), FactoryOptions::default());
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let (before, tasks_before) = (Usage::now()?, tasks());
    let mut running = Vec::new();
    for number in 0..informers {
        let options = InformerOptions::all().labels(&format!("informer={number}"))?;
        running.push(factory.informer::<ConfigMap>(options)?);
    }
    for informer in &running {
        informer.wait_synced(Duration::from_secs(120)).await?;
    }
    let after = Usage::now()?;
    println!("{informers} idle informers, each with a list/watch of its own:");
    println!("  tasks        {:.2} per informer", (tasks() - tasks_before) as f64 / informers as f64);
    let kib = after.resident_kib.saturating_sub(before.resident_kib);
    println!("  memory       {:.1} KiB per informer", kib as f64 / informers as f64);
    println!(
        "  CPU          {:.0} µs per informer until synced",
        (after.cpu_us - before.cpu_us) as f64 / informers as f64
    );
    println!("  {:?}", transport.stats());
    factory.shutdown(Duration::from_secs(2)).await;
    server.stop().await
}
