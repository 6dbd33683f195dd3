//! The cost of many informers, and a check that dropped ones leave nothing behind. The figures are printed (`--nocapture`).

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod support;

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use skopos::{Informer, InformerFactory, InformerOptions, Transport, TransportOptions};
use skopos_testserver::{CloseMode, Connections, Direction, Fault, Match, TestServer};
use support::*;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

const IDLE: usize = 1000;

/// The lock of tests that measure the memory of the whole process.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Returns the resident memory of this process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0u64) * 1024
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map(Iterator::count).unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn a_thousand_idle_informers() {
    let _alone = ALONE.lock().await;
    let world = world_with(TestServer::builder().max_concurrent_streams(100), quiet()).await;
    world.create("a", "one", "1");
    let before = (resident(), Handle::current().metrics().num_alive_tasks());
    let informers: Vec<Informer<ConfigMap>> = (0..IDLE)
        .map(|i| InformerOptions::all().labels(&format!("value=v{i}")).unwrap())
        .map(|options| world.factory.informer(options).unwrap())
        .collect();
    world.factory.wait_synced(secs(120)).await.unwrap();
    world.server.wait_for(|server| server.open_watches() == IDLE).await.unwrap();
    tokio::time::sleep(secs(600)).await;
    assert!(informers.iter().all(|informer| informer.freshness().is_live()));

    let stats = world.factory.stats();
    let connections = stats.transport.connections.len();
    println!(
        "{IDLE} idle informers: {} tasks of the factory, {connections} connections, {} probes in 10 min, {} bytes resident each with \
         their share of the server ({} tasks of both before, {} now)",
        stats.tasks,
        stats.probes,
        resident().saturating_sub(before.0) / IDLE as u64,
        before.1,
        Handle::current().metrics().num_alive_tasks(),
    );
    assert_eq!(stats.tasks, IDLE + 2, "one for each list/watch, a prober and housekeeping");
    assert!(stats.probes <= 30 + IDLE as u64 / 100, "one prober for all: {}", stats.probes);
    // 100 streams fit a connection: ten for the watches, and one or two for lists and probes. Verifications come and go.
    assert!(connections <= IDLE / 100 + 4, "{connections}");
    assert!(world.factory.shutdown(secs(1)).await.complete);
}

/// Uses real sockets, so that sockets can leak; a fault in every other round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_starts_and_stops_leave_nothing() {
    let _alone = ALONE.lock().await;
    let rounds: usize = std::env::var("SKOPOS_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let server = TestServer::builder().http2_only().start().await.unwrap();
    server.create(namespace_object("a")).unwrap();
    for i in 0..20 {
        server.create(config_map("a", &format!("m{i}"), &i.to_string())).unwrap();
    }
    let config = || kube::Config::new(server.url().parse().unwrap());
    let options = || TransportOptions { http2_prior_knowledge: true, ..TransportOptions::default() };
    let factory = InformerFactory::new(Transport::from_config(config(), options()).unwrap(), quiet());
    let mut random = fastrand::Rng::with_seed(7);
    let mut baseline = None;
    for round in 0..rounds {
        if round == rounds / 5 {
            // Allocators, log rings and pools have reached their size now.
            settle(&factory, &server).await;
            baseline = Some((Handle::current().metrics().num_alive_tasks(), open_files(), resident()));
        }
        let fault = (round % 2 == 1).then(|| one_fault(&server, &mut random)).flatten();
        let selector = format!("value in ({}, {})", random.u32(0..20), random.u32(0..20));
        let options = InformerOptions::all().labels(&selector).unwrap();
        let maps: Informer<ConfigMap> = factory.informer(options).unwrap();
        let events = maps.events().unwrap();
        match fault {
            None => maps.wait_synced(secs(20)).await.unwrap_or_else(|error| panic!("round {round}: {error}")),
            // Stopped in the middle of its current activity.
            Some(_) => drop(maps.wait_synced(Duration::from_millis(random.u64(0..20))).await),
        }
        drop((maps, events, fault));
        if round % 50 == 49 {
            // A whole factory, too.
            let other = InformerFactory::new(
                Transport::from_config(
                    config(),
                    TransportOptions { http2_prior_knowledge: true, ..Default::default() },
                )
                .unwrap(),
                quiet(),
            );
            let maps: Informer<ConfigMap> = other.informer(InformerOptions::all()).unwrap();
            maps.wait_synced(secs(20)).await.unwrap();
            assert!(other.shutdown(secs(1)).await.complete);
        }
    }
    settle(&factory, &server).await;
    let (tasks, files, bytes) = baseline.unwrap();
    let now = (Handle::current().metrics().num_alive_tasks(), open_files(), resident());
    println!(
        "after {rounds} rounds: tasks {tasks} -> {}, files {files} -> {}, bytes {bytes} -> {}",
        now.0, now.1, now.2
    );
    assert!(now.0 <= tasks, "{} tasks, {tasks} before", now.0);
    assert!(now.1 <= files, "{} open files, {files} before", now.1);
    assert!(now.2 as f64 <= bytes as f64 * 1.05, "{} bytes, {bytes} before", now.2);
    assert!(factory.shutdown(secs(1)).await.complete);
}

/// Waits until the dropped informers are gone.
async fn settle(factory: &InformerFactory, server: &TestServer) {
    eventually("only housekeeping is left", || factory.stats().tasks == 1).await;
    server.wait_for(|server| server.open_watches() == 0).await.unwrap();
    // One connection of each kind, so that both counts are of the same state.
    server.faults().kill_connections(CloseMode::Fin);
    server.wait_for(|server| server.connections() == 0).await.unwrap();
    eventually("the connections are buried", || factory.transport().stats().connections.is_empty()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
}

fn one_fault(server: &TestServer, random: &mut fastrand::Rng) -> Option<skopos_testserver::FaultGuard> {
    let faults = server.faults();
    let fault = match random.u32(0..8) {
        0 => Fault::Stall,
        1 => Fault::Reset,
        2 => Fault::WithholdHeaders,
        3 => Fault::status(503, 0),
        4 => Fault::status(410, 0),
        5 => Fault::HalfFrame,
        6 => return Some(faults.black_hole(Connections::Existing, Direction::Both)),
        _ => {
            faults.kill_connections(CloseMode::Rst);
            return None;
        }
    };
    Some(faults.inject(fault).on(Match::any()))
}
