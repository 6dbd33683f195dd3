//! The cost of lists: which are counted, which requests belong to one, and which must wait.

use std::time::Duration;

use super::desk::{Desk, at};
use super::secs;
use super::server::object;
use crate::machine::*;

fn page(id: RequestId, rv: u64, token: &str) -> Input {
    Input::ListEnd { id, resource_version: Some(rv.into()), continue_token: Some(token.into()) }
}

/// Returns the next list request, after any number of timeouts.
fn lists(desk: &mut Desk) -> ListRequest {
    loop {
        match desk.acts() {
            Action::Cancel { .. } => {}
            Action::List(list) => return list,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn refused_list_uses_no_list_budget() {
    let mut desk = Desk::new(1);
    for _ in 0..4 {
        let list = lists(&mut desk).id;
        desk.fail(list, 503);
    }
    lists(&mut desk);
    assert!(desk.now < at(20), "only the delays were waited for: {}", desk.now);
}

#[test]
fn interrupted_list_uses_list_budget() {
    // Its connection broke; it broke in the middle; its pages do not belong together.
    for kind in 0..3 {
        let mut desk = Desk::new(1);
        for _ in 0..2 {
            let list = lists(&mut desk).id;
            if kind > 0 {
                desk.give(Input::Opened { id: list });
            }
            if kind < 2 {
                desk.lose(list);
                continue;
            }
            desk.give(page(list, 10, "next"));
            let next = lists(&mut desk).id;
            desk.give(Input::Opened { id: next });
            desk.give(page(next, 11, "next"));
        }
        lists(&mut desk);
        assert!(desk.now >= at(61), "{kind}: two in a minute: {}", desk.now);
    }
}

#[test]
fn restarts_list_after_four_page_retries() {
    let mut desk = Desk::new(1);
    let first = desk.asks().id();
    desk.give(Input::Opened { id: first });
    desk.give(page(first, 10, "next"));
    let mut last = lists(&mut desk);
    for _ in 0..4 {
        desk.lose(last.id);
        let again = lists(&mut desk);
        assert_eq!((again.continue_token.as_deref(), again.avoid), (Some("next"), Some(last.id)));
        last = again;
    }
    assert!(desk.sink.is_staging());
    desk.lose(last.id);
    assert!(!desk.sink.is_staging(), "what was staged is not kept for ever");
    let anew = lists(&mut desk);
    assert_eq!((anew.continue_token, anew.limit), (None, Some(500)));
}

#[test]
fn a_page_that_is_slow_belongs_to_its_list() {
    let mut desk = Desk::new(1);
    let first = desk.asks().id();
    desk.give(Input::Opened { id: first });
    desk.give(Input::Items { id: first, items: vec![Ok(object("a", 1, 9))] });
    desk.give(page(first, 10, "next"));
    let next = desk.asks().id();
    desk.at(40);
    desk.list(next, vec![Ok(object("b", 1, 9))], 10);
    assert_eq!(desk.sink.content.keys().collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn relist_after_410_has_jitter() {
    let mut latest = Duration::ZERO;
    for seed in 0..20 {
        let (mut desk, watch) = Desk::watching(seed);
        desk.at(100);
        desk.fail(watch, 410);
        let wait = desk.due().since(desk.now);
        assert!(wait <= Duration::from_millis(500), "{wait:?}");
        latest = latest.max(wait);
    }
    assert!(latest > Duration::from_millis(250), "{latest:?}");
}

#[test]
fn list_at_same_version_is_no_regression() {
    let (mut desk, _) = Desk::watching(1);
    desk.at(100);
    desk.give(Input::Relist);
    let list = lists(&mut desk).id;
    desk.list(list, vec![Ok(object("a", 1, 9))], 10);
    assert_eq!((desk.sink.commits.len(), desk.sink.epoch), (2, 0));
    assert_eq!(desk.machine.stats().regressed_lists, 0);
}

#[test]
fn deferred_relist_does_not_block_watch() {
    let (mut desk, _) = Desk::watching(1);
    desk.at(10);
    desk.give(Input::Relist);
    let list = lists(&mut desk).id;
    desk.list(list, vec![], 11);
    let watch = desk.watches().id;
    desk.give(Input::Opened { id: watch });
    // Two lists were made in this minute. The watch ends, and while it waits a third list is requested.
    desk.at(20);
    desk.fail(watch, 503);
    desk.give(Input::Relist);
    let again = desk.watches();
    assert_eq!(again.start, WatchStart::After(11.into()));
    assert!(desk.now < at(23), "{}", desk.now);
    desk.give(Input::Opened { id: again.id });
    desk.change(again.id, 12);
    assert_eq!(desk.acts(), Action::Cancel { id: again.id });
    lists(&mut desk);
    assert!(desk.now >= at(61) && desk.now < at(62), "{}", desk.now);
}

#[test]
fn changes_only_lists_one_object_for_version() {
    let options = MachineOptions { content: Content::Changes, ..MachineOptions::default() };
    let mut desk = Desk::with(options, 1);
    desk.sink.changes_only = true;
    let list = lists(&mut desk);
    assert_eq!(list.limit, Some(1));
    desk.give(Input::Opened { id: list.id });
    desk.give(Input::Items { id: list.id, items: vec![Ok(object("a", 1, 9))] });
    desk.give(page(list.id, 10, "next"));
    assert_eq!(desk.watches().start, WatchStart::After(10.into()));
    assert!(desk.sink.content.is_empty());
}

#[test]
fn reports_state_changes_not_each_event() {
    let (mut desk, watch) = Desk::watching(1);
    let conditions: Vec<_> = desk.sink.told.iter().map(|state| &state.condition).collect();
    // The reflector begins, the list is received, is complete, and the watch is open.
    use Condition::*;
    assert_eq!(conditions, [&Connecting, &Listing, &Listing, &Watching]);
    desk.now = desk.now + secs(1);
    for rv in 11..20 {
        desk.change(watch, rv);
        desk.bookmark(watch, rv);
    }
    assert_eq!(desk.sink.told.len(), 4);
}

/// Checks that a retried page does not delay the next one.
#[test]
fn list_completes_with_each_page_cut_once() {
    let mut desk = Desk::new(1);
    let mut id = lists(&mut desk).id;
    for n in 0..20 {
        desk.give(Input::Opened { id });
        desk.give(Input::Items { id, items: vec![Ok(object(&format!("o{n:02}"), 1, 9)); 5] });
        desk.give(page(id, 10, &n.to_string()));
        let next = lists(&mut desk).id;
        desk.lose(next);
        let again = lists(&mut desk);
        assert_eq!(again.continue_token.as_deref(), Some(n.to_string().as_str()));
        id = again.id;
    }
    desk.give(Input::Opened { id });
    desk.give(Input::ListEnd { id, resource_version: Some(10.into()), continue_token: None });
    assert_eq!((desk.sink.content.len(), desk.sink.rv), (20, Some(10)));
}

/// Checks a `Retry-After` beyond the time for which pages certainly belong to one history.
#[test]
fn repeated_page_throttling_falls_back_to_unpaged() {
    let mut desk = Desk::new(1);
    let (mut rounds, mut pages) = (0, 0);
    let list = loop {
        let list = lists(&mut desk);
        if list.continue_token.is_some() {
            pages += 1;
            let retry_after = Some(secs(60));
            desk.give(Input::Failed {
                id: list.id,
                failure: Failure::Answer { code: 429, status: None, retry_after },
            });
        } else if list.limit.is_some() {
            rounds += 1;
            assert!(rounds <= 3, "pages do not work here");
            desk.give(Input::Opened { id: list.id });
            desk.give(Input::Items { id: list.id, items: vec![Ok(object("a", 1, 9)); 5] });
            desk.give(page(list.id, 10, "more"));
        } else {
            break list.id;
        }
    };
    assert_eq!((rounds, pages), (2, 2), "what comes too late is not asked for");
    desk.list(list, vec![Ok(object("a", 1, 9))], 10);
    assert_eq!(desk.sink.rv, Some(10));
}
