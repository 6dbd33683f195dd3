use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::pending;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::error::{HandlerNotSynced, HandlerStillRuns};
use crate::freshness::Freshness;
use crate::store::object::Object;
use crate::store::{Closed, StoreCore, StoreWriter};
use crate::testing::{apply, commit, deleted, list, object, put, store};

/// A store with a writer, and the tasks of its handlers.
struct Bench {
    core: Arc<StoreCore>,
    writer: StoreWriter,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Bench {
    fn new() -> Self {
        let (core, writer) = store();
        Self { core, writer, tasks: TaskTracker::new(), stop: CancellationToken::new() }
    }

    fn listed(names: &[&str]) -> Self {
        let mut bench = Self::new();
        let objects = (1..).zip(names).map(|(rv, name)| object("ns", name, &format!("u-{name}"), rv));
        list(&mut bench.writer, objects, commit(names.len() as u64, 0, false));
        bench
    }

    fn add(&self, handler: impl EventHandler<Untyped>, options: HandlerOptions) -> HandlerHandle {
        add(&self.core, handler, options, &self.tasks, &self.stop).unwrap()
    }

    /// Updates `o` once for each of these RVs.
    fn update(&mut self, name: &str, rvs: impl IntoIterator<Item = u64>) {
        for rv in rvs {
            apply(&mut self.writer, [put(name, &format!("u-{name}"), rv)], rv);
        }
    }
}

type Untyped = kube::core::DynamicObject;

/// A limit longer than anything takes.
const LONG: Duration = Duration::from_secs(3600);

/// A log of the events that a handler received; tests can wait for its lines.
#[derive(Clone)]
struct Log(Arc<watch::Sender<Vec<String>>>);

impl Log {
    fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }

    fn write(&self, event: &Event<Untyped>) {
        let verb = match event {
            Event::Added { initial: true, .. } => "initial",
            Event::Added { .. } => "added",
            Event::Updated { .. } => "updated",
            Event::Deleted { .. } => "deleted",
        };
        let EventFlags { gap, coalesced, resync } = event.flags();
        let flags = [(gap, " gap"), (coalesced, " coalesced"), (resync, " resync")];
        let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
        let object = event.object();
        self.note(format!("{verb} {}@{}{flags}", object.name(), object.resource_version()));
    }

    fn note(&self, line: impl Into<String>) {
        self.0.send_modify(|log| log.push(line.into()));
    }

    fn handler(&self) -> impl EventHandler<Untyped> + use<> {
        let log = self.clone();
        sync_handler(move |event: Event<Untyped>| log.write(&event))
    }

    async fn has(&self, lines: usize) -> Vec<String> {
        let mut log = self.0.subscribe();
        let log = timeout(Duration::from_secs(3600), log.wait_for(|log| log.len() >= lines)).await;
        log.unwrap_or_else(|_| panic!("only {:?}", self.now())).unwrap().clone()
    }

    fn now(&self) -> Vec<String> {
        self.0.borrow().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn late_handler_gets_content_then_changes() {
    let mut bench = Bench::listed(&["a", "b"]);
    bench.update("a", [5]);
    let log = Log::new();
    let handle = bench.add(log.handler(), HandlerOptions::default());
    bench.update("a", [6, 7]);
    apply(&mut bench.writer, [deleted("b", "u-b", 8), put("c", "u-c", 9)], 9);
    let told = log.has(6).await;
    assert_eq!(
        told,
        ["initial a@5", "initial b@2", "updated a@6", "updated a@7", "deleted b@8", "added c@9"]
    );
    assert!(handle.has_synced());
    assert_eq!(handle.stats().last_resource_version, Some(9.into()));
}

#[tokio::test(start_paused = true)]
async fn early_handler_syncs_only_with_first_list() {
    let mut bench = Bench::new();
    let log = Log::new();
    let gate = Arc::new(Semaphore::new(0));
    let handler = {
        let (log, gate) = (log.clone(), gate.clone());
        move |event: Event<Untyped>| {
            let (log, gate) = (log.clone(), gate.clone());
            async move {
                gate.acquire().await.unwrap().forget();
                log.write(&event);
            }
        }
    };
    let handle = bench.add(handler, HandlerOptions::default());
    sleep(Duration::from_secs(60)).await;
    assert!(!handle.has_synced());
    list(&mut bench.writer, [object("ns", "a", "u-a", 1), object("ns", "b", "u-b", 2)], commit(2, 0, false));
    // An object of the first list is deleted before the handler has seen anything: it gets both events, and only then is
    // synced.
    apply(&mut bench.writer, [deleted("b", "u-b", 3)], 3);
    gate.add_permits(1);
    log.has(1).await;
    sleep(Duration::from_secs(60)).await;
    assert!(!handle.has_synced());
    gate.add_permits(10);
    handle.wait_synced(LONG).await.unwrap();
    assert_eq!(log.has(2).await[0], "initial a@1");
    bench.stop.cancel();
    handle.wait_synced(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_empty_first_list_is_a_first_list() {
    let mut bench = Bench::new();
    let handle = bench.add(Log::new().handler(), HandlerOptions::default());
    list(&mut bench.writer, [], commit(1, 0, false));
    handle.wait_synced(Duration::from_secs(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_caught_retried_and_at_last_recorded() {
    let mut bench = Bench::listed(&[]);
    let (log, other) = (Log::new(), Log::new());
    let tries = Arc::new(AtomicUsize::new(0));
    let handler = {
        let (log, tries) = (log.clone(), tries.clone());
        sync_handler(move |event: Event<Untyped>| {
            match event.object().name() {
                "once" => assert!(tries.fetch_add(1, Ordering::Relaxed) > 0, "not yet"),
                "never" => panic!("{} is not for me", event.key()),
                _ => {}
            }
            log.write(&event);
        })
    };
    let handle = bench.add(handler, HandlerOptions::named("touchy").retries(2, Duration::from_secs(1)));
    bench.add(other.handler(), HandlerOptions::default());
    let start = Instant::now();
    apply(&mut bench.writer, [put("once", "u", 2), put("never", "u", 3), put("z", "u", 4)], 4);
    assert_eq!(other.has(3).await, ["added once@2", "added never@3", "added z@4"]);
    assert_eq!(start.elapsed(), Duration::ZERO, "the other handler did not wait");
    assert_eq!(log.has(2).await, ["added once@2", "added z@4"]);
    // One retry after a second, then two after one and two seconds.
    assert_eq!(start.elapsed().as_secs(), 4);
    let stats = handle.stats();
    assert_eq!((stats.handled, stats.panics, stats.poisoned), (3, 4, 1));
    let poisoned = &stats.last_poisoned[0];
    assert_eq!((poisoned.key.to_string().as_str(), poisoned.attempts), ("ns/never", 3));
    assert_eq!(poisoned.panic, "ns/never is not for me");
}

#[tokio::test(start_paused = true)]
async fn catches_panic_before_future_exists() {
    let bench = Bench::listed(&["a", "b"]);
    let log = Log::new();
    let handler = {
        let log = log.clone();
        move |event: Event<Untyped>| {
            assert_ne!(event.object().name(), "a");
            let log = log.clone();
            async move { log.write(&event) }
        }
    };
    let handle = bench.add(handler, HandlerOptions::default().retries(0, Duration::ZERO));
    assert_eq!(log.has(1).await, ["initial b@2"]);
    handle.wait_synced(LONG).await.unwrap();
    assert_eq!(handle.stats().poisoned, 1);
}

#[tokio::test(start_paused = true)]
async fn slow_handler_gets_coalesced_last_state() {
    let mut bench = Bench::listed(&["a"]);
    let (slow, fast) = (Log::new(), Log::new());
    let handler = {
        let log = slow.clone();
        move |event: Event<Untyped>| {
            let log = log.clone();
            async move {
                sleep(Duration::from_secs(1)).await;
                log.write(&event);
            }
        }
    };
    let handle = bench.add(handler, HandlerOptions::default().capacity(2));
    bench.add(fast.handler(), HandlerOptions::default().capacity(2));
    fast.has(1).await;
    for rv in 10..20 {
        bench.update("a", [rv]);
        fast.has(rv as usize - 8).await;
    }
    apply(&mut bench.writer, [put("b", "u-b", 20)], 20);
    apply(&mut bench.writer, [deleted("b", "u-b", 21)], 21);
    assert!(fast.has(13).await.iter().all(|line| !line.contains("coalesced")));
    assert_eq!(slow.has(4).await, ["initial a@1", "updated a@10", "updated a@11", "updated a@19 coalesced"]);
    let stats = handle.stats();
    assert_eq!((stats.overflows, stats.deepest, stats.coalesced), (1, 2, 1));
    assert!(stats.waiting == 0);
    bench.update("a", [30]);
    assert_eq!(slow.has(5).await[4], "updated a@30");
}

#[tokio::test(start_paused = true)]
async fn no_call_runs_after_a_removal() {
    let mut bench = Bench::listed(&["a", "b"]);
    let log = Log::new();
    let handler = {
        let log = log.clone();
        move |event: Event<Untyped>| {
            let log = log.clone();
            async move {
                log.note("begin");
                sleep(Duration::from_millis(400)).await;
                log.write(&event);
            }
        }
    };
    let handle = bench.add(handler, HandlerOptions::default());
    log.has(1).await;
    // The running call may end; the next one does not begin.
    handle.remove(LONG).await.unwrap();
    assert_eq!(log.now(), ["begin", "initial a@1"]);
    assert_eq!(bench.core.stats().handlers, 0);
    bench.update("a", [5]);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(log.now().len(), 2);
    handle.remove(LONG).await.unwrap();
    assert!(handle.stats().ended);
    let error = handle.wait_synced(LONG).await.unwrap_err();
    assert!(matches!(error, HandlerNotSynced::Closed(Closed)), "{error}");
    bench.tasks.close();
    timeout(Duration::from_secs(1), bench.tasks.wait()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_was_removed_has_nothing_waiting() {
    let mut bench = Bench::listed(&["a", "b"]);
    let log = Log::new();
    let handler = {
        let log = log.clone();
        move |_: Event<Untyped>| {
            log.note("begin");
            pending::<()>()
        }
    };
    let handle = bench.add(handler, HandlerOptions::default());
    log.has(1).await;
    bench.update("a", [5, 6, 7]);
    list(&mut bench.writer, [object("ns", "a", "u-a", 8)], commit(8, 0, true));
    let stands = || (handle.stats().waiting, handle.stats().catching_up);
    assert_eq!(stands(), (3, true));
    handle.remove(LONG).await.unwrap();
    assert_eq!(stands(), (0, false));
}

#[tokio::test(start_paused = true)]
async fn endless_handler_call_is_dropped_after_shutdown_limit() {
    struct OnDrop(Arc<AtomicBool>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let bench = Bench::listed(&["a"]);
    let (log, dropped) = (Log::new(), Arc::new(AtomicBool::new(false)));
    let handler = {
        let (log, dropped) = (log.clone(), dropped.clone());
        move |_: Event<Untyped>| {
            let (log, guard) = (log.clone(), OnDrop(dropped.clone()));
            async move {
                let _guard = guard;
                log.note("begin");
                pending::<()>().await;
            }
        }
    };
    let handle = bench.add(handler, HandlerOptions::default());
    log.has(1).await;
    let start = Instant::now();
    handle.remove(LONG).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_millis(500));
    assert!(dropped.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_handler_has_a_bound() {
    let limit = Duration::from_secs(5);
    let begun = Instant::now();
    // Nothing was listed.
    let idle = Bench::new();
    let handle = idle.add(Log::new().handler(), HandlerOptions::default());
    let error = handle.wait_synced(limit).await.unwrap_err();
    let HandlerNotSynced::Late { waited, waiting: 0, freshness, .. } = error else { panic!("{error}") };
    assert_eq!((waited, begun.elapsed()), (limit, limit));
    assert!(matches!(freshness, Freshness::NeverSynced { .. }), "{freshness}");

    // The handler never finishes.
    let bench = Bench::listed(&["a", "b"]);
    let log = Log::new();
    let handler = {
        let log = log.clone();
        move |_: Event<Untyped>| {
            log.note("begin");
            pending::<()>()
        }
    };
    let shutdown_limit = Duration::from_secs(60);
    let handle = bench.add(handler, HandlerOptions::named("stuck").shutdown_limit(shutdown_limit));
    log.has(1).await;
    let error = handle.wait_synced(limit).await.unwrap_err();
    assert!(error.to_string().starts_with("the handler stuck has not handled the first list within 5.0s"));
    let begun = Instant::now();
    let error = handle.remove(limit).await.unwrap_err();
    assert_eq!(error, HandlerStillRuns { name: "stuck".into(), waited: limit });
    assert!(!handle.stats().ended);
    handle.remove(shutdown_limit).await.unwrap();
    assert_eq!(begun.elapsed(), shutdown_limit);
    assert_eq!(log.now().len(), 1, "no other call has come");
}

#[tokio::test(start_paused = true)]
async fn stopping_ends_all_and_nothing_can_be_added_then() {
    let bench = Bench::listed(&["a"]);
    let log = Log::new();
    let handles: Vec<_> = (0..5).map(|_| bench.add(log.handler(), HandlerOptions::default())).collect();
    bench.core.close();
    bench.stop.cancel();
    bench.tasks.close();
    timeout(Duration::from_secs(1), bench.tasks.wait()).await.unwrap();
    for handle in handles {
        handle.remove(Duration::from_secs(1)).await.unwrap();
    }
    let none =
        add::<Untyped, _>(&bench.core, log.handler(), HandlerOptions::default(), &bench.tasks, &bench.stop);
    assert!(none.is_err());
    let open = CancellationToken::new();
    let none = add::<Untyped, _>(&bench.core, log.handler(), HandlerOptions::default(), &bench.tasks, &open);
    assert!(none.is_err());
}

#[tokio::test(start_paused = true)]
async fn resync_repeats_every_object_when_idle() {
    let mut bench = Bench::listed(&["a", "b"]);
    let (resynced, plain) = (Log::new(), Log::new());
    let handle = bench.add(resynced.handler(), HandlerOptions::default().resync(Duration::from_secs(30)));
    bench.add(plain.handler(), HandlerOptions::default());
    resynced.has(2).await;
    bench.update("a", [5]);
    let start = Instant::now();
    let told = resynced.has(7).await;
    assert_eq!(start.elapsed().as_secs(), 60);
    let again = ["updated a@5 resync", "updated b@2 resync"];
    assert_eq!(told[..5], ["initial a@1", "initial b@2", "updated a@5", again[0], again[1]]);
    assert_eq!(resynced.has(7).await[5..], again);
    assert_eq!(plain.now().len(), 3);
    assert_eq!(handle.stats().resyncs, 2);
}

#[tokio::test(start_paused = true)]
async fn changes_during_a_resync_come_after_it() {
    let mut bench = Bench::listed(&["a", "b"]);
    let log = Log::new();
    let handler = {
        let log = log.clone();
        move |event: Event<Untyped>| {
            let log = log.clone();
            async move {
                sleep(Duration::from_secs(1)).await;
                log.write(&event);
            }
        }
    };
    bench.add(handler, HandlerOptions::default().resync(Duration::from_secs(10)));
    log.has(3).await;
    bench.update("b", [7]);
    apply(&mut bench.writer, [deleted("a", "u-a", 8)], 8);
    let told = log.has(6).await;
    assert_eq!(told[2..], ["updated a@1 resync", "updated b@2 resync", "updated b@7", "deleted a@8"]);
}

#[tokio::test(start_paused = true)]
async fn a_relist_is_marked_as_a_gap() {
    let mut bench = Bench::listed(&["a", "b"]);
    let log = Log::new();
    bench.add(log.handler(), HandlerOptions::default());
    log.has(2).await;
    list(&mut bench.writer, [object("ns", "b", "u-b", 8), object("ns", "c", "u-c", 9)], commit(9, 0, true));
    assert_eq!(log.has(5).await[2..], ["deleted a@1 gap", "updated b@8 gap", "added c@9 gap"]);
    bench.update("c", [10]);
    assert_eq!(log.has(6).await[5], "updated c@10");
}

#[tokio::test]
async fn handlers_join_and_leave_during_writes() {
    let bench = Bench::listed(&[]);
    let Bench { core, mut writer, tasks, stop } = bench;
    let survivor = Log::new();
    add(&core, survivor.handler(), HandlerOptions::default().capacity(100_000), &tasks, &stop).unwrap();
    let working = TaskTracker::new();
    working.spawn(async move {
        for rv in 2..2_000 {
            apply(&mut writer, [put(&format!("o{}", rv % 50), "u", rv)], rv);
            tokio::task::yield_now().await;
        }
    });
    for _ in 0..4 {
        let (core, tasks, stop) = (core.clone(), tasks.clone(), stop.clone());
        working.spawn(async move {
            for _ in 0..50 {
                let calls = Arc::new(Mutex::new((0, false)));
                let seen = calls.clone();
                let handler = sync_handler(move |_: Event<Untyped>| {
                    let mut seen = seen.lock();
                    assert!(!seen.1, "called after its removal");
                    seen.0 += 1;
                });
                let handle =
                    add(&core, handler, HandlerOptions::default().capacity(4), &tasks, &stop).unwrap();
                tokio::task::yield_now().await;
                handle.remove(LONG).await.unwrap();
                calls.lock().1 = true;
                assert_eq!(handle.stats().panics, 0);
            }
        });
    }
    working.close();
    working.wait().await;
    // No event was lost or doubled for the remaining handler.
    let told = survivor.has(1_998).await;
    assert!(told.iter().zip(2..).all(|(line, rv)| line.ends_with(&format!("@{rv}"))));
    assert_eq!(core.stats().handlers, 1);
    stop.cancel();
    tasks.close();
    tasks.wait().await;
}

#[tokio::test(start_paused = true)]
async fn callbacks_as_in_client_go() {
    struct Three(Log);
    impl EventCallbacks<Untyped> for Three {
        fn on_add(&self, object: Object<Untyped>, initial: bool) {
            self.0.note(format!("add {} {initial}", object.name()));
        }
        fn on_delete(&self, object: Object<Untyped>, final_state_known: bool) {
            self.0.note(format!("delete {} {final_state_known}", object.name()));
        }
    }
    let mut bench = Bench::listed(&["a"]);
    let log = Log::new();
    bench.add(Callbacks(Three(log.clone())), HandlerOptions::default());
    bench.update("a", [5]);
    apply(&mut bench.writer, [deleted("a", "u-a", 6)], 6);
    assert_eq!(log.has(2).await, ["add a true", "delete a true"]);
}
