//! What the machine says and asks for, to the letter, step by step.

use std::time::Duration;

use skopos_wire::WatchEvent;

use super::recorder::Recorder;
use super::secs;
use super::server::object;
use crate::Time;
use crate::machine::backoff::Backoff;
use crate::machine::*;

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
