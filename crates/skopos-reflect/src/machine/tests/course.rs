//! A sequence of events in a [`World`], from a property test or from the bytes of a fuzzer. It ends without faults, and then
//! the content must be the server's.

use std::time::Duration;

use skopos_wire::{ObjectKey, ResourceVersion, WatchEvent};

use super::server::object;
use super::world::{Fault, World};
use crate::Time;
use crate::machine::*;

#[derive(Clone, Debug)]
pub(super) struct Course {
    pub(super) seed: u64,
    pub(super) beginning: Beginning,
    /// The events, each with the time until the next.
    pub(super) events: Vec<(Event, Duration)>,
}

/// The start of the reflector.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beginning {
    pub(super) initial: InitialList,
    pub(super) content: Content,
    /// The reflector resumes from content that is this many changes behind.
    pub(super) resumed: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A new fault, or none.
    Fault(Fault),
    /// All connections break.
    Cut,
    /// The server forgets its history.
    Compact,
    /// A change whose frame cannot be decoded; `rotten`: nor can the object.
    Poison { rotten: bool },
    /// This many changes at once.
    Burst(u8),
    /// A backup is restored without another fault, and a probe has the time to detect it.
    RollBack,
    /// A list is requested.
    Relist,
    /// A hint that the server may be back.
    Hint,
    /// The process was suspended.
    Suspended,
    /// A probe whose response takes until the next event but one.
    SlowProbe,
    /// The timer is early.
    Timeout,
    /// An input comes for a finished request.
    Late(u8),
    /// The clock seems to go back.
    Back,
}

impl Course {
    /// Makes a course from any bytes.
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let mut bytes = bytes.iter().copied();
        let mut byte = || bytes.next();
        let seed = u64::from(byte().unwrap_or(0));
        let beginning = Beginning::from_byte(byte().unwrap_or(0));
        let mut events = Vec::new();
        while let (Some(kind), Some(detail), Some(pause)) = (byte(), byte(), byte()) {
            // Fine steps hit the times between two requests, coarse ones reach the deadlines.
            let pause = match pause {
                0..128 => Duration::from_millis(100) * u32::from(pause),
                _ => Duration::from_secs(u64::from(pause - 127)),
            };
            events.push((Event::from_bytes(kind, detail), pause));
            if events.len() == LONGEST {
                break;
            }
        }
        Course { seed, beginning, events }
    }

    /// Runs the course. The invariants are checked after every input, and the content at the end.
    pub(super) fn run(self) {
        let Beginning { initial, content, resumed } = self.beginning;
        let options = MachineOptions { initial, content, ..MachineOptions::default() };
        let mut world = World::beginning(self.seed, options, resumed);
        let poisoned = self.events.iter().filter(|(event, _)| matches!(event, Event::Poison { .. })).count();
        let mut probe = None;
        for (event, pause) in self.events {
            let slow = probe.take();
            happen(&mut world, event, &mut probe);
            world.run(pause);
            if let Some((sent_at, rv)) = slow {
                world.give(Input::Probed { sent_at, resource_version: rv });
            }
        }
        world.set(Fault::None);
        // Every object is written again in time, so that those set aside become readable too.
        world.run(secs(400));
        // A raw watch cannot skip all of them with a list.
        let one_by_one = if content == Content::Changes { poisoned } else { 0 };
        world.until(secs(300) + secs(60) * one_by_one as u32, |world| {
            let reflector = world.machine.state();
            // A watch that was just opened has not yet shown that it is healthy.
            world.is_equal() && reflector.condition == Condition::Watching && reflector.attempts == 0
        });
        assert!(world.now.since(world.sink.fresh.unwrap()) <= secs(60));
        world.give(Input::Stop);
        assert!(world.machine.is_stopped());
        world.run(secs(1));
    }
}

/// The maximum length: more events show nothing new.
const LONGEST: usize = 24;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn happen(world: &mut World, event: Event, probe: &mut Option<(Time, ResourceVersion)>) {
    match event {
        Event::Fault(fault) => world.set(fault),
        Event::Cut => world.cut_all(),
        Event::Compact => world.server.compacted = world.server.rv,
        Event::Poison { rotten } => {
            let entry = world.server.write(&mut world.rng);
            entry.poisoned = true;
            entry.rotten = rotten;
        }
        Event::Burst(changes) => {
            for _ in 0..changes {
                world.server.write(&mut world.rng);
            }
        }
        Event::RollBack => roll_back(world),
        Event::Relist => world.give(Input::Relist),
        Event::Hint => world.give(Input::RetryNow),
        Event::Suspended => world.give(Input::Suspended { by: secs(10) }),
        Event::SlowProbe => *probe = Some((world.now, world.server.rv.into())),
        Event::Timeout => world.give(Input::Timeout),
        Event::Late(what) => late(world, what),
        Event::Back => {
            let now = world.now;
            world.now = now - secs(20);
            world.give(Input::Timeout);
            world.now = now;
        }
    }
}

/// Rolls back, unless the RV could return to the content's before the next probe: no client could detect that.
fn roll_back(world: &mut World) {
    /// A number of changes with more RVs than 35 s of writes bring back.
    const CHANGES: usize = 150;
    if world.server.log.len() < CHANGES + 20 || !world.server.past.is_empty() {
        return;
    }
    world.set(Fault::None);
    world.run(secs(35));
    let content_is_far = world.sink.rv.is_some_and(|rv| world.server.rv - rv <= 20);
    if !content_is_far {
        return;
    }
    world.server.roll_back(CHANGES);
    world.run(secs(35));
}

/// Gives an input for a request that was given up or has ended: the machine must ignore it.
fn late(world: &mut World, what: u8) {
    let Some(id) = world.over(usize::from(what / 8)) else { return };
    let nonsense = object("late", 999, world.server.rv + 1000);
    let resource_version = Some((world.server.rv + 1000).into());
    world.give(match what % 8 {
        0 => Input::Opened { id },
        1 => Input::Items { id, items: vec![Ok(nonsense)] },
        2 => Input::ListEnd { id, resource_version, continue_token: None },
        3 => Input::Events { id, events: vec![Ok(WatchEvent::Modified(nonsense))] },
        4 => Input::Got { id, object: Ok(Some(nonsense)) },
        5 => Input::Got {
            id,
            object: Err(BrokenItem { key: Some(ObjectKey::namespaced("ns", "o1")), reason: "late".into() }),
        },
        6 => Input::Closed { id },
        _ => Input::Failed { id, failure: Failure::Malformed { reason: "late".into() } },
    });
}

impl Beginning {
    fn from_byte(flags: u8) -> Self {
        Beginning {
            initial: if flags & 1 == 0 { InitialList::Streamed } else { InitialList::Paged },
            content: if flags & 2 == 0 { Content::Objects } else { Content::Changes },
            resumed: (flags & 4 > 0).then_some(usize::from(flags >> 3) % World::CHANGES_BEFORE),
        }
    }
}

impl Event {
    fn from_bytes(kind: u8, detail: u8) -> Self {
        match kind % 24 {
            0 => Event::Cut,
            1 => Event::Compact,
            2 => Event::Poison { rotten: detail.is_multiple_of(2) },
            3 => Event::Burst(detail),
            4 => Event::RollBack,
            5 => Event::Relist,
            6 => Event::Hint,
            7 => Event::Suspended,
            8 => Event::SlowProbe,
            9 => Event::Timeout,
            10 => Event::Late(detail),
            11 => Event::Back,
            _ => Event::Fault(fault_from_byte(detail)),
        }
    }
}

fn fault_from_byte(byte: u8) -> Fault {
    let detail = byte / 19;
    match byte % 19 {
        0 => Fault::None,
        1 => Fault::Down,
        2 => Fault::Answer {
            code: [400, 401, 403, 404, 410, 429, 500, 502, 503, 504][usize::from(detail % 10)],
            retry_after: u64::from(detail),
            watches_only: detail.is_multiple_of(2),
        },
        3 => [Fault::Silence, Fault::StreamsUnanswered][usize::from(detail % 2)],
        4 => Fault::CloseAtOnce,
        5 => Fault::CutAtOnce,
        6 => Fault::CutAfterEvent,
        7 => Fault::Stall,
        8 => [Fault::StallAll, Fault::HeldToEnd][usize::from(detail % 2)],
        9 => Fault::NoBookmarks,
        10 => Fault::NoEndBookmark,
        11 => Fault::NoStreams,
        12 => Fault::Gone { event: detail.is_multiple_of(2) },
        13 => Fault::TooLarge,
        14 => Fault::CutLists,
        15 => Fault::ExpiredTokens,
        16 => Fault::Replays,
        17 => [Fault::Garbage, Fault::AllGarbage][usize::from(detail % 2)],
        _ => Fault::Flaky,
    }
}
