//! Machine, server and network, in steps of 100 ms of virtual time. The invariants are checked after each step.

use std::time::Duration;

use skopos_wire::{BrokenFrame, Limits, ObjectKey, RawObject, Status, WatchEvent};

use super::history::check_step;
use super::recorder::Recorder;
use super::server::{Content, Entry, Kind, Server, object};
use crate::machine::*;

/// A fault of the network or the server, for all requests, from the time it is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    None,
    /// No connection can be made, and open ones are cut.
    Down,
    /// An HTTP status to all requests, or only to watches, with a Retry-After. Open streams continue.
    Answer {
        code: u16,
        retry_after: u64,
        watches_only: bool,
    },
    /// Requests are never answered.
    Silence,
    /// Watches are opened and cleanly ended at once.
    CloseAtOnce,
    /// Watches are opened and cut at once.
    CutAtOnce,
    /// Watches are cut after each event.
    CutAfterEvent,
    /// The streams open when it is set bring nothing any more; later ones work.
    Stall,
    /// No stream brings anything, including second looks.
    StallAll,
    /// Watches and streamed lists are never answered, as through a proxy that waits for the whole response.
    StreamsUnanswered,
    /// Events come when their stream ends, as through a buffering proxy.
    HeldToEnd,
    /// Events come, but no bookmarks.
    NoBookmarks,
    /// Streamed lists do not end.
    NoEndBookmark,
    /// Streamed lists are refused with 422.
    NoStreams,
    /// 410 to every watch, as status or as event.
    Gone {
        event: bool,
    },
    /// "Too large resource version" to every watch.
    TooLarge,
    /// List bodies are cut in the middle.
    CutLists,
    /// Every continue token is expired.
    ExpiredTokens,
    /// Lists come from this many changes ago, once each.
    Regress {
        changes: usize,
        times: u32,
    },
    /// Old events are sent again.
    Replays,
    /// Every second frame is garbage on its first delivery.
    Garbage,
    /// Every frame is garbage.
    AllGarbage,
    /// Streams are cut at random.
    Flaky,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    List,
    Page,
    Stream,
    Watch,
    Look,
    Get,
}

/// A request in flight.
#[derive(Debug)]
struct Wire {
    id: RequestId,
    asked: Asked,
    action: Action,
    answer_at: Time,
    opened: bool,
    /// The RV up to which events were sent; `within` counts those sent at the next RV.
    cursor: u64,
    within: usize,
    /// A list's snapshot.
    snapshot: u64,
    ends_at: Time,
    bookmark_at: Time,
    stalled: bool,
    initial_sent: bool,
    last_bookmark_sent: bool,
}

pub(super) struct World {
    pub(super) machine: Machine,
    pub(super) sink: Recorder,
    pub(super) server: Server,
    pub(super) now: Time,
    pub(super) fault: Fault,
    pub(super) rng: fastrand::Rng,
    /// The requests and their times, without those that found no connection.
    pub(super) asked: Vec<(Time, Asked)>,
    /// The times at which the response of a list began.
    pub(super) served_lists: Vec<Time>,
    pub(super) writes_every: Option<Duration>,
    pub(super) probes_every: Option<Duration>,
    pub(super) page_size: usize,
    wires: Vec<Wire>,
    /// All requests so far.
    ids: Vec<RequestId>,
    next_write: Time,
    next_probe: Time,
    /// The server's RV at each step, for the check of proven ages.
    rvs: Vec<(Time, u64)>,
    garbled: Vec<u64>,
    /// The last correct content and its position: most checks continue from there.
    folded: (usize, u64, Content),
}

const STEP: Duration = Duration::from_millis(100);

impl World {
    /// The number of changes made before the reflector begins.
    pub(super) const CHANGES_BEFORE: usize = 20;

    pub(super) fn new(seed: u64, options: MachineOptions) -> Self {
        Self::beginning(seed, options, None)
    }

    /// Makes a world whose reflector may resume from older content, `resumed` changes behind.
    pub(super) fn beginning(seed: u64, mut options: MachineOptions, resumed: Option<usize>) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut server = Server::new();
        for _ in 0..Self::CHANGES_BEFORE {
            server.write(&mut rng);
        }
        let mut sink = Recorder::new(options.content);
        if let Some(behind) = resumed {
            let (before, after) = server.log.split_at(server.log.len() - behind);
            let rv = before.last().expect("more were made").rv;
            options.resume = Some(Resume { resource_version: rv.into(), epoch: 0 });
            // A caller that follows changes alone states that it has everything at that RV.
            let rest = after.partition_point(|entry| entry.rv == rv && sink.changes_only);
            let has = &server.log[..before.len() + rest];
            let here = has.iter().filter(|entry| entry.rv == rv).map(|entry| entry.name.clone()).collect();
            sink.keep(rv, Server::content_at(has, rv), here);
        }
        World {
            machine: Machine::new(options, seed, Time::ORIGIN),
            sink,
            server,
            now: Time::ORIGIN,
            fault: Fault::None,
            rng,
            asked: Vec::new(),
            served_lists: Vec::new(),
            writes_every: Some(Duration::from_secs(1)),
            probes_every: Some(Duration::from_secs(30)),
            page_size: 3,
            wires: Vec::new(),
            ids: Vec::new(),
            next_write: Time::ORIGIN,
            next_probe: Time::ORIGIN,
            rvs: Vec::new(),
            garbled: Vec::new(),
            folded: (0, 0, Content::new()),
        }
    }

    pub(super) fn synced(seed: u64, options: MachineOptions) -> Self {
        let mut world = World::new(seed, options);
        world.run(Duration::from_secs(3));
        assert!(world.is_equal(), "synced within 3 s");
        assert_eq!(world.machine.state().condition, Condition::Watching);
        world
    }

    pub(super) fn set(&mut self, fault: Fault) {
        self.fault = fault;
        match fault {
            Fault::Stall => self.wires.iter_mut().for_each(|wire| wire.stalled = true),
            Fault::Down => self.cut_all(),
            _ => {}
        }
    }

    pub(super) fn cut_all(&mut self) {
        for wire in std::mem::take(&mut self.wires) {
            self.give(Input::Failed { id: wire.id, failure: lost() });
        }
    }

    pub(super) fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.step();
        }
    }

    /// Runs until the condition holds, and returns the time that took.
    pub(super) fn until(&mut self, limit: Duration, mut holds: impl FnMut(&World) -> bool) -> Duration {
        let begun = self.now;
        while !holds(self) {
            assert!(self.now.since(begun) < limit, "not within {limit:?}: {:?}", self.machine.state());
            self.step();
        }
        self.now.since(begun)
    }

    pub(super) fn is_equal(&self) -> bool {
        self.sink.content == *self.server.newest() && !self.sink.is_staging()
    }

    pub(super) fn give(&mut self, input: Input) {
        self.machine.handle(self.now, input, &mut self.sink);
        self.check();
        while let Some(action) = self.machine.poll_action() {
            self.act(action);
        }
    }

    /// Returns a finished request: the last but `back`.
    pub(super) fn over(&self, back: usize) -> Option<RequestId> {
        let over = |id: &&RequestId| !self.wires.iter().any(|wire| wire.id == **id);
        self.ids.iter().rev().filter(over).nth(back).copied()
    }

    /// Returns the number of requests in the worst minute that starts at one of them.
    pub(super) fn worst_minute(times: impl Iterator<Item = Time> + Clone) -> usize {
        times
            .clone()
            .map(|start| {
                times.clone().filter(|at| *at >= start && at.since(start) < Duration::from_secs(60)).count()
            })
            .max()
            .unwrap_or(0)
    }

    fn step(&mut self) {
        self.now = self.now + STEP;
        if self.writes_every.is_some() && self.now >= self.next_write {
            self.next_write = self.now + self.writes_every.unwrap_or_default();
            self.server.write(&mut self.rng);
        }
        self.rvs.push((self.now, self.server.rv));
        while self.machine.poll_timeout().is_some_and(|at| at <= self.now) {
            self.give(Input::Timeout);
        }
        let up = !matches!(self.fault, Fault::Down | Fault::Silence);
        if let Some(every) = self.probes_every
            && self.now >= self.next_probe
        {
            self.next_probe = self.now + every;
            if up {
                let resource_version = self.server.rv.into();
                self.give(Input::Probed { sent_at: self.now, resource_version });
            }
        }
        let ids: Vec<_> = self.wires.iter().map(|wire| wire.id).collect();
        for id in ids {
            if let Some(index) = self.wires.iter().position(|wire| wire.id == id) {
                let wire = self.wires.swap_remove(index);
                self.serve(wire);
            }
        }
    }

    /// Checks the invariants that hold after every input.
    fn check(&mut self) {
        if !std::mem::take(&mut self.sink.stepped) {
            return;
        }
        let rv = self.sink.rv.expect("stepped");
        if std::mem::take(&mut self.sink.went_on) {
            // The content that a list would have brought; the changes from here on are compared with the log.
            self.sink.content = self.fold(rv);
        }
        let deliveries = std::mem::take(&mut self.sink.deliveries);
        // Until a rollback is detected, both histories are valid.
        if let Some(from) = self.sink.came_from.take()
            && self.sink.epoch as usize >= self.server.past.len()
        {
            check_step(from, (rv, self.sink.here.is_some()), &deliveries, &self.server.log);
        }
        assert_eq!(self.machine.resource_version().and_then(|rv| rv.as_u64()), Some(rv));
        let degraded = !self.sink.set_aside.is_empty();
        let matches = |mut right: Content, log: &[Entry], ours: &Content| {
            let mut ours = ours.clone();
            if degraded {
                for entry in log.iter().filter(|entry| entry.poisoned || entry.rotten) {
                    right.remove(&entry.name);
                    ours.remove(&entry.name);
                }
            }
            ours == right
        };
        let present = self.fold(rv);
        let Server { log, past, .. } = &self.server;
        let ours = &self.sink.content;
        let is_part = || {
            let begin = log.partition_point(|entry| entry.rv < rv);
            let end = log.partition_point(|entry| entry.rv <= rv);
            let mut part = Server::content_at(&log[..begin], rv);
            matches(part.clone(), log, ours)
                || log[begin..end].iter().any(|entry| {
                    Server::fold(&mut part, std::slice::from_ref(entry), rv);
                    matches(part.clone(), log, ours)
                })
        };
        let was_once = || past.iter().rev().any(|log| matches(Server::content_at(log, rv), log, ours));
        // The cheapest check first, which nearly always holds: the others read a log from its start.
        let equal = matches(present, log, ours) || self.sink.here.is_some() && is_part() || was_once();
        assert!(
            equal,
            "what is seen at {rv} was never so:\n{:?}\n{:?}",
            self.sink.content,
            Server::content_at(&self.server.log, rv)
        );
        if let Some(fresh) = self.sink.fresh
            && self.server.past.is_empty()
        {
            let known = self.rvs.partition_point(|(at, _)| *at <= fresh);
            let then = known.checked_sub(1).map_or(0, |last| self.rvs[last].1);
            let committed = self.server.log.partition_point(|entry| entry.rv <= then);
            let last = committed.checked_sub(1).map_or(0, |last| self.server.log[last].rv);
            assert!(rv >= last, "content of {rv} was called as fresh as {fresh}, when {last} was committed");
        }
    }

    /// Returns the server's content at an RV.
    fn fold(&mut self, rv: u64) -> Content {
        if self.folded.0 != self.server.past.len() || self.folded.1 > rv {
            self.folded = (self.server.past.len(), 0, Content::new());
        }
        let (_, from, content) = &mut self.folded;
        let begin = self.server.log.partition_point(|entry| entry.rv <= *from);
        Server::fold(content, &self.server.log[begin..], rv);
        *from = rv;
        content.clone()
    }

    fn act(&mut self, action: Action) {
        let asked = match &action {
            Action::Cancel { id } => return self.wires.retain(|wire| wire.id != *id),
            Action::List(request) if request.continue_token.is_some() => Asked::Page,
            Action::List(_) => Asked::List,
            Action::Watch(WatchRequest { verification: true, .. }) => Asked::Look,
            Action::Watch(WatchRequest { start: WatchStart::InitialEvents, .. }) => Asked::Stream,
            Action::Watch(WatchRequest { start: WatchStart::After(rv), .. }) => {
                assert!(self.sink.goes_on_after(rv.as_u64()), "a watch goes on where the content stands");
                Asked::Watch
            }
            // A GET. For other crates there could be further actions.
            _ => Asked::Get,
        };
        if self.fault != Fault::Down {
            self.asked.push((self.now, asked));
        }
        let timeout = match &action {
            Action::Watch(request) => request.timeout,
            _ => Duration::from_secs(1000),
        };
        self.ids.push(action.id());
        self.wires.push(Wire {
            id: action.id(),
            asked,
            action,
            answer_at: self.now + STEP * self.rng.u32(1..4),
            opened: false,
            cursor: 0,
            within: 0,
            snapshot: 0,
            ends_at: self.now + timeout,
            bookmark_at: self.now + Duration::from_secs(self.rng.u64(55..65)),
            stalled: false,
            initial_sent: false,
            last_bookmark_sent: false,
        });
        assert!(self.wires.len() <= 3, "one request, one second look, and one read of what is set aside");
    }

    /// Serves a request, or continues its response.
    fn serve(&mut self, wire: Wire) {
        let streams = matches!(wire.asked, Asked::Stream | Asked::Watch | Asked::Look);
        let unanswered = self.fault == Fault::Silence || streams && self.fault == Fault::StreamsUnanswered;
        if wire.answer_at > self.now || unanswered && !wire.opened {
            return self.wires.push(wire);
        }
        if !wire.opened && self.refuse(&wire) {
            return;
        }
        match wire.asked {
            Asked::List | Asked::Page => self.serve_list(wire),
            Asked::Get => self.serve_get(&wire),
            Asked::Stream | Asked::Watch | Asked::Look => self.serve_watch(wire),
        }
    }

    fn refuse(&mut self, wire: &Wire) -> bool {
        let watch = matches!(wire.asked, Asked::Watch | Asked::Look);
        let answer = |code: u16, status: Option<Status>, retry_after: u64| Failure::Answer {
            code,
            status: status.map(Box::new),
            retry_after: (retry_after > 0).then(|| Duration::from_secs(retry_after)),
        };
        let failure = match self.fault {
            Fault::Down => Failure::Connection {
                trouble: Trouble::CannotConnect,
                reason: "connection refused".into(),
                retry_at: None,
            },
            Fault::Answer { code, retry_after, watches_only } if watch || !watches_only => {
                answer(code, None, retry_after)
            }
            Fault::NoStreams if wire.asked == Asked::Stream => answer(422, None, 0),
            Fault::Gone { event: false } if watch => answer(410, None, 0),
            Fault::TooLarge if watch => answer(504, Some(too_large()), 0),
            Fault::ExpiredTokens if wire.asked == Asked::Page => answer(410, None, 0),
            _ if self.is_of_another_history(wire) => answer(410, None, 0),
            _ => return false,
        };
        self.give(Input::Failed { id: wire.id, failure });
        true
    }

    /// Returns whether it requests the next page of a list that was begun before a rollback.
    fn is_of_another_history(&self, wire: &Wire) -> bool {
        let Action::List(ListRequest { continue_token: Some(token), .. }) = &wire.action else {
            return false;
        };
        token.split('/').nth(2) != Some(&self.server.past.len().to_string())
    }

    fn serve_list(&mut self, mut wire: Wire) {
        let id = wire.id;
        let Action::List(request) = &wire.action else { unreachable!() };
        let (snapshot, start) = match &request.continue_token {
            None => (self.server.rv, String::new()),
            Some(token) => {
                let mut parts = token.split('/');
                (parts.next().unwrap().parse().unwrap(), parts.next().unwrap().to_owned())
            }
        };
        wire.snapshot = snapshot;
        if let Fault::Regress { changes, times } = self.fault
            && start.is_empty()
        {
            let index = self.server.log.len().saturating_sub(changes);
            wire.snapshot = self.server.log[index].rv;
            self.fault = if times > 1 { Fault::Regress { changes, times: times - 1 } } else { Fault::None };
        }
        if wire.asked == Asked::List {
            self.served_lists.push(self.now);
        }
        self.give(Input::Opened { id });
        let all: Vec<(String, (u64, u64))> = Server::content_at(&self.server.log, wire.snapshot)
            .into_iter()
            .filter(|(name, _)| *name > start)
            .collect();
        let limit = request.limit.map_or(usize::MAX, |limit| self.page_size.min(limit as usize));
        let page: Vec<_> = all.iter().take(limit).cloned().collect();
        let items = page.iter().map(|(name, (uid, rv))| self.item(name, *uid, *rv)).collect();
        self.give(Input::Items { id, items });
        if self.fault == Fault::CutLists {
            return self.give(Input::Failed { id, failure: lost() });
        }
        let token = (all.len() > page.len())
            .then(|| format!("{}/{}/{}", wire.snapshot, page[page.len() - 1].0, self.server.past.len()));
        self.give(Input::ListEnd {
            id,
            resource_version: Some(wire.snapshot.into()),
            continue_token: token.map(Into::into),
        });
    }

    fn item(&self, name: &str, uid: u64, rv: u64) -> Result<RawObject, BrokenItem> {
        if self.server.last(name, rv).is_some_and(|entry| entry.rotten) {
            return Err(BrokenItem { key: Some(ObjectKey::namespaced("ns", name)), reason: "rotten".into() });
        }
        Ok(object(name, uid, rv))
    }

    fn serve_get(&mut self, wire: &Wire) {
        let Action::Get(request) = &wire.action else { unreachable!() };
        let name = request.key.name();
        let object = match self.server.content().get(name) {
            None => Ok(None),
            Some((uid, rv)) => self.item(name, *uid, *rv).map(Some),
        };
        self.give(Input::Got { id: wire.id, object });
    }

    fn serve_watch(&mut self, mut wire: Wire) {
        let id = wire.id;
        if !wire.opened {
            wire.opened = true;
            if let Action::Watch(WatchRequest { start: WatchStart::After(rv), .. }) = &wire.action {
                wire.cursor = rv.as_u64().unwrap();
            }
            if wire.asked == Asked::Stream {
                self.served_lists.push(self.now);
            }
            self.wires.push(wire);
            self.give(Input::Opened { id });
            return;
        }
        let held = self.fault == Fault::HeldToEnd && self.now < wire.ends_at;
        if wire.stalled || held || self.fault == Fault::StallAll {
            return self.wires.push(wire);
        }
        let mut frames = Vec::new();
        if wire.asked == Asked::Stream && !wire.initial_sent {
            wire.initial_sent = true;
            wire.cursor = self.server.rv;
            for (name, (uid, rv)) in self.server.content() {
                frames.push(match self.item(&name, uid, rv) {
                    Ok(object) => Ok(WatchEvent::Added(object)),
                    Err(_) => Err(broken(&name, rv)),
                });
            }
            if self.fault != Fault::NoEndBookmark {
                frames.push(Ok(WatchEvent::Bookmark {
                    resource_version: wire.cursor.into(),
                    initial_events_end: true,
                }));
            }
        }
        if wire.asked != Asked::Stream || wire.initial_sent {
            let too_old = wire.cursor < self.server.compacted;
            let gone = self.fault == Fault::Gone { event: true } && wire.asked != Asked::Stream;
            if too_old || gone {
                frames.push(Ok(WatchEvent::Error(Box::new(expired()))));
                return self.give(Input::Events { id, events: frames });
            }
        }
        let replay = self.fault == Fault::Replays && self.rng.u32(0..5) == 0;
        let from = if replay { wire.cursor.saturating_sub(9) } else { wire.cursor };
        let begin = self.server.log.partition_point(|entry| entry.rv <= from);
        let mut entries: Vec<Entry> = self.server.log[begin..].to_vec();
        if !replay {
            entries.drain(..wire.within.min(entries.len()));
            if self.rng.bool() {
                end_between_two_of_one_rv(&mut entries);
            }
            wire.went_to(&entries, &self.server.log);
        }
        let any = !entries.is_empty();
        for entry in entries {
            let garbage = match self.fault {
                Fault::Garbage => entry.rv % 2 == 0 && !self.garbled.contains(&entry.rv),
                Fault::AllGarbage => true,
                _ => false,
            };
            if garbage {
                self.garbled.push(entry.rv);
                frames.push(Err(nonsense()));
            } else if entry.poisoned {
                frames.push(Err(broken_kind(&entry)));
            } else {
                frames.push(Ok(event(&entry)));
            }
        }
        let bookmarks = !matches!(self.fault, Fault::NoBookmarks | Fault::NoEndBookmark);
        let last_one = !wire.last_bookmark_sent && wire.ends_at.since(self.now) <= Duration::from_secs(2);
        if bookmarks && (self.now >= wire.bookmark_at || last_one) {
            wire.bookmark_at = self.now + Duration::from_secs(60);
            wire.last_bookmark_sent |= last_one;
            // It may come between two changes of one RV, and then has that RV.
            let reached = if wire.within > 0 { wire.cursor + 1 } else { wire.cursor.max(self.server.rv) };
            wire.cursor = if wire.within > 0 { wire.cursor } else { reached };
            frames.push(Ok(WatchEvent::Bookmark {
                resource_version: reached.into(),
                initial_events_end: false,
            }));
        }
        let cut = match self.fault {
            Fault::CutAtOnce => true,
            Fault::CutAfterEvent => any,
            Fault::Flaky => self.rng.u32(0..30) == 0,
            _ => false,
        };
        let closed = self.now >= wire.ends_at || self.fault == Fault::CloseAtOnce;
        if !cut && !closed {
            self.wires.push(wire);
        }
        if !frames.is_empty() && self.fault != Fault::CloseAtOnce && self.fault != Fault::CutAtOnce {
            self.give(Input::Events { id, events: frames });
        }
        if cut {
            self.give(Input::Failed { id, failure: lost() });
        } else if closed {
            self.give(Input::Closed { id });
        }
    }

    pub(super) fn content(&self) -> Content {
        self.sink.content.clone()
    }
}

/// Ends a chunk between two changes of one RV: a chunk may end anywhere.
fn end_between_two_of_one_rv(entries: &mut Vec<Entry>) {
    if let Some(first) = entries.windows(2).position(|pair| pair[0].rv == pair[1].rv) {
        entries.truncate(first + 1);
    }
}

impl Wire {
    /// Records that these entries were sent too.
    fn went_to(&mut self, entries: &[Entry], log: &[Entry]) {
        let Some(last) = entries.last().map(|entry| entry.rv) else { return };
        let sent_before = if self.cursor + 1 == last { self.within } else { 0 };
        let sent = sent_before + entries.iter().filter(|entry| entry.rv == last).count();
        let is_whole =
            log.iter().rev().take_while(|entry| entry.rv >= last).filter(|entry| entry.rv == last).count()
                == sent;
        (self.cursor, self.within) = if is_whole { (last, 0) } else { (last - 1, sent) };
    }
}

fn event(entry: &Entry) -> WatchEvent {
    let object = object(&entry.name, entry.uid, entry.rv);
    match entry.kind {
        Kind::Added => WatchEvent::Added(object),
        Kind::Modified => WatchEvent::Modified(object),
        Kind::Deleted => WatchEvent::Deleted(object),
    }
}

fn lost() -> Failure {
    Failure::Connection { trouble: Trouble::Lost, reason: "connection reset".into(), retry_at: None }
}

fn nonsense() -> BrokenFrame {
    WatchEvent::parse("garbage".into(), &Limits::default()).unwrap_err()
}

fn broken(name: &str, rv: u64) -> BrokenFrame {
    BrokenFrame {
        key: Some(ObjectKey::namespaced("ns", name)),
        resource_version: Some(rv.into()),
        event_type: Some("ADDED".into()),
        ..nonsense()
    }
}

fn broken_kind(entry: &Entry) -> BrokenFrame {
    let event_type = match entry.kind {
        Kind::Added => "ADDED",
        Kind::Modified => "MODIFIED",
        Kind::Deleted => "DELETED",
    };
    BrokenFrame { event_type: Some(event_type.into()), ..broken(&entry.name, entry.rv) }
}

pub(super) fn expired() -> Status {
    Status::from_slice(
        br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 1 (2)","reason":"Expired","code":410}"#,
    )
    .unwrap()
}

fn too_large() -> Status {
    Status::from_slice(
        br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: Too large resource version: 9, current: 8","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#,
    )
    .unwrap()
}
