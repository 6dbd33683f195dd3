//! A reported age is never below the true age (I10), whatever goes wrong: random changes, delays, faults and probes in
//! virtual time, against the server's own log. `SKOPOS_CASES` sets the number of runs.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use skopos::{FactoryOptions, Informer, InformerOptions, Snapshot};
use skopos_testserver::{
    CloseMode, Connections, Damage, Direction, Fault, FaultGuard, Lag, Match, TestServer,
};
use support::*;
use tokio::time::{Instant, sleep};

#[test]
fn reported_age_is_never_below_true_age() {
    let runs: u64 = std::env::var("SKOPOS_CASES").ok().and_then(|runs| runs.parse().ok()).unwrap_or(12);
    let mut totals = Totals::default();
    for seed in 0..runs {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(seed, &mut totals));
    }
    println!("{totals:?}");
    // The property must not hold for lack of checks.
    assert!(totals.looks > 100 * runs && totals.aged > totals.looks / 2, "{totals:?}");
    assert!(totals.behind > runs && totals.live_reads > 0, "{totals:?}");
}

#[derive(Debug, Default)]
struct Totals {
    looks: u64,
    /// The number of checks that found an age.
    aged: u64,
    /// The number of checks of content that was not the newest.
    behind: u64,
    live_reads: u64,
    read_errors: u64,
}

/// The server's log: its state at each revision, and since when.
#[derive(Default)]
struct Log {
    commits: Vec<(u64, Instant)>,
    states: BTreeMap<u64, BTreeMap<String, u64>>,
}

impl Log {
    fn commit(&mut self, revision: u64, change: impl FnOnce(&mut BTreeMap<String, u64>)) {
        let mut state = self.states.last_key_value().map(|(_, state)| state.clone()).unwrap_or_default();
        change(&mut state);
        self.states.insert(revision, state);
        self.commits.push((revision, Instant::now()));
    }

    /// Returns how long ago content of this revision stopped being the newest.
    fn true_age(&self, revision: u64) -> Duration {
        let newer = self.commits.iter().find(|(commit, _)| *commit > revision);
        newer.map_or(Duration::ZERO, |(_, at)| at.elapsed())
    }

    fn state_at(&self, revision: u64) -> BTreeMap<String, u64> {
        self.states.range(..=revision).next_back().map(|(_, state)| state.clone()).unwrap_or_default()
    }
}

async fn run(seed: u64, totals: &mut Totals) {
    let mut random = fastrand::Rng::with_seed(seed);
    let options = FactoryOptions { seed: Some(seed), ..quiet() };
    let bookmarks = secs(random.u64(5..120));
    let server = TestServer::builder().bookmark_interval(bookmarks).watch_list(random.bool());
    let world = world_with(server, options).await;
    let maps: Informer<ConfigMap> = world.factory.informer(InformerOptions::all()).unwrap();
    let mut log = Log::default();
    log.commit(world.server.resource_version(), |_| {});
    let mut fault: Option<FaultGuard> = None;
    let mut damaged = false;
    for _ in 0..150 {
        match random.u32(0..10) {
            0..4 => change(&world, &mut log, &mut random),
            4 => {
                if let Some(fault) = fault.take() {
                    fault.heal();
                }
                if random.bool() {
                    fault = inject(&world, &mut random, &mut damaged);
                }
            }
            5 => {
                let (max_age, limit) = (secs(random.u64(0..40)), secs(random.u64(1..8)));
                let begun = Instant::now();
                let read = maps.read(max_age, limit).await;
                assert!(
                    begun.elapsed() <= limit + Duration::from_millis(50),
                    "seed {seed}: {:?}",
                    begun.elapsed()
                );
                match read {
                    Ok(read) => {
                        totals.live_reads += u64::from(read.source == skopos::Source::Live);
                        // The clocks that detect a suspend are real ones, and advance by some nanoseconds.
                        let within = max_age + Duration::from_millis(1);
                        assert!(read.freshness().is_within(within), "seed {seed}: {}", read.freshness());
                        check(seed, &read.snapshot, &log, damaged, totals);
                    }
                    Err(_) => totals.read_errors += 1,
                }
            }
            _ => sleep(Duration::from_millis(random.u64(0..20_000))).await,
        }
        check(seed, &maps.snapshot(), &log, damaged, totals);
    }
    // The fault is removed.
    drop(fault);
    sleep(secs(200)).await;
    let freshness = maps.freshness();
    assert!(freshness.is_live() || damaged, "seed {seed}: {freshness}");
    let audit = maps.audit(secs(60)).await.unwrap();
    assert!(audit.is_clean() || damaged, "seed {seed}: {audit}");
}

fn change(world: &World, log: &mut Log, random: &mut fastrand::Rng) {
    let name = format!("m{}", random.u32(0..8));
    if random.u32(0..4) == 0 && world.server.get("configmaps", Some("a"), &name).is_ok() {
        world.delete("a", &name);
        log.commit(world.server.resource_version(), |state| {
            state.remove(&name);
        });
    } else {
        let revision = world.put("a", &name, &random.u64(..).to_string());
        log.commit(revision, |state| {
            state.insert(name, revision);
        });
    }
}

/// Injects a random fault, except those that make the server lie about its own history: lost events, and history that goes
/// back.
fn inject(world: &World, random: &mut fastrand::Rng, damaged: &mut bool) -> Option<FaultGuard> {
    let faults = world.server.faults();
    let seconds = |random: &mut fastrand::Rng, most: u64| Duration::from_millis(random.u64(0..most * 1000));
    let at = match random.u32(0..4) {
        0 => Match::any(),
        1 => Match::list(),
        _ => Match::watch(),
    };
    let fault = match random.u32(0..15) {
        0 => Fault::Stall,
        1 => Fault::Close,
        2 => Fault::Reset,
        3 => Fault::WithholdBookmarks,
        4 => Fault::WithholdHeaders,
        5 => Fault::DelayHeaders(seconds(random, 20)),
        6 => Fault::status([429, 500, 503, 504, 410][random.usize(0..5)], 1),
        7 => Fault::HalfFrame,
        8 => Fault::RepeatEvents,
        9 => Fault::Lag(Lag::By(seconds(random, 60))),
        10 => Fault::Lag(Lag::Frozen { at: world.server.resource_version() }),
        11 => Fault::Slow { bytes: 50, every: Duration::from_millis(100) },
        12 => return Some(faults.black_hole(Connections::Existing, Direction::Both)),
        13 => {
            faults.kill_connections(CloseMode::Rst);
            return None;
        }
        _ => {
            *damaged = true;
            return Some(faults.inject(Fault::Undecodable(Damage::NoResourceVersion)).on(Match::watch()));
        }
    };
    Some(faults.inject(fault).on(at))
}

fn check(seed: u64, snapshot: &Snapshot<ConfigMap>, log: &Log, damaged: bool, totals: &mut Totals) {
    if !snapshot.is_synced() {
        assert!(snapshot.age().is_none(), "seed {seed}: no content has an age");
        return;
    }
    totals.looks += 1;
    let revision = snapshot.resource_version().as_u64().unwrap();
    let content: BTreeMap<String, u64> = snapshot
        .iter()
        .map(|object| (object.name().to_owned(), object.resource_version().as_u64().unwrap()))
        .collect();
    // I3: the content is the server's state at its revision. Objects that could not be read may be older.
    if !damaged {
        assert_eq!(
            content,
            log.state_at(revision),
            "seed {seed}: the content is not that of revision {revision}"
        );
    }
    let true_age = log.true_age(revision);
    totals.behind += u64::from(true_age > Duration::ZERO);
    let freshness = snapshot.freshness();
    if let Some(age) = freshness.age() {
        totals.aged += 1;
        assert!(age >= true_age, "seed {seed}: {freshness}, but in truth {true_age:?} old");
    }
}
