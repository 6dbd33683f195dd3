//! What can be inflicted, as data, and what is promised about it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::rules::{On, Part, Rule};
use crate::cluster::Write;
use crate::net::{Direction, Ending};

/// A fault without its place and time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Inflict {
    /// Nothing passes in this direction; `new_too`: neither on connections that are made meanwhile.
    BlackHole {
        /// Which way.
        direction: Direction,
        /// Whether new connections are swallowed too.
        new_too: bool,
    },
    /// The servers forget all connections, and no client is told.
    HalfOpen,
    /// All connections (or one with an open watch) end.
    End {
        /// How.
        how: Ending,
        /// Not only one.
        all: bool,
    },
    /// Every connection ends after so many more bytes from the server.
    Cut {
        /// The bytes.
        after: u64,
        /// How.
        how: Ending,
    },
    /// All bytes take so much longer, each way.
    Delay(Duration),
    /// So many bytes come in a tenth of a second.
    Throttle(usize),
    /// Connections end, and dials fail: the name does not resolve.
    NoName,
    /// Connections end, and dials are refused.
    Refused,
    /// Connections end, and nobody answers dials.
    NoAnswer,
    /// Connections end, and so does each new one at once.
    HungUp,
    /// Connections end, and dials find an expired certificate.
    ExpiredCertificate,
    /// Connections end, and dials find a certificate of an unknown CA.
    UntrustedCertificate,
    /// Connections end, and the client has no file descriptors.
    NoDescriptors,
    /// One of the servers is gone, as in a rollout.
    SiteDown {
        /// Which.
        site: usize,
        /// Whether its connections are reset.
        reset: bool,
    },
    /// Requests or their answers.
    Requests {
        /// What is wrong.
        rule: Rule,
        /// With which.
        on: On,
        /// Of what.
        #[serde(default)]
        part: Part,
        /// How often at most.
        times: Option<u64>,
        /// Whether open watches are ended, so that the next are met.
        close_watches: bool,
    },
    /// All connections are told to go elsewhere.
    GoAway,
    /// New connections carry so many streams; the old ones end.
    StreamLimit(u32),
    /// One server (or all) is behind: by so much, or it stands still.
    Lag {
        /// Which.
        site: Option<usize>,
        /// By how much.
        by: Option<Duration>,
    },
    /// Open watches end in order.
    CloseWatches,
    /// The history is forgotten while nobody can connect, and these writes are made.
    Compaction(Vec<Write>),
    /// The history is forgotten, and open watches go on.
    CompactionUnderWatches,
    /// The history goes back by so many revisions.
    RollBack(u64),
    /// Objects are replaced by others of the same name while nobody can connect.
    ReplacedInGap(Vec<Write>),
    /// The machine of the clients sleeps for so long.
    Suspend(Duration),
    /// The wall clock of the clients jumps by so many seconds.
    ClockJump(i64),
    /// Nobody in this process is given the CPU for so long.
    Starve(Duration),
    /// Something that the users do; the plan has them do it.
    Users,
}

/// What is promised about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Within what time it is noticed; `None`: it is harmless.
    pub detect: Option<Duration>,
    /// Within what time all is well, once it is healed and noticed.
    pub recover: Duration,
}

const fn bounds(detect: u64, recover: u64) -> Bounds {
    Bounds { detect: Some(Duration::from_secs(detect)), recover: Duration::from_secs(recover) }
}

const fn harmless(recover: u64) -> Bounds {
    Bounds { detect: None, recover: Duration::from_secs(recover) }
}

/// `backoff_max` 30 s and up to 30 %.
const BACKOFF: u64 = 39;
/// Each frame that cannot be read costs two watches and a read or a list, and streams that stand just long enough for a second look
/// at them cost one each, so that a few of them may have spent what a minute allows (I15) when the fault is healed.
/// `docs/detection.md` promises the recovery for when that minute is over.
const MINUTE: u64 = 61;

impl Inflict {
    /// Whether the stream lies: nothing but an audit can find it out.
    pub fn lies(&self) -> bool {
        matches!(self, Self::Requests { rule: Rule::DropEvents, .. })
    }

    /// Whether it strikes all clients, whatever their cluster.
    pub fn is_everywhere(&self) -> bool {
        matches!(self, Self::Suspend(_) | Self::ClockJump(_) | Self::Starve(_))
    }

    /// What it is confined to.
    pub fn part(&self) -> Part {
        match self {
            Self::Requests { part, .. } => *part,
            _ => Part::WHOLE,
        }
    }

    /// Whether lists that are not streamed, and what else they need, are as ever, and nobody was told to come much later.
    pub fn spares_lists(&self) -> bool {
        const SOON: u32 = 5;
        let Self::Requests { rule, on, .. } = self else { return false };
        let later = matches!(rule, Rule::TooManyRequests(wish) | Rule::CacheNotReady(wish) if *wish > SOON);
        // Whoever is not known for a watch is not known for a list, so that none is asked for in its stead.
        let unknown = matches!(rule, Rule::Status(401, _));
        !on.strikes_lists() && !later && !unknown
    }

    /// What every answer says of when to come again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Requests {
                rule: Rule::TooManyRequests(seconds) | Rule::CacheNotReady(seconds),
                on: On::Everything,
                times: None,
                ..
            } => Some(Duration::from_secs(u64::from(*seconds))),
            _ => None,
        }
    }

    /// What is promised about it: detection and recovery.
    pub fn bounds(&self) -> Bounds {
        match self {
            Self::BlackHole { .. } | Self::HalfOpen => bounds(15, 10),
            Self::End { .. } | Self::Cut { .. } | Self::SiteDown { .. } => bounds(1, 2),
            Self::GoAway | Self::StreamLimit(_) | Self::CloseWatches => harmless(2),
            Self::Delay(_) => harmless(BACKOFF),
            // Requests that were not answered in time have spent what a minute allows.
            Self::Throttle(_) => harmless(MINUTE),
            // A server that is down for more than a minute is dialled every 5 to 6 s.
            Self::NoName | Self::Refused | Self::NoAnswer | Self::HungUp | Self::NoDescriptors => {
                bounds(1, 10)
            }
            Self::ExpiredCertificate | Self::UntrustedCertificate => bounds(1, 10),
            Self::Lag { .. } => bounds(60, 10),
            Self::Compaction(_) | Self::ReplacedInGap(_) => bounds(1, 10),
            // A watch that had nothing to tell is found behind by the next probe, doubted, and refused when opened again.
            Self::CompactionUnderWatches => harmless(60),
            Self::RollBack(_) => bounds(30, 5),
            Self::Suspend(_) | Self::ClockJump(_) => bounds(2, 10),
            Self::Starve(_) => harmless(10),
            Self::Users => harmless(5),
            // Nothing that a store has depends on them.
            Self::Requests { on: On::Gets, .. } => harmless(BACKOFF),
            Self::Requests { rule, on, .. } => rule.bounds(*on),
        }
    }
}

impl Rule {
    fn bounds(&self, on: On) -> Bounds {
        match self {
            Self::Status(..) | Self::NotServed | Self::ProxyPage | Self::Redirect => bounds(1, BACKOFF),
            Self::TooManyRequests(_) | Self::CacheNotReady(_) => bounds(1, BACKOFF),
            Self::KillConnection => bounds(1, BACKOFF),
            // Bytes come, so that only their number or the age of what is there gives it away: as with a stalled stream.
            Self::EndlessLine | Self::GiantObject(_) => bounds(60, BACKOFF),
            Self::GzipBomb(_) | Self::TruncatedGzip => bounds(1, BACKOFF),
            Self::Expired | Self::ExpiredInStream | Self::ErrorInStream => bounds(1, 5),
            Self::WithholdHeaders | Self::HoldHeaders if on == On::Lists => bounds(30, BACKOFF),
            Self::WithholdHeaders => bounds(90, BACKOFF),
            // What it has held back stays so until something comes: a bookmark, within a minute.
            Self::HoldHeaders => bounds(90, MINUTE),
            Self::DelayHeaders(_) | Self::GoAway | Self::RepeatEvents => harmless(BACKOFF),
            Self::WithholdBookmarks => harmless(60),
            Self::Stall | Self::HoldUntilEnd => bounds(60, 10),
            Self::Close | Self::Reset => bounds(1, BACKOFF),
            Self::HalfFrame => bounds(1, BACKOFF),
            Self::CloseAfter(_) | Self::GarbageFrame => bounds(1, MINUTE),
            Self::BrokenLabels | Self::NoMetadata | Self::NoName => bounds(1, MINUTE),
            Self::DropEvents => bounds(600, 10),
            Self::Slow(..) => bounds(60, BACKOFF),
        }
    }
}
