//! All known faults of the link, by their numbers in the project's catalogue, and the place of each in the simulation.

use std::time::Duration;

use super::inflict::Inflict;
use super::rules::{On, Part, Rule};
use crate::cluster::{NAMES, Resource, Write, WriteKind};
use crate::net::{Direction, Ending};

/// A fault of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its number.
    pub number: u8,
    /// A short name.
    pub name: &'static str,
    /// The part of the simulation that inflicts it.
    pub place: Place,
}

/// The part of the simulation that inflicts a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the pipes between client and server.
    Wire,
    /// In the servers.
    Server,
    /// In the clients' machine.
    Machine,
    /// In what users do.
    Users,
    /// Not simulated, for this reason.
    NotHere(&'static str),
}

use Place::{Machine, NotHere, Server, Users, Wire};

/// All faults.
pub const CATALOGUE: [Entry; 52] = [
    at(1, "black-holed TCP", Wire),
    at(2, "NAT or conntrack forgets an idle connection", Wire),
    at(3, "reset by a load balancer", Wire),
    at(4, "FIN, or a watch closed after its time", Wire),
    at(5, "dead connection in the pool", Wire),
    at(6, "GOAWAY", Server),
    at(7, "GOAWAY with every answer", Server),
    at(8, "stream stalled, PING alive", Server),
    at(9, "flow control starved by streams that are not read", Wire),
    at(10, "limit of concurrent streams reached", Server),
    at(11, "body byte by byte", Server),
    at(12, "headers never come", Server),
    at(13, "half a frame, then the end", Server),
    at(14, "garbage frame", Server),
    at(15, "object of the wrong shape", Server),
    at(16, "frame without a bound", Server),
    at(17, "gzip cut off, or a bomb", Server),
    at(18, "401", Server),
    at(19, "403", Server),
    at(20, "404: the resource is gone", Server),
    at(21, "409", NotHere("answers to writes only; nothing here reads them, the server's own tests do")),
    at(22, "410, as a status and in the stream", Server),
    at(23, "410 between two pages", Server),
    at(24, "429 with Retry-After", Server),
    at(25, "5xx when a watch is opened again", Server),
    at(26, "all come back at once after a restart", Wire),
    at(27, "redirect", Server),
    at(28, "certificate expired, or CA rotated", Wire),
    at(29, "name does not resolve", Wire),
    at(30, "wall clock jumps", Machine),
    at(31, "suspend and resume", Machine),
    at(32, "restored etcd: RV goes back", Server),
    at(33, "one server of several lags", Server),
    at(34, "watch cache not ready", Server),
    at(35, "end bookmark never sent", Server),
    at(36, "no bookmarks", Server),
    at(37, "watch closed at once, again and again", Server),
    at(38, "connection refused", Wire),
    at(39, "paused cluster: refused, silent, or without a name", Wire),
    at(
        40,
        "one member of a federated read down",
        NotHere("reads over several clusters are the gateway's: its own tests inflict it, and the fleet's"),
    ),
    at(41, "informer stopped by one of its users", Users),
    at(42, "out of file descriptors", Machine),
    at(43, "slow handler", Users),
    at(44, "panicking handler", Users),
    at(
        45,
        "readers starve the writer",
        NotHere("needs threads: the store's tests under a model checker of threads show it"),
    ),
    at(46, "same name, new uid, in a gap", Wire),
    at(47, "server loses events", Server),
    at(48, "shutdown in the middle of dialling", Users),
    at(49, "request after the shutdown", Users),
    at(50, "proxy holds headers back until the first event", Server),
    at(51, "older events sent again", Server),
    at(52, "no CPU for a while", Machine),
];

const fn at(number: u8, name: &'static str, place: Place) -> Entry {
    Entry { number, name, place }
}

/// Returns the fault of this number; numbers begin at 1.
pub fn entry(number: u8) -> Option<&'static Entry> {
    CATALOGUE.get(usize::from(number).checked_sub(1)?)
}

impl Entry {
    /// Returns whether it can be inflicted here.
    pub fn is_simulated(&self) -> bool {
        !matches!(self.place, Place::NotHere(_))
    }

    /// Returns one of its forms, and its duration.
    pub fn draw(&self, random: &mut fastrand::Rng, servers: usize) -> (Inflict, Duration) {
        let what = self.form(random, servers);
        let hold = match &what {
            Inflict::Requests { times: Some(_), .. } => secs(random.u64(60..180)),
            Inflict::Requests { rule: Rule::DropEvents, .. } => secs(random.u64(5..30)),
            Inflict::End { .. } | Inflict::GoAway | Inflict::CloseWatches => secs(random.u64(1..10)),
            Inflict::Suspend(_) | Inflict::ClockJump(_) | Inflict::CompactionUnderWatches => secs(1),
            // The open watches of the old history are silent until their clients notice.
            Inflict::RollBack(_) => secs(60),
            Inflict::Starve(time) => *time,
            Inflict::Delay(_) | Inflict::Throttle(_) => secs(random.u64(30..300)),
            _ => secs([random.u64(2..20), random.u64(20..120), random.u64(120..400)][random.usize(0..3)]),
        };
        (what, hold)
    }

    fn form(&self, random: &mut fastrand::Rng, servers: usize) -> Inflict {
        // Drawn whether needed or not, so that each form has the same numbers.
        let (choice, bytes) = (random.usize(..), random.u64(1..3000));
        let mut more = fastrand::Rng::with_seed(choice as u64);
        let one_of = |forms: Vec<Inflict>| {
            let at = choice % forms.len();
            forms.into_iter().nth(at).unwrap_or(Inflict::Users)
        };
        match self.number {
            1 => one_of(vec![
                hole(Direction::Both, false),
                hole(Direction::ToServer, false),
                hole(Direction::ToClient, false),
                hole(Direction::Both, true),
                hole(Direction::ToServer, true),
                hole(Direction::ToClient, true),
            ]),
            2 => hole(Direction::Both, false),
            3 => one_of(vec![end(Ending::Rst, true), end(Ending::Rst, false), cut(bytes, Ending::Rst)]),
            4 => one_of(vec![
                end(Ending::Fin, true),
                end(Ending::Fin, false),
                cut(bytes, Ending::Fin),
                Inflict::CloseWatches,
            ]),
            5 => one_of(vec![Inflict::HalfOpen, Inflict::HalfOpen, hole(Direction::ToClient, false)]),
            6 => Inflict::GoAway,
            7 => everywhere(Rule::GoAway),
            8 => one_of(vec![
                on_watches(Rule::Stall, None),
                on_watches(Rule::Stall, Some(1)),
                requests(Rule::Stall, On::Watches, some_part(&mut more), None, false),
            ]),
            9 => one_of(vec![
                Inflict::Throttle(random.usize(20..400)),
                Inflict::Throttle(more.usize(400..4000)),
                Inflict::Delay(millis(more.u64(20..800))),
            ]),
            10 => Inflict::StreamLimit(random.u32(1..4)),
            11 => one_of(vec![on_lists(Rule::Slow(1, secs(1))), on_lists(Rule::Slow(50, millis(500)))]),
            12 => one_of(vec![
                on_lists(Rule::WithholdHeaders),
                on_new_watches(Rule::WithholdHeaders),
                everywhere(Rule::WithholdHeaders),
                on_new_watches(Rule::DelayHeaders(secs(8))),
            ]),
            13 => one_of(vec![
                on_watches(Rule::HalfFrame, Some(1)),
                on_watches(Rule::HalfFrame, None),
                on_watches(Rule::Reset, Some(1)),
            ]),
            14 => one_of(vec![on_watches(Rule::GarbageFrame, Some(1)), on_watches(Rule::GarbageFrame, None)]),
            15 => one_of(vec![
                on_watches(Rule::BrokenLabels, Some(1)),
                on_watches(Rule::NoName, Some(1)),
                on_watches(Rule::NoMetadata, Some(1)),
                on_watches(Rule::BrokenLabels, None),
                everywhere(Rule::BrokenLabels),
            ]),
            16 => one_of(vec![on_new_watches(Rule::EndlessLine), on_new_watches(Rule::GiantObject(2 << 20))]),
            17 => one_of(vec![on_new_watches(Rule::GzipBomb(2 << 20)), on_new_watches(Rule::TruncatedGzip)]),
            18 => one_of(vec![answers(Rule::Status(401, 0)), confined(Rule::Status(401, 0), &mut more)]),
            19 => one_of(vec![answers(Rule::Status(403, 0)), confined(Rule::Status(403, 0), &mut more)]),
            20 => one_of(vec![answers(Rule::NotServed), confined(Rule::NotServed, &mut more)]),
            22 => one_of(vec![
                on_watches(Rule::ExpiredInStream, Some(1)),
                requests(Rule::Expired, On::NewWatches, Part::WHOLE, Some(1), true),
                Inflict::Compaction(Vec::new()),
                on_watches(Rule::ErrorInStream, Some(1)),
            ]),
            23 => Inflict::CompactionUnderWatches,
            24 => {
                let rule = Rule::TooManyRequests(random.u32(1..30));
                one_of(vec![answers(rule.clone()), confined(rule, &mut more)])
            }
            25 => one_of(vec![
                answers(Rule::Status(500, 0)),
                answers(Rule::ProxyPage),
                answers(Rule::Status(503, 0)),
                answers(Rule::Status(504, 0)),
                answers(Rule::KillConnection),
                confined(Rule::Status(500, 0), &mut more),
                confined(Rule::Status(503, 0), &mut more),
            ]),
            26 => Inflict::SiteDown { site: random.usize(0..servers.max(1)), reset: random.bool() },
            27 => answers(Rule::Redirect),
            28 => one_of(vec![Inflict::ExpiredCertificate, Inflict::UntrustedCertificate]),
            29 => Inflict::NoName,
            30 => one_of(vec![Inflict::ClockJump(3), Inflict::ClockJump(3600), Inflict::ClockJump(-1800)]),
            31 => Inflict::Suspend(secs([6, 60, 7200][random.usize(0..3)])),
            32 => Inflict::RollBack(random.u64(20..200)),
            33 => one_of(vec![
                Inflict::Lag { site: Some(0), by: None },
                Inflict::Lag { site: Some(0), by: Some(secs(20)) },
                Inflict::Lag { site: None, by: Some(secs(10)) },
            ]),
            34 => answers(Rule::CacheNotReady(random.u32(1..20))),
            35 | 36 => on_watches(Rule::WithholdBookmarks, None),
            37 => one_of(vec![on_watches(Rule::Close, None), on_watches(Rule::CloseAfter(secs(2)), None)]),
            38 => Inflict::Refused,
            39 => one_of(vec![
                Inflict::Refused,
                Inflict::NoAnswer,
                Inflict::HungUp,
                Inflict::NoName,
                answers(Rule::Status(503, 0)),
            ]),
            42 => Inflict::NoDescriptors,
            46 => Inflict::ReplacedInGap(replaced(random)),
            47 => on_watches(Rule::DropEvents, Some(random.u64(1..4))),
            50 => one_of(vec![on_new_watches(Rule::HoldHeaders), on_new_watches(Rule::HoldUntilEnd)]),
            51 => on_watches(Rule::RepeatEvents, None),
            52 => Inflict::Starve(secs(random.u64(2..40))),
            _ => Inflict::Users,
        }
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn hole(direction: Direction, new_too: bool) -> Inflict {
    Inflict::BlackHole { direction, new_too }
}

fn end(how: Ending, all: bool) -> Inflict {
    Inflict::End { how, all }
}

fn cut(after: u64, how: Ending) -> Inflict {
    Inflict::Cut { after, how }
}

fn requests(rule: Rule, on: On, part: Part, times: Option<u64>, close_watches: bool) -> Inflict {
    Inflict::Requests { rule, on, part, times, close_watches }
}

fn everywhere(rule: Rule) -> Inflict {
    requests(rule, On::Everything, Part::WHOLE, None, false)
}

fn on_watches(rule: Rule, times: Option<u64>) -> Inflict {
    requests(rule, On::Watches, Part::WHOLE, times, false)
}

fn on_new_watches(rule: Rule) -> Inflict {
    requests(rule, On::NewWatches, Part::WHOLE, None, true)
}

fn on_lists(rule: Rule) -> Inflict {
    requests(rule, On::Lists, Part::WHOLE, None, false)
}

/// Makes a fault that gives every request this answer. Open watches are ended, because they are checked only when they begin.
fn answers(rule: Rule) -> Inflict {
    requests(rule, On::Everything, Part::WHOLE, None, true)
}

/// Makes the same fault for some requests only: rights are given by namespace, resource and verb.
fn confined(rule: Rule, random: &mut fastrand::Rng) -> Inflict {
    let on = [On::Everything, On::Everything, On::NewWatches, On::Lists, On::Gets][random.usize(0..5)];
    requests(rule, on, some_part(random), None, matches!(on, On::Everything | On::NewWatches))
}

/// Returns a resource, a namespace, or a resource in a namespace.
fn some_part(random: &mut fastrand::Rng) -> Part {
    let resource = [Resource::ConfigMaps, Resource::Pods][random.usize(0..2)];
    // The first one is preferred, because it is requested first if there are several.
    let namespace = [0, 0, 1, 2][random.usize(0..4)];
    match random.u32(0..4) {
        0 => Part { resource: Some(resource), namespace: None },
        1 => Part { resource: Some(resource), namespace: Some(namespace) },
        _ => Part { resource: None, namespace: Some(namespace) },
    }
}

/// Returns replacements of objects during a gap. For some objects a change is observed too.
fn replaced(random: &mut fastrand::Rng) -> Vec<Write> {
    let mut write = |kind| Write {
        resource: [Resource::ConfigMaps, Resource::ConfigMaps, Resource::Pods][random.usize(0..3)],
        namespace: random.u8(0..3),
        name: random.u8(0..NAMES),
        kind,
        salt: random.u32(..),
    };
    let mut writes: Vec<_> = (0..12).map(|_| write(WriteKind::Replace)).collect();
    writes.extend((0..4).map(|_| write(WriteKind::Put)));
    writes
}
