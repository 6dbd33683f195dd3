use std::sync::Weak;

use super::*;
use crate::testing::{apply, commit, list, put, store};

/// Whether this content is still in memory.
fn lives(content: &Weak<Content>) -> bool {
    content.strong_count() > 0
}

#[test]
fn what_a_reader_held_is_taken_apart_by_the_writer() {
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
fn content_that_nobody_holds_stays_until_the_next_batch_only() {
    let (core, mut writer) = store();
    list(&mut writer, [], commit(1, 0, false));
    let content = Arc::downgrade(&core.current());
    apply(&mut writer, [put("a", "u", 2)], 2);
    assert!(lives(&content), "a reader may just have taken it");
    apply(&mut writer, [put("a", "u", 3)], 3);
    assert!(!lives(&content));
}

#[test]
fn of_content_that_readers_hold_for_long_the_writer_keeps_the_last_eight() {
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
