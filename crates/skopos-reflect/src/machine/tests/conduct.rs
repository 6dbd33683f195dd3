//! The machine's reasons and requests, to the letter, step by step.

use std::time::Duration;

use skopos_wire::{RawObject, Status, WatchEvent};

use super::desk::{Desk, at};
use super::secs;
use super::server::object;
use crate::machine::backoff::Backoff;
use crate::machine::*;

#[test]
fn suspend_reopens_watch_on_another_connection() {
    let (mut desk, old) = Desk::watching(1);
    desk.give(Input::Suspended { by: secs(60) });
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: old }));
    assert_eq!(desk.machine.state().retry_at, None, "there is nothing to wait for");
    assert!(desk.machine.state().reason.as_ref().is_some_and(|reason| reason.contains("60s")));
    let begun = desk.now;
    let Action::Watch(watch) = desk.asks() else { panic!("a watch") };
    assert_eq!(desk.now, begun);
    assert_eq!(watch.start, WatchStart::After(10.into()));
    assert_eq!((watch.avoid, watch.retire_avoided), (Some(old), true));
    // The events of the old watch are ignored.
    desk.give(Input::Events { id: old, events: vec![Ok(WatchEvent::Modified(object("a", 1, 11)))] });
    assert_eq!(desk.machine.resource_version(), Some(&10.into()));
}

#[test]
fn reopened_watch_is_connecting_until_answered() {
    let (mut desk, old) = Desk::watching(1);
    desk.now = desk.now + secs(300);
    desk.give(Input::Closed { id: old });
    let next = desk.watches().id;
    let state = desk.machine.state();
    assert_eq!((&state.condition, state.attempts, state.since), (&Condition::Connecting, 0, desk.now));
    desk.give(Input::Opened { id: next });
    assert_eq!(desk.machine.state().condition, Condition::Watching);
}

#[test]
fn failure_is_reported_until_watch_recovers() {
    for seed in 0..20 {
        let (mut desk, watch) = Desk::watching(seed);
        desk.now = desk.now + secs(1);
        desk.fail(watch, 503);
        let state = desk.machine.state().clone();
        assert_eq!((&state.condition, state.attempts), (&Condition::ServerError, 1));
        assert_eq!((state.since, state.retry_at), (desk.now, desk.machine.poll_timeout()));
        assert!(state.retry_at.unwrap() > desk.now && state.reason.is_some());
        let again = desk.asks().id();
        desk.fail(again, 503);
        assert_eq!(desk.machine.state().attempts, 2);
        assert_eq!(desk.machine.state().since, state.since, "since when it is so");
        let again = desk.asks().id();
        desk.give(Input::Opened { id: again });
        assert!(desk.machine.state().condition.is_watching() && desk.machine.state().retry_at.is_none());
        desk.give(Input::Events { id: again, events: vec![Ok(WatchEvent::Modified(object("a", 1, 11)))] });
        let state = desk.machine.state();
        assert_eq!((state.attempts, &state.reason, state.retry_at), (0, &None, None));
        assert_eq!(desk.sink.content["a"], (1, 11));
    }
}

#[test]
fn retry_hint_is_followed_within_500ms_with_jitter() {
    let mut moments = Vec::new();
    for seed in 0..50 {
        let (mut desk, watch) = Desk::watching(seed);
        // The earlier requests no longer count.
        desk.now = desk.now + secs(70);
        desk.fail(watch, 503);
        let due = desk.machine.poll_timeout().unwrap();
        desk.now = desk.now + Duration::from_millis(10);
        desk.give(Input::RetryNow);
        let early = desk.machine.poll_timeout().unwrap();
        assert!(early < due && early >= desk.now && early <= desk.now + Duration::from_millis(500));
        assert_eq!(desk.machine.state().retry_at, Some(early));
        moments.push(early.since(desk.now));
    }
    moments.sort();
    moments.dedup();
    assert!(moments.len() > 10, "{moments:?}");
}

#[test]
fn backoff_doubles_with_30_percent_jitter() {
    let options = MachineOptions::default();
    let mut beyond = 0;
    for seed in 0..50 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut backoff = Backoff::default();
        for base in [1, 2, 4, 8, 16, 30, 30] {
            let delay = backoff.fail(&options, &mut rng);
            assert!(delay >= secs(base) && delay <= secs(base).mul_f64(1.3), "{delay:?} of {base}");
            beyond += usize::from(delay > secs(base).mul_f64(1.15));
        }
        backoff.reset();
        assert!(backoff.fail(&options, &mut rng) < secs(2));
    }
    assert!((100..250).contains(&beyond), "{beyond} of 350 in the upper half");
}

#[test]
fn list_times_out_after_45s_without_progress() {
    let mut desk = Desk::new(1);
    let list = desk.asks().id();
    assert_eq!(desk.due(), at(45));
    desk.at(20);
    desk.give(Input::Opened { id: list });
    assert_eq!(desk.due(), at(65));
    desk.at(30);
    desk.give(Input::Items { id: list, items: vec![Ok(object("a", 1, 9))] });
    assert_eq!(desk.due(), at(75));
    desk.at(75);
    desk.give(Input::Timeout);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: list }));
    assert_eq!(desk.machine.state().condition, Condition::Retrying);
    assert!(!desk.sink.is_staging());
    let Action::List(again) = desk.asks() else { panic!("a list") };
    assert_eq!((again.avoid, again.continue_token, again.limit), (Some(list), None, Some(500)));
}

fn end(id: RequestId, rv: u64, token: Option<&str>) -> Input {
    Input::ListEnd { id, resource_version: Some(rv.into()), continue_token: token.map(Into::into) }
}

#[test]
fn rejects_page_with_different_version() {
    let mut desk = Desk::new(1);
    let first = desk.asks().id();
    desk.give(Input::Opened { id: first });
    desk.give(end(first, 10, Some("next")));
    let Action::List(page) = desk.asks() else { panic!("a page") };
    assert_eq!(page.continue_token.as_deref(), Some("next"));
    desk.give(Input::Opened { id: page.id });
    desk.give(end(page.id, 11, None));
    assert!(!desk.sink.is_staging() && desk.sink.rv.is_none(), "not one snapshot");
    let Action::List(whole) = desk.asks() else { panic!("a list") };
    assert_eq!(whole.continue_token, None);
    desk.give(Input::Opened { id: whole.id });
    desk.give(end(whole.id, 12, Some("")));
    assert_eq!(desk.sink.rv, Some(12), "an empty token is none");
}

#[test]
fn restarts_list_when_pages_may_differ_in_history() {
    let lost = Failure::Connection { trouble: Trouble::Lost, reason: "reset".into(), retry_at: None };
    let status = Status::too_large_resource_version(10, 7, 1);
    let ahead = Failure::Answer { code: 504, status: Some(status.into()), retry_after: None };
    // The failure of the page, the delay of the next response, and the content of the list at the end.
    let cases = [(&lost, 29, vec!["a", "b"]), (&lost, 31, vec!["b"]), (&ahead, 5, vec!["b"])];
    for (failure, seconds, holds) in cases {
        let mut desk = Desk::new(1);
        let first = desk.asks().id();
        desk.give(Input::Opened { id: first });
        desk.give(Input::Items { id: first, items: vec![Ok(object("a", 1, 9))] });
        desk.give(end(first, 10, Some("next")));
        let page = desk.asks().id();
        desk.give(Input::Failed { id: page, failure: failure.clone() });
        let mut again = desk.asks().id();
        desk.at(seconds);
        desk.give(Input::Opened { id: again });
        if desk.machine.poll_action() == Some(Action::Cancel { id: again }) {
            again = desk.asks().id();
            desk.give(Input::Opened { id: again });
        }
        desk.give(Input::Items { id: again, items: vec![Ok(object("b", 1, 9))] });
        desk.give(end(again, 10, None));
        assert_eq!(desk.sink.content.keys().collect::<Vec<_>>(), holds);
    }
}

#[test]
fn endless_pagination_falls_back_to_unpaged_list() {
    let empty = |_: u64| Vec::new();
    let full = |page: u64| vec![Ok(object(&format!("o{page}"), 1, 9)); 5];
    let sparse = |page: u64| vec![Ok(object(&format!("o{page}"), 1, 9)); 4];
    // The same page without end; new pages without end, empty or with less than a hundredth of the limit; and a list that is
    // slow, but makes progress.
    type Items = fn(u64) -> Vec<Result<RawObject, BrokenItem>>;
    let cases: [(Items, bool, Option<u64>); 4] =
        [(full, false, Some(2)), (empty, true, Some(21)), (sparse, true, Some(21)), (full, true, None)];
    for (items, new_tokens, most) in cases {
        let mut desk = Desk::new(1);
        let mut pages = 0;
        let again = loop {
            let Action::List(page) = desk.asks() else { panic!("a list") };
            if pages > 0 && page.continue_token.is_none() {
                break Some(page);
            }
            pages += 1;
            if pages > 500 {
                break None;
            }
            let token = if new_tokens { format!("after {pages}") } else { "x".to_owned() };
            desk.give(Input::Opened { id: page.id });
            desk.give(Input::Items { id: page.id, items: items(pages) });
            desk.give(end(page.id, 10, Some(&token)));
        };
        assert_eq!(again.is_some().then_some(pages), most);
        let Some(whole) = again else { continue };
        assert_eq!(whole.limit, None);
        assert!(!desk.sink.is_staging() && desk.sink.rv.is_none());
        let state = desk.machine.state();
        assert_eq!(state.condition, Condition::ServerError);
        assert!(state.reason.as_ref().is_some_and(|reason| reason.contains("does not end")), "{state:?}");
    }
}

#[test]
fn cancels_list_that_exceeds_limits() {
    let bytes = object("a", 1, 9).content().len() as u64;
    let by_number = MachineOptions { max_list_objects: 2, ..MachineOptions::default() };
    let by_size = MachineOptions { max_list_bytes: 2 * bytes, ..MachineOptions::default() };
    for (caps, name) in [(by_number, "max_list_objects"), (by_size, "max_list_bytes")] {
        for initial in [InitialList::Paged, InitialList::Streamed] {
            let mut desk = Desk::with(MachineOptions { initial, ..caps.clone() }, 1);
            let mut id = desk.asks().id();
            for (number, object) in
                [object("a", 1, 9), object("b", 1, 9), object("c", 1, 9)].into_iter().enumerate()
            {
                assert!(desk.sink.rv.is_none() && !desk.machine.state().condition.is_failing());
                desk.give(Input::Opened { id });
                if initial == InitialList::Streamed {
                    desk.give(Input::Events { id, events: vec![Ok(WatchEvent::Added(object))] });
                    continue;
                }
                desk.give(Input::Items { id, items: vec![Ok(object)] });
                if number < 2 {
                    let continue_token = Some(number.to_string().into());
                    desk.give(Input::ListEnd { id, resource_version: Some(10.into()), continue_token });
                    id = desk.asks().id();
                }
            }
            assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id }));
            assert!(!desk.sink.is_staging(), "nothing of it is kept");
            let state = desk.machine.state();
            assert_eq!(state.condition, Condition::ServerError);
            assert!(state.reason.as_ref().is_some_and(|reason| reason.contains(name)), "{state:?}");
            let Action::List(again) = desk.asks() else { panic!("a list") };
            assert_eq!((again.continue_token, again.limit), (None, Some(500)));
        }
    }
}

#[test]
fn a_list_without_a_version_is_not_believed() {
    let mut desk = Desk::new(1);
    let list = desk.asks().id();
    desk.give(Input::Opened { id: list });
    desk.give(Input::ListEnd { id: list, resource_version: None, continue_token: None });
    assert_eq!(desk.machine.state().condition, Condition::ServerError);
    assert!(desk.sink.rv.is_none() && !desk.sink.is_staging());
}

#[test]
fn a_watch_may_stay_unanswered_for_95_seconds() {
    let (mut desk, watch) = Desk::watching(1);
    desk.fail(watch, 503);
    let again = desk.watches();
    let begun = desk.now;
    assert_eq!(again.start, WatchStart::After(10.into()));
    assert_eq!(desk.due(), begun + secs(95));
    desk.now = begun + secs(95);
    desk.give(Input::Timeout);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: again.id }));
    assert_eq!(desk.watches().avoid, Some(again.id));
}

#[test]
fn cancels_watch_that_outlives_its_timeout() {
    let mut desk = Desk::new(1);
    let list = desk.asks().id();
    desk.give(Input::Opened { id: list });
    desk.give(Input::ListEnd { id: list, resource_version: Some(10.into()), continue_token: None });
    let watch = desk.watches();
    assert!(watch.timeout >= secs(300) && watch.timeout <= secs(600));
    desk.give(Input::Opened { id: watch.id });
    let end = desk.now + watch.timeout + secs(30);
    while desk.due() < end {
        assert_eq!(desk.due(), desk.now + secs(90), "only silence would be a reason before");
        desk.now = (desk.now + secs(60)).min(end);
        desk.bookmark(watch.id, 10);
    }
    desk.now = end;
    desk.give(Input::Timeout);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch.id }));
    assert!(
        desk.due() <= end + Duration::from_millis(100),
        "a stream that lived long is opened again at once"
    );
}

#[test]
fn own_lag_extends_list_deadline() {
    // As much as we were late, but no more than five seconds.
    for (late, grace) in [(2, 2), (5, 5), (100, 5)] {
        let mut desk = Desk::new(1);
        let list = desk.asks().id();
        desk.at(45 + late);
        desk.give(Input::Timeout);
        assert_eq!(desk.machine.poll_action(), None);
        assert_eq!(desk.due(), at(45 + late + grace));
        desk.at(45 + late + grace);
        desk.give(Input::Timeout);
        assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: list }));
    }
    let mut desk = Desk::new(1);
    let list = desk.asks().id();
    desk.at(46);
    desk.give(Input::Timeout);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: list }), "a second is not late");
}

/// Makes an initial event of a streamed list.
fn added(id: RequestId, name: &str) -> Input {
    Input::Events { id, events: vec![Ok(WatchEvent::Added(object(name, 1, 5)))] }
}

#[test]
fn streamed_list_has_object_and_total_deadlines() {
    let mut desk = Desk::with(MachineOptions::default(), 1);
    let stream = desk.watches();
    assert_eq!((&stream.start, stream.verification), (&WatchStart::InitialEvents, false));
    assert_eq!(desk.due(), at(25), "within the default deadline of a first sync, which is 30 s");
    desk.at(20);
    desk.give(Input::Opened { id: stream.id });
    assert_eq!(desk.due(), at(30));
    desk.at(25);
    desk.give(added(stream.id, "b"));
    assert_eq!(desk.due(), at(35));
    desk.at(26);
    desk.give(added(stream.id, "a"));
    desk.give(added(stream.id, "b"));
    assert_eq!(desk.due(), at(35), "what was there before is not the list making progress");
    for (second, name) in (30..138).step_by(9).zip('c'..) {
        desk.at(second);
        desk.give(added(stream.id, &name.to_string()));
        assert_eq!(desk.due(), at((second + 10).min(140)));
    }
    desk.at(140);
    desk.give(Input::Timeout);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: stream.id }));
    let Action::List(list) = desk.asks() else { panic!("a list") };
    assert_eq!((list.limit, list.avoid), (Some(500), None));
    assert!(!desk.machine.watch_list_supported() && !desk.sink.is_staging());
    assert!(desk.machine.state().reason.as_ref().is_some_and(|reason| reason.contains("does not end")));
}

#[test]
fn unanswered_streamed_list_avoids_its_connection() {
    let mut desk = Desk::with(MachineOptions::default(), 1);
    let stream = desk.watches().id;
    desk.at(25);
    desk.give(Input::Timeout);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: stream }));
    assert!(desk.machine.watch_list_supported());
    let Action::List(list) = desk.asks() else { panic!("a list") };
    assert_eq!(list.avoid, Some(stream));
}

#[test]
fn endless_streamed_list_keeps_its_connection() {
    let mut desk = Desk::with(MachineOptions::default(), 1);
    let stream = desk.watches().id;
    desk.give(Input::Opened { id: stream });
    desk.now = desk.due();
    desk.give(Input::Timeout);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: stream }));
    assert!(!desk.machine.watch_list_supported());
    let Action::List(list) = desk.asks() else { panic!("a list") };
    assert_eq!(list.avoid, None);
}

#[test]
fn event_behind_streamed_list_end_is_change() {
    let mut desk = Desk::with(MachineOptions::default(), 1);
    let stream = desk.watches().id;
    desk.give(Input::Opened { id: stream });
    let end = WatchEvent::Bookmark { resource_version: 10.into(), initial_events_end: true };
    desk.give(Input::Events {
        id: stream,
        events: vec![
            Ok(WatchEvent::Added(object("a", 1, 5))),
            Ok(WatchEvent::Added(object("b", 2, 6))),
            Ok(WatchEvent::Deleted(object("b", 2, 8))),
            Ok(WatchEvent::Modified(object("a", 1, 9))),
            Ok(end),
            Ok(WatchEvent::Added(object("c", 3, 11))),
        ],
    });
    let content: Vec<_> = desk.sink.content.clone().into_iter().collect();
    assert_eq!(content, [("a".to_owned(), (1, 9)), ("c".to_owned(), (3, 11))]);
    assert_eq!((desk.sink.rv, desk.sink.commits.len(), desk.sink.batches), (Some(11), 1, 1));
    assert_eq!(desk.machine.state().condition, Condition::Watching);
    assert_eq!(desk.sink.fresh, Some(at(0)));
}
