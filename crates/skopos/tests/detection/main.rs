//! The time until each of the test server's faults is noticed, and the time until the content is correct again after the
//! fault is healed, in virtual time. The bounds are those of the design; this test writes `docs/evidence/detection.md` when
//! `SKOPOS_WRITE_TABLES=1` is set.

#[path = "../support/mod.rs"]
mod support;

mod bed;
mod bounds;
mod cases;
mod table;

use bed::{Measured, measure};

/// The number of seeds of each case; the table has the worst of them. `SKOPOS_CASES` overrides it.
const SEEDS: u64 = 3;

#[test]
fn every_fault_is_found_and_healed_in_bounds() {
    let seeds = std::env::var("SKOPOS_CASES").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
    let only = std::env::var("SKOPOS_ONLY").unwrap_or_default();
    let mut measured = Vec::new();
    for case in cases::all().into_iter().filter(|case| case.fault.contains(&only)) {
        let begun = std::time::SystemTime::now();
        let runs = (1..=seeds).map(|seed| in_virtual_time(measure(&case, seed)));
        let worst = runs.reduce(Measured::worst).expect("at least one seed");
        if std::env::var_os("SKOPOS_SHOW_TIMES").is_some() {
            println!("{}: {:?} {worst:?}", case.fault, begun.elapsed().unwrap_or_default());
        }
        measured.push((case, worst));
    }
    let table = table::markdown(&measured, seeds);
    println!("{table}");
    if std::env::var("SKOPOS_WRITE_TABLES").is_ok_and(|write| write == "1") && only.is_empty() {
        table::write(&table);
    }
    let missed: Vec<String> = measured.iter().flat_map(|(case, measured)| case.missed(measured)).collect();
    assert!(missed.is_empty(), "bounds that do not hold:\n{}", missed.join("\n"));
}

/// Checks an outage in which a busy cluster has moved on: only a request to the server proves that a quiet resource is
/// unchanged. It is sent as soon as the reflector is back, and not after the watch has been silent for some time.
#[test]
fn quiet_resource_is_live_soon_after_outage() {
    for seed in 1..=20 {
        let live = in_virtual_time(async {
            let options = skopos::FactoryOptions { seed: Some(seed), ..support::quiet() };
            let world = support::world_with(skopos_testserver::TestServer::builder(), options).await;
            world.create("a", "quiet", "1");
            let maps: skopos::Informer<k8s_openapi::api::core::v1::ConfigMap> =
                world.factory.informer(skopos::InformerOptions::all()).expect("an informer");
            maps.wait_synced(support::secs(5)).await.expect("synced");
            world.server.pause().await;
            tokio::time::sleep(support::secs(100 + seed)).await;
            world.server.create(support::namespace_object("other")).expect("something else happens");
            assert!(maps.freshness().age() > Some(support::secs(90)), "{}", maps.freshness());
            world.server.resume().await.expect("resumed");
            let back = tokio::time::Instant::now();
            support::eventually("the quiet kind is live", || maps.freshness().is_live()).await;
            back.elapsed()
        });
        // 5 s until the server is dialled, and 5 s as for a stream that stalls.
        assert!(live <= support::secs(10), "seed {seed}: {live:?}");
    }
}

/// Runs in a separate runtime, so that no run affects the next.
fn in_virtual_time<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(run)
}
