//! What the machine says and asks for, to the letter, step by step.

use std::time::Duration;

use skopos_wire::{BrokenFrame, Limits, ObjectKey, WatchEvent};

use super::recorder::Recorder;
use super::secs;
use super::server::object;
use crate::Time;
use crate::machine::backoff::Backoff;
use crate::machine::*;

fn at(seconds: u64) -> Time {
    Time::after_origin(secs(seconds))
}

struct Desk {
    machine: Machine,
    sink: Recorder,
    now: Time,
}

impl Desk {
    fn new(seed: u64) -> Self {
        let options = MachineOptions { initial: InitialList::Paged, ..MachineOptions::default() };
        Desk {
            machine: Machine::new(options, seed, Time::ORIGIN),
            sink: Recorder::default(),
            now: Time::ORIGIN,
        }
    }

    /// A watch stands at RV 10, where there is one object.
    fn watching(seed: u64) -> (Self, RequestId) {
        let mut desk = Desk::new(seed);
        let list = desk.asks().id();
        desk.give(Input::Opened { id: list });
        desk.give(Input::Items { id: list, items: vec![Ok(object("a", 1, 9))] });
        desk.give(Input::ListEnd { id: list, resource_version: Some(10.into()), continue_token: None });
        let watch = desk.asks().id();
        desk.give(Input::Opened { id: watch });
        assert_eq!(desk.machine.state().condition, Condition::Watching);
        (desk, watch)
    }

    fn give(&mut self, input: Input) {
        self.machine.handle(self.now, input, &mut self.sink);
    }

    fn fail(&mut self, id: RequestId, code: u16) {
        self.give(Input::Failed { id, failure: Failure::Answer { code, status: None, retry_after: None } });
    }

    fn change(&mut self, id: RequestId, rv: u64) {
        self.give(Input::Events { id, events: vec![Ok(WatchEvent::Modified(object("a", 1, rv)))] });
    }

    fn bookmark(&mut self, id: RequestId, rv: u64) {
        let bookmark = WatchEvent::Bookmark { resource_version: rv.into(), initial_events_end: false };
        self.give(Input::Events { id, events: vec![Ok(bookmark)] });
    }

    fn probe(&mut self, sent_at: u64, rv: u64) {
        self.give(Input::Probed { sent_at: at(sent_at), resource_version: rv.into() });
    }

    fn at(&mut self, seconds: u64) {
        self.now = at(seconds);
    }

    fn due(&self) -> Time {
        self.machine.poll_timeout().expect("something is always due")
    }

    /// The watch that is asked for next.
    fn watches(&mut self) -> WatchRequest {
        match self.asks() {
            Action::Watch(watch) => watch,
            other => panic!("{other:?}"),
        }
    }

    /// A second look, which is due at that moment.
    fn looks(&mut self, seconds: u64) -> RequestId {
        assert_eq!(self.due(), at(seconds), "a second look is due");
        let look = self.watches();
        assert!(look.second_look);
        self.give(Input::Opened { id: look.id });
        look.id
    }

    /// The one request that is asked for next, as soon as it is due.
    fn asks(&mut self) -> Action {
        let action = self.machine.poll_action().or_else(|| {
            self.now = self.now.max(self.machine.poll_timeout()?);
            self.give(Input::Timeout);
            self.machine.poll_action()
        });
        let action = action.expect("a request");
        assert_eq!(self.machine.poll_action(), None, "one at a time");
        action
    }
}

#[test]
fn after_a_suspend_the_watch_is_opened_again_at_the_same_place_elsewhere() {
    let (mut desk, old) = Desk::watching(1);
    desk.give(Input::Suspended { by: secs(60) });
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: old }));
    assert_eq!(desk.machine.state().retry_at, None, "there is nothing to wait for");
    assert!(desk.machine.state().reason.as_ref().is_some_and(|reason| reason.contains("60s")));
    let begun = desk.now;
    let Action::Watch(watch) = desk.asks() else { panic!("a watch") };
    assert_eq!(desk.now, begun);
    assert_eq!(watch.start, WatchStart::After(10.into()));
    assert_eq!((watch.avoid, watch.distrust), (Some(old), true));
    // What the old one says now is nobody's.
    desk.give(Input::Events { id: old, events: vec![Ok(WatchEvent::Modified(object("a", 1, 11)))] });
    assert_eq!(desk.machine.resource_version(), Some(&10.into()));
}

#[test]
fn a_failure_is_said_and_forgotten_when_the_link_works_again() {
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
fn a_hint_is_followed_within_half_a_second_not_by_all_at_once() {
    let mut moments = Vec::new();
    for seed in 0..50 {
        let (mut desk, watch) = Desk::watching(seed);
        // What was asked for before is paid for by now.
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
fn delays_double_and_have_a_random_part_of_up_to_30_percent() {
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
fn a_list_may_be_silent_for_45_seconds_between_any_two_signs_of_life() {
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

#[test]
fn a_page_continues_its_list_and_is_of_the_same_version() {
    let mut desk = Desk::new(1);
    let first = desk.asks().id();
    desk.give(Input::Opened { id: first });
    let end = |id, rv: u64, token: Option<&str>| Input::ListEnd {
        id,
        resource_version: Some(rv.into()),
        continue_token: token.map(Into::into),
    };
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
fn a_stream_that_outlives_its_time_is_ended_from_here() {
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
fn what_is_late_by_our_own_fault_is_not_held_against_the_peer() {
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

#[test]
fn silence_without_probes_is_looked_into_after_90_seconds() {
    let (mut desk, watch) = Desk::watching(1);
    desk.at(30);
    desk.change(watch, 11);
    assert_eq!(desk.due(), at(120));
    let look = desk.watches();
    assert_eq!(look.start, WatchStart::After(11.into()));
    assert_eq!((look.timeout, look.avoid, look.second_look), (secs(3), Some(watch), true));
    assert_eq!(desk.machine.stats().second_looks, 1);
    // It is given up after its own length and some seconds for the answer.
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
fn a_look_that_shows_what_the_stream_does_not_ends_the_stream() {
    let (mut desk, watch) = Desk::watching(1);
    desk.at(20);
    desk.probe(19, 20);
    let look = desk.looks(35);
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
    assert_eq!((again.avoid, again.distrust, desk.now), (Some(watch), true, at(37)));
}

#[test]
fn a_stream_that_brings_what_the_look_showed_is_left_alone() {
    let (mut desk, watch) = Desk::watching(1);
    desk.at(20);
    desk.probe(19, 20);
    let look = desk.looks(35);
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
fn a_look_that_shows_a_bookmark_proves_the_silence() {
    let (mut desk, watch) = Desk::watching(1);
    desk.at(20);
    desk.probe(19, 20);
    let look = desk.looks(35);
    desk.bookmark(look, 19);
    assert_eq!((desk.sink.rv, desk.sink.fresh), (Some(19), Some(at(0))));
    assert_eq!(desk.machine.poll_action(), None, "not as far as the probe");
    desk.bookmark(look, 21);
    assert_eq!((desk.sink.rv, desk.sink.fresh), (Some(21), Some(at(19))));
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: look }));
    // The stream is the same as before, and what it brings late is known.
    desk.change(watch, 20);
    assert_eq!(desk.sink.batches, 0);
    desk.change(watch, 22);
    assert_eq!(desk.sink.batches, 1);
}

#[test]
fn a_look_that_shows_nothing_is_said_and_repeated_ever_more_rarely() {
    let (mut desk, _) = Desk::watching(1);
    desk.at(20);
    desk.probe(19, 20);
    let look = desk.looks(35);
    desk.give(Input::Closed { id: look });
    assert_eq!(desk.machine.state().condition, Condition::Degraded(Degradation::Stalled));
    // Twice the grace, and a quarter more at random; then four times.
    let wait = desk.due().since(desk.now);
    assert!(wait >= secs(30) && wait <= secs(38), "{wait:?}");
    desk.machine.poll_action();
    let look = desk.watches().id;
    desk.give(Input::Failed { id: look, failure: Failure::Malformed { reason: "x".into() } });
    let wait = desk.due().since(desk.now);
    assert!(wait >= secs(60) && wait <= secs(75), "{wait:?}");
}

#[test]
fn a_probe_that_proves_less_than_a_later_one_is_forgotten() {
    let (mut desk, watch) = Desk::watching(1);
    desk.at(5);
    desk.probe(1, 20);
    desk.probe(4, 25);
    // Overtaken: sent earlier, or having seen less.
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
fn a_stream_that_comes_only_half_as_far_does_not_end_the_look() {
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

fn broken(name: &str, rv: u64) -> Input {
    let frame = BrokenFrame {
        key: Some(ObjectKey::namespaced("ns", name)),
        resource_version: Some(rv.into()),
        ..WatchEvent::parse("garbage".into(), &Limits::default()).unwrap_err()
    };
    Input::Events { id: RequestId(0), events: vec![Err(frame)] }
}

fn to(id: RequestId, input: Input) -> Input {
    match input {
        Input::Events { events, .. } => Input::Events { id, events },
        other => other,
    }
}

#[test]
fn a_broken_frame_is_believed_when_the_same_comes_again() {
    let (mut desk, mut watch) = Desk::watching(1);
    // Another version of the object, and another object: not the same.
    for (name, rv) in [("a", 11), ("a", 12), ("b", 12)] {
        desk.give(to(watch, broken(name, rv)));
        assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
        watch = desk.watches().id;
        desk.give(Input::Opened { id: watch });
    }
    desk.give(to(watch, broken("b", 12)));
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
    let Action::Get(get) = desk.asks() else { panic!("a read of b") };
    assert_eq!(get.key, ObjectKey::namespaced("ns", "b"));
    let begun = desk.now;
    assert_eq!(desk.due(), begun + secs(45));
    desk.give(Input::Got { id: get.id, object: Ok(Some(object("b", 2, 12))) });
    assert_eq!((desk.sink.rv, desk.sink.content["b"]), (Some(12), (2, 12)));
    assert_eq!(desk.watches().start, WatchStart::After(12.into()));
}

#[test]
fn an_object_that_is_newer_than_its_broken_frame_is_set_aside_until_its_event() {
    for object_now in [Ok(None), Ok(Some(object("b", 2, 14)))] {
        let (mut desk, watch) = Desk::watching(1);
        desk.give(to(watch, broken("b", 12)));
        desk.machine.poll_action();
        let watch = desk.watches().id;
        desk.give(Input::Opened { id: watch });
        desk.give(to(watch, broken("b", 12)));
        desk.machine.poll_action();
        let get = desk.asks().id();
        desk.give(Input::Got { id: get, object: object_now });
        assert_eq!(desk.sink.rv, Some(12), "the link goes on past it");
        assert!(!desk.sink.content.contains_key("b") && desk.sink.set_aside.contains("b"));
        let watch = desk.watches().id;
        desk.give(Input::Opened { id: watch });
        let degraded = Degradation::Undecodable { key: Some(ObjectKey::namespaced("ns", "b")), count: 1 };
        assert_eq!(desk.machine.state().condition, Condition::Degraded(degraded));
        // Another broken one of the same object is passed over; a good one ends it.
        desk.give(to(watch, broken("b", 13)));
        assert_eq!((desk.machine.poll_action(), desk.sink.rv), (None, Some(13)));
        desk.give(Input::Events { id: watch, events: vec![Ok(WatchEvent::Modified(object("b", 2, 14)))] });
        assert_eq!(desk.machine.state().condition, Condition::Watching);
    }
}

#[test]
fn an_unreadable_stream_is_opened_again_twice_then_all_is_listed_in_pages() {
    let options = MachineOptions::default();
    let mut desk = Desk {
        machine: Machine::new(options, 1, Time::ORIGIN),
        sink: Recorder::default(),
        now: Time::ORIGIN,
    };
    let mut watch = desk.watches().id;
    desk.give(Input::Opened { id: watch });
    let end = WatchEvent::Bookmark { resource_version: 10.into(), initial_events_end: true };
    desk.give(Input::Events { id: watch, events: vec![Ok(end)] });
    assert_eq!(desk.machine.state().condition, Condition::Watching);
    for times in 1..=3 {
        desk.now = desk.now + secs(61);
        desk.give(Input::Failed { id: watch, failure: Failure::Malformed { reason: "no JSON".into() } });
        assert_eq!(desk.machine.state().reason.as_deref(), Some("no JSON"));
        let action = match desk.asks() {
            Action::Cancel { .. } => desk.asks(),
            other => other,
        };
        match action {
            Action::Watch(again) if times < 3 => {
                assert_eq!(again.start, WatchStart::After(10.into()));
                watch = again.id;
                desk.give(Input::Opened { id: watch });
            }
            Action::List(list) if times == 3 => assert_eq!(list.limit, Some(500)),
            other => panic!("{times}: {other:?}"),
        }
    }
    assert_eq!(RequestId(7).to_string(), "#7");
}
