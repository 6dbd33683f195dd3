use super::*;
use crate::freshness::sleep::SleepClock;
use crate::freshness::{FreshnessCell, FreshnessContext, Proof};
use crate::store::{StoreCore, StoreWriter};
use crate::testing::{Unobserved, commit, list, object, snapshot, store};

#[test]
fn contains_agrees_with_get() {
    let (core, mut writer) = store();
    list(&mut writer, [object("ns", "a", "u1", 1)], commit(5, 0, false));
    let snapshot = snapshot(&core);
    let key = |text: &str| text.parse::<ObjectKey>().unwrap();
    for (text, there) in [("ns/a", true), ("ns/b", false), ("other/a", false)] {
        assert_eq!(
            (snapshot.contains(&key(text)), snapshot.get(&key(text)).is_some()),
            (there, there),
            "{text}"
        );
    }
    assert!(!snapshot.is_empty() && snapshot.len() == 1);
    let reader: crate::store::Store = core.into();
    assert!(!reader.is_empty());
}

#[test]
fn a_namespace_is_found_wherever_it_lies() {
    let (core, mut writer) = store();
    let objects = ["a", "b", "c"].map(|namespace| object(namespace, "x", "u", 1));
    list(&mut writer, objects, commit(5, 0, false));
    let snapshot = snapshot(&core);
    for namespace in ["a", "b", "c"] {
        let found: Vec<_> = snapshot.in_namespace(namespace).map(|object| object.key().to_string()).collect();
        assert_eq!(found, [format!("{namespace}/x")]);
    }
    for namespace in ["", "aa", "d"] {
        assert_eq!(snapshot.in_namespace(namespace).count(), 0, "{namespace:?}");
    }
}

#[test]
fn snapshot_reports_version_per_namespace() {
    let core = StoreCore::new(StoreContent::unsynced_set(["a", "b"]), FreshnessCell::standalone());
    for (part, namespace, rv) in [(0, "a", 7), (1, "b", 9)] {
        let mut writer = StoreWriter::new(core.clone(), part, Unobserved);
        list(&mut writer, [object(namespace, "x", "u", 1)], commit(rv, 0, false));
    }
    let snapshot = snapshot(&core);
    assert_eq!(*snapshot.resource_version_in("a"), 7.into());
    assert_eq!(*snapshot.resource_version_in("b"), 9.into());
    assert_eq!(*snapshot.resource_version_in("c"), 7.into(), "what is not of the set is as old as the whole");
    assert_eq!(*snapshot.resource_version(), 7.into());
}

#[tokio::test(start_paused = true)]
async fn snapshot_age_follows_its_proof() {
    let (core, mut writer) = store();
    list(&mut writer, [], commit(5, 0, false));
    assert_eq!(snapshot(&core).age(), None, "nothing is proven");
    let common = FreshnessContext::standalone(SleepClock::from_fn(|| 0));
    let evidence = Evidence::from_single_read(common.clone(), Proof::now(&common));
    let held: Snapshot = Snapshot::new(core.current(), Arc::new(evidence));
    tokio::time::advance(Duration::from_secs(7)).await;
    assert_eq!(held.age(), Some(Duration::from_secs(7)));
}
