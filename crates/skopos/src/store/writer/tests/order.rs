//! Events in order and out of order, and their effects.

use std::sync::mpsc;

use skopos_reflect::Condition;

use super::*;

/// Makes a store with these objects at RV 5, and a queue that has received them.
fn with<const N: usize>(names: [&str; N]) -> (Arc<StoreCore>, StoreWriter, Arc<EventQueue>) {
    let (core, mut writer) = store();
    list(&mut writer, names.map(|name| object("ns", name, name, 1)), commit(5, 0, false));
    let queue = Arc::new(EventQueue::new(100));
    core.subscribe(&queue).unwrap();
    drain(&queue);
    (core, writer, queue)
}

#[test]
fn objects_of_one_transaction_share_version() {
    let (core, mut writer, queue) = with(["a"]);
    apply(&mut writer, [put("a", "a", 6), put("b", "b", 6), put("c", "c", 6)], 6);
    assert_eq!(names(&snapshot(&core)), ["a@6", "b@6", "c@6"]);
    assert!(drain(&queue).iter().all(|event| !event.contains("gap")), "they are in order");
    assert_eq!((core.stats().late, core.stats().duplicates), (0, 0));
}

#[test]
fn a_transaction_may_come_in_two_batches() {
    let (core, mut writer, queue) = with(["a", "b"]);
    apply(&mut writer, [deleted("a", "a", 6)], 6);
    apply(&mut writer, [deleted("b", "b", 6), put("c", "c", 6)], 6);
    assert_eq!(names(&snapshot(&core)), ["c@6"]);
    assert!(drain(&queue).iter().all(|event| !event.contains("gap")), "they are in order");
    assert_eq!((core.stats().late, core.stats().duplicates), (0, 0));
    // A repeated event of the same RV is not delivered.
    apply(&mut writer, [put("a", "a", 6), put("c", "c", 6)], 6);
    assert_eq!((names(&snapshot(&core)), drain(&queue)), (vec!["c@6".to_owned()], vec![]));
    assert_eq!((core.stats().late, core.stats().duplicates), (0, 2));
}

#[test]
fn bookmark_version_may_gain_changes_list_may_not() {
    let (core, mut writer, _) = with(["a"]);
    apply(&mut writer, [put("x", "x", 5)], 5);
    apply(&mut writer, [put("b", "b", 6)], 6);
    writer.advance(&6.into());
    apply(&mut writer, [put("c", "c", 6)], 6);
    writer.advance(&8.into());
    apply(&mut writer, [put("d", "d", 8)], 8);
    assert_eq!(names(&snapshot(&core)), ["a@1", "b@6", "c@6", "d@8"]);
    apply(&mut writer, [put("x", "x", 6)], 8);
    assert_eq!(names(&snapshot(&core)), ["a@1", "b@6", "c@6", "d@8"]);
    assert_eq!(core.stats().duplicates, 2);
}

#[test]
fn checkpoint_may_split_transaction() {
    let mut content = StoreContent::unsynced();
    content.set_listed(0, &6.into(), 0);
    content.put(StoredObject::new(object("ns", "a", "a", 6)));
    let core = StoreCore::new(content, FreshnessCell::standalone());
    let mut writer = StoreWriter::new(core.clone(), 0, Unobserved);
    apply(&mut writer, [put("a", "a", 6), put("b", "b", 6)], 6);
    assert_eq!(names(&snapshot(&core)), ["a@6", "b@6"]);
    assert_eq!((core.stats().late, core.stats().duplicates), (0, 1));
}

#[test]
fn applies_new_part_of_unordered_batch_as_gap() {
    let (core, mut writer, queue) = with(["a", "b"]);
    apply(&mut writer, [put("a", "a", 8), put("b", "b", 7)], 8);
    assert_eq!(names(&snapshot(&core)), ["a@8", "b@7"]);
    assert_eq!(
        drain(&queue),
        ["Updated(Object(ns/a uid=a rv=8), old rv=1)", "Updated(Object(ns/b uid=b rv=7), old rv=1, gap)",]
    );
    assert_eq!(core.stats().late, 1);
}

#[test]
fn old_event_does_not_create_missing_object() {
    let (core, mut writer, _) = with(["a"]);
    // Older than an earlier change of this batch: it may have been deleted by then.
    apply(&mut writer, [put("a", "a", 8), put("z", "z", 7)], 8);
    assert_eq!(names(&snapshot(&core)), ["a@8"]);
    assert_eq!(core.stats().duplicates, 1);
}

#[test]
fn deletion_at_stored_version_applies() {
    let (core, mut writer, queue) = with(["a", "b"]);
    apply(&mut writer, [put("a", "a", 6)], 6);
    drain(&queue);
    apply(&mut writer, [deleted("a", "a", 6), deleted("b", "b", 7)], 7);
    assert!(snapshot(&core).is_empty());
    assert_eq!(core.stats().duplicates, 0);
}

#[test]
fn last_of_duplicate_list_items_wins() {
    let (core, mut writer) = store();
    let twice = [object("ns", "a", "a", 1), object("ns", "a", "a", 2), object("ns", "b", "b", 3)];
    list(&mut writer, twice, commit(5, 0, false));
    assert_eq!(names(&snapshot(&core)), ["a@2", "b@3"]);
    assert_eq!(snapshot(&core).len(), 2);
}

/// Makes an object of the same version with other content.
fn reading(n: u64) -> RawObject {
    let json = serde_json::json!({"metadata": {"name": "a", "namespace": "ns", "uid": "a", "resourceVersion": "5"}, "n": n});
    RawObject::from_value(&json, &skopos_wire::Limits::default()).unwrap()
}

/// Simulates a new default in the definition, a fixed conversion, or an upgraded server: objects are decoded differently
/// and keep their versions.
#[test]
fn relist_applies_new_decoding_at_same_version() {
    let (core, mut writer, queue) = with::<0>([]);
    core.add_indexer(Indexer::new("n", |object: &Object| object.raw().field("n").map(|n| n.to_string())))
        .unwrap();
    list(&mut writer, [reading(0)], commit(9, 0, false));
    let before = snapshot(&core);
    drain(&queue);
    list(&mut writer, [reading(1)], commit(9, 0, true));
    assert_eq!(drain(&queue), ["Updated(Object(ns/a uid=a rv=5), old rv=5, gap)"]);
    list(&mut writer, [reading(1)], commit(12, 0, true));
    assert_eq!(drain(&queue), [""; 0]);
    let after = snapshot(&core);
    assert_eq!(after.get(reading(0).key()).unwrap().raw().field("n").as_deref(), Some("1"));
    assert_eq!(
        (after.by_index("n", "0").unwrap().count(), after.by_index("n", "1").unwrap().count()),
        (0, 1)
    );
    assert_eq!((core.stats().updated, core.stats().kept), (1, 1));
    // An audit compares versions, and so does the digest; a checkpoint of it has to be saved again.
    assert_eq!(after.digest(), before.digest());
    assert_ne!(after.content().rewritten, before.content().rewritten);
    list(&mut writer, [reading(0)], commit(13, 0, true));
    assert_eq!(snapshot(&core).content().rewritten, before.content().rewritten, "as it was");
}

/// Checks objects from transforms that sort members by name.
#[test]
fn missing_item_type_is_no_content_change() {
    let (core, mut writer) = store();
    let read = |json: &str| RawObject::scan(json.to_owned().into(), &skopos_wire::Limits::default()).unwrap();
    let metadata = r#""metadata":{"name":"a","namespace":"ns","resourceVersion":"6","uid":"a"}"#;
    let told = read(&format!(r#"{{"apiVersion":"v1","data":{{"x":1}},"kind":"Thing",{metadata}}}"#));
    list(&mut writer, [], commit(5, 0, false));
    apply(&mut writer, [Change::Put(told.clone())], 6);
    let item = read(&format!(r#"{{"data":{{"x":1}},{metadata}}}"#));
    list(&mut writer, [item], commit(7, 0, true));
    assert_eq!((core.stats().updated, core.stats().kept), (0, 1));
    let other = read(&format!(r#"{{"data":{{"x":2}},{metadata}}}"#));
    list(&mut writer, [other], commit(8, 0, true));
    assert_eq!((core.stats().updated, core.stats().kept), (1, 1));
}

#[test]
fn list_after_rollback_updates_same_version_once() {
    let (core, mut writer) = store();
    list(&mut writer, [reading(0)], commit(9, 0, false));
    list(&mut writer, [reading(1)], commit(7, 1, true));
    list(&mut writer, [reading(1)], commit(8, 1, true));
    let field = snapshot(&core).get(reading(0).key()).unwrap().raw().field("n").unwrap();
    assert_eq!((&*field, core.stats().updated, core.stats().kept), ("1", 1, 1));
}

#[test]
fn object_unread_at_rollback_takes_new_versions() {
    for nameless in [0, 1] {
        for last in [put("a", "a", 60), deleted("a", "a", 60)] {
            let (core, mut writer, queue) = with::<0>([]);
            list(&mut writer, [object("ns", "a", "a", 100)], commit(100, 0, false));
            writer.begin_replace();
            if nameless == 0 {
                writer.stage_unreadable(&"ns/a".parse().unwrap());
            }
            writer.commit_replace(Commit { nameless, ..commit(50, 1, true) });
            assert_eq!(names(&snapshot(&core)), ["a@100"]);
            drain(&queue);
            apply(&mut writer, [put("b", "b", 55), last.clone(), put("c", "c", 61)], 61);
            let (expected, told) = match last {
                Change::Put(_) => {
                    (vec!["a@60", "b@55", "c@61"], "Updated(Object(ns/a uid=a rv=60), old rv=100, gap)")
                }
                _ => (vec!["b@55", "c@61"], "Deleted(Object(ns/a uid=a rv=60), final_state_known=true, gap)"),
            };
            assert_eq!(names(&snapshot(&core)), expected);
            assert_eq!(drain(&queue)[1], told);
            assert_eq!(core.stats().duplicates, 0);
        }
    }
}

#[test]
fn readable_list_replaces_object_unread_at_rollback() {
    let (core, mut writer) = store();
    list(&mut writer, [object("ns", "a", "a", 100)], commit(100, 0, false));
    writer.begin_replace();
    writer.stage_unreadable(&"ns/a".parse().unwrap());
    writer.commit_replace(commit(50, 1, true));
    // The new history has reached the same version by other changes.
    let json = serde_json::json!({"metadata": {"name": "a", "namespace": "ns", "uid": "a", "resourceVersion": "100"}});
    let other = RawObject::from_value(&json, &skopos_wire::Limits::default()).unwrap();
    list(&mut writer, [other], commit(100, 1, true));
    assert_eq!(snapshot(&core).iter().next().unwrap().raw().field("spec.rv"), None);
}

#[test]
fn forwards_reflector_state_and_proofs() {
    struct Observer(mpsc::SyncSender<String>);

    impl ReflectorObserver for Observer {
        fn fresh_as_of(&mut self, at: Time) {
            self.0.send(format!("fresh at {at}")).unwrap();
        }

        fn fresh_only_as_of(&mut self, at: Option<Time>) {
            self.0.send(format!("fresh only at {at:?}")).unwrap();
        }

        fn state(&mut self, state: &ReflectorState) {
            self.0.send(state.to_string()).unwrap();
        }
    }

    let core = StoreCore::new(StoreContent::unsynced(), FreshnessCell::standalone());
    let (sender, told) = mpsc::sync_channel(9);
    let mut writer = StoreWriter::new(core, 0, Observer(sender));
    writer.state(&ReflectorState {
        condition: Condition::Watching,
        since: Time::ORIGIN,
        attempts: 0,
        reason: None,
        retry_at: None,
        undecodable: 0,
    });
    writer.fresh_as_of(Time::ORIGIN);
    writer.fresh_only_as_of(None);
    assert_eq!(
        told.try_iter().collect::<Vec<_>>(),
        ["watching".to_owned(), format!("fresh at {}", Time::ORIGIN), "fresh only at None".to_owned()]
    );
}

#[test]
fn a_list_that_was_given_up_is_not_kept() {
    let (core, mut writer) = store();
    writer.begin_replace();
    writer.stage(object("ns", "a", "a", 1));
    writer.abort_replace();
    writer.commit_replace(commit(5, 0, false));
    assert!(!snapshot(&core).is_synced() && snapshot(&core).is_empty());
    // Each part of a set is listed separately.
    let set = StoreCore::new(StoreContent::unsynced_set(["a", "b"]), FreshnessCell::standalone());
    list(&mut StoreWriter::new(set.clone(), 1, Unobserved), [], commit(5, 0, false));
    assert_eq!([0, 1].map(|part| set.peek().is_listed(part)), [false, true]);
}

#[test]
fn nameless_item_marks_next_changes_as_gap() {
    let (core, mut writer, queue) = with(["a", "b", "c"]);
    writer.begin_replace();
    writer.stage(object("ns", "c", "c", 1));
    writer.commit_replace(Commit { nameless: 1, ..commit(100, 0, true) });
    assert_eq!(names(&snapshot(&core)), ["a@1", "b@1", "c@1"]);
    drain(&queue);
    let changes = [put("a", "a", 120), deleted("b", "b", 121), put("c", "c", 122), put("a", "a", 123)];
    apply(&mut writer, changes, 123);
    assert_eq!(
        drain(&queue),
        [
            "Updated(Object(ns/a uid=a rv=120), old rv=1, gap)",
            "Deleted(Object(ns/b uid=b rv=121), final_state_known=true, gap)",
            "Updated(Object(ns/c uid=c rv=122), old rv=1)",
            "Updated(Object(ns/a uid=a rv=123), old rv=120)",
        ]
    );
    // The next list is complete.
    let listed = [object("ns", "a", "a", 123), object("ns", "c", "c", 122)];
    list(&mut writer, listed, commit(130, 0, true));
    apply(&mut writer, [put("a", "a", 131)], 131);
    assert_eq!(drain(&queue), ["Updated(Object(ns/a uid=a rv=131), old rv=123)"]);
}
