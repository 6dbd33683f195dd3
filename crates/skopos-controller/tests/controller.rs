//! Controllers against the test server in the process, under virtual time.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{Api, PostParams};
use serde_json::json;
use skopos::{InformerOptions, ObjectKey};
use skopos_controller::{
    Context, Controller, ControllerOptions, ControllerStatus, Outcome, Predicate, ReconcileError,
};
use skopos_lease::{Election, LeaseOptions};
use skopos_testserver::{Fault, Match};
use support::{Diary, PLENTY, Task, World, child, config_map, revision, secs, transport_to, until};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

fn options() -> ControllerOptions {
    ControllerOptions::named("test")
}

/// Makes a reconciler that records what it saw.
fn writes_down(
    diary: &Diary,
) -> impl Fn(Context<ConfigMap>) -> futures::future::Ready<Result<Outcome, ReconcileError>> + use<> {
    let diary = diary.clone();
    move |context| {
        let value = context.object().and_then(|object| object.raw().field("data.value"));
        diary.add(format!("{} {}", context.key(), value.unwrap_or_else(|| "gone".into())));
        futures::future::ok(Outcome::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn reconciles_initial_added_changed_and_deleted() {
    let world = World::new().await;
    world.put("a", "one", "1");
    let diary = Diary::default();
    let maps = world.informer::<ConfigMap>();
    let running = world.run(Controller::new(maps, options()).reconcile(writes_down(&diary)));
    diary.has(&["a/one 1"]).await;
    world.put("a", "two", "1");
    diary.has(&["a/one 1", "a/two 1"]).await;
    world.put("a", "two", "2");
    world.server.delete("configmaps", Some("a"), "one").unwrap();
    diary.has(&["a/one 1", "a/two 1", "a/two 2", "a/one gone"]).await;
    assert_eq!(running.handle.status(), ControllerStatus::Working);
    let stats = running.stop().await;
    assert_eq!((stats.succeeded, stats.total()), (4, 4));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn reconciles_owner_and_finds_children() {
    let world = World::new().await;
    let (first, second) = (world.put("a", "one", "1"), world.put("a", "two", "1"));
    let diary = Diary::default();
    let reconcile = {
        let diary = diary.clone();
        move |context: Context<ConfigMap>| {
            let children: Vec<_> =
                context.children::<Secret>().iter().map(|child| child.name().to_owned()).collect();
            diary.add(format!("{} {}", context.key(), children.join(",")));
            futures::future::ok::<_, ReconcileError>(Outcome::Done)
        }
    };
    let controller =
        Controller::new(world.informer::<ConfigMap>(), options()).owns(world.informer::<Secret>());
    let running = world.run(controller.reconcile(reconcile));
    diary.has(&["a/one ", "a/two "]).await;
    world.server.create(child("s", &first)).unwrap();
    diary.has(&["a/one s"]).await;
    // A child whose owner changes concerns both owners.
    world.server.update(child("s", &second)).unwrap();
    diary.has(&["a/one ", "a/two s"]).await;
    // The object of this name is another one now, without such a child.
    world.server.delete("configmaps", Some("a"), "two").unwrap();
    world.put("a", "two", "2");
    diary.has(&["a/two "]).await;
    world.server.delete("secrets", Some("a"), "s").unwrap();
    diary.has(&["a/two "]).await;
    running.stop().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn reconciles_mapped_keys_before_and_after_change() {
    let world = World::new().await;
    let diary = Diary::default();
    world.server.create(support::secret("s", "one")).unwrap();
    let controller = Controller::new(world.informer::<ConfigMap>(), options())
        .watches(world.informer::<Secret>(), |secret| {
            secret.label("config").map(|name| ObjectKey::namespaced("a", name))
        });
    let running = world.run(controller.reconcile(writes_down(&diary)));
    diary.has(&["a/one gone"]).await;
    world.server.update(support::secret("s", "two")).unwrap();
    diary.has(&["a/one gone", "a/two gone"]).await;
    running.stop().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn predicate_filters_events() {
    let world = World::new().await;
    let diary = Diary::default();
    let predicate = Predicate::labels("value in (yes,no)")
        .unwrap()
        .and(Predicate::new(|event| event.object().name() != "never"));
    let controller = Controller::new(world.informer::<ConfigMap>(), options()).when(predicate);
    let running = world.run(controller.reconcile(writes_down(&diary)));
    world.put("a", "other", "maybe");
    world.put("a", "never", "yes");
    world.put("a", "one", "yes");
    diary.has(&["a/one yes"]).await;
    world.put("a", "one", "maybe");
    diary.has(&["a/one yes", "a/one maybe"]).await;
    world.put("a", "one", "perhaps");
    world.put("a", "two", "no");
    diary.has(&["a/one yes", "a/one maybe", "a/two no"]).await;
    running.stop().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn retries_all_failures_except_terminal_errors() {
    let world = World::new().await;
    let diary = Diary::default();
    let reconcile = {
        let diary = diary.clone();
        move |context: Context<ConfigMap>| {
            let diary = diary.clone();
            async move {
                let name = context.key().name().to_owned();
                diary.add(format!("{name} {}", context.attempt()));
                match (name.as_str(), context.attempt()) {
                    ("fails", 1) => Err(ReconcileError::retry("no")),
                    ("panics", 1) => panic!("no"),
                    ("hangs", 1) => std::future::pending().await,
                    ("never", _) => Err(ReconcileError::terminal("no")),
                    ("again", 1) => Ok(Outcome::RequeueAfter(secs(60))),
                    _ => Ok(Outcome::Done),
                }
            }
        }
    };
    let controller = Controller::new(world.informer::<ConfigMap>(), options().workers(2));
    let running = world.run(controller.reconcile(reconcile));
    for name in ["fails", "panics", "hangs", "never"] {
        world.put("a", name, "1");
    }
    let begun = Instant::now();
    diary.has(&["fails 2", "panics 2", "hangs 2", "never 1"]).await;
    assert!(begun.elapsed() >= secs(120) && begun.elapsed() < secs(125), "{:?}", begun.elapsed());
    let stats = running.stop().await;
    let counts = (stats.failed, stats.panicked, stats.timed_out, stats.failed_terminally, stats.succeeded);
    assert_eq!(counts, (1, 1, 1, 1, 3));
    assert_eq!(diary.count("never 1"), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn requeue_after_reconciles_after_delay() {
    let world = World::new().await;
    world.put("a", "one", "1");
    let times = Arc::new(AtomicUsize::new(0));
    let reconcile = {
        let times = times.clone();
        move |_: Context<ConfigMap>| {
            times.fetch_add(1, Ordering::SeqCst);
            futures::future::ok::<_, ReconcileError>(Outcome::RequeueAfter(secs(60)))
        }
    };
    let running = world.run(Controller::new(world.informer::<ConfigMap>(), options()).reconcile(reconcile));
    until(|| times.load(Ordering::SeqCst) == 1).await;
    let begun = Instant::now();
    until(|| times.load(Ordering::SeqCst) == 4).await;
    assert!(begun.elapsed() >= secs(179), "{:?}", begun.elapsed());
    assert_eq!(running.stop().await.requeued, 4);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn stale_view_defers_reconciliation_until_fresh() {
    let world = World::new().await;
    world.put("a", "one", "1");
    let (diary, oldest) = (Diary::default(), Arc::new(parking_lot::Mutex::new(secs(0))));
    let reconcile = {
        let (diary, oldest) = (diary.clone(), oldest.clone());
        move |context: Context<ConfigMap>| {
            let mut oldest = oldest.lock();
            *oldest = context.age().max(*oldest);
            diary.add(format!("{}", context.key()));
            futures::future::ok::<_, ReconcileError>(Outcome::Done)
        }
    };
    let running = world.run(Controller::new(world.informer::<ConfigMap>(), options()).reconcile(reconcile));
    diary.has(&["a/one"]).await;
    world.server.pause().await;
    let stale = |status: &ControllerStatus| matches!(status, ControllerStatus::Stale { reason } if reason.starts_with("configmaps: "));
    until(|| stale(&running.handle.status())).await;
    // By hand, by a retry or by an event: it makes no difference.
    running.handle.enqueue(ObjectKey::namespaced("a", "one")).unwrap();
    tokio::time::sleep(secs(3600)).await;
    assert_eq!(diary.count("a/one"), 1, "{:?}", running.handle.status());
    world.server.resume().await.unwrap();
    diary.has(&["a/one", "a/one"]).await;
    assert!(*oldest.lock() <= secs(60), "{oldest:?}");
    assert_eq!(running.handle.status(), ControllerStatus::Working);
    running.stop().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn next_reconciliation_sees_own_write() {
    let world = World::new().await;
    let first = world.put("a", "one", "0");
    let client = world.factory.transport().client("a");
    let (rounds, missed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let reconcile = {
        let (rounds, missed) = (rounds.clone(), missed.clone());
        move |context: Context<ConfigMap>| {
            let (client, rounds, missed) = (client.clone(), rounds.clone(), missed.clone());
            async move {
                let done = rounds.load(Ordering::SeqCst);
                let Some(object) = context.object() else { return Ok(Outcome::Done) };
                if object.raw().field("data.value") != Some(done.to_string()) {
                    missed.store(true, Ordering::SeqCst);
                }
                if done == 20 {
                    return Ok(Outcome::Done);
                }
                let mut object = object.decode()?;
                object.data = Some([("value".to_owned(), (done + 1).to_string())].into());
                let written = Api::<ConfigMap>::namespaced(client, "a")
                    .replace("one", &PostParams::default(), &object)
                    .await?;
                context.wrote(&written)?;
                rounds.store(done + 1, Ordering::SeqCst);
                // At once, so that only waiting for the write makes it visible.
                Ok(Outcome::RequeueAfter(secs(0)))
            }
        }
    };
    // The watch delivers late.
    let _late =
        world.server.faults().inject(Fault::Lag(skopos_testserver::Lag::By(secs(3)))).on(Match::watch());
    let running = world.run(Controller::new(world.informer::<ConfigMap>(), options()).reconcile(reconcile));
    until(|| rounds.load(Ordering::SeqCst) == 20).await;
    assert!(!missed.load(Ordering::SeqCst), "a reconciliation saw the object without its own write");
    assert!(revision(&first) > 0);
    let stats = running.stop().await;
    assert_eq!(stats.failed, 0, "no write has met a conflict");
    world.end().await;
}

/// Makes a reconciler that writes each object once, at its first attempt, and records what it saw.
fn writes_each_once(
    world: &World,
    diary: &Diary,
) -> impl Fn(Context<ConfigMap>) -> BoxFuture<'static, Result<Outcome, ReconcileError>> + Send + Sync + 'static
{
    let (client, diary) = (world.factory.transport().client("a"), diary.clone());
    move |context: Context<ConfigMap>| {
        let (client, diary) = (client.clone(), diary.clone());
        Box::pin(async move {
            let Some(object) = context.object() else { return Ok(Outcome::Done) };
            let name = object.name().to_owned();
            let value = object.raw().field("data.value").unwrap_or_default();
            diary.add(format!("{name}={value}"));
            if value != "0" {
                return Ok(Outcome::Done);
            }
            let mut object = object.decode()?;
            object.data = Some([("value".to_owned(), "1".to_owned())].into());
            let api = Api::<ConfigMap>::namespaced(client, "a");
            context.wrote(&api.replace(&name, &PostParams::default(), &object).await?)?;
            Ok(Outcome::RequeueAfter(secs(0)))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn keys_awaiting_own_writes_hold_no_worker() {
    let world = World::new().await;
    for name in ["one", "three", "two"] {
        world.put("a", name, "0");
    }
    let diary = Diary::default();
    // The watch delivers an hour late: the writes stay unseen.
    let _late =
        world.server.faults().inject(Fault::Lag(skopos_testserver::Lag::By(secs(3600)))).on(Match::watch());
    let controller = Controller::new(world.informer::<ConfigMap>(), options().own_write_limit(secs(1)));
    let running = world.run(controller.reconcile(writes_each_once(&world, &diary)));
    diary.has(&["one=0", "two=0", "three=0"]).await;
    until(|| running.handle.stats().put_off_own_write == 3).await;
    let stats = running.stop().await;
    assert_eq!((stats.waiting_for_own_writes, stats.requeued, stats.total()), (0, 3, 3));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn own_write_of_past_history_is_not_awaited() {
    let world = World::new().await;
    let backup = revision(&world.put("a", "one", "0"));
    world.put("a", "one", "0");
    world.put("default", "other", "1");
    let diary = Diary::default();
    let late =
        world.server.faults().inject(Fault::Lag(skopos_testserver::Lag::By(secs(60)))).on(Match::watch());
    let running = world.run(
        Controller::new(world.informer::<ConfigMap>(), options()).reconcile(writes_each_once(&world, &diary)),
    );
    until(|| running.handle.stats().waiting_for_own_writes == 1).await;
    world.server.roll_back(backup).expect("the revision is kept");
    world.server.close_watches();
    drop(late);
    // The write is gone with its history, and is made once more.
    diary.has(&["one=0", "one=0", "one=1"]).await;
    running.stop().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn only_leader_reconciles_until_term_ends() {
    let world = World::new().await;
    world.put("a", "one", "1");
    let lease = || {
        let mut options = LeaseOptions::new("default", "leader");
        options.acquire_on_create = true;
        Election::with_transport(transport_to(&world.server), options).unwrap()
    };
    let (first, second) = (lease(), lease());
    let active = Arc::new(AtomicUsize::new(0));
    let begun = Arc::new(AtomicUsize::new(0));
    let hangs = |active: &Arc<AtomicUsize>| {
        let (active, begun) = (active.clone(), begun.clone());
        move |_: Context<ConfigMap>| {
            let (active, begun) = (active.clone(), begun.clone());
            async move {
                struct Active(Arc<AtomicUsize>);
                impl Drop for Active {
                    fn drop(&mut self) {
                        self.0.fetch_sub(1, Ordering::SeqCst);
                    }
                }
                assert_eq!(active.fetch_add(1, Ordering::SeqCst), 0, "two act at the same time");
                let _active = Active(active);
                begun.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await;
                Ok::<_, ReconcileError>(Outcome::Done)
            }
        }
    };
    let controller = |election: &Election| {
        let controller = Controller::new(world.informer::<ConfigMap>(), options().shutdown_limit(secs(1)));
        world.run(controller.elected(election.candidate()).reconcile(hangs(&active)))
    };
    let one = controller(&first);
    let stops = [CancellationToken::new(), CancellationToken::new()];
    let first = Task::start(first.run(stops[0].clone()));
    until(|| begun.load(Ordering::SeqCst) == 1).await;
    let two = controller(&second);
    let second = Task::start(second.run(stops[1].clone()));
    tokio::time::sleep(secs(60)).await;
    assert_eq!(two.handle.status(), ControllerStatus::Standby);
    stops[0].cancel();
    until(|| begun.load(Ordering::SeqCst) >= 2).await;
    assert_eq!(one.handle.stats().dropped, 1);
    first.end().await;
    two.stop().await;
    stops[1].cancel();
    second.end().await;
    one.stop().await;
    assert_eq!(active.load(Ordering::SeqCst), 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn stop_is_bounded_when_reconciliation_hangs() {
    let world = World::new().await;
    world.put("a", "one", "1");
    let controller = Controller::new(world.informer::<ConfigMap>(), options());
    let running =
        world.run(controller.reconcile(|_| std::future::pending::<Result<Outcome, ReconcileError>>()));
    until(|| running.handle.stats().queue.processing == 1).await;
    let begun = Instant::now();
    let handle = running.handle.clone();
    running.stop().await;
    assert!(begun.elapsed() >= secs(30) && begun.elapsed() < secs(32), "{:?}", begun.elapsed());
    assert_eq!(handle.status(), ControllerStatus::Stopped);
    assert!(handle.enqueue(ObjectKey::namespaced("a", "two")).is_err());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_scoped_owner_is_found() {
    let world = World::new().await;
    let namespace = world.server.get("namespaces", None, "a").unwrap();
    let owner = json!([{"apiVersion": "v1", "kind": "Namespace", "name": "a", "controller": true,
        "uid": namespace["metadata"]["uid"]}]);
    let mut map = config_map("a", "owned", "1");
    map["metadata"]["ownerReferences"] = owner;
    let diary = Diary::default();
    let reconcile = {
        let diary = diary.clone();
        move |context: Context<Namespace>| {
            diary.add(format!("{} {}", context.key(), context.children::<ConfigMap>().len()));
            futures::future::ok::<_, ReconcileError>(Outcome::Done)
        }
    };
    let controller =
        Controller::new(world.informer::<Namespace>(), options()).owns(world.informer::<ConfigMap>());
    let running = world.run(controller.reconcile(reconcile));
    diary.has(&["a 0"]).await;
    world.server.create(map).unwrap();
    diary.has(&["a 0", "a 1"]).await;
    running.stop().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_factory_that_was_shut_down_is_said() {
    let world = World::new().await;
    let service =
        Controller::new(world.factory.informer::<ConfigMap>(InformerOptions::all()).unwrap(), options())
            .reconcile(writes_down(&Diary::default()));
    world.factory.shutdown(PLENTY).await;
    let error = service.run(CancellationToken::new()).await.unwrap_err().to_string();
    assert!(error.contains("configmaps") && error.contains("before that"), "{error}");
}
