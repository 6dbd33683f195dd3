use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::core::DynamicObject;
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Happened, explore};
use crate::handler::{self, Event, EventHandler, HandlerHandle, HandlerOptions};
use crate::store::{StoreCore, StoreWriter};
use crate::testing::{apply, commit, deleted, list, object, put, snapshot, store};

/// The objects by name, with uid and RV.
type State = BTreeMap<String, (String, u64)>;

/// A handler that folds its events into a state, and records inconsistent ones.
#[derive(Clone, Default)]
struct Fold {
    state: Arc<watch::Sender<(State, Vec<String>)>>,
    coalesced: Happened,
}

impl EventHandler<DynamicObject> for Fold {
    async fn handle(&self, event: Event<DynamicObject>) {
        self.coalesced.note(usize::from(event.flags().coalesced));
        yield_now().await;
        self.state.send_modify(|(state, nonsense)| {
            let (name, version) = named(event.object());
            let makes_sense = match &event {
                Event::Added { .. } => state.insert(name, version).is_none(),
                Event::Updated { old, .. } => {
                    let old = named(old).1;
                    let goes_on = old.0 == version.0 && old.1 < version.1;
                    state.insert(name, version) == Some(old) && goes_on
                }
                Event::Deleted { .. } => state.remove(&name).is_some_and(|(uid, _)| uid == version.0),
            };
            if !makes_sense {
                nonsense.push(format!("{event:?} after {state:?}"));
            }
        });
    }
}

fn named(object: &crate::Object) -> (String, (String, u64)) {
    let rv = object.resource_version().to_string().parse().unwrap();
    (object.name().to_owned(), (object.uid().to_string(), rv))
}

struct Bench {
    core: Arc<StoreCore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Bench {
    fn new() -> (Self, StoreWriter) {
        let (core, writer) = store();
        (Self { core, tasks: TaskTracker::new(), stop: CancellationToken::new() }, writer)
    }

    /// Adds a handler with a queue so small that it overflows.
    fn add(&self, handler: impl EventHandler<DynamicObject>) -> HandlerHandle {
        let options = HandlerOptions::default().capacity(1).retries(0, Duration::ZERO);
        handler::add(&self.core, handler, options, &self.tasks, &self.stop).unwrap()
    }
}

/// Writes lists, changes, and a name that another object takes over.
fn write(mut writer: StoreWriter) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let listed = |rv| [object("ns", "a", "u-a", 1), object("ns", "b", &format!("u-b{rv}"), rv)];
        list(&mut writer, listed(2), commit(2, 0, false));
        apply(&mut writer, [put("a", "u-a", 3), put("c", "u-c", 4)], 4);
        apply(&mut writer, [deleted("c", "u-c", 5)], 5);
        apply(&mut writer, [put("a", "u-a", 6)], 6);
        let relisted = [object("ns", "a", "u-a", 6), object("ns", "b", "u-b8", 8)];
        list(&mut writer, relisted, commit(8, 0, true));
        apply(&mut writer, [put("c", "u-c9", 9), put("a", "u-a", 10)], 10);
        // The last change must always arrive.
        if thread_rng().gen_bool(0.5) {
            let relisted = [("a", "u-a", 10), ("b", "u-b8", 11), ("d", "u-d", 12)];
            list(
                &mut writer,
                relisted.map(|(name, uid, rv)| object("ns", name, uid, rv)),
                commit(12, 0, true),
            );
        }
    })
}

fn content(core: &Arc<StoreCore>) -> State {
    snapshot(core).iter().map(|object| named(&object)).collect()
}

#[test]
fn early_and_late_handlers_reach_final_content() {
    let coalesced = Happened::default();
    let noted = coalesced.clone();
    explore(move || {
        let (bench, writer) = Bench::new();
        let fold = || Fold { coalesced: noted.clone(), ..Fold::default() };
        let (early, late) = (fold(), fold());
        let first = bench.add(early.clone());
        let writer = write(writer);
        let second = bench.add(late.clone());
        writer.join().unwrap();
        let content = content(&bench.core);
        assert_eq!(content.len(), 3);
        for (fold, handle) in [(early, &first), (late, &second)] {
            // If the last state never comes, that is a deadlock.
            let mut state = fold.state.subscribe();
            let told =
                block_on(state.wait_for(|(state, nonsense)| *state == content || !nonsense.is_empty()));
            assert_eq!(told.unwrap().1, Vec::<String>::new(), "the story is broken");
            block_on(handle.synced()).unwrap();
        }
    });
    coalesced.check("a queue that overflowed");
}

/// A handler that records whether it is running.
#[derive(Clone, Default)]
struct Calls {
    removed: Arc<AtomicBool>,
    after: Arc<AtomicBool>,
    before: Happened,
}

impl EventHandler<DynamicObject> for Calls {
    async fn handle(&self, _: Event<DynamicObject>) {
        for _ in 0..3 {
            match self.removed.load(Ordering::SeqCst) {
                true => self.after.store(true, Ordering::SeqCst),
                false => self.before.note(1),
            }
            yield_now().await;
        }
    }
}

#[test]
fn no_call_runs_after_a_removal() {
    let before = Happened::default();
    let noted = before.clone();
    explore(move || {
        let (bench, writer) = Bench::new();
        let calls = Calls { before: noted.clone(), ..Calls::default() };
        let handle = bench.add(calls.clone());
        let writer = write(writer);
        // Two callers may remove it concurrently.
        let twice = handle.clone();
        let other = spawn(async move { twice.remove(Duration::MAX).await.unwrap() });
        block_on(handle.remove(Duration::MAX)).unwrap();
        calls.removed.store(true, Ordering::SeqCst);
        writer.join().unwrap();
        block_on(other).unwrap();
        assert!(!calls.after.load(Ordering::SeqCst), "a call ran after the removal");
        assert_eq!(bench.core.stats().handlers, 0);
        bench.tasks.close();
        block_on(bench.tasks.wait());
    });
    before.check("a call before the removal");
}

#[test]
fn closing_store_leaves_no_handler_running() {
    let (refused, taken) = (Happened::default(), Happened::default());
    let (note_refused, note_taken) = (refused.clone(), taken.clone());
    explore(move || {
        let (bench, writer) = Bench::new();
        let writer = write(writer);
        let adders = [(); 2].map(|()| {
            let (core, tasks, stop) = (bench.core.clone(), bench.tasks.clone(), bench.stop.clone());
            thread::spawn(move || {
                handler::add(&core, Fold::default(), HandlerOptions::default(), &tasks, &stop).is_ok()
            })
        });
        // Like an informer.
        bench.stop.cancel();
        bench.core.close();
        let added = adders.map(|adder| usize::from(adder.join().unwrap())).iter().sum::<usize>();
        writer.join().unwrap();
        note_taken.note(added);
        note_refused.note(2 - added);
        bench.tasks.close();
        block_on(bench.tasks.wait());
        assert_eq!(bench.core.stats().handlers, 0);
    });
    refused.check("a handler that came too late");
    taken.check("a handler that came in time");
}
