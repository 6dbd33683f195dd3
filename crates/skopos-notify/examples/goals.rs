//! Figures of the notifier on real servers: `cargo run --release -p skopos-notify --example goals [NAMES]`.
//!
//! They are the time from a change of the cluster until the outside answers with it, at 100 changes a second; the time to read
//! everything back; and the messages a second that a receiver of webhooks gets. The cluster is the test server in this process.
//! BIND and HAProxy are those of the machine.

#[path = "../tests/support/mod.rs"]
mod support;

use std::alloc::System;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cap::Cap;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;
use skopos::InformerOptions;
use skopos_notify::event::{EventSource, LedgerFolder, WebhookOptions, WebhookSink};
use skopos_notify::service::{EventSinkOptions, SinkOptions};
use skopos_notify::sink::Sink;
use skopos_notify::{EntryName, EntryValue};
use support::receiver::Receiver;
use support::servers::{DnsServer, Haproxy, Kind, ZONE};
use support::{Cluster, endpoints, secs, sink};
use tokio::time::{Instant, interval, sleep};

/// Counts allocated memory.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

const CHANGES_PER_SECOND: u64 = 100;
const SECONDS: u64 = 10;
/// Every tenth change is followed until the outside answers with it.
const FOLLOWED: u64 = 10;

#[tokio::main]
async fn main() {
    let names: usize = std::env::args().nth(1).and_then(|names| names.parse().ok()).unwrap_or(10_000);
    if let Some(dns) = DnsServer::start(Kind::Bind, "").await {
        let name = |service: &str| format!("{service}.{ZONE}");
        let source = endpoints(&format!("{{service}}.{ZONE}"), false);
        let options = unlimited(sink("zone", dns.sink(), source));
        changes("BIND", names, options, Arc::new(dns.sink()), name, str::to_owned).await;
    }
    let backends: Vec<_> = (0..200).map(|index| format!("s{index}")).collect();
    let backends: Vec<_> = backends.iter().map(String::as_str).collect();
    if let Some(haproxy) = Haproxy::start(&backends).await {
        let options = unlimited(sink("edge", haproxy.sink(), endpoints("{service}", true)));
        let value = |address: &str| format!("{address}:8080");
        changes("HAProxy", backends.len(), options, Arc::new(haproxy.sink()), str::to_owned, value).await;
    }
    messages(5_000).await;
}

/// Removes the limits on removals, whose rate is not measured here.
fn unlimited(mut options: SinkOptions) -> SinkOptions {
    (options.plan.per_minute, options.plan.fraction) = (u32::MAX, 1.0);
    options
}

async fn changes(
    to: &str,
    names: usize,
    options: SinkOptions,
    outside: Arc<dyn Sink>,
    name: impl Fn(&str) -> String,
    value: impl Fn(&str) -> String,
) {
    let cluster = Cluster::new().await;
    (0..names).for_each(|index| cluster.put(&format!("s{index}"), &[("10.200.0.1", "ready")]));
    // The store of the informers is filled before the notifier starts.
    let services = cluster.factory.informer::<Service>(InformerOptions::all()).expect("an informer");
    let slices = cluster.factory.informer::<EndpointSlice>(InformerOptions::all()).expect("an informer");
    services.wait_synced(secs(60)).await.expect("it syncs");
    slices.wait_synced(secs(60)).await.expect("it syncs");
    let before = HEAP.allocated();
    let begun = Instant::now();
    let running = cluster.run(vec![options]);
    running.until(0, |report| report.is_equal() && report.outside == names).await;
    println!("{to}: {names} names are there after {:.2} s", begun.elapsed().as_secs_f64());
    let more = HEAP.allocated().saturating_sub(before) / names;
    println!("{to}: a name takes {more} bytes beyond the store, once all are there");
    let begun = Instant::now();
    let observed = outside.observe().await.expect("it answers");
    println!(
        "{to}: {} names are read back in {:.3} s",
        observed.entries.len(),
        begun.elapsed().as_secs_f64()
    );

    let mut ticks = interval(Duration::from_millis(1_000 / CHANGES_PER_SECOND));
    let mut followers = tokio::task::JoinSet::new();
    for change in 0..CHANGES_PER_SECOND * SECONDS {
        ticks.tick().await;
        let service = format!("s{}", (change as usize * 7_919) % names);
        let address = format!("10.{}.{}.1", 1 + change / 250, change % 250);
        cluster.put(&service, &[("10.200.0.1", "ready"), (&address, "ready")]);
        if change % FOLLOWED == 0 {
            let (name, value) = (name(&service), value(&address));
            followers.spawn(follow(outside.clone(), name.into(), value.into(), Instant::now()));
        }
    }
    let mut took: Vec<_> = followers.join_all().await;
    took.sort();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_millis();
    println!(
        "{to}: at {CHANGES_PER_SECOND} changes/s the outside answers after {} ms (p50), {} ms (p99), of {} followed",
        at(0.5),
        at(0.99),
        took.len()
    );
    running.stop().await;
    cluster.end().await;
}

/// Waits until the outside answers with a value.
async fn follow(outside: Arc<dyn Sink>, name: EntryName, value: EntryValue, since: Instant) -> Duration {
    let names = BTreeSet::from([name.clone()]);
    loop {
        let observed = outside.read(&names).await.expect("it answers");
        if observed.entries.get(&name).is_some_and(|entry| entry.members.contains_key(&value)) {
            return since.elapsed();
        }
        sleep(Duration::from_millis(10)).await;
    }
}

async fn messages(count: usize) {
    let cluster = Cluster::new().await;
    for index in 0..count {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": format!("object{index}")},
            "data": {"value": "x".repeat(500)},
        });
        cluster.server.create(object).expect("a ConfigMap");
    }
    let receiver = Receiver::new().await;
    let state = tempfile::tempdir().expect("a folder");
    let mut options = WebhookOptions::new(receiver.url().parse().expect("a URL"));
    options.http.allow = vec!["127.0.0.0/8".parse().expect("a network")];
    options.secrets = vec!["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned()];
    let source = EventSource::all("v1/configmaps".parse().expect("a resource"));
    let webhook = Arc::new(WebhookSink::new(options).expect("a webhook"));
    let mut options =
        EventSinkOptions::new("audit", webhook, vec![source], Arc::new(LedgerFolder::new(state.path())));
    options.parallel = 64;
    let running = cluster.run(vec![options]);
    receiver.until(1).await;
    let begun = Instant::now();
    receiver.until(count).await;
    let rate = (count - 1) as f64 / begun.elapsed().as_secs_f64();
    println!("webhook: {rate:.0} messages/s to a receiver in this process, {count} objects, 64 at a time");
    running.stop().await;
    cluster.end().await;
}
