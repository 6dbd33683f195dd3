//! Isolation of clusters from each other's failures.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use skopos::Transport;
use skopos_fleet::{Condition, Connector, FleetOptions, Paused, PausedBy};
use skopos_testserver::{Connections, Direction, Fault};
use tokio::time::Instant;

use crate::support::*;

/// Checks report R1 in small: no call waits for dead, slow and paused clusters, and the result names each of them.
#[tokio::test(start_paused = true)]
async fn reads_of_healthy_clusters_are_not_delayed() {
    let world = World::default();
    let fleet = world.fleet();
    let healthy = ["a", "b", "c", "d"];
    for name in healthy {
        world.server(name);
        join(&fleet, name);
    }
    let silent = world.server("silent");
    let _hole = silent.faults().black_hole(Connections::All, Direction::Both);
    world.hole("hole");
    let slow = world.server("slow");
    let _slow = slow.faults().inject(Fault::DelayHeaders(secs(5))).everywhere();
    for name in ["silent", "hole", "refusing", "slow"] {
        join(&fleet, name);
    }
    join(&fleet, "paused").pause(Paused { by: PausedBy::ScaledDown, since: None });

    let limit = secs(2);
    let begun = Instant::now();
    let members = fleet.members();
    let reads = members.values().map(|cluster| async move {
        let result = cluster.kind(&config_maps(), limit).await;
        (cluster.id().as_str().to_owned(), result, begun.elapsed())
    });
    let mut missing = Vec::new();
    for (name, result, took) in join_all(reads).await {
        assert!(took <= limit + Duration::from_millis(50), "{name} took {took:?}");
        match result {
            Ok(kind) => {
                assert!(healthy.contains(&name.as_str()));
                assert!(took < Duration::from_millis(300), "{name} took {took:?}");
                assert_eq!(kind.informer().snapshot().len(), 1);
            }
            Err(error) => {
                assert_eq!(error.cluster().map(|id| id.as_str()), Some(name.as_str()));
                missing.push((name, error.as_str()));
            }
        }
    }
    let expected = [
        ("hole", "deadline"),
        ("paused", "paused"),
        ("refusing", "unreachable"),
        ("silent", "deadline"),
        ("slow", "deadline"),
    ];
    assert_eq!(missing, expected.map(|(name, word)| (name.to_owned(), word)));

    // A cluster that is only slow follows in the background.
    assert!(fleet.cluster("slow").unwrap().kind(&config_maps(), secs(30)).await.is_ok());
    for name in ["silent", "hole"] {
        until_condition(&fleet.cluster(name).unwrap(), Condition::Unreachable).await;
        let error = fleet.cluster(name).unwrap().kind(&config_maps(), limit).await.unwrap_err();
        assert_eq!(error.as_str(), "unreachable");
    }
    assert!(fleet.shutdown(secs(5)).await);
}

/// Checks that a dead cluster gets few requests, whatever callers want, and that its return is found.
#[tokio::test(start_paused = true)]
async fn dead_cluster_gets_few_requests() {
    let world = World::default();
    let fleet = world.fleet_with(skopos_fleet::ClusterOptions { prefetch_documents: true, ..options() });
    let kinds =
        [config_maps(), resource("pods", "Pod"), resource("services", "Service"), resource("nodes", "Node")];
    // It accepts connections and requests, and answers none.
    let mute = world.server("mute");
    let withheld = mute.faults().inject(Fault::WithholdHeaders).everywhere();
    world.hole("hole");
    for name in ["mute", "hole", "refusing"] {
        let cluster = join(&fleet, name);
        for kind in &kinds {
            let _ = cluster.kind(kind, Duration::from_millis(10)).await;
        }
    }
    let cluster = fleet.cluster("mute").unwrap();
    until_condition(&cluster, Condition::Unreachable).await;
    for minute in 0..5 {
        mute.clear_requests();
        let dials = [world.dials_of("hole"), world.dials_of("refusing")];
        for _ in 0..60 {
            for name in ["mute", "hole", "refusing"] {
                let cluster = fleet.cluster(name).unwrap();
                let error = cluster.kind(&kinds[0], Duration::from_millis(500)).await.unwrap_err();
                assert!(["unreachable", "deadline"].contains(&error.as_str()), "{error}");
            }
            tokio::time::sleep(secs(1)).await;
        }
        let asked = mute.requests().len();
        assert!(asked <= 6, "{asked} requests in minute {minute}");
        let dialed = [world.dials_of("hole") - dials[0], world.dials_of("refusing") - dials[1]];
        assert!(dialed.iter().all(|dialed| *dialed <= 70), "one client's rhythm: {dialed:?}");
    }
    withheld.heal();
    let healed = Instant::now();
    until_condition(&cluster, Condition::Live).await;
    assert!(healed.elapsed() < secs(30), "found after {:?}", healed.elapsed());
    assert!(cluster.kind(&config_maps(), secs(40)).await.is_ok());
    assert!(fleet.shutdown(secs(5)).await);
}

/// Checks that concurrent callers share one session and one list.
#[tokio::test(start_paused = true)]
async fn concurrent_callers_share_session_and_list() {
    let world = World::default();
    let server = world.server("a");
    let fleet = world.fleet();
    let cluster = join(&fleet, "a");
    tokio::time::sleep(secs(100)).await;
    assert_eq!((world.connects.load(Ordering::SeqCst), world.dials_of("a")), (0, 0), "nobody has asked");
    let asks = (0..50).map(|_| async { cluster.kind(&config_maps(), secs(5)).await.is_ok() });
    assert!(join_all(asks).await.into_iter().all(|there| there));
    assert_eq!(world.connects.load(Ordering::SeqCst), 1);
    let lists = requests(&server, "list", "configmaps") + requests(&server, "watch", "configmaps");
    assert!(lists <= 3, "{lists}: a list or streamed list, a watch, a proof of freshness");
    assert_eq!(cluster.stats().starts, 1);
}

/// Checks that a session that hangs while being made holds up only its own callers, and these no longer than their
/// limits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lock_is_held_while_a_session_is_made() {
    let world = World::default();
    world.server("a");
    let (release, hang) = std::sync::mpsc::sync_channel::<()>(1);
    let hang = parking_lot::Mutex::new(hang);
    let plain = world.clone();
    let connector = Connector::new(move |id, spec, options| {
        if id.as_str() == "hangs" {
            let _ = hang.lock().recv_timeout(secs(20));
        }
        let world = plain.clone();
        let name = spec.server().host().unwrap_or_default().to_owned();
        let dialer = skopos::transport::dialer_fn(move |_| {
            let (world, name) = (world.clone(), name.clone());
            async move { world.dial(&name).await }
        });
        Transport::with_dialer(spec.config(), options, dialer)
    });
    let fleet =
        skopos_fleet::Fleet::new(FleetOptions { connector, cluster: options(), ..FleetOptions::default() });
    let hanging = fleet.join(id("hangs"), spec("a")).unwrap();
    let limit = Duration::from_millis(200);
    let error = hanging.kind(&config_maps(), limit).await.unwrap_err();
    assert_eq!(error.as_str(), "deadline");
    // It still hangs.
    assert_eq!(hanging.state().condition, Condition::Connecting);
    assert!(hanging.cached(&config_maps()).is_none() && hanging.kinds().is_empty());
    assert_eq!(hanging.stats().starts, 1);
    join(&fleet, "a").kind(&config_maps(), secs(20)).await.unwrap();
    assert_eq!(fleet.members().len(), 2);
    release.send(()).unwrap();
    hanging.kind(&config_maps(), secs(20)).await.unwrap();
    assert!(fleet.shutdown(secs(20)).await);
}
