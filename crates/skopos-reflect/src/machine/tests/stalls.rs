//! Verification watches: when a silent stream gets one, and what it proves.

use skopos_wire::WatchEvent;

use super::desk::{Desk, at};
use super::secs;
use super::world::expired;
use crate::machine::*;

#[test]
fn verifies_silent_stream_after_90s_without_probes() {
    let (mut desk, watch) = Desk::watching(1);
    desk.at(30);
    desk.change(watch, 11);
    assert_eq!(desk.due(), at(120));
    let look = desk.watches();
    assert_eq!(look.start, WatchStart::After(10.into()), "more of 11 may be due");
    assert_eq!((look.timeout, look.avoid, look.verification), (secs(3), Some(watch), true));
    assert_eq!(desk.machine.stats().verification_watches, 1);
    // It is given up after its own length and some seconds for the response.
    assert_eq!(desk.due(), at(130));
    desk.at(130);
    desk.give(Input::Timeout);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: look.id }));
    assert_eq!(
        desk.machine.state().condition,
        Condition::Watching,
        "nothing shows that there is something to say"
    );
}

#[test]
fn lower_probe_sent_before_resume_causes_relist() {
    let resume = Some(Resume { resource_version: 1000.into(), epoch: 0 });
    let options = MachineOptions { initial: InitialList::Paged, resume, ..MachineOptions::default() };
    let mut desk = Desk::with(options.clone(), 1);
    (desk.machine, desk.now) = (Machine::new(options, 1, at(100)), at(100));
    desk.sink.rv = Some(1000);
    let watch = desk.asks().id();
    desk.give(Input::Opened { id: watch });
    desk.probe(99, 800);
    assert_eq!(desk.sink.fresh, None, "it confirms nothing");
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
    assert!(matches!(desk.asks(), Action::List(_)), "another read has to agree");
}

#[test]
fn a_confirmed_silence_is_no_reason_to_look() {
    let (mut desk, _) = Desk::watching(1);
    desk.at(80);
    desk.probe(79, 10);
    assert_eq!(desk.sink.fresh, Some(at(79)));
    assert_eq!(desk.due(), at(170));
}

#[test]
fn a_probe_that_is_ahead_is_looked_into_soon() {
    let (mut desk, _) = Desk::watching(1);
    desk.at(20);
    desk.probe(19, 20);
    assert_eq!(desk.due(), at(35), "the stream has 15 s");
    let (mut desk, _) = Desk::watching(1);
    desk.at(100);
    desk.probe(99, 20);
    assert_eq!(desk.due(), at(101), "nothing was proven for a minute");
    assert_eq!(desk.sink.fresh, Some(at(0)));
}

#[test]
fn reopened_stream_inherits_silence() {
    let (mut desk, watch) = Desk::watching(1);
    desk.at(20);
    desk.probe(19, 20);
    desk.at(34);
    desk.give(Input::Closed { id: watch });
    let again = desk.watches().id;
    desk.give(Input::Opened { id: again });
    assert!(desk.now < at(35));
    assert_eq!(desk.due(), desk.now + secs(2), "it brings what is missing at once, or never");
}

#[test]
fn missing_event_in_verification_ends_stream() {
    let (mut desk, watch, look) = Desk::looking(1);
    desk.change(look, 15);
    desk.change(look, 20);
    assert_eq!(desk.sink.rv, Some(10), "a look changes nothing");
    assert_eq!(desk.due(), at(37), "the stream may be a little later");
    desk.at(37);
    desk.give(Input::Timeout);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: look }));
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
    assert_eq!(desk.machine.state().condition, Condition::Degraded(Degradation::Stalled));
    assert!(desk.machine.state().reason.as_ref().is_some_and(|reason| reason.contains("15")));
    assert_eq!((desk.machine.stats().stalls, desk.machine.state().attempts), (1, 1));
    let again = desk.watches();
    assert_eq!((again.avoid, again.retire_avoided, desk.now), (Some(watch), true, at(37)));
}

#[test]
fn stream_that_catches_up_with_verification_survives() {
    let (mut desk, watch, look) = Desk::looking(1);
    desk.change(look, 20);
    desk.at(36);
    desk.change(watch, 15);
    assert_eq!(desk.machine.poll_action(), None, "not yet");
    desk.change(watch, 20);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: look }));
    assert_eq!((desk.sink.fresh, desk.sink.rv), (Some(at(19)), Some(20)));
    assert_eq!(desk.machine.stats().stalls, 0);
    assert_eq!(desk.due(), at(126));
}

#[test]
fn bookmark_in_verification_proves_silence() {
    let (mut desk, watch, look) = Desk::looking(1);
    desk.bookmark(look, 19);
    assert_eq!((desk.sink.rv, desk.sink.fresh), (Some(19), Some(at(0))));
    assert_eq!(desk.machine.poll_action(), None, "not as far as the probe");
    desk.bookmark(look, 21);
    assert_eq!((desk.sink.rv, desk.sink.fresh), (Some(21), Some(at(19))));
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: look }));
    // The stream is the same as before, and its late event is known.
    desk.change(watch, 20);
    assert_eq!(desk.sink.batches, 0);
    desk.change(watch, 22);
    assert_eq!(desk.sink.batches, 1);
}

#[test]
fn empty_verification_is_repeated_with_backoff() {
    let (mut desk, _, look) = Desk::looking(1);
    desk.give(Input::Closed { id: look });
    assert_eq!(desk.machine.state().condition, Condition::Degraded(Degradation::Stalled));
    // Twice the grace, plus up to a quarter at random; then four times.
    let wait = desk.due().since(desk.now);
    assert!(wait >= secs(30) && wait <= secs(38), "{wait:?}");
    desk.machine.poll_action();
    let look = desk.watches().id;
    desk.give(Input::Failed { id: look, failure: Failure::Malformed { reason: "x".into() } });
    let wait = desk.due().since(desk.now);
    assert!(wait >= secs(60) && wait <= secs(75), "{wait:?}");
}

/// Checks Events: a kube-apiserver keeps no watch cache of them, and sends no bookmarks.
#[test]
fn equal_comparison_proves_server_without_bookmarks() {
    let (mut desk, watch, look) = Desk::looking(1);
    desk.sink.compares = true;
    desk.give(Input::Closed { id: look });
    assert_eq!((desk.sink.comparisons, desk.machine.poll_action()), (1, None));
    assert_eq!(desk.machine.state().condition, Condition::Watching, "nothing is wrong");
    desk.at(40);
    desk.compared(39, 40, 20);
    assert_eq!((desk.sink.fresh, desk.sink.rv), (Some(at(39)), Some(10)), "what came and went may be due");
    assert!(desk.due() > at(120), "no probe is ahead any more");
    // From now on there is no look, and no comparison before the age must be proven.
    desk.at(50);
    desk.probe(49, 30);
    assert_eq!(desk.due(), at(99));
    desk.at(99);
    desk.give(Input::Timeout);
    assert_eq!((desk.sink.comparisons, desk.machine.poll_action()), (2, None));
    desk.compared(100, 101, 40);
    assert_eq!(desk.sink.fresh, Some(at(100)));
    // A bookmark ends that, and after a change neither is needed.
    desk.at(110);
    desk.probe(109, 41);
    desk.change(watch, 41);
    assert_eq!(desk.sink.fresh, Some(at(109)));
    desk.bookmark(watch, 42);
    desk.probe(110, 50);
    assert_eq!(desk.due(), at(125), "the stream has 15 s, and then there is a look");
}

#[test]
fn overdue_comparison_reports_stall() {
    let (mut desk, _, look) = Desk::looking(1);
    desk.sink.compares = true;
    desk.give(Input::Closed { id: look });
    assert_eq!(desk.due(), desk.now + secs(30));
    desk.now = desk.due();
    desk.give(Input::Timeout);
    assert_eq!(desk.machine.state().condition, Condition::Degraded(Degradation::Stalled));
    // It comes late, and shows that nothing is missing.
    desk.compared(70, 71, 20);
    assert_eq!(desk.machine.state().condition, Condition::Watching);
    assert_eq!(desk.sink.fresh, Some(at(70)));
}

#[test]
fn undelivered_difference_reports_stall() {
    let (mut desk, watch, look) = Desk::looking(1);
    desk.sink.compares = true;
    desk.give(Input::Closed { id: look });
    desk.differs(20);
    assert_eq!(desk.due(), desk.now + secs(2), "it may be on its way");
    assert_eq!(desk.machine.state().condition, Condition::Watching);
    desk.now = desk.due();
    desk.give(Input::Timeout);
    assert_eq!(desk.machine.state().condition, Condition::Degraded(Degradation::Stalled));
    let reason = desk.machine.state().reason.clone().expect("a reason").to_string();
    assert!(reason.contains("never brought 20"), "{reason}");
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
    desk.give(Input::Timeout);
    let next = desk.watches();
    assert_eq!((next.avoid, next.retire_avoided), (Some(watch), true));
}

#[test]
fn delivered_difference_keeps_stream() {
    let (mut desk, watch, look) = Desk::looking(1);
    desk.sink.compares = true;
    desk.give(Input::Closed { id: look });
    desk.differs(20);
    let grace = desk.due();
    desk.change(watch, 15);
    assert!(desk.due() > grace, "{:?}", desk.due());
    desk.now = grace;
    desk.give(Input::Timeout);
    assert_eq!(desk.machine.state().condition, Condition::Watching);
    assert_eq!(desk.machine.poll_action(), None);
}

#[test]
fn difference_already_delivered_is_ignored() {
    let (mut desk, watch, look) = Desk::looking(1);
    desk.sink.compares = true;
    desk.give(Input::Closed { id: look });
    let due = desk.due();
    desk.change(watch, 15);
    desk.differs(15);
    assert_eq!(desk.due(), due);
}

#[test]
fn comparison_of_replaced_content_proves_nothing() {
    let (mut desk, watch, look) = Desk::looking(1);
    desk.sink.compares = true;
    desk.give(Input::Closed { id: look });
    desk.give(Input::Relist);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
    let list = desk.asks().id();
    desk.list(list, Vec::new(), 15);
    let listed = desk.sink.fresh;
    let again = desk.watches().id;
    desk.give(Input::Opened { id: again });
    assert!(listed > Some(at(35)));
    desk.compared(35, 35, 20);
    assert_eq!(desk.sink.fresh, listed);
}

#[test]
fn late_change_revokes_proof_of_comparison() {
    let (mut desk, watch, look) = Desk::looking(1);
    let before = desk.sink.fresh;
    desk.sink.compares = true;
    desk.give(Input::Closed { id: look });
    desk.at(40);
    desk.compared(39, 40, 20);
    assert_eq!(desk.sink.fresh, Some(at(39)));
    // An object created at 15 and deleted at 18: in between, the content is older than the comparison.
    desk.at(41);
    desk.change(watch, 15);
    assert_eq!(desk.sink.fresh, before);
    desk.change(watch, 18);
    assert_eq!(desk.sink.fresh, before, "more may have happened up to the list");
    desk.change(watch, 21);
    assert_eq!(desk.sink.fresh, Some(at(39)), "the content has all that the list had");
    // A change newer than the list takes no proof back.
    desk.at(50);
    desk.probe(45, 30);
    desk.compared(49, 50, 30);
    desk.at(51);
    desk.change(watch, 31);
    assert_eq!(desk.sink.fresh, Some(at(49)));
}

#[test]
fn comparison_of_changed_content_acts_as_probe() {
    let (mut desk, watch, look) = Desk::looking(1);
    let before = desk.sink.fresh;
    desk.sink.compares = true;
    desk.give(Input::Closed { id: look });
    desk.at(40);
    desk.change(watch, 15);
    desk.compared(39, 40, 30);
    assert_eq!(desk.sink.fresh, before);
    desk.change(watch, 31);
    assert_eq!(desk.sink.fresh, Some(at(39)));
}

/// Checks a reopened watch of Events after the kube-apiserver has compacted its RV.
#[test]
fn expired_reopening_relists_without_failure() {
    for in_the_stream in [false, true] {
        let (mut desk, watch) = Desk::watching(1);
        desk.at(400);
        desk.give(Input::Closed { id: watch });
        desk.now = desk.due();
        desk.give(Input::Timeout);
        let again = desk.watches().id;
        if in_the_stream {
            desk.give(Input::Opened { id: again });
            let gone = Ok(WatchEvent::Error(Box::new(expired())));
            desk.give(Input::Events { id: again, events: vec![gone] });
        } else {
            desk.fail(again, 410);
        }
        while let Some(action) = desk.machine.poll_action() {
            assert_eq!(action, Action::Cancel { id: again });
        }
        assert_eq!(desk.machine.state().condition, Condition::Connecting, "nothing has failed");
        assert!(desk.due() < desk.now + secs(1));
        desk.now = desk.due();
        desk.give(Input::Timeout);
        let list = desk.asks().id();
        desk.give(Input::Opened { id: list });
        assert_eq!(desk.machine.state().condition, Condition::Connecting);
        desk.list(list, Vec::new(), 500);
        let next = desk.watches().id;
        desk.give(Input::Opened { id: next });
        assert_eq!(desk.machine.state().condition, Condition::Watching);
        assert_eq!(desk.machine.state().reason, None);
        // A watch that is open, and gets it later, has missed changes.
        desk.now = desk.now + secs(60);
        desk.fail(next, 410);
        assert_eq!(desk.machine.state().condition, Condition::Retrying);
    }
}

#[test]
fn lost_verification_requests_no_comparison() {
    let (mut desk, _, look) = Desk::looking(1);
    desk.sink.compares = true;
    desk.lose(look);
    assert_eq!(desk.sink.comparisons, 0);
    assert_eq!(desk.machine.state().condition, Condition::Degraded(Degradation::Stalled));
}

#[test]
fn drops_overtaken_probe() {
    let (mut desk, watch) = Desk::watching(1);
    desk.at(5);
    desk.probe(1, 20);
    desk.probe(4, 25);
    // Overtaken: sent earlier, or with a lower RV.
    desk.probe(3, 26);
    desk.probe(5, 24);
    desk.change(watch, 24);
    assert_eq!(desk.sink.fresh, Some(at(1)));
    desk.change(watch, 25);
    assert_eq!(desk.sink.fresh, Some(at(4)));
    desk.change(watch, 30);
    assert_eq!(desk.sink.fresh, Some(at(4)));
}

#[test]
fn partly_caught_up_stream_keeps_verification() {
    let (mut desk, watch) = Desk::watching(1);
    desk.at(20);
    desk.probe(18, 20);
    desk.probe(19, 30);
    let look = desk.looks(35);
    desk.change(watch, 20);
    assert_eq!(desk.sink.fresh, Some(at(18)));
    assert_eq!(desk.machine.poll_action(), None, "30 is still to come");
    desk.change(watch, 30);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: look }));
}

/// Answers the next list, with one object.
fn list(desk: &mut Desk, rv: u64) -> ListRequest {
    let list = loop {
        match desk.asks() {
            Action::Cancel { .. } => {}
            Action::List(list) => break list,
            other => panic!("{other:?}"),
        }
    };
    desk.give(Input::Opened { id: list.id });
    desk.give(Input::ListEnd { id: list.id, resource_version: Some(rv.into()), continue_token: None });
    list
}

#[test]
fn probe_below_own_version_relists_elsewhere() {
    let (mut desk, watch) = Desk::watching(1);
    desk.at(100);
    desk.probe(99, 5);
    assert_eq!(desk.machine.state().condition, Condition::Retrying);
    assert_eq!(list(&mut desk, 6).avoid, Some(watch));
    assert_eq!((desk.sink.epoch, desk.sink.rv), (1, Some(6)));
    let commit = desk.sink.commits.last().unwrap();
    assert_eq!((commit.cause, commit.gap), (ReplaceCause::Rollback, true));
    assert_eq!((desk.machine.stats().rollbacks, desk.machine.stats().regressed_lists), (1, 0));
    assert!(desk.sink.fresh.is_some_and(|fresh| fresh >= at(100)));
}

#[test]
fn probe_below_earlier_probe_relists_elsewhere() {
    let (mut desk, watch) = Desk::watching(1);
    desk.at(20);
    desk.probe(19, 40);
    // In flight together with the other.
    desk.at(21);
    desk.probe(19, 30);
    assert_eq!(desk.machine.state().condition, Condition::Watching);
    desk.at(31);
    desk.probe(30, 30);
    assert_eq!(desk.machine.state().condition, Condition::Retrying);
    let reason = desk.machine.state().reason.as_ref().expect("a reason").to_string();
    assert_eq!(reason, "the server is at resourceVersion 30, but 40 was seen before");
    assert_eq!(list(&mut desk, 30).avoid, Some(watch));
    // Our content is of this history too.
    assert_eq!((desk.sink.epoch, desk.sink.rv), (0, Some(30)));
    assert_eq!(desk.sink.commits.last().expect("one").cause, ReplaceCause::Rollback);
    let watch = desk.watches().id;
    desk.give(Input::Opened { id: watch });
    let opened = desk.now;
    desk.now = desk.due();
    desk.give(Input::Timeout);
    assert_eq!(desk.due(), opened + secs(90), "nobody waits for 40 in this history");
}

#[test]
fn probe_sent_before_change_is_no_rollback() {
    let (mut desk, watch) = Desk::watching(1);
    desk.at(50);
    desk.change(watch, 20);
    desk.probe(49, 15);
    assert_eq!(desk.machine.poll_action(), None);
    assert_eq!(desk.sink.fresh, Some(at(49)), "and what it saw is here");
}

#[test]
fn second_lower_list_confirms_regression() {
    for second in [9, 11] {
        let (mut desk, _) = Desk::watching(1);
        desk.at(100);
        desk.give(Input::Relist);
        let first = list(&mut desk, 8);
        assert_eq!((desk.sink.rv, desk.sink.epoch), (Some(10), 0), "one server may be wrong");
        assert_eq!(desk.machine.stats().regressed_lists, 1);
        assert!(!desk.sink.is_staging());
        assert_eq!(list(&mut desk, second).avoid, Some(first.id));
        assert_eq!((desk.sink.rv, desk.sink.epoch), (Some(second), u64::from(second < 10)));
    }
}

#[test]
fn running_list_satisfies_relist_request() {
    let mut desk = Desk::new(1);
    let first = desk.asks().id();
    desk.give(Input::Relist);
    assert_eq!((desk.machine.poll_action(), desk.due()), (None, at(45)));
    desk.give(Input::Opened { id: first });
    desk.give(Input::Relist);
    assert_eq!(desk.machine.poll_action(), None);
    assert_eq!(desk.machine.stats().relists, 0);
}

#[test]
fn verification_waits_for_request_budget() {
    let (mut desk, watch) = Desk::watching(1);
    // A list and a watch were requested already; the maximum is six.
    let watch = desk.reopens(watch, 4);
    desk.bookmark(watch, 10);
    let begun = desk.now;
    assert!(begun < at(20));
    desk.give(Input::Probed { sent_at: begun, resource_version: 20.into() });
    assert_eq!(desk.due(), begun + secs(15));
    desk.now = begun + secs(15);
    desk.give(Input::Timeout);
    assert_eq!(desk.machine.poll_action(), None);
    assert!(desk.due() >= at(60), "{}", desk.due());
    assert!(desk.watches().verification);
}

#[test]
fn stalled_state_lasts_until_next_stream_delivers() {
    let (mut desk, watch, look) = Desk::looking(1);
    desk.at(45);
    desk.give(Input::Timeout);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: look }));
    let stalled = Condition::Degraded(Degradation::Stalled);
    assert_eq!(desk.machine.state().condition, stalled);
    // The server ends it, and the next one is silent too.
    desk.give(Input::Closed { id: watch });
    let again = desk.watches().id;
    desk.give(Input::Opened { id: again });
    assert_eq!(desk.machine.state().condition, stalled);
    desk.change(again, 20);
    assert_eq!(desk.machine.state().condition, Condition::Watching);
}

#[test]
fn repeated_probe_keeps_proven_time() {
    let (mut desk, _) = Desk::watching(1);
    desk.at(80);
    desk.probe(79, 10);
    desk.probe(79, 10);
    desk.probe(78, 10);
    assert_eq!(desk.sink.fresh, Some(at(79)));
}

#[test]
fn bookmark_resets_verification_backoff() {
    let (mut desk, watch, look) = Desk::looking(1);
    desk.give(Input::Closed { id: look });
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: look }));
    desk.at(40);
    desk.bookmark(watch, 15);
    assert_eq!(desk.machine.state().condition, Condition::Watching, "something came through");
    let look = desk.watches().id;
    desk.give(Input::Closed { id: look });
    let wait = desk.due().since(desk.now);
    assert!(wait >= secs(30) && wait <= secs(38), "as after the first: {wait:?}");
}

#[test]
fn reopened_stream_skips_verification_backoff() {
    let (mut desk, watch, look) = Desk::looking(1);
    desk.give(Input::Closed { id: look });
    desk.machine.poll_action();
    desk.at(40);
    desk.lose(watch);
    let again = desk.watches().id;
    desk.give(Input::Opened { id: again });
    assert_eq!(desk.due(), desk.now + secs(2));
    assert!(desk.watches().verification);
}

#[test]
fn rollback_discards_earlier_probes() {
    let (mut desk, _) = Desk::watching(1);
    desk.at(20);
    desk.probe(19, 20);
    desk.at(21);
    desk.probe(20, 5);
    list(&mut desk, 6);
    assert_eq!((desk.sink.epoch, desk.sink.rv), (1, Some(6)));
    let watch = desk.watches().id;
    desk.give(Input::Opened { id: watch });
    // The remaining timers: the reflector has recovered, and the stream must not be silent too long.
    assert_eq!(desk.due(), desk.now + secs(5));
    let opened = desk.now;
    desk.now = desk.due();
    desk.give(Input::Timeout);
    assert_eq!(desk.due(), opened + secs(90), "nobody waits for 20 in this history");
}

/// Checks a history that has come back to our RV, while the list that would decide is refused.
#[test]
fn probe_proves_nothing_during_suspected_rollback() {
    let (mut desk, _) = Desk::watching(1);
    desk.at(20);
    desk.probe(19, 10);
    assert_eq!(desk.sink.fresh, Some(at(19)));
    desk.at(21);
    desk.probe(20, 5);
    assert_eq!(desk.machine.poll_action().map(|action| matches!(action, Action::Cancel { .. })), Some(true));
    let refused = desk.asks().id();
    desk.fail(refused, 403);
    desk.at(30);
    desk.probe(29, 10);
    assert_eq!(desk.sink.fresh, Some(at(19)));
    // The list decides, and the probe from meanwhile counts.
    list(&mut desk, 10);
    assert!(desk.sink.fresh > Some(at(29)) && desk.sink.epoch == 0);
}

#[test]
fn successful_verification_is_not_repeated_for_15s() {
    let (mut desk, _) = Desk::watching(1);
    let look = desk.looks(90);
    desk.bookmark(look, 10);
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: look }));
    desk.at(92);
    desk.probe(91, 20);
    assert_eq!(desk.due(), at(105));
}

#[test]
fn keeps_oldest_and_newest_probes() {
    let (mut desk, watch) = Desk::watching(1);
    desk.at(12);
    for (sent_at, rv) in (1..=3).zip(20..) {
        desk.probe(sent_at, rv);
    }
    desk.change(watch, 21);
    assert_eq!(desk.sink.fresh, Some(at(2)), "of three each is known");
    for (sent_at, rv) in (4..=11).zip(23..) {
        desk.probe(sent_at, rv);
    }
    // 22 was seen in second 3, 23 in second 4, and 30 in second 11.
    desk.change(watch, 22);
    assert_eq!(desk.sink.fresh, Some(at(3)));
    desk.change(watch, 30);
    assert_eq!(desk.sink.fresh, Some(at(11)));
}

/// Checks that an outage does not count as time in which a stream withheld a probe's change.
#[test]
fn outage_does_not_count_towards_stall_limit() {
    for outage in [false, true] {
        let (mut desk, mut watch) = Desk::watching(1);
        desk.at(20);
        desk.probe(19, 20);
        desk.at(30);
        desk.lose(watch);
        watch = desk.watches().id;
        if outage {
            desk.at(200);
            let retry_at = Some(at(210));
            let failure =
                Failure::Connection { trouble: Trouble::CannotConnect, reason: "refused".into(), retry_at };
            desk.give(Input::Failed { id: watch, failure });
            watch = desk.watches().id;
        }
        desk.at(220);
        desk.probe(219, 20);
        desk.give(Input::Opened { id: watch });
        assert_eq!(desk.machine.exceeds_stall_limit(0), !outage);
    }
}

#[test]
fn unanswered_watch_counts_as_failure_and_relists() {
    let (mut desk, watch) = Desk::watching(1);
    desk.at(20);
    desk.probe(19, 20);
    desk.at(30);
    desk.lose(watch);
    let again = desk.watches().id;
    desk.at(300);
    desk.probe(299, 20);
    let before = desk.machine.stats().failures;
    desk.lose(again);
    assert_eq!((desk.machine.stats().failures, desk.machine.stats().relists), (before + 1, 1));
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: again }));
    assert!(matches!(desk.acts(), Action::List(_)));
}
