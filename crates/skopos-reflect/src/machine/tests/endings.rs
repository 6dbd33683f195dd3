//! The end of a watch, and the delay before the next one.

use std::time::Duration;

use skopos_wire::{Status, WatchEvent};

use super::desk::{Desk, at};
use super::secs;
use super::server::object;
use crate::machine::*;

fn lost() -> Failure {
    Failure::Connection { trouble: Trouble::Lost, reason: "reset".into(), retry_at: None }
}

/// Checks that the next timer is due within this time from now.
fn within(desk: &Desk, span: Duration) {
    let due = desk.due();
    assert!(due >= desk.now && due <= desk.now + span, "{due} is not within {span:?} of {}", desk.now);
}

#[test]
fn server_close_after_10s_is_no_failure() {
    for seed in 0..10 {
        let (mut desk, watch) = Desk::watching(seed);
        desk.at(10);
        desk.give(Input::Closed { id: watch });
        within(&desk, Duration::from_millis(100));
        assert_eq!((desk.machine.stats().failures, desk.machine.state().attempts), (0, 0));
        assert!(!desk.machine.state().condition.is_failing());
        let again = desk.watches();
        assert_eq!(
            (again.start, again.avoid, again.retire_avoided),
            (WatchStart::After(10.into()), None, false)
        );
    }
}

#[test]
fn early_close_without_events_is_failure() {
    let (mut desk, watch) = Desk::watching(1);
    desk.now = desk.now + Duration::from_millis(9_900);
    desk.give(Input::Closed { id: watch });
    assert!(desk.due() >= desk.now + secs(1));
    assert_eq!((desk.machine.stats().failures, desk.machine.state().attempts), (1, 1));
    assert_eq!(desk.machine.state().condition, Condition::Retrying);
    assert!(desk.machine.state().reason.as_ref().is_some_and(|reason| reason.contains("9.9s")));
}

#[test]
fn stream_with_events_is_reopened_immediately() {
    let (mut desk, watch) = Desk::watching(1);
    desk.change(watch, 11);
    desk.give(Input::Closed { id: watch });
    within(&desk, Duration::from_millis(100));
    assert_eq!(desk.machine.stats().failures, 0);
    assert_eq!(desk.watches().start, WatchStart::After(10.into()));
}

#[test]
fn cut_stream_is_reopened_within_500ms() {
    let mut latest = Duration::ZERO;
    for seed in 0..20 {
        let (mut desk, watch) = Desk::watching(seed);
        desk.at(10);
        desk.give(Input::Failed { id: watch, failure: lost() });
        within(&desk, Duration::from_millis(500));
        latest = latest.max(desk.due().since(desk.now));
        let state = desk.machine.state();
        assert_eq!((&state.condition, state.attempts), (&Condition::Retrying, 1));
        assert_eq!(state.reason.as_deref(), Some("reset"));
        assert_eq!(desk.machine.stats().failures, 1);
    }
    assert!(latest > Duration::from_millis(250), "not all at once");
}

#[test]
fn prompt_reopening_leaves_half_of_budget() {
    let (mut desk, mut watch) = Desk::watching(1);
    // A list and a watch were requested already.
    let mut prompt = 0;
    while {
        desk.give(Input::Failed { id: watch, failure: lost() });
        desk.due() <= desk.now + Duration::from_millis(500)
    } {
        prompt += 1;
        watch = desk.watches().id;
        desk.give(Input::Opened { id: watch });
    }
    assert_eq!(prompt, 2);
}

#[test]
fn open_stream_recovers_after_5s_without_events() {
    let (mut desk, watch) = Desk::watching(1);
    desk.fail(watch, 500);
    let watch = desk.watches().id;
    desk.give(Input::Opened { id: watch });
    let opened = desk.now;
    assert_eq!((desk.machine.state().attempts, desk.due()), (1, opened + secs(5)));
    desk.now = opened + secs(5);
    desk.give(Input::Timeout);
    let state = desk.machine.state();
    assert_eq!((state.attempts, &state.reason, &state.condition), (0, &None, &Condition::Watching));
    assert_eq!(desk.due(), opened + secs(90));
}

#[test]
fn counts_duplicates_and_disordered_separately() {
    let (mut desk, watch) = Desk::watching(1);
    desk.change(watch, 15);
    for (rv, disordered, duplicates) in [(10, 0, 1), (9, 0, 2), (11, 1, 2), (14, 2, 2), (15, 3, 2)] {
        desk.give(Input::Events { id: watch, events: vec![Ok(WatchEvent::Modified(object("a", 1, rv)))] });
        let stats = desk.machine.stats();
        assert_eq!((stats.disordered, stats.duplicates), (disordered, duplicates), "{rv}");
    }
    assert_eq!((desk.sink.rv, desk.sink.batches, desk.machine.stats().changes), (Some(15), 1, 1));
}

#[test]
fn relists_after_fourth_too_large_version() {
    let status = br#"{"kind":"Status","status":"Failure","message":"Timeout: Too large resource version: 9, current: 8","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"m"}]},"code":504}"#;
    let too_large = || Failure::Answer {
        code: 504,
        status: Some(Box::new(Status::from_slice(status).unwrap())),
        retry_after: None,
    };
    let (mut desk, mut watch) = Desk::watching(1);
    for _ in 0..3 {
        desk.give(Input::Failed { id: watch, failure: too_large() });
        let again = desk.watches();
        assert_eq!(again.avoid, Some(watch), "another server may have caught up");
        watch = again.id;
    }
    // An input of another kind starts the count again.
    desk.give(Input::Opened { id: watch });
    desk.bookmark(watch, 10);
    for _ in 0..3 {
        desk.now = desk.now + secs(61);
        desk.give(Input::Failed { id: watch, failure: too_large() });
        watch = desk.watches().id;
    }
    desk.now = desk.now + secs(61);
    desk.give(Input::Failed { id: watch, failure: too_large() });
    let list = loop {
        match desk.asks() {
            Action::Cancel { .. } => {}
            Action::List(list) => break list.id,
            other => panic!("{other:?}"),
        }
    };
    desk.give(Input::Opened { id: list });
    desk.give(Input::ListEnd { id: list, resource_version: Some(11.into()), continue_token: None });
    assert_eq!(desk.sink.causes(), [ReplaceCause::Initial, ReplaceCause::TooLargeResourceVersion]);
}

#[test]
fn retry_after_is_capped_at_10_minutes() {
    for (wish, shortest, longest) in [(20, 20, 22), (1000, 600, 660)] {
        let (mut desk, watch) = Desk::watching(1);
        let failure =
            Failure::Answer { code: 429, status: None, retry_after: Some(Duration::from_secs(wish)) };
        desk.at(1);
        desk.give(Input::Failed { id: watch, failure });
        assert_eq!(desk.machine.state().condition, Condition::Throttled);
        let wait = desk.due().since(at(1));
        assert!(wait >= secs(shortest) && wait <= secs(longest), "{wait:?}");
        let due = desk.due();
        desk.give(Input::RetryNow);
        assert_eq!(desk.due(), due, "a hint from elsewhere changes nothing about it");
    }
}

#[test]
fn unreachable_server_is_retried_at_transports_time() {
    let (mut desk, watch) = Desk::watching(1);
    let failure = Failure::Connection {
        trouble: Trouble::CannotConnect,
        reason: "refused".into(),
        retry_at: Some(at(30)),
    };
    desk.at(20);
    desk.give(Input::Failed { id: watch, failure });
    assert_eq!(desk.machine.state().condition, Condition::Unreachable);
    let due = desk.due();
    assert!(due >= at(30) && due <= at(30) + Duration::from_millis(250), "{due}");
    assert!(desk.watches().wait_for_connection, "it waits in the transport");
}

#[test]
fn closed_transport_stops_machine() {
    let (mut desk, watch) = Desk::watching(1);
    let failure =
        Failure::Connection { trouble: Trouble::Closed, reason: "shut down".into(), retry_at: None };
    assert!(!desk.machine.is_stopped());
    desk.give(Input::Failed { id: watch, failure });
    assert!(desk.machine.is_stopped() && desk.machine.poll_timeout().is_none());
    assert_eq!(desk.machine.state().condition, Condition::Stopped);
    assert_eq!(desk.machine.state().reason.as_deref(), Some("shut down"));
}

#[test]
fn a_reason_that_was_no_failure_is_forgotten_likewise() {
    let (mut desk, _) = Desk::watching(1);
    desk.give(Input::Suspended { by: secs(60) });
    desk.machine.poll_action();
    let watch = desk.watches().id;
    desk.give(Input::Opened { id: watch });
    assert!(desk.machine.state().reason.is_some() && desk.machine.state().attempts == 0);
    assert_eq!(desk.due(), desk.now + secs(5));
    desk.now = desk.due();
    desk.give(Input::Timeout);
    assert_eq!(desk.machine.state().reason, None);
}
