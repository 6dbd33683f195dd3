//! What a read costs while the writer applies events as fast as the server sends them.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use k8s_openapi::api::core::v1::Pod;
use skopos::{
    FactoryOptions, InformerFactory, InformerOptions, ObjectKey, Store, Transport, TransportOptions,
};
use tokio::time::Instant;

use crate::run::Server;

pub(crate) async fn run(objects: usize, reads: usize, events: usize) -> Result<()> {
    let mut server = Server::start(objects).await?;
    let transport = Transport::from_config(server.config().await?, TransportOptions::default())?;
    let factory = InformerFactory::new(transport, FactoryOptions::default());
    let pods = factory.informer::<Pod>(InformerOptions::all())?;
    pods.wait_synced(Duration::from_secs(120)).await?;

    let store = pods.store();
    println!("{} objects, {reads} reads of each kind, nanoseconds with the clock's own share", store.len());
    time_reads("quiet", &store, reads)?;
    let reader = std::thread::spawn(move || time_reads("under load", &store, reads));
    server.ask(&format!("churn {events}")).await?;
    reader.join().map_err(|_| anyhow!("the reader panicked"))??;
    factory.shutdown(Duration::from_secs(1)).await;
    server.stop().await
}

fn time_reads(what: &str, store: &Store<Pod>, reads: usize) -> Result<()> {
    let names: Vec<(String, String)> = store
        .snapshot()
        .iter()
        .map(|pod| (pod.namespace().unwrap_or_default().to_owned(), pod.name().to_owned()))
        .collect();
    if what == "under load" {
        wait_for_change(store);
    }
    let revision = |store: &Store<Pod>| store.snapshot().resource_version().as_u64().context("a small RV");
    let (first, started) = (revision(store)?, Instant::now());
    let snapshots = timed(reads, |_| (), |()| drop(std::hint::black_box(store.snapshot())));
    // A stride that is prime to the number of keys visits all of them in an order that no cache likes. The key is one that
    // the caller has just made, and shares nothing with the store's.
    let fresh = |n: usize| {
        let (namespace, name) = &names[n.wrapping_mul(7_919) % names.len()];
        ObjectKey::namespaced(namespace, name)
    };
    let gets = timed(reads, fresh, |key| drop(std::hint::black_box(store.get(key))));
    let rate = (revision(store)? - first) as f64 / started.elapsed().as_secs_f64();
    println!("{what:>10}: snapshot {snapshots}; get {gets}; {rate:.0} events/s applied meanwhile");
    Ok(())
}

fn wait_for_change(store: &Store<Pod>) {
    let before = store.snapshot().resource_version().clone();
    while *store.snapshot().resource_version() == before {
        std::hint::spin_loop();
    }
}

fn timed<T>(count: usize, prepare: impl Fn(usize) -> T, read: impl Fn(&T)) -> String {
    let mut nanoseconds: Vec<u128> = (0..count)
        .map(|n| {
            let prepared = std::hint::black_box(prepare(n));
            let start = Instant::now();
            read(&prepared);
            start.elapsed().as_nanos()
        })
        .collect();
    nanoseconds.sort_unstable();
    let at = |share: f64| nanoseconds[((count - 1) as f64 * share) as usize];
    format!("p50 {} p99 {} p99.9 {}", at(0.5), at(0.99), at(0.999))
}
