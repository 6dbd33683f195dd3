mod counts;
mod order;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;

use futures::FutureExt;
use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::freshness::{Freshness, FreshnessCell};
use crate::handler::{DifferenceWalk, EventQueue, QueueItem};
use crate::store::object::Object;
use crate::store::{Digest, Indexer, Snapshot, Store};
use crate::testing::{Unobserved, apply, cases, commit, deleted, gone, list, object, put, snapshot, store};

fn names(snapshot: &Snapshot) -> Vec<String> {
    snapshot.iter().map(|o| format!("{}@{}", o.name(), o.resource_version())).collect()
}

/// Returns all events that wait in a queue, as text.
fn drain(queue: &EventQueue) -> Vec<String> {
    let mut reader = QueueReader::default();
    std::iter::from_fn(|| reader.next(queue)).map(|event| format!("{event:?}")).collect()
}

#[derive(Default)]
struct QueueReader {
    walk: Option<DifferenceWalk>,
}

impl QueueReader {
    fn next(&mut self, queue: &EventQueue) -> Option<Event> {
        loop {
            if let Some(event) = self.walk.as_mut().and_then(DifferenceWalk::next) {
                return Some(event);
            }
            self.walk = None;
            match queue.take().now_or_never()? {
                QueueItem::Event(event) => return Some(event),
                QueueItem::Walk(walk) => self.walk = Some(walk),
            }
        }
    }
}

#[test]
fn a_list_becomes_visible_as_one_step() {
    let (core, mut writer) = store();
    let reader: Store = core.into();
    let before = reader.snapshot();
    writer.begin_replace();
    writer.stage(object("ns", "b", "u2", 2));
    writer.stage(object("ns", "a", "u1", 1));
    assert!(!before.is_synced() && reader.is_empty());
    writer.commit_replace(commit(5, 0, false));
    assert_eq!(names(&reader.snapshot()), ["a@1", "b@2"]);
    assert!(reader.snapshot().is_synced());
    assert_eq!(*reader.snapshot().resource_version(), 5.into());
    assert!(before.is_empty());
    writer.begin_replace();
    writer.stage(object("ns", "c", "u3", 6));
    writer.abort_replace();
    assert_eq!(names(&reader.snapshot()), ["a@1", "b@2"]);
}

#[test]
fn recreated_name_is_deletion_and_addition() {
    let (core, mut writer) = store();
    let queue = Arc::new(EventQueue::new(10));
    core.subscribe(&queue).unwrap();
    list(&mut writer, [object("ns", "a", "u1", 1)], commit(1, 0, false));
    let mut told = drain(&queue);
    apply(&mut writer, [put("a", "u2", 3)], 3);
    list(&mut writer, [object("ns", "a", "u3", 7)], commit(8, 0, true));
    told.extend(drain(&queue));
    assert_eq!(
        told,
        [
            "Added(Object(ns/a uid=u1 rv=1), initial=true)",
            "Deleted(Object(ns/a uid=u1 rv=1), final_state_known=false)",
            "Added(Object(ns/a uid=u2 rv=3), initial=false)",
            "Deleted(Object(ns/a uid=u2 rv=3), final_state_known=false, gap)",
            "Added(Object(ns/a uid=u3 rv=7), initial=false, gap)",
        ]
    );
    assert_eq!(core.stats().replaced_uids, 2);
}

#[test]
fn deletion_carries_final_state_and_version() {
    let (core, mut writer) = store();
    let queue = Arc::new(EventQueue::new(10));
    let listed = [object("ns", "a", "u1", 1), object("ns", "b", "u2", 2), object("ns", "c", "u3", 3)];
    list(&mut writer, listed, commit(3, 0, false));
    core.subscribe(&queue).unwrap();
    drain(&queue);
    apply(&mut writer, [deleted("a", "u1", 4), deleted("b", "u9", 5)], 5);
    apply(&mut writer, [gone("ns/c", 6)], 6);
    assert_eq!(
        drain(&queue),
        [
            "Deleted(Object(ns/a uid=u1 rv=4), final_state_known=true)",
            "Deleted(Object(ns/b uid=u2 rv=2), final_state_known=false)",
            "Deleted(Object(ns/c uid=u3 rv=3), final_state_known=false)",
        ]
    );
}

#[test]
fn drops_and_counts_old_changes() {
    let (core, mut writer) = store();
    list(&mut writer, [object("ns", "a", "u1", 3)], commit(5, 0, false));
    apply(&mut writer, [put("a", "u1", 6), put("a", "u1", 6), put("a", "u1", 4)], 6);
    apply(&mut writer, [deleted("a", "u1", 5), put("z", "u7", 2), deleted("y", "u8", 7)], 7);
    apply(&mut writer, [put("b", "u2", 8), deleted("b", "u2", 9), put("b", "u2", 8)], 9);
    let stats = core.stats();
    assert_eq!((stats.duplicates, stats.unknown_deletions, stats.late), (5, 1, 0));
    assert_eq!(names(&snapshot(&core)), ["a@6"]);
    // Newer than the stored version, though the server had said that there was nothing up to 20.
    let queue = Arc::new(EventQueue::new(10));
    core.subscribe(&queue).unwrap();
    drain(&queue);
    writer.advance(&20.into());
    apply(&mut writer, [put("a", "u1", 15)], 20);
    assert_eq!(drain(&queue), ["Updated(Object(ns/a uid=u1 rv=15), old rv=6, gap)"]);
    assert_eq!(core.stats().late, 1);
}

#[test]
fn change_after_skipped_one_is_marked_gap() {
    let (core, mut writer) = store();
    let queue = Arc::new(EventQueue::new(10));
    core.subscribe(&queue).unwrap();
    list(&mut writer, ["a", "b", "c"].map(|name| object("ns", name, name, 1)), commit(5, 0, false));
    drain(&queue);
    for (name, rv) in [("a", 6), ("b", 7)] {
        writer.skipped(&format!("ns/{name}").parse().unwrap(), &rv.into());
    }
    apply(&mut writer, [put("c", "c", 8), put("a", "a", 9), gone("ns/b", 10)], 10);
    apply(&mut writer, [put("a", "a", 11)], 11);
    assert_eq!(
        drain(&queue),
        [
            "Updated(Object(ns/c uid=c rv=8), old rv=1)",
            "Updated(Object(ns/a uid=a rv=9), old rv=1, gap)",
            "Deleted(Object(ns/b uid=b rv=1), final_state_known=false, gap)",
            "Updated(Object(ns/a uid=a rv=11), old rv=9)",
        ]
    );
    // A list cannot read it either.
    writer.begin_replace();
    writer.stage_unreadable(&"ns/c".parse().unwrap());
    writer.stage(object("ns", "a", "a", 11));
    writer.commit_replace(commit(12, 0, true));
    apply(&mut writer, [put("c", "c", 13)], 13);
    assert_eq!(drain(&queue), ["Updated(Object(ns/c uid=c rv=13), old rv=8, gap)"]);
}

#[test]
fn unreadable_short_lived_object_leaves_no_gap() {
    let (core, mut writer) = store();
    let queue = Arc::new(EventQueue::new(10));
    core.subscribe(&queue).unwrap();
    list(&mut writer, [], commit(5, 0, false));
    drain(&queue);
    for (name, rv, over) in
        [("d", 12, gone("ns/d", 13)), ("e", 24, Change::Deleted(object("ns", "e", "e", 25)))]
    {
        writer.skipped(&format!("ns/{name}").parse().unwrap(), &rv.into());
        apply(&mut writer, [over], rv + 1);
        apply(&mut writer, [put(name, "next", rv + 10)], rv + 10);
    }
    assert_eq!(
        drain(&queue),
        [
            "Added(Object(ns/d uid=next rv=22), initial=false)",
            "Added(Object(ns/e uid=next rv=34), initial=false)"
        ]
    );
}

/// An observer that records whether there was content when something was proven.
struct Proofs(Arc<StoreCore>, Arc<Mutex<Vec<(Time, bool)>>>);

impl ReflectorObserver for Proofs {
    fn fresh_as_of(&mut self, at: Time) {
        self.1.lock().push((at, self.0.peek().synced));
    }

    fn fresh_only_as_of(&mut self, _at: Option<Time>) {}

    fn state(&mut self, _state: &ReflectorState) {}
}

#[test]
fn only_first_list_follows_its_proof() {
    let core = StoreCore::new(StoreContent::unsynced(), FreshnessCell::standalone());
    let proofs = Arc::new(Mutex::new(Vec::new()));
    let mut writer = StoreWriter::new(core.clone(), 0, Proofs(core.clone(), proofs.clone()));
    let asked_at = Time::after_origin(std::time::Duration::from_secs(1));
    list(&mut writer, [object("ns", "a", "a", 1)], Commit { asked_at, ..commit(5, 0, false) });
    assert_eq!(*proofs.lock(), [(asked_at, false)]);
    list(&mut writer, [object("ns", "a", "a", 1)], commit(9, 0, true));
    assert_eq!(proofs.lock().len(), 1, "its proof comes when it is there");
}

#[test]
fn relist_shares_memory_of_unchanged_objects() {
    let (core, mut writer) = store();
    let reader: Store = core.clone().into();
    list(&mut writer, [object("ns", "a", "u1", 1), object("ns", "b", "u2", 2)], commit(5, 0, false));
    let before = reader.snapshot();
    // In watch events objects have a kind, in lists they have none.
    let listed = object("ns", "a", "u1", 1);
    let with_kind = [br#"{"kind":"Pod","apiVersion":"v1","#, &listed.content()[1..]].concat();
    let with_kind = RawObject::scan(with_kind.into(), &skopos_wire::Limits::default()).unwrap();
    list(&mut writer, [with_kind, object("ns", "b", "u2", 6)], commit(6, 0, true));
    let after = reader.snapshot();
    let entry = |snapshot: &Snapshot, key: &str| snapshot.get(&key.parse().unwrap()).unwrap().entry().clone();
    assert!(entry(&before, "ns/a").is_same(&entry(&after, "ns/a")));
    assert!(!entry(&before, "ns/b").is_same(&entry(&after, "ns/b")));
    assert_eq!(core.stats().kept, 1);
}

#[test]
fn relist_compresses_unchanged_objects_without_events() {
    let object = |number: u64| object("ns", &format!("a{number}"), &format!("uid-{number}"), number);
    let samples: Vec<_> = (1..400).map(|number| object(number).content()).collect();
    let dictionary = Arc::new(skopos_wire::Dictionary::train(&samples).unwrap());
    let (core, mut writer) = store();
    let reader: Store = core.clone().into();
    list(&mut writer, (1..100).map(object), commit(500, 0, false));
    let (plain, queue) = (reader.snapshot(), Arc::new(EventQueue::new(200)));
    core.subscribe(&queue).unwrap();
    drain(&queue);
    list(&mut writer, (1..100).map(|number| object(number).compact(&dictionary)), commit(600, 0, true));
    let compact = reader.snapshot();
    assert!(compact.iter().all(|object| object.raw().is_compact()));
    assert!(compact.held_bytes() < plain.held_bytes() && compact.json_bytes() == plain.json_bytes());
    assert_eq!((compact.digest(), drain(&queue)), (plain.digest(), Vec::new()));
    // A list in which they are plain changes nothing.
    list(&mut writer, (1..100).map(object), commit(700, 0, true));
    assert!(reader.snapshot().iter().all(|object| object.raw().is_compact()));
}

#[test]
fn rollback_replaces_content_at_same_version() {
    let (core, mut writer) = store();
    let reader: Store = core.into();
    list(&mut writer, [object("ns", "a", "u1", 5)], commit(9, 0, false));
    let other = serde_json::json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "5"}, "other": 1});
    let other = RawObject::from_value(&other, &skopos_wire::Limits::default()).unwrap();
    list(&mut writer, [other.clone()], commit(7, 1, true));
    let snapshot = reader.snapshot();
    assert_eq!(snapshot.get(other.key()).unwrap().raw().field("other").as_deref(), Some("1"));
    assert_eq!((snapshot.resource_version(), snapshot.epoch()), (&7.into(), 1));
}

#[test]
fn a_list_with_changes_and_unreadable_objects_in_it() {
    let (core, mut writer) = store();
    let reader: Store = core.into();
    list(
        &mut writer,
        [object("ns", "a", "u1", 1), object("ns", "b", "u2", 2), object("ns", "c", "u3", 3)],
        commit(5, 0, false),
    );
    writer.begin_replace();
    writer.stage(object("ns", "b", "u2", 6));
    writer.stage(object("ns", "d", "u4", 4));
    writer.stage(object("ns", "e", "u5", 4));
    writer.stage_unreadable(&"ns/a".parse().unwrap());
    writer.stage_unreadable(&"ns/x".parse().unwrap());
    writer.stage(object("ns", "b", "u2", 7));
    writer.unstage(&"ns/d".parse().unwrap());
    writer.stage_unreadable(&"ns/e".parse().unwrap());
    writer.commit_replace(commit(8, 0, true));
    assert_eq!(names(&reader.snapshot()), ["a@1", "b@7", "e@4"]);
    // Two objects without a readable name: objects that are not listed may be among them.
    writer.begin_replace();
    writer.commit_replace(Commit { nameless: 2, ..commit(9, 0, true) });
    assert_eq!(names(&reader.snapshot()), ["a@1", "b@7", "e@4"]);
}

#[test]
fn synced_progress_implies_synced_freshness() {
    let (core, mut writer) = store();
    assert!(matches!(core.freshness().freshness(), Freshness::NeverSynced { .. }));
    list(&mut writer, [], commit(5, 0, false));
    // Only the writer has run since progress was published.
    assert!(core.progress().borrow().synced);
    assert!(!matches!(core.freshness().freshness(), Freshness::NeverSynced { .. }));
}

#[test]
fn namespaces_of_set_list_independently() {
    let core = StoreCore::new(StoreContent::unsynced_set(["a", "b"]), FreshnessCell::standalone());
    let mut writers = [0, 1].map(|part| StoreWriter::new(core.clone(), part, Unobserved));
    let keys = || snapshot(&core).iter().map(|o| o.key().to_string()).collect::<Vec<_>>();
    let queue = Arc::new(EventQueue::new(10));
    core.subscribe(&queue).unwrap();
    list(&mut writers[1], [object("b", "x", "u1", 1), object("b", "y", "u2", 2)], commit(9, 0, false));
    assert!(!snapshot(&core).is_synced());
    // A writer ignores objects outside of its namespace.
    list(&mut writers[0], [object("a", "x", "u3", 3), object("b", "x", "u9", 9)], commit(7, 0, false));
    assert_eq!((keys(), snapshot(&core).is_synced()), (vec!["a/x".into(), "b/x".into(), "b/y".into()], true));
    assert_eq!(*snapshot(&core).resource_version(), 7.into());
    drain(&queue);
    list(&mut writers[1], [object("b", "y", "u2", 2)], commit(12, 0, true));
    apply(
        &mut writers[0],
        [Change::Put(object("b", "y", "u2", 13)), Change::Put(object("a", "z", "u4", 8))],
        13,
    );
    assert_eq!(keys(), ["a/x", "a/z", "b/y"]);
    assert_eq!(
        drain(&queue),
        [
            "Deleted(Object(b/x uid=u1 rv=1), final_state_known=false, gap)",
            "Added(Object(a/z uid=u4 rv=8), initial=false)",
        ]
    );
}

#[test]
fn list_never_marks_other_namespaces_unreadable() {
    let core = StoreCore::new(StoreContent::unsynced_set(["a", "b"]), FreshnessCell::standalone());
    let [mut a, mut b] = [0, 1].map(|part| StoreWriter::new(core.clone(), part, Unobserved));
    list(&mut a, [], commit(1, 0, false));
    list(&mut b, [object("b", "x", "u", 1)], commit(1, 0, false));
    let x = "b/x".parse().unwrap();
    a.begin_replace();
    apply(&mut b, [Change::Put(object("b", "x", "u", 6))], 6);
    a.stage_unreadable(&x);
    a.commit_replace(commit(7, 0, true));
    assert_eq!(names(&snapshot(&core)), ["x@6"]);
    // Neither does a change that could not be read: the next change of the object is the next.
    a.skipped(&x, &8.into());
    assert!(a.skipped.is_empty());
}

#[test]
fn indexes_follow_and_leave_no_empty_values() {
    let (core, mut writer) = store();
    let reader: Store = core.into();
    reader.add_indexer(Indexer::by_label("app")).unwrap();
    list(
        &mut writer,
        [object("n1", "xa", "u1", 1), object("n2", "xb", "u2", 2), object("n1", "ya", "u3", 3)],
        commit(5, 0, false),
    );
    let letters =
        Indexer::new("letters", |o: &Object| o.name().chars().map(String::from).collect::<Vec<_>>());
    reader.add_indexer(letters).unwrap();
    assert!(reader.add_indexer(Indexer::by_label("app")).is_err());
    let held = reader.snapshot();
    let found = |snapshot: &Snapshot, index: &str, value: &str| {
        snapshot.by_index(index, value).unwrap().map(|o| o.key().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(found(&held, "label:app", "x"), ["n1/xa", "n2/xb"]);
    assert_eq!(found(&held, "letters", "a"), ["n1/xa", "n1/ya"]);
    apply(&mut writer, [gone("n1/ya", 6)], 6);
    let values = |snapshot: &Snapshot| {
        snapshot.index_values("letters").unwrap().map(|(v, n)| format!("{v}{n}")).collect::<Vec<_>>()
    };
    assert_eq!(values(&reader.snapshot()), ["a1", "b1", "x2"]);
    assert_eq!(values(&held), ["a2", "b1", "x2", "y1"]);
    let unknown = held.by_index("lable:app", "x").err().unwrap();
    assert_eq!(unknown.known, ["label:app", "letters"]);
}

#[test]
fn an_indexer_that_panics_only_loses_its_own_values() {
    let (core, mut writer) = store();
    let reader: Store = core.into();
    let touchy = Indexer::new("touchy", |o: &Object| {
        assert_ne!(o.name(), "bad");
        [o.name().to_owned()]
    });
    reader.add_indexer(touchy).unwrap();
    list(&mut writer, [object("ns", "bad", "u1", 1), object("ns", "good", "u2", 2)], commit(5, 0, false));
    assert_eq!(reader.len(), 2);
    assert_eq!(reader.snapshot().index_values("touchy").unwrap().count(), 1);
}

#[test]
fn pages_namespaces_and_selections_are_in_order() {
    let (core, mut writer) = store();
    let reader: Store = core.into();
    let objects = ["b", "a", "a-b"]
        .into_iter()
        .flat_map(|ns| (0..70).map(move |n| object(ns, &format!("o{n:02}"), "u", n)));
    list(&mut writer, objects, commit(100, 0, false));
    let snapshot = reader.snapshot();
    assert_eq!(snapshot.namespaces().collect::<Vec<_>>(), ["a", "a-b", "b"]);
    assert!(snapshot.in_namespace("a").map(|o| o.name().to_owned()).eq((0..70).map(|n| format!("o{n:02}"))));
    assert_eq!(snapshot.in_namespace("aa").count(), 0);
    let mut pages = Vec::new();
    let mut after = None;
    loop {
        let page = snapshot.page(after.as_ref(), 100);
        pages.push(page.objects.len());
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(pages, [100, 100, 10]);
    let selector = skopos_wire::LabelSelector::parse("parity=0").unwrap();
    assert_eq!(snapshot.select(&selector).count(), 105);
}

#[derive(Clone, Debug)]
enum Step {
    /// The server writes a key, given by its number.
    Write(u8, Write),
    /// The same, in the transaction before it if that is possible.
    Join(u8, Write),
    /// The reflector delivers up to this many events as one batch, after repeating this many of the last ones.
    Deliver(usize, usize),
    /// A bookmark, if everything was delivered.
    Bookmark,
    /// The reflector lists: all that was not delivered yet is a gap.
    Relist,
    /// The server is restored to its state this many writes ago, and the reflector lists.
    Rollback(usize),
    /// A handler is added, with a queue of this capacity.
    Handler(usize),
    /// A handler handles up to this many events.
    Handle(usize, usize),
    /// A handler asks for a resync.
    Resync(usize),
    /// A reader takes a snapshot and holds it.
    Hold,
}

#[derive(Clone, Copy, Debug)]
enum Write {
    Put,
    Delete,
    Recreate,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let write = prop_oneof![6 => Just(Write::Put), 2 => Just(Write::Delete), 1 => Just(Write::Recreate)];
    let step = prop_oneof![
        24 => (0..60u8, write.clone()).prop_map(|(key, write)| Step::Write(key, write)),
        6 => (0..60u8, write).prop_map(|(key, write)| Step::Join(key, write)),
        12 => (1..12usize, 0..4usize).prop_map(|(n, again)| Step::Deliver(n, again)),
        2 => Just(Step::Bookmark),
        1 => Just(Step::Relist),
        1 => (0..10usize).prop_map(Step::Rollback),
        1 => (1..20usize).prop_map(Step::Handler),
        12 => (0..4usize, 1..15usize).prop_map(|(handler, n)| Step::Handle(handler, n)),
        1 => (0..4usize).prop_map(Step::Resync),
        2 => Just(Step::Hold),
    ];
    prop::collection::vec(step, 1..500)
}

type State = BTreeMap<String, (String, u64)>;

/// The server: its log, and the state after each entry.
#[derive(Default)]
struct Server {
    log: Vec<(u64, Change, State)>,
    rv: u64,
    uids: u64,
    /// The keys that the last transaction has changed, while it may continue.
    joined: BTreeSet<u8>,
}

impl Server {
    fn state(&self) -> State {
        self.log.last().map(|(_, _, state)| state.clone()).unwrap_or_default()
    }

    /// Ends the transaction and returns its RV: the next write is another transaction.
    fn settle(&mut self) -> u64 {
        self.joined.clear();
        self.rv
    }

    fn write(&mut self, key: u8, write: Write) {
        self.joined.clear();
        self.rv += 1;
        self.change(key, write);
    }

    fn join(&mut self, key: u8, write: Write) {
        match self.joined.is_empty() || self.joined.contains(&key) {
            true => self.write(key, write),
            false => self.change(key, write),
        }
    }

    fn change(&mut self, key: u8, write: Write) {
        let name = format!("o{key:02}");
        let mut state = self.state();
        let known = state.get(&name).cloned();
        self.joined.insert(key);
        let rv = self.rv;
        let change = match (write, known) {
            (Write::Put, Some((uid, _))) => {
                state.insert(name.clone(), (uid.clone(), rv));
                put(&name, &uid, rv)
            }
            (Write::Delete | Write::Recreate, Some((uid, _))) => {
                state.remove(&name);
                deleted(&name, &uid, rv)
            }
            (_, None) => {
                self.uids += 1;
                let uid = format!("u{}", self.uids);
                state.insert(name.clone(), (uid.clone(), rv));
                put(&name, &uid, rv)
            }
        };
        self.log.push((rv, change, state));
        if matches!(write, Write::Recreate) && !self.state().contains_key(&name) {
            self.write(key, Write::Put);
        }
    }
}

/// A handler that checks every event against the previous ones, and folds them.
struct Handler {
    queue: Arc<EventQueue>,
    reader: QueueReader,
    view: BTreeMap<ObjectKey, StoredObject>,
    /// The RV of the last event without a flag, since the last flag.
    last_plain: Option<u64>,
    /// The RVs of all events since the beginning, while none had a flag.
    plain: Option<Vec<u64>>,
    started: bool,
    /// The length of the log in the state that it began with.
    began: usize,
    epoch_changed: bool,
    /// The number of times that RVs may still start over without an event that says so: once for each rollback, because one
    /// that leaves all objects unchanged causes no event.
    anew: usize,
}

impl Handler {
    fn handle(&mut self) -> bool {
        let Some(event) = self.reader.next(&self.queue) else { return false };
        let key = event.key().clone();
        let flags = event.flags();
        let (old, new) = match &event {
            Event::Added { object, initial, .. } => {
                assert!(!self.view.contains_key(&key), "{event:?} of a known key");
                assert!(
                    !initial || !self.started || flags != EventFlags::default(),
                    "{event:?} after the beginning"
                );
                (None, Some(object.entry().clone()))
            }
            Event::Updated { old, new, .. } => {
                assert_eq!(old.uid(), new.uid(), "{event:?}");
                assert_eq!(flags.resync, old.entry().is_same(new.entry()), "{event:?}");
                (Some(old.entry().clone()), Some(new.entry().clone()))
            }
            Event::Deleted { object, .. } => {
                let last = self.view.get(&key).expect("a deletion of what was not told of");
                assert_eq!(last.uid(), object.uid());
                assert!(last.rv() <= object.resource_version());
                (None, None)
            }
        };
        if let Some(old) = old {
            // `old` is the very object delivered last.
            assert!(self.view.get(&key).is_some_and(|last| last.is_same(&old)), "{event:?}");
        }
        if let (Some(new), Some(last)) = (&new, self.view.get(&key)) {
            let grows = last.rv() < new.rv() || (flags.resync && last.rv() == new.rv());
            assert!(grows || self.epoch_changed, "{event:?} after {last:?}");
        }
        match new {
            Some(new) => drop(self.view.insert(key, new)),
            None => drop(self.view.remove(&key)),
        }
        self.keep_order(&event);
        true
    }

    fn keep_order(&mut self, event: &Event) {
        let initial = matches!(event, Event::Added { initial: true, .. });
        let flags = event.flags();
        let rv = event.object().resource_version().as_u64().unwrap();
        if flags.gap || flags.coalesced {
            self.last_plain = None;
            self.plain = None;
            self.started = true;
        } else if !initial && !flags.resync {
            self.started = true;
            if self.last_plain.is_some_and(|last| rv < last) {
                assert!(self.anew > 0, "{event:?} is out of order");
                self.anew -= 1;
            }
            self.last_plain = Some(rv);
            // A deletion implied by another uid's event carries the old RV and is not an event of the log.
            if let Some(plain) = &mut self.plain {
                plain.push(rv);
            }
        }
    }
}

struct World {
    server: Server,
    delivered: usize,
    core: Arc<StoreCore>,
    writer: StoreWriter,
    epoch: u64,
    synced: bool,
    handlers: Vec<Handler>,
    held: Vec<(Snapshot, State)>,
}

impl World {
    fn new() -> Self {
        let (core, writer) = store();
        Store::<()>::from(core.clone()).add_indexer(Indexer::by_label("parity")).unwrap();
        Self {
            server: Server::default(),
            delivered: 0,
            core,
            writer,
            epoch: 0,
            synced: false,
            handlers: Vec::new(),
            held: Vec::new(),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Write(key, write) => self.server.write(key, write),
            Step::Join(key, write) => self.server.join(key, write),
            Step::Deliver(n, again) if self.synced => {
                let end = (self.delivered + n).min(self.server.log.len());
                let events = &self.server.log[self.delivered.saturating_sub(again)..end];
                let Some((rv, _, _)) = events.last() else { return };
                let mut changes = events.iter().map(|(_, change, _)| change.clone()).collect();
                self.writer.apply(&mut changes, &(*rv).into());
                self.delivered = end;
            }
            Step::Bookmark if self.synced && self.delivered == self.server.log.len() => {
                self.server.rv += 1; // a write to another resource
                self.writer.advance(&self.server.settle().into());
            }
            Step::Relist => self.relist(),
            Step::Rollback(n) if self.synced => {
                let left = self.server.log.len().saturating_sub(n);
                self.server.log.truncate(left);
                self.server.rv = self.server.log.last().map_or(0, |(rv, _, _)| *rv);
                self.server.uids += 1000;
                self.epoch += 1;
                for handler in &mut self.handlers {
                    handler.epoch_changed = true;
                    handler.anew += 1;
                }
                self.relist();
            }
            Step::Handler(capacity) if self.handlers.len() < 4 => {
                let queue = Arc::new(EventQueue::new(capacity));
                self.core.subscribe(&queue).unwrap();
                let began = self.delivered;
                self.handlers.push(Handler {
                    queue,
                    reader: QueueReader::default(),
                    view: BTreeMap::new(),
                    last_plain: None,
                    plain: Some(Vec::new()),
                    started: false,
                    began,
                    epoch_changed: self.epoch > 0,
                    anew: 0,
                });
            }
            Step::Handle(handler, n) => {
                if let Some(handler) = self.handlers.get_mut(handler) {
                    (0..n).all(|_| handler.handle());
                }
            }
            Step::Resync(handler) => {
                if let Some(handler) = self.handlers.get(handler) {
                    self.core.resync(&handler.queue);
                }
            }
            Step::Hold => self.held.push((snapshot(&self.core), self.expected())),
            _ => {}
        }
        self.check_content();
        self.check_queues();
    }

    fn relist(&mut self) {
        let listed = self.server.state();
        let objects = listed.iter().map(|(name, (uid, rv))| object("ns", name, uid, *rv));
        let commit = commit(self.server.settle(), self.epoch, self.synced);
        list(&mut self.writer, objects, commit);
        if !self.synced {
            self.handlers.iter_mut().for_each(|handler| handler.began = self.server.log.len());
        }
        self.synced = true;
        self.delivered = self.server.log.len();
    }

    /// Returns the content that the store must have: the fold of the log up to the last delivered entry.
    fn expected(&self) -> State {
        let delivered = &self.server.log[..self.delivered];
        delivered.last().filter(|_| self.synced).map(|(_, _, state)| state.clone()).unwrap_or_default()
    }

    fn check_content(&self) {
        check(&snapshot(&self.core), &self.expected());
    }

    fn check_queues(&self) {
        for handler in &self.handlers {
            let state = handler.queue.state();
            assert!(state.differences <= 2, "{state:?}");
            assert!(state.deepest <= 20 + 16, "{state:?}");
        }
    }

    fn finish(mut self) {
        for handler in &mut self.handlers {
            while handler.handle() {}
            let view = handler.view.values();
            let content = self.core.current();
            assert!(view.map(StoredObject::rv).eq(content.objects.iter().map(StoredObject::rv)));
            // No events were merged and there was no gap: exactly the log, event by event.
            if let Some(plain) = handler.plain.as_ref().filter(|_| self.epoch == 0 && self.synced) {
                let log = self.server.log[handler.began..self.delivered].iter();
                let log: Vec<u64> = log.map(|(rv, _, _)| *rv).collect();
                assert_eq!(plain, &log);
            }
        }
        self.held.iter().for_each(|(snapshot, state)| check(snapshot, state));
        self.check_content();
    }
}

fn check(snapshot: &Snapshot, expected: &State) {
    let have: State = snapshot
        .iter()
        .map(|o| (o.name().to_owned(), (o.uid().to_owned(), o.resource_version().as_u64().unwrap())))
        .collect();
    assert_eq!(&have, expected);
    let mut digest = Digest::EMPTY;
    snapshot.iter().for_each(|o| digest.add(o.key(), o.uid(), o.resource_version()));
    assert_eq!(digest, snapshot.digest());
    assert_eq!(snapshot.json_bytes(), snapshot.iter().map(|o| o.raw().content().len() as u64).sum::<u64>());
    for parity in ["0", "1"] {
        let by_index = snapshot.by_index("label:parity", parity).unwrap().map(|o| o.key().clone());
        assert!(
            by_index
                .eq(snapshot.iter().filter(|o| o.label("parity") == Some(parity)).map(|o| o.key().clone()))
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(64), ..ProptestConfig::default() })]

    #[test]
    fn readers_and_handlers_follow_log(steps in steps()) {
        let mut world = World::new();
        steps.into_iter().for_each(|step| world.step(step));
        world.finish();
    }
}

#[test]
fn fast_handler_sees_exact_log() {
    let mut world = World::new();
    world.step(Step::Relist);
    world.step(Step::Handler(10));
    for n in 0..200u8 {
        world.step(Step::Write(n % 7, if n % 5 == 0 { Write::Delete } else { Write::Put }));
        world.step(Step::Deliver(10, 2));
        world.step(Step::Handle(0, 10));
    }
    assert_eq!(world.handlers[0].plain.as_ref().map(Vec::len), Some(200));
    world.finish();
}

#[test]
fn unchanged_rollback_restarts_versions_silently() {
    let mut world = World::new();
    world.step(Step::Relist);
    world.step(Step::Handler(10));
    for write in [Write::Put, Write::Delete] {
        world.step(Step::Write(1, write));
        world.step(Step::Deliver(1, 0));
        world.step(Step::Handle(0, 10));
    }
    world.step(Step::Rollback(2));
    world.step(Step::Write(2, Write::Put));
    world.step(Step::Deliver(1, 0));
    world.step(Step::Handle(0, 10));
    world.finish();
}

#[test]
fn stalled_handler_costs_its_bound_and_one_difference() {
    let (core, mut writer) = store();
    let queue = Arc::new(EventQueue::new(100));
    core.subscribe(&queue).unwrap();
    list(&mut writer, [], commit(1, 0, false));
    assert!(drain(&queue).is_empty());
    for rv in 2..10_000 {
        let name = format!("o{}", rv % 500);
        apply(&mut writer, [put(&name, "u", rv)], rv);
    }
    let state = queue.state();
    assert_eq!((state.events, state.differences, state.overflows), (100, 1, 1));
    let events: VecDeque<_> = drain(&queue).into();
    // The first hundred unchanged, and then each key once, with its last state.
    assert_eq!(events.len(), 100 + 500);
    assert!(events.iter().skip(100).all(|event| event.contains("coalesced")));
    assert!(events.contains(&"Updated(Object(ns/o2 uid=u rv=9502), old rv=2, coalesced)".to_owned()));
    // From then on, one by one again.
    apply(&mut writer, [put("o1", "u", 10_000)], 10_000);
    assert_eq!(drain(&queue), ["Updated(Object(ns/o1 uid=u rv=10000), old rv=9501)"]);
}

#[test]
fn an_unchanged_relist_tells_nothing() {
    let (core, mut writer) = store();
    let queue = Arc::new(EventQueue::new(100));
    core.subscribe(&queue).unwrap();
    let objects = || (0..300).map(|n| object("ns", &format!("o{n:03}"), "u", n + 1));
    list(&mut writer, objects(), commit(400, 0, false));
    assert_eq!(drain(&queue).len(), 300);
    list(&mut writer, objects(), commit(500, 0, true));
    assert!(drain(&queue).is_empty());
    let walk: ControlFlow<()> =
        crate::store::tree::diff(&core.current().objects, &Tree::new(), None, |_, _| ControlFlow::Break(()));
    assert!(walk.is_break());
}

#[test]
fn readers_see_whole_batches_during_writes() {
    // Every batch gives all 200 objects the same new RV, so a torn read would see two.
    let (core, mut writer) = store();
    let rounds = 300;
    let version = |rv| (0..200).map(move |n| put(&format!("o{n:03}"), "u", rv));
    list(&mut writer, (0..200).map(|n| object("ns", &format!("o{n:03}"), "u", 1)), commit(1, 0, false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let reader: Store = core.clone().into();
                let mut last = 0;
                while last < rounds {
                    let snapshot = reader.snapshot();
                    let rv = snapshot.resource_version().as_u64().unwrap();
                    assert!(rv >= last);
                    last = rv;
                    assert_eq!(snapshot.iter().filter(|o| *o.resource_version() == rv.into()).count(), 200);
                    assert!(
                        reader.get(&"ns/o100".parse().unwrap()).unwrap().resource_version() >= &rv.into()
                    );
                }
            });
        }
        for rv in 2..=rounds {
            apply(&mut writer, version(rv), rv);
        }
    });
}
