//! Lateness of this process: it does not count against the peer, and delays nothing else.

use super::desk::{Desk, at};
use super::secs;
use super::server::object;
use super::undecodable::{reads_again, without_a};
use crate::machine::*;

#[test]
fn own_lag_extends_verification_watch() {
    let (mut desk, _, look) = Desk::looking(1);
    assert_eq!(desk.due(), at(45));
    desk.at(48);
    desk.give(Input::Timeout);
    assert_eq!((desk.machine.poll_action(), desk.due()), (None, at(51)));
    assert_eq!(desk.machine.state().condition, Condition::Watching, "nothing is known yet");
    desk.bookmark(look, 20);
    assert_eq!(desk.sink.fresh, Some(at(19)));
}

#[test]
fn own_lag_delays_stall_verdict() {
    let (mut desk, watch, look) = Desk::looking(1);
    desk.change(look, 20);
    assert_eq!(desk.due(), at(37));
    desk.at(40);
    desk.give(Input::Timeout);
    assert_eq!((desk.machine.poll_action(), desk.due()), (None, at(43)));
    desk.at(42);
    desk.change(watch, 20);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: look }));
    assert_eq!((desk.machine.stats().stalls, desk.sink.rv), (0, Some(20)));
}

#[test]
fn own_lag_extends_get_deadline() {
    let (mut desk, mut watch) = without_a();
    let (get, _) = reads_again(&mut desk, &mut watch);
    desk.now = desk.due() + secs(3);
    desk.give(Input::Timeout);
    assert_eq!((desk.machine.poll_action(), desk.due()), (None, desk.now + secs(3)));
    desk.give(Input::Got { id: get.id, object: Ok(Some(object("a", 1, 12))) });
    assert_eq!(desk.acts(), Action::Cancel { id: watch }, "and then it counts: a list heals it");
}

#[test]
fn a_look_has_more_time_whatever_else_is_due() {
    let (mut desk, _) = without_a();
    desk.give(Input::Probed { sent_at: desk.now, resource_version: 20.into() });
    let look = desk.acts();
    assert!(matches!(&look, Action::Watch(watch) if watch.verification), "{look:?}");
    // The end of the look, and the time of the next read of an object that is set aside, came while the process did not run.
    desk.now = desk.now + secs(100);
    desk.give(Input::Timeout);
    let action = desk.machine.poll_action();
    assert!(matches!(action, Some(Action::Get(_))), "{action:?}");
    assert_eq!((desk.machine.poll_action(), desk.due()), (None, desk.now + secs(5)));
    desk.bookmark(look.id(), 20);
    assert_eq!(desk.sink.rv, Some(20));
}

#[test]
fn a_wait_that_is_over_is_over_however_late() {
    let (mut desk, watch) = Desk::watching(1);
    desk.fail(watch, 503);
    desk.now = desk.due() + secs(30);
    desk.give(Input::Timeout);
    assert!(matches!(desk.machine.poll_action(), Some(Action::Watch(_))));
}

#[test]
fn a_suspend_cuts_a_wait_short() {
    let (mut desk, watch) = Desk::watching(1);
    desk.at(70);
    desk.fail(watch, 503);
    assert!(desk.due() >= at(71));
    desk.give(Input::Suspended { by: secs(60) });
    assert!(desk.due() <= at(70) + secs(1) / 2, "{}", desk.due());
}
