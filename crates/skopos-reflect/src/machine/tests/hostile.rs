//! The machine against a server that sends anything at any time, in any order, read from bytes. There is no truth to compare
//! with. But nothing panics, the sink is called in order (the recorder checks that), RVs never go back inside an epoch, no
//! timer spins, and the load stays within its budget.

use std::time::Duration;

use skopos_wire::{BrokenFrame, Limits, ObjectKey, RawObject, ResourceVersion, Status, WatchEvent};

use super::recorder::Recorder;
use super::server::object;
use super::world::{Asked, World};
use crate::Time;
use crate::machine::*;

/// Runs a conversation read from any bytes. The more bytes, the longer it is.
pub(super) fn converse(bytes: &[u8]) {
    let mut words = Words(bytes.iter());
    let mut conversation = Conversation::new(&mut words);
    while !words.0.as_slice().is_empty() && conversation.steps < LONGEST {
        conversation.step(&mut words);
    }
    conversation.end();
}

const LONGEST: usize = 400;

struct Words<'a>(std::slice::Iter<'a, u8>);

impl Words<'_> {
    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn version(&mut self) -> u64 {
        // Near each other, so that they collide; sometimes beyond etcd's range.
        match self.byte() {
            255 => u64::MAX - u64::from(self.byte()),
            small => u64::from(small),
        }
    }

    fn name(&mut self) -> String {
        format!("o{}", self.byte() % 4)
    }

    fn object(&mut self) -> RawObject {
        let (name, uid, rv) = (self.name(), self.byte() % 4, self.version());
        object(&name, uid.into(), rv)
    }

    fn item(&mut self) -> Result<RawObject, BrokenItem> {
        match self.byte() % 4 {
            0 => Err(BrokenItem { key: self.key(), reason: "broken".into() }),
            _ => Ok(self.object()),
        }
    }

    fn key(&mut self) -> Option<ObjectKey> {
        (!self.byte().is_multiple_of(3)).then(|| ObjectKey::namespaced("ns", self.name()))
    }

    fn event(&mut self) -> Result<WatchEvent, BrokenFrame> {
        Ok(match self.byte() % 8 {
            0 => WatchEvent::Added(self.object()),
            1 | 2 => WatchEvent::Modified(self.object()),
            3 => WatchEvent::Deleted(self.object()),
            4 | 5 => WatchEvent::Bookmark {
                resource_version: self.version().into(),
                initial_events_end: self.byte().is_multiple_of(2),
            },
            6 => WatchEvent::Error(Box::new(self.status())),
            _ => return Err(self.broken_frame()),
        })
    }

    fn broken_frame(&mut self) -> BrokenFrame {
        let broken = WatchEvent::parse("garbage".into(), &Limits::default()).unwrap_err();
        BrokenFrame {
            key: self.key(),
            resource_version: (!self.byte().is_multiple_of(3)).then(|| self.version().into()),
            event_type: self.byte().is_multiple_of(2).then(|| "DELETED".into()),
            ..broken
        }
    }

    fn status(&mut self) -> Status {
        let reasons =
            ["Expired", "Gone", "Timeout", "TooManyRequests", "InternalError", "StorageReadError", ""];
        let reason = reasons[usize::from(self.byte()) % reasons.len()];
        let cause = ["ResourceVersionTooLarge", "Other"][usize::from(self.byte() % 2)];
        let (code, retry) = (self.code(), self.byte());
        let text = format!(
            r#"{{"kind":"Status","status":"Failure","message":"m","reason":"{reason}","code":{code},
                "details":{{"causes":[{{"reason":"{cause}"}}],"retryAfterSeconds":{retry}}}}}"#
        );
        Status::from_slice(text.as_bytes()).unwrap()
    }

    fn code(&mut self) -> u16 {
        [200, 301, 400, 401, 403, 404, 409, 410, 422, 429, 500, 503, 504, 999][usize::from(self.byte()) % 14]
    }

    fn failure(&mut self) -> Failure {
        match self.byte() % 4 {
            0 => Failure::Malformed { reason: "malformed".into() },
            1 => Failure::Connection {
                // Neither "cannot connect", which is no load for the server, nor "closed", which is the end.
                trouble: [Trouble::Lost, Trouble::TimedOut, Trouble::NoCredentials, Trouble::Protocol]
                    [usize::from(self.byte() % 4)],
                reason: "trouble".into(),
                retry_at: None,
            },
            _ => Failure::Answer {
                code: self.code(),
                status: self.byte().is_multiple_of(2).then(|| Box::new(self.status())),
                retry_after: self.byte().is_multiple_of(4).then(|| Duration::from_secs(self.byte().into())),
            },
        }
    }

    fn many<T>(&mut self, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.byte() % 5).map(|_| one(self)).collect()
    }
}

struct Conversation {
    machine: Machine,
    sink: Recorder,
    now: Time,
    steps: usize,
    /// All requests except pages.
    asked: Vec<(Time, Asked)>,
    ids: Vec<RequestId>,
    /// True if an input from outside made it send requests too.
    urged: bool,
}

impl Conversation {
    fn new(words: &mut Words<'_>) -> Self {
        let flags = words.byte();
        let resume = (flags & 4 > 0).then(|| Resume { resource_version: 20.into(), epoch: 1 });
        let options = MachineOptions {
            initial: if flags & 1 > 0 { InitialList::Streamed } else { InitialList::Paged },
            content: if flags & 2 > 0 { Content::Changes } else { Content::Objects },
            page_size: (flags & 8 > 0).then_some(2),
            resume: resume.clone(),
            ..MachineOptions::default()
        };
        let mut sink = Recorder::new(options.content);
        if let Some(resume) = resume {
            sink.keep(
                resume.resource_version.as_u64().expect("a number"),
                Default::default(),
                Default::default(),
            );
            sink.epoch = resume.epoch;
        }
        Conversation {
            machine: Machine::new(options, u64::from(words.byte()), Time::ORIGIN),
            sink,
            now: Time::ORIGIN,
            steps: 0,
            asked: Vec::new(),
            ids: Vec::new(),
            urged: false,
        }
    }

    fn step(&mut self, words: &mut Words<'_>) {
        self.steps += 1;
        let kind = words.byte();
        // Mostly the last request, sometimes an earlier one.
        let back = if kind >= 192 { usize::from(words.byte() % 4) } else { 0 };
        let id = self.ids.iter().rev().nth(back).copied();
        match (kind % 16, id) {
            (0, _) => self.pass(Duration::from_millis(10) * u32::from(words.byte())),
            (1, _) => self.pass(Duration::from_secs(1) * u32::from(words.byte())),
            (2, _) => {
                let due = self.machine.poll_timeout().unwrap_or(self.now);
                self.pass(due.since(self.now));
            }
            (3, _) => {
                let sent_at = self.now - Duration::from_secs(u64::from(words.byte() % 16));
                self.give(Input::Probed { sent_at, resource_version: words.version().into() });
            }
            (4, _) => match words.byte() % 8 {
                0 => {
                    self.urged = true;
                    self.give(Input::Relist);
                }
                1 => {
                    self.urged = true;
                    self.give(Input::Suspended { by: Duration::from_secs(60) });
                }
                2 => self.give(Input::RetryNow),
                _ => self.give(Input::Timeout),
            },
            (_, None) => self.pass(Duration::from_millis(100)),
            (5 | 6, Some(id)) => self.give(Input::Opened { id }),
            (7 | 8, Some(id)) => self.give(Input::Items { id, items: words.many(Words::item) }),
            (9, Some(id)) => self.give(Input::ListEnd {
                id,
                resource_version: (!words.byte().is_multiple_of(8)).then(|| words.version().into()),
                continue_token: match words.byte() % 6 {
                    0 => Some("next".into()),
                    3 => Some("further".into()),
                    _ => None,
                },
            }),
            (10..=12, Some(id)) => self.give(Input::Events { id, events: words.many(Words::event) }),
            (13, Some(id)) => {
                let object = words.item().map(|object| (!words.byte().is_multiple_of(4)).then_some(object));
                self.give(Input::Got { id, object });
            }
            (14, Some(id)) => self.give(Input::Closed { id }),
            (_, Some(id)) => self.give(Input::Failed { id, failure: words.failure() }),
        }
    }

    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(due) = self.machine.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            let mut turns = 0;
            while self.machine.poll_timeout().is_some_and(|due| due <= self.now) {
                turns += 1;
                assert!(turns < 10, "a timer spins: {:?}", self.machine);
                self.give(Input::Timeout);
            }
        }
        self.now = end;
    }

    fn give(&mut self, input: Input) {
        self.machine.handle(self.now, input, &mut self.sink);
        self.sink.deliveries.clear();
        let rv = self.machine.resource_version().and_then(ResourceVersion::as_u64);
        assert_eq!(rv, self.sink.rv, "the machine and the sink stand at the same RV");
        assert_eq!(self.machine.epoch(), self.sink.epoch);
        while let Some(action) = self.machine.poll_action() {
            self.act(&action);
        }
    }

    fn act(&mut self, action: &Action) {
        if let Action::Cancel { id } = action {
            assert!(self.ids.contains(id), "{id} was never asked for");
            return;
        }
        let last = self.ids.last();
        assert!(last.is_none_or(|last| *last < action.id()), "numbers are not used again");
        self.ids.push(action.id());
        match action {
            Action::List(ListRequest { continue_token: Some(_), .. }) => {}
            Action::List(_) => self.asked.push((self.now, Asked::List)),
            Action::Watch(WatchRequest { start: WatchStart::InitialEvents, .. }) => {
                self.asked.push((self.now, Asked::Stream));
            }
            Action::Watch(WatchRequest { start: WatchStart::After(rv), .. }) => {
                let goes_on = self.sink.goes_on_after(rv.as_u64());
                assert!(goes_on, "a watch goes on where the content stands (I5)");
                self.asked.push((self.now, Asked::Watch));
            }
            // A GET. For other crates there could be further actions.
            _ => self.asked.push((self.now, Asked::Get)),
        }
    }

    fn end(mut self) {
        let worst = World::worst_minute(self.asked.iter().map(|(at, _)| *at));
        assert!(self.urged || worst <= 6, "{worst} requests in a minute (I15): {:?}", self.asked);
        self.give(Input::Stop);
        assert!(self.machine.is_stopped() && self.machine.poll_timeout().is_none());
        for id in std::mem::take(&mut self.ids) {
            self.machine.handle(self.now, Input::Opened { id }, &mut self.sink);
        }
        assert!(self.machine.poll_action().is_none(), "nothing comes after the end");
    }
}
