//! Restarts without a list.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod support;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::SystemTime;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use skopos::checkpoint::{Checkpoint, CheckpointLimits, NoCheckpoint, RestartClock, WallTime};
use skopos::journal::{ChangeKind, JournalOptions};
use skopos::{
    BuildError, Event, FactoryOptions, Freshness, HandlerOptions, Informer, InformerFactory, InformerOptions,
    SleepClock, StaleReason, sync_handler,
};
use skopos_testserver::{Fault, Match, RequestRecord};
use support::*;

/// Makes a wall clock that has advanced by this number of seconds since the test began, in a machine that stays up.
fn clock(moved: u64) -> RestartClock {
    let up = ("this run".to_owned(), secs(10_000 + moved));
    let now = WallTime::new(SystemTime::UNIX_EPOCH + secs(1_000_000 + moved), Some(up));
    RestartClock::from_fn(move || now.clone())
}

fn options(moved: u64) -> FactoryOptions {
    FactoryOptions { restart_clock: clock(moved), cluster: Some("c1".to_owned()), ..quiet() }
}

/// Returns a checkpoint that was written to a file and read back.
fn written(informer: &Informer<ConfigMap>) -> Checkpoint {
    let mut file = Vec::new();
    informer.checkpoint().unwrap().write_to(&mut file).unwrap();
    Checkpoint::read_from(file.as_slice(), &CheckpointLimits::default()).unwrap()
}

/// Returns a checkpoint within the process.
fn handed_on(informer: &Informer<ConfigMap>) -> Checkpoint {
    informer.checkpoint().unwrap()
}

/// Returns how often all objects were requested: by lists that are neither probes nor audits, and by watches that begin
/// with a list.
fn whole_lists(world: &World, maps: &Informer<ConfigMap>) -> usize {
    let requests = world.server.requests();
    let streamed = |r: &&RequestRecord| r.query_param("sendInitialEvents").as_deref() == Some("true");
    let stats = maps.stats();
    let audits = stats.audits.completed as usize * stats.reflectors.len();
    world.lists("configmaps") + requests.iter().filter(streamed).count() - audits
}

/// Makes a world in which a first run has ended, its checkpoint, and a factory of the next run, an hour later.
async fn second_run() -> (World, Checkpoint, InformerFactory) {
    let mut world = world().await;
    let first = InformerFactory::new(transport_to(&world.server), options(0));
    world.create("a", "one", "1");
    world.create("a", "two", "2");
    let maps: Informer<ConfigMap> = first.informer(InformerOptions::all()).unwrap();
    assert_eq!(maps.checkpoint().unwrap_err(), NoCheckpoint::NotSynced);
    maps.wait_synced(secs(5)).await.unwrap();
    let checkpoint = written(&maps);
    assert!(first.shutdown(secs(1)).await.complete);
    world.server.clear_requests();
    world.factory = InformerFactory::new(transport_to(&world.server), options(3600));
    let factory = world.factory.clone();
    (world, checkpoint, factory)
}

#[tokio::test(start_paused = true)]
async fn restart_resumes_from_checkpoint() {
    let (world, checkpoint, factory) = second_run().await;
    world.delete("a", "two");
    let last = world.create("b", "three", "3");
    let restored = InformerOptions::all().restored(checkpoint).journal(JournalOptions::default());
    let maps: Informer<ConfigMap> = factory.informer(restored).unwrap();
    // The content is there at once, with its true age.
    assert_eq!((maps.snapshot().len(), maps.snapshot().is_synced(), maps.has_synced()), (2, true, false));
    match maps.freshness() {
        Freshness::Stale { age: Some(age), reason: StaleReason::Restored { written_at }, .. } => {
            assert!(age >= secs(3600) && age < secs(3700), "{age:?}");
            assert_eq!(written_at, SystemTime::UNIX_EPOCH + secs(1_000_000));
        }
        other => panic!("{other}"),
    }
    let mut changes = maps.store().journal().unwrap().begin().1;
    let seen = maps.add_handler(sync_handler(|_| ()), HandlerOptions::named("test")).unwrap();
    assert!(!seen.has_synced());
    maps.wait_synced(secs(5)).await.unwrap();
    let snapshot = maps.wait_for(&last.into(), secs(5)).await.unwrap();
    let names: Vec<String> = snapshot.iter().map(|object| object.key().to_string()).collect();
    assert_eq!(names, ["a/one", "b/three"]);
    assert!(maps.freshness().is_within(secs(1)), "{}", maps.freshness());
    seen.wait_synced(PLENTY).await.unwrap();
    assert_eq!((whole_lists(&world, &maps), world.requests("watch", "configmaps")), (0, 1));
    let told = changes.read(10).unwrap();
    let kinds: Vec<(ChangeKind, bool)> =
        told.changes.iter().map(|change| (change.kind, change.gap)).collect();
    assert_eq!(kinds, [(ChangeKind::Deleted, false), (ChangeKind::Added, false)]);
    assert_eq!(maps.stats().relists, 0);
}

#[tokio::test(start_paused = true)]
async fn suspend_during_restore_does_not_lower_age() {
    let (world, checkpoint, _) = second_run().await;
    let slept = Arc::new(AtomicI64::new(0));
    let lead = slept.clone();
    let sleep_clock = SleepClock::from_fn(move || lead.load(Ordering::SeqCst).into());
    // The machine is suspended right after the clock is read.
    let restart_clock = RestartClock::from_fn(move || {
        slept.fetch_add(60_000_000_000, Ordering::SeqCst);
        clock(3600).now()
    });
    let options = FactoryOptions { sleep_clock, restart_clock, ..options(3600) };
    let factory = InformerFactory::new(transport_to(&world.server), options);
    let maps: Informer<ConfigMap> = factory.informer(InformerOptions::all().restored(checkpoint)).unwrap();
    let age = maps.freshness().age().unwrap();
    assert!(age >= secs(3660), "{age:?}");
    assert!(factory.shutdown(secs(1)).await.complete);
}

/// Checks that the factory answers while indexes are computed: those of a whole checkpoint may take seconds, and their
/// functions may call it.
#[tokio::test(start_paused = true)]
async fn factory_answers_while_restore_indexes() {
    let (_world, checkpoint, factory) = second_run().await;
    let asking = factory.clone();
    let options = InformerOptions::all().restored(checkpoint).index("asked", move |_: &ConfigMap| {
        let (asking, (told, answer)) = (asking.clone(), mpsc::sync_channel(1));
        thread::spawn(move || told.send(asking.stats().informers));
        [format!("{:?}", answer.recv_timeout(secs(10)))]
    });
    let maps: Informer<ConfigMap> = factory.informer(options).unwrap();
    let snapshot = maps.snapshot();
    let answers: Vec<(&str, usize)> = snapshot.index_values("asked").unwrap().collect();
    assert_eq!(answers, [("Ok(0)", 2)]);
}

#[tokio::test(start_paused = true)]
async fn lost_history_appears_as_gap() {
    let (world, checkpoint, factory) = second_run().await;
    world.delete("a", "two");
    world.create("b", "three", "3");
    world.server.compact();
    let restored = InformerOptions::all().restored(checkpoint).journal(JournalOptions::default());
    let maps: Informer<ConfigMap> = factory.informer(restored).unwrap();
    let mut changes = maps.store().journal().unwrap().begin().1;
    let mut events = Box::pin(maps.events().unwrap());
    maps.wait_synced(secs(20)).await.unwrap();
    assert_eq!(whole_lists(&world, &maps), 1);
    let mut told = Vec::new();
    for _ in 0..4 {
        let event = tokio::time::timeout(PLENTY, events.next()).await.unwrap().unwrap();
        let kind = match event {
            Event::Added { .. } => "added",
            Event::Deleted { .. } => "deleted",
            _ => "updated",
        };
        told.push(format!("{kind} {} gap={}", event.key(), event.flags().gap));
    }
    let expected = [
        "added a/one gap=false",
        "added a/two gap=false",
        "deleted a/two gap=true",
        "added b/three gap=true",
    ];
    assert_eq!(told, expected);
    let told = changes.read(10).unwrap();
    assert!(told.changes.len() == 2 && told.changes.iter().all(|change| change.gap), "{told:?}");
    assert_eq!(told.reached.as_ref(), Some(maps.snapshot().resource_version()));
}

#[tokio::test(start_paused = true)]
async fn down_cluster_serves_aging_restored_content() {
    let (world, checkpoint, factory) = second_run().await;
    world.server.pause().await;
    let maps: Informer<ConfigMap> = factory.informer(InformerOptions::all().restored(checkpoint)).unwrap();
    assert_eq!(maps.snapshot().len(), 2);
    let error = maps.wait_synced(secs(10)).await.unwrap_err();
    assert_eq!(error.who.len(), 1, "{error}");
    match maps.freshness() {
        Freshness::Stale { age: Some(age), reason: StaleReason::Reflector(_), .. } => {
            assert!(age >= secs(3610), "{age:?}");
        }
        other => panic!("{other}"),
    }
    // Content that is not confirmed can be saved again, and its age does not shrink.
    let again = written(&maps);
    assert!(again.age(&clock(3600)).is_some_and(|age| age >= secs(3610)));
    world.server.resume().await.unwrap();
    maps.wait_synced(PLENTY).await.unwrap();
    assert!(maps.freshness().is_live(), "{}", maps.freshness());
    assert_eq!(whole_lists(&world, &maps), 0);
}

#[tokio::test(start_paused = true)]
async fn restored_backup_is_found_before_content_is_live() {
    finds_a_backup(written).await;
}

#[tokio::test(start_paused = true)]
async fn in_memory_checkpoint_reveals_restored_backup() {
    finds_a_backup(handed_on).await;
}

async fn finds_a_backup(taken: fn(&Informer<ConfigMap>) -> Checkpoint) {
    let (world, _, _) = second_run().await;
    let first = InformerFactory::new(transport_to(&world.server), options(0));
    let backup = world.put("a", "one", "3");
    world.put("a", "one", "4");
    world.delete("a", "two");
    world.create("a", "three", "1");
    let maps: Informer<ConfigMap> = first.informer(InformerOptions::all()).unwrap();
    maps.wait_synced(secs(5)).await.unwrap();
    let checkpoint = taken(&maps);
    first.shutdown(secs(1)).await;
    // When we are back, the server is past the checkpoint's RV again, with another history.
    world.server.roll_back(backup).unwrap();
    for n in 0..10 {
        world.put("b", "busy", &n.to_string());
    }
    let present = ["a/one=3", "a/two=2", "b/busy=9"];
    let content = |maps: &Informer<ConfigMap>| -> Vec<String> {
        let value = |object: &skopos::Object<ConfigMap>| object.label("value").unwrap_or_default().to_owned();
        maps.snapshot().iter().map(|object| format!("{}={}", object.key(), value(&object))).collect()
    };
    let second = InformerFactory::new(transport_to(&world.server), options(3600));
    let maps: Informer<ConfigMap> = second.informer(InformerOptions::all().restored(checkpoint)).unwrap();
    for _ in 0..300 {
        if maps.has_synced() || maps.freshness().is_live() {
            assert_eq!(content(&maps), present);
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(maps.has_synced() && maps.freshness().is_live(), "{}", maps.freshness());
    let read = maps.read(secs(1), secs(5)).await.unwrap();
    assert_eq!(read.snapshot.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn in_memory_checkpoint_is_unconfirmed_content_only() {
    let (world, _, factory) = second_run().await;
    let first = InformerFactory::new(transport_to(&world.server), options(0));
    let kept = InformerOptions::all()
        .journal(JournalOptions::default())
        .index("old", |_: &ConfigMap| ["old".to_owned()]);
    let maps: Informer<ConfigMap> = first.informer(kept).unwrap();
    maps.wait_synced(secs(5)).await.unwrap();
    let checkpoint = handed_on(&maps);
    first.shutdown(secs(1)).await;
    world.server.pause().await;
    let maps: Informer<ConfigMap> = factory.informer(InformerOptions::all().restored(checkpoint)).unwrap();
    assert_eq!((maps.snapshot().len(), maps.snapshot().is_synced()), (2, true));
    maps.wait_synced(secs(10)).await.unwrap_err();
    assert!(maps.store().journal().is_none() && maps.snapshot().index_values("old").is_err());
}

#[tokio::test(start_paused = true)]
async fn list_replaces_checkpoint_when_audits_fail() {
    let (world, checkpoint, factory) = second_run().await;
    let fault =
        world.server.faults().inject(Fault::status(500, 0)).on(Match::list().query("limit", "500")).times(3);
    let maps: Informer<ConfigMap> = factory.informer(InformerOptions::all().restored(checkpoint)).unwrap();
    maps.wait_synced(PLENTY).await.unwrap();
    assert_eq!(fault.hits(), 3);
    assert!(maps.freshness().is_live() && maps.stats().relists == 1, "{}", maps.freshness());
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_of_something_else_is_refused() {
    let (world, checkpoint, factory) = second_run().await;
    let foreign = |result: Result<Informer<ConfigMap>, BuildError>| match result {
        Err(BuildError::Restore(foreign)) => foreign.what,
        other => panic!("{other:?}"),
    };
    let one = InformerOptions::namespace("a").restored(checkpoint.clone());
    assert_eq!(foreign(factory.informer(one)), "scope");
    let selected = InformerOptions::all().labels("value=1").unwrap().restored(checkpoint.clone());
    assert_eq!(foreign(factory.informer(selected)), "label selector");
    let other = FactoryOptions { cluster: Some("c2".to_owned()), ..options(3600) };
    let elsewhere = InformerFactory::new(transport_to(&world.server), other);
    assert_eq!(foreign(elsewhere.informer(InformerOptions::all().restored(checkpoint))), "cluster");
    assert_eq!(factory.stats().informers, 0);
}

#[tokio::test(start_paused = true)]
async fn namespaces_of_set_resume_at_own_versions() {
    let (world, _, _) = second_run().await;
    let set = || InformerOptions::namespaces(["a", "b"]);
    let first = InformerFactory::new(transport_to(&world.server), options(0));
    let maps: Informer<ConfigMap> = first.informer(set()).unwrap();
    maps.wait_synced(secs(5)).await.unwrap();
    let checkpoint = written(&maps);
    first.shutdown(secs(1)).await;
    world.server.clear_requests();
    let last = world.create("b", "three", "3");
    let second = InformerFactory::new(transport_to(&world.server), options(3600));
    let maps: Informer<ConfigMap> = second.informer(set().restored(checkpoint)).unwrap();
    maps.wait_synced(secs(5)).await.unwrap();
    eventually("the watch brings what is new", || maps.snapshot().len() == 3).await;
    assert_eq!(*maps.snapshot().resource_version_in("b"), last.into());
    assert_eq!(whole_lists(&world, &maps), 0);
}
