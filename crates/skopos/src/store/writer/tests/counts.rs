//! The counters of the store: each effect is counted once.

use super::*;

fn counted(core: &StoreCore) -> StoreStats {
    StoreStats { handlers: 0, ..core.stats() }
}

#[test]
fn counts_events_by_effect() {
    let (core, mut writer) = store();
    let listed = ["a", "b", "c", "d"].map(|name| object("ns", name, name, 1));
    list(&mut writer, listed, commit(5, 0, false));
    let mut expected = StoreStats { added: 4, lists: 1, ..StoreStats::default() };
    assert_eq!(counted(&core), expected);

    apply(&mut writer, [put("e", "e", 6), put("a", "a", 7)], 7);
    expected = StoreStats { applied: 2, added: 5, updated: 1, ..expected };
    assert_eq!(counted(&core), expected);

    // Another object of this name is a deletion and an addition, by one event.
    apply(&mut writer, [put("b", "other", 8)], 8);
    expected = StoreStats { applied: 3, added: 6, deleted: 1, replaced_uids: 1, ..expected };
    assert_eq!(counted(&core), expected);

    apply(&mut writer, [deleted("c", "c", 9), gone("ns/d", 10)], 10);
    expected = StoreStats { applied: 5, deleted: 3, ..expected };
    assert_eq!(counted(&core), expected);

    apply(&mut writer, [deleted("c", "c", 11), gone("ns/d", 12)], 12);
    expected = StoreStats { unknown_deletions: 2, ..expected };
    assert_eq!(counted(&core), expected);

    apply(&mut writer, [put("a", "a", 7), deleted("a", "a", 6)], 12);
    expected = StoreStats { duplicates: 2, ..expected };
    assert_eq!(counted(&core), expected);
}

#[test]
fn counts_first_deletion_of_unknown_object() {
    for deletion in [deleted("a", "a", 6), gone("ns/a", 6)] {
        let (core, mut writer) = store();
        list(&mut writer, [], commit(5, 0, false));
        apply(&mut writer, [deletion], 6);
        let expected = StoreStats { lists: 1, unknown_deletions: 1, ..StoreStats::default() };
        assert_eq!(counted(&core), expected);
    }
}

#[test]
fn counts_first_deletion_without_last_state() {
    let (core, mut writer) = store();
    list(&mut writer, [object("ns", "a", "a", 1)], commit(5, 0, false));
    apply(&mut writer, [gone("ns/a", 6)], 6);
    let expected = StoreStats { lists: 1, added: 1, applied: 1, deleted: 1, ..StoreStats::default() };
    assert_eq!(counted(&core), expected);
}

#[test]
fn counts_list_by_its_changes() {
    let (core, mut writer) = store();
    let listed = ["a", "b", "c", "d"].map(|name| object("ns", name, name, 1));
    list(&mut writer, listed, commit(5, 0, false));
    // One unchanged, one newer, one of another uid, one gone, one new.
    let now = [
        object("ns", "a", "a", 1),
        object("ns", "b", "b", 6),
        object("ns", "c", "other", 7),
        object("ns", "e", "e", 8),
    ];
    list(&mut writer, now, commit(9, 0, true));
    let expected = StoreStats {
        added: 4 + 2,
        updated: 1,
        deleted: 2,
        replaced_uids: 1,
        kept: 1,
        lists: 2,
        ..StoreStats::default()
    };
    assert_eq!(counted(&core), expected);
}
