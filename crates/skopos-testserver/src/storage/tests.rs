use serde_json::json;

use super::*;

fn storage(limits: HistoryLimits) -> Storage {
    Storage::new(limits, Arc::default(), None)
}

fn pods() -> ResourceKey {
    ResourceKey::new("", "pods")
}

fn pod(namespace: &str, name: &str, size: usize) -> Draft {
    Draft::from_value(&json!({"apiVersion": "v1", "kind": "Pod", "spec": {"x": "y".repeat(size)},
        "metadata": {"name": name, "namespace": namespace}}))
    .unwrap()
}

fn names(objects: &[Arc<Stored>]) -> Vec<&str> {
    objects.iter().map(|o| o.name()).collect()
}

#[test]
fn write_advances_revision_and_checks_expectation() {
    let storage = storage(HistoryLimits::default());
    let a = storage.create(&pods(), pod("n", "a", 1)).unwrap();
    assert_eq!(storage.create(&pods(), pod("n", "a", 1)).unwrap_err(), WriteError::AlreadyExists);
    let b = storage.update(&pods(), pod("n", "a", 2), Some(a.revision())).unwrap();
    assert_eq!(b.revision(), a.revision() + 1);
    let conflict = WriteError::Conflict { current: b.revision() };
    assert_eq!(storage.update(&pods(), pod("n", "a", 2), Some(a.revision())).unwrap_err(), conflict);
    assert_eq!(storage.delete(&pods(), "n/a", Some(a.revision())).unwrap_err(), conflict);
    let gone = storage.delete(&pods(), "n/a", None).unwrap();
    assert_eq!(gone.revision(), b.revision() + 1);
    assert_eq!(storage.delete(&pods(), "n/a", None).unwrap_err(), WriteError::NotFound);
    assert_eq!(storage.update(&pods(), pod("n", "a", 2), None).unwrap_err(), WriteError::NotFound);
    assert_eq!((storage.len(&pods()), storage.revision()), (0, gone.revision()));
}

#[test]
fn old_revisions_stay_readable_until_compacted() {
    let storage = storage(HistoryLimits::default());
    for name in ["a", "b", "c"] {
        storage.create(&pods(), pod("n", name, 1)).unwrap();
    }
    let then = storage.revision();
    storage.delete(&pods(), "n/b", None).unwrap();
    storage.update(&pods(), pod("n", "c", 9), None).unwrap();
    storage.create(&pods(), pod("n", "d", 1)).unwrap();
    let old = storage.scan(&pods(), ReadScope::default(), None, then, 10).unwrap();
    assert_eq!(names(&old), ["a", "b", "c"]);
    assert!(old.iter().all(|o| o.revision() <= then));
    let page = storage.scan(&pods(), ReadScope::new(Some("n")), Some("a\0"), then, 1).unwrap();
    assert_eq!(names(&page), ["b"]);
    assert_eq!(storage.count_from(&pods(), ReadScope::new(Some("n")), Some("b\0"), then), 1);
    storage.compact();
    assert!(storage.scan(&pods(), ReadScope::default(), None, then, 10).is_err());
    assert_eq!(names(&storage.list(&pods(), ReadScope::default()).0), ["a", "c", "d"]);
    assert!(matches!(storage.events(&pods(), then, 10), Tail::Lost));
}

/// Creates `pods` a, b and c and a node d, then deletes b, the node and c together.
fn expired(storage: &Storage) -> (ResourceKey, u64) {
    let nodes = ResourceKey::new("", "nodes");
    for name in ["a", "b", "c"] {
        storage.create(&pods(), pod("n", name, 1)).unwrap();
    }
    storage.create(&nodes, pod("n", "d", 1)).unwrap();
    let before = storage.revision();
    let lease =
        [(&pods(), "n/b"), (&nodes, "n/d"), (&pods(), "n/nobody"), (&pods(), "n/c"), (&pods(), "n/b")];
    let gone = storage.delete_together(&lease.map(|(resource, key)| (resource.clone(), key.to_owned())));
    let revisions: Vec<_> = gone.iter().map(|gone| gone.as_ref().map(|gone| gone.revision())).collect();
    let shared = Some(before + 1);
    assert_eq!(revisions, [shared, shared, None, shared, None]);
    assert_eq!(storage.revision(), before + 1, "one revision for all");
    (nodes, before)
}

fn events_after(storage: &Storage, resource: &ResourceKey, after: u64, max: usize) -> (Vec<String>, u64) {
    let Tail::Events { events, through } = storage.events(resource, after, max) else { panic!("lost") };
    (events.iter().map(|event| event.object().name().to_owned()).collect(), through)
}

#[test]
fn joint_deletions_share_one_revision() {
    let storage = storage(HistoryLimits::default());
    let (nodes, before) = expired(&storage);
    let at = |revision| names(&storage.scan(&pods(), ReadScope::default(), None, revision, 9).unwrap()).len();
    assert_eq!((at(before), at(before + 1), storage.len(&pods()), storage.len(&nodes)), (3, 1, 1, 0));
    storage.create(&pods(), pod("n", "e", 1)).unwrap();
    let now = before + 2;
    let text = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(events_after(&storage, &pods(), before, 9), (text(&["b", "c", "e"]), now));
    assert_eq!(events_after(&storage, &pods(), before + 1, 9), (text(&["e"]), now));
    assert_eq!(events_after(&storage, &nodes, before, 9), (text(&["d"]), now));
    // A reader in small batches gets all events of one revision.
    assert_eq!(events_after(&storage, &pods(), before, 1), (text(&["b", "c"]), before + 1));
    // Nothing is left to be deleted.
    assert_eq!(storage.delete_together(&[(nodes, "n/d".to_owned())]).len(), 1);
    assert_eq!(storage.revision(), now);
}

#[test]
fn joint_deletions_compact_and_roll_back_together() {
    let forgetful = storage(HistoryLimits::default());
    let (nodes, before) = expired(&forgetful);
    forgetful.compact();
    assert!(forgetful.scan(&pods(), ReadScope::default(), None, before, 9).is_err());
    assert!(matches!(forgetful.events(&pods(), before, 9), Tail::Lost));
    assert_eq!(events_after(&forgetful, &pods(), before + 1, 9), (vec![], before + 1));
    assert_eq!((forgetful.len(&pods()), forgetful.len(&nodes)), (1, 0));
    let restored = storage(HistoryLimits::default());
    let (nodes, before) = expired(&restored);
    restored.roll_back(before).unwrap();
    assert_eq!((restored.revision(), restored.len(&pods()), restored.len(&nodes)), (before, 3, 1));
    assert_eq!(events_after(&restored, &pods(), before, 9), (vec![], before));
}

#[test]
fn keys_sort_like_paths() {
    let storage = storage(HistoryLimits::default());
    for namespace in ["a", "a-b", "b"] {
        storage.create(&pods(), pod(namespace, "x", 1)).unwrap();
    }
    let all = storage.list(&pods(), ReadScope::default()).0;
    // '-' sorts before '/'.
    assert_eq!(all.iter().map(|o| &**o.key()).collect::<Vec<_>>(), ["a-b/x", "a/x", "b/x"]);
    assert_eq!(storage.list(&pods(), ReadScope::new(Some("a"))).0.len(), 1);
}

#[test]
fn rollback_restores_content_events_and_revision() {
    let storage = storage(HistoryLimits::default());
    storage.create(&pods(), pod("n", "a", 1)).unwrap();
    let then = storage.revision();
    storage.delete(&pods(), "n/a", None).unwrap();
    storage.create(&pods(), pod("n", "b", 1)).unwrap();
    storage.roll_back(then).unwrap();
    assert_eq!((storage.revision(), storage.len(&pods())), (then, 1));
    assert_eq!(names(&storage.list(&pods(), ReadScope::default()).0), ["a"]);
    // A watcher from before the restore gets nothing until its revision is reached again.
    assert!(
        matches!(storage.events(&pods(), then + 2, 10), Tail::Events { events, .. } if events.is_empty())
    );
    storage.create(&pods(), pod("n", "c", 1)).unwrap();
    let Tail::Events { events, through } = storage.events(&pods(), then, 10) else { panic!("lost") };
    assert_eq!((events.len(), through), (1, then + 1));
    assert!(storage.roll_back(then + 100).is_err());
}

#[tokio::test(start_paused = true)]
async fn window_keeps_latest_and_all_young_events() {
    let mut limits = HistoryLimits::default();
    (limits.window.min_events, limits.window.max_events) = (10, 50);
    let storage = storage(limits);
    let window = storage.window(&pods());
    let start = storage.revision();
    for i in 0..40 {
        storage.create(&pods(), pod("n", &format!("a{i}"), 1)).unwrap();
    }
    assert_eq!(window.oldest_start(), 0, "all are young");
    for i in 0..40 {
        storage.create(&pods(), pod("n", &format!("b{i}"), 1)).unwrap();
    }
    assert_eq!(window.oldest_start(), start + 30, "no more than 50");
    tokio::time::advance(Duration::from_secs(80)).await;
    storage.create(&pods(), pod("n", "c", 1)).unwrap();
    assert_eq!(window.oldest_start(), start + 71, "old ones go down to 10");
    // Five minutes later, versions are compacted too.
    assert!(storage.scan(&pods(), ReadScope::default(), None, start + 1, 1).is_ok());
    tokio::time::advance(Duration::from_secs(600)).await;
    storage.create(&pods(), pod("n", "d", 1)).unwrap();
    assert!(storage.scan(&pods(), ReadScope::default(), None, start + 1, 1).is_err());
}

#[test]
fn superseded_versions_have_a_byte_limit() {
    let storage = storage(HistoryLimits { max_superseded_bytes: 100_000, ..HistoryLimits::default() });
    storage.create(&pods(), pod("n", "a", 1000)).unwrap();
    let first = storage.revision();
    for _ in 0..200 {
        storage.update(&pods(), pod("n", "a", 1000), None).unwrap();
    }
    assert!(storage.get_at(&pods(), "n/a", first).is_err());
    assert!(storage.get_at(&pods(), "n/a", storage.revision() - 50).unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn revisions_are_known_by_time() {
    let storage = storage(HistoryLimits::default());
    let before = Instant::now();
    tokio::time::advance(Duration::from_secs(1)).await;
    storage.create(&pods(), pod("n", "a", 1)).unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    storage.create(&pods(), pod("n", "b", 1)).unwrap();
    assert_eq!(storage.revision_at(before), 1);
    assert_eq!(storage.revision_at(before + Duration::from_millis(1500)), 2);
    assert_eq!(storage.revision_at(Instant::now()), 3);
}
