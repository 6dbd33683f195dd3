//! A machine driven by a test, which is server and clock: one input at a time, at any time.

use skopos_wire::{RawObject, WatchEvent};

use super::recorder::Recorder;
use super::secs;
use super::server::object;
use crate::Time;
use crate::machine::*;

pub(super) fn at(seconds: u64) -> Time {
    Time::after_origin(secs(seconds))
}

pub(super) struct Desk {
    pub(super) machine: Machine,
    pub(super) sink: Recorder,
    pub(super) now: Time,
}

impl Desk {
    pub(super) fn new(seed: u64) -> Self {
        let options = MachineOptions { initial: InitialList::Paged, ..MachineOptions::default() };
        Self::with(options, seed)
    }

    pub(super) fn with(options: MachineOptions, seed: u64) -> Self {
        let machine = Machine::new(options, seed, Time::ORIGIN);
        Desk { machine, sink: Recorder::default(), now: Time::ORIGIN }
    }

    /// Makes a desk with an open watch at RV 10, where there is one object.
    pub(super) fn watching(seed: u64) -> (Self, RequestId) {
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

    /// Makes a desk whose watch has not brought RV 20, which a probe saw in second 19, and whose second look opens in second
    /// 35. Returns the watch and the look, which is open.
    pub(super) fn looking(seed: u64) -> (Self, RequestId, RequestId) {
        let (mut desk, watch) = Self::watching(seed);
        desk.at(20);
        desk.probe(19, 20);
        let look = desk.looks(35);
        (desk, watch, look)
    }

    pub(super) fn give(&mut self, input: Input) {
        self.machine.handle(self.now, input, &mut self.sink);
        let told = self.sink.told.last();
        assert_eq!(told, Some(self.machine.state()), "the sink knows how the reflector stands");
    }

    pub(super) fn lose(&mut self, id: RequestId) {
        let failure = Failure::Connection { trouble: Trouble::Lost, reason: "reset".into(), retry_at: None };
        self.give(Input::Failed { id, failure });
    }

    pub(super) fn fail(&mut self, id: RequestId, code: u16) {
        self.give(Input::Failed { id, failure: Failure::Answer { code, status: None, retry_after: None } });
    }

    /// Refuses the watch this many times in a row, and reopens it each time. Returns the one open at the end.
    pub(super) fn reopens(&mut self, mut watch: RequestId, times: usize) -> RequestId {
        for _ in 0..times {
            self.fail(watch, 503);
            watch = self.watches().id;
            self.give(Input::Opened { id: watch });
        }
        watch
    }

    pub(super) fn change(&mut self, id: RequestId, rv: u64) {
        self.give(Input::Events { id, events: vec![Ok(WatchEvent::Modified(object("a", 1, rv)))] });
    }

    pub(super) fn bookmark(&mut self, id: RequestId, rv: u64) {
        let bookmark = WatchEvent::Bookmark { resource_version: rv.into(), initial_events_end: false };
        self.give(Input::Events { id, events: vec![Ok(bookmark)] });
    }

    pub(super) fn probe(&mut self, sent_at: u64, rv: u64) {
        self.give(Input::Probed { sent_at: at(sent_at), resource_version: rv.into() });
    }

    pub(super) fn compared(&mut self, sent_at: u64, compared_at: u64, rv: u64) {
        let (sent_at, compared_at) = (at(sent_at), at(compared_at));
        self.give(Input::Compared { sent_at, compared_at, resource_version: rv.into() });
    }

    pub(super) fn differs(&mut self, rv: u64) {
        self.give(Input::Differs { resource_version: rv.into() });
    }

    /// Answers a list as a whole.
    pub(super) fn list(&mut self, id: RequestId, objects: Vec<Result<RawObject, BrokenItem>>, rv: u64) {
        self.give(Input::Opened { id });
        self.give(Input::Items { id, items: objects });
        self.give(Input::ListEnd { id, resource_version: Some(rv.into()), continue_token: None });
    }

    pub(super) fn at(&mut self, seconds: u64) {
        self.now = at(seconds);
    }

    pub(super) fn due(&self) -> Time {
        self.machine.poll_timeout().expect("something is always due")
    }

    /// Returns the next watch request.
    pub(super) fn watches(&mut self) -> WatchRequest {
        match self.asks() {
            Action::Watch(watch) => watch,
            other => panic!("{other:?}"),
        }
    }

    /// Opens the second look that is due at that time.
    pub(super) fn looks(&mut self, seconds: u64) -> RequestId {
        assert_eq!(self.due(), at(seconds), "a second look is due");
        let look = self.watches();
        assert!(look.verification);
        self.give(Input::Opened { id: look.id });
        look.id
    }

    /// Returns the next action, after any number of timeouts.
    pub(super) fn acts(&mut self) -> Action {
        loop {
            if let Some(action) = self.machine.poll_action() {
                return action;
            }
            self.now = self.due().max(self.now);
            self.give(Input::Timeout);
        }
    }

    /// Returns the only next request, as soon as it is due.
    pub(super) fn asks(&mut self) -> Action {
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
