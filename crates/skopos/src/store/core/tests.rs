use std::sync::Weak;

use super::*;
use crate::store::tree::Tree;
use crate::store::{RestoredPart, Store};
use crate::testing::{apply, commit, list, object, put, store};

/// Returns whether this content is still in memory.
fn lives(content: &Weak<StoreContent>) -> bool {
    content.strong_count() > 0
}

#[test]
fn writer_frees_content_released_by_reader() {
    let (core, mut writer) = store();
    list(&mut writer, [], commit(1, 0, false));
    let held = core.current();
    let content = Arc::downgrade(&held);
    for rv in 2..=4 {
        apply(&mut writer, [put("a", "u", rv)], rv);
    }
    drop(held);
    assert!(lives(&content), "not by the reader that was the last to have it");
    apply(&mut writer, [put("a", "u", 5)], 5);
    assert!(!lives(&content), "with the next batch nobody needs it");
}

#[test]
fn unheld_content_is_freed_after_next_batch() {
    let (core, mut writer) = store();
    list(&mut writer, [], commit(1, 0, false));
    let content = Arc::downgrade(&core.current());
    apply(&mut writer, [put("a", "u", 2)], 2);
    assert!(lives(&content), "a reader may just have taken it");
    apply(&mut writer, [put("a", "u", 3)], 3);
    assert!(!lives(&content));
}

#[test]
fn writer_retains_at_most_eight_held_contents() {
    let (core, mut writer) = store();
    list(&mut writer, [], commit(1, 0, false));
    let mut held = Vec::new();
    for rv in 2..=11 {
        held.push(core.current());
        apply(&mut writer, [put("a", "u", rv)], rv);
    }
    let contents: Vec<_> = held.iter().map(Arc::downgrade).collect();
    drop(held);
    let kept: Vec<_> = contents.iter().map(lives).collect();
    assert_eq!(kept, [&[false; 2][..], &[true; 8][..]].concat());
}

#[test]
fn closed_store_keeps_content_and_refuses_handlers() {
    let (core, mut writer) = store();
    list(&mut writer, [object("ns", "a", "u", 1)], commit(1, 0, false));
    let queue = Arc::new(EventQueue::new(10));
    core.subscribe(&queue).unwrap();
    let reader: Store = core.clone().into();
    assert_eq!(reader.stats().handlers, 1);
    let progress = reader.progress();
    core.close();
    assert!(progress.borrow().closed);
    assert_eq!(core.subscribe(&queue), Err(Closed));
    assert_eq!((reader.len(), reader.stats().handlers), (1, 0));
}

#[test]
fn restored_content_waits_for_confirmation() {
    let part = RestoredPart { namespace: None, rv: 5.into(), epoch: 2 };
    let core = StoreCore::new(StoreContent::restored(vec![part], Tree::new()), FreshnessCell::standalone());
    let progress = core.progress();
    let said = || (progress.borrow().synced, progress.borrow().confirmed);
    assert_eq!(said(), (true, false));
    core.confirm(0);
    assert_eq!(said(), (true, true));
    assert_eq!((&core.current().rv, core.current().epoch), (&5.into(), 2));
}

#[test]
fn resync_before_first_list_sends_nothing() {
    let (core, _) = store();
    let queue = Arc::new(EventQueue::new(10));
    core.subscribe(&queue).unwrap();
    assert!(!core.resync(&queue));
    assert!(queue.is_empty());
}

#[test]
fn journal_starts_per_namespace_when_enabled() {
    let core = StoreCore::new(StoreContent::unsynced_set(["a", "b"]), FreshnessCell::standalone());
    let reader: Store = core.clone().into();
    assert!(reader.journal_in("a").is_none());
    core.keep_journal(JournalOptions::default());
    assert!(reader.journal_in("a").is_some() && reader.journal_in("b").is_some());
    assert!(reader.journal_in("c").is_none() && reader.journal().is_none(), "each namespace has its own");
}
