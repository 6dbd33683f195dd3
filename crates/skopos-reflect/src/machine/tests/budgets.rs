//! The budget of six requests in a minute, and the state while it is used up.

use super::desk::{Desk, at};
use super::secs;
use super::server::object;
use super::undecodable::{broken, to};
use crate::machine::*;

#[test]
fn watch_delayed_by_budget_is_not_reported_watching() {
    let (mut desk, mut watch) = Desk::watching(1);
    // A list and five watches that end normally.
    for times in 1..=5 {
        desk.now = desk.now + secs(10);
        desk.bookmark(watch, 10);
        desk.give(Input::Closed { id: watch });
        if times < 5 {
            watch = desk.watches().id;
            desk.give(Input::Opened { id: watch });
        }
    }
    desk.now = desk.due();
    desk.give(Input::Timeout);
    assert_eq!(desk.machine.poll_action(), None);
    let state = desk.machine.state();
    assert_eq!((&state.condition, state.retry_at, state.attempts), (&Condition::Retrying, Some(at(61)), 0));
    assert_eq!(desk.due(), at(61));
    assert_eq!(desk.watches().start, WatchStart::After(10.into()));
}

#[test]
fn budget_wait_keeps_reporting_failure() {
    let (mut desk, mut watch) = Desk::watching(1);
    for _ in 0..4 {
        desk.fail(watch, 503);
        watch = desk.watches().id;
    }
    desk.fail(watch, 503);
    desk.now = desk.due();
    desk.give(Input::Timeout);
    assert_eq!((desk.machine.poll_action(), desk.due()), (None, at(61)));
    let state = desk.machine.state();
    assert_eq!((&state.condition, state.attempts), (&Condition::ServerError, 5));
    assert!(state.reason.is_some() && state.retry_at == Some(at(61)));
}

#[test]
fn get_waits_for_request_budget() {
    let (mut desk, watch) = Desk::watching(1);
    let watch = desk.reopens(watch, 3);
    desk.give(to(watch, broken("b", 12)));
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
    let watch = desk.watches().id;
    desk.give(Input::Opened { id: watch });
    desk.give(to(watch, broken("b", 12)));
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
    assert_eq!((desk.machine.poll_action(), desk.due()), (None, at(61)));
    let Action::Get(get) = desk.asks() else { panic!("a read of b") };
    desk.give(Input::Got { id: get.id, object: Ok(Some(object("b", 2, 12))) });
    assert_eq!(desk.sink.content["b"], (2, 12));
}

#[test]
fn attempts_without_connection_use_no_budget() {
    let (mut desk, mut watch) = Desk::watching(1);
    desk.at(70);
    for _ in 0..8 {
        let retry_at = Some(desk.now + secs(1));
        let failure =
            Failure::Connection { trouble: Trouble::CannotConnect, reason: "refused".into(), retry_at };
        desk.give(Input::Failed { id: watch, failure });
        watch = desk.watches().id;
    }
    let retry_at = Some(desk.now + secs(30));
    let failure = Failure::Connection { trouble: Trouble::CannotConnect, reason: "refused".into(), retry_at };
    desk.give(Input::Failed { id: watch, failure });
    desk.give(Input::RetryNow);
    assert!(desk.due() <= desk.now + secs(1) / 2, "a hint is still worth an attempt: {}", desk.due());
}

/// Checks streams that end after eleven seconds: each is a good one, so the next is opened at once and takes the budget of
/// the list.
#[test]
fn deferred_relist_runs_despite_short_streams() {
    let (mut desk, mut watch) = Desk::watching(1);
    let mut asked = None;
    while desk.now < at(3600) {
        let opened = desk.now;
        if asked.is_none() && desk.now >= at(200) {
            desk.give(Input::Relist);
            asked = Some(desk.now);
        }
        desk.bookmark(watch, 10);
        while desk.due() < opened + secs(11) && desk.machine.poll_action().is_none() {
            desk.now = desk.due();
            desk.give(Input::Timeout);
        }
        desk.now = desk.now.max(opened + secs(11));
        desk.give(Input::Closed { id: watch });
        match desk.acts() {
            Action::Watch(next) => watch = next.id,
            Action::List(_) => {
                assert!(desk.now.since(asked.unwrap()) <= secs(130));
                return assert_eq!(desk.machine.stats().relists, 1);
            }
            other => panic!("{other:?}"),
        }
        desk.give(Input::Opened { id: watch });
    }
    panic!("no list in an hour");
}

#[test]
fn requested_relist_honors_retry_after() {
    let (mut desk, watch) = Desk::watching(1);
    desk.at(200);
    desk.give(Input::Closed { id: watch });
    let watch = desk.watches().id;
    let retry_after = Some(secs(100));
    desk.give(Input::Failed { id: watch, failure: Failure::Answer { code: 429, status: None, retry_after } });
    desk.at(210);
    desk.give(Input::Relist);
    assert!(desk.due() >= at(300), "{:?}", desk.due());
    assert_eq!(desk.machine.state().condition, Condition::Throttled);
    assert!(matches!(desk.acts(), Action::List(_)));
}

#[test]
fn requested_cause_outranks_undecodable_relist() {
    for first in [ReplaceCause::Requested, ReplaceCause::Undecodable] {
        let (mut desk, _) = Desk::watching(1);
        (0..MAX_LISTS_PER_MINUTE).for_each(|_| desk.machine.lists.spend(desk.now));
        desk.machine.relist_when_affordable(first, &mut desk.sink);
        assert_eq!(desk.machine.deferred_relist.as_ref().map(|relist| relist.cause), Some(first));
        for other in [ReplaceCause::Requested, ReplaceCause::Undecodable] {
            desk.machine.relist_when_affordable(other, &mut desk.sink);
        }
        assert_eq!(
            desk.machine.deferred_relist.as_ref().map(|relist| relist.cause),
            Some(ReplaceCause::Requested)
        );
    }
}

#[test]
fn state_reason_names_relist_cause() {
    for (cause, words) in [
        (ReplaceCause::Undecodable, "what could not be decoded is listed again"),
        (ReplaceCause::Unproven, "streams do not bring what there is"),
        (ReplaceCause::Requested, "a new list was asked for"),
    ] {
        let (mut desk, _) = Desk::watching(1);
        desk.at(200);
        desk.machine.relist_when_affordable(cause, &mut desk.sink);
        assert_eq!(desk.machine.state().reason.as_ref().unwrap().to_string(), words);
    }
}

#[test]
fn relist_replacing_backoff_is_not_throttled() {
    let (mut desk, watch) = Desk::watching(1);
    desk.at(200);
    let watch = desk.reopens(watch, 3);
    desk.fail(watch, 503);
    assert!(desk.due() > desk.now + secs(1));
    desk.give(Input::Relist);
    assert_eq!(desk.machine.state().condition, Condition::Retrying);
    assert!(desk.due() <= desk.now + secs(1), "{:?}", desk.due());
}
