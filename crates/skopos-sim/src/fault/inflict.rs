//! Faults that can be inflicted, as data, and the promises about them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::rules::{On, Part, Rule};
use crate::cluster::Write;
use crate::net::{Direction, Ending};

/// A fault without its place and time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Inflict {
    /// No bytes pass in this direction; with `new_too` this includes new connections.
    BlackHole {
        /// The direction.
        direction: Direction,
        /// True if new connections are swallowed too.
        new_too: bool,
    },
    /// The servers forget all connections, without notice to the clients.
    HalfOpen,
    /// All connections (or one with an open watch) end.
    End {
        /// The kind of end.
        how: Ending,
        /// True for all connections, rather than one.
        all: bool,
    },
    /// Every connection ends after this many more bytes from the server.
    Cut {
        /// The number of bytes.
        after: u64,
        /// The kind of end.
        how: Ending,
    },
    /// All bytes are delayed by this time, each way.
    Delay(Duration),
    /// At most this many bytes arrive in a tenth of a second.
    Throttle(usize),
    /// Connections end, and dials fail: the name does not resolve.
    NoName,
    /// Connections end, and dials are refused.
    Refused,
    /// Connections end, and dials get no answer.
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
        /// The server.
        site: usize,
        /// True if its connections are reset.
        reset: bool,
    },
    /// A fault of requests or their answers.
    Requests {
        /// The kind of fault.
        rule: Rule,
        /// The kind of requests.
        on: On,
        /// The part of the cluster.
        #[serde(default)]
        part: Part,
        /// Maximum number of strikes.
        times: Option<u64>,
        /// True if open watches are ended, so that the next ones are affected.
        close_watches: bool,
    },
    /// All connections get GOAWAY.
    GoAway,
    /// New connections allow this many streams; the old ones end.
    StreamLimit(u32),
    /// One server (or all) lags by this time, or is frozen.
    Lag {
        /// The server.
        site: Option<usize>,
        /// The lag.
        by: Option<Duration>,
    },
    /// Open watches end cleanly.
    CloseWatches,
    /// The history is compacted during a gap in which these writes are made.
    Compaction(Vec<Write>),
    /// The history is compacted, and open watches continue.
    CompactionUnderWatches,
    /// The history goes back by this many revisions.
    RollBack(u64),
    /// Objects are replaced by others of the same name during a gap.
    ReplacedInGap(Vec<Write>),
    /// The clients' machine sleeps for this time.
    Suspend(Duration),
    /// The clients' wall clock jumps by this many seconds.
    ClockJump(i64),
    /// This process gets no CPU for this time.
    Starve(Duration),
    /// An action of the users, which the plan contains.
    Users,
}

/// Time limits that are promised for a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Time limit of the detection; `None`: the fault is harmless.
    pub detect: Option<Duration>,
    /// Time limit of the recovery, once the fault is healed and detected.
    pub recover: Duration,
}

const fn bounds(detect: u64, recover: u64) -> Bounds {
    Bounds { detect: Some(Duration::from_secs(detect)), recover: Duration::from_secs(recover) }
}

const fn harmless(recover: u64) -> Bounds {
    Bounds { detect: None, recover: Duration::from_secs(recover) }
}

/// `backoff_max` is 30 s, plus up to 30 %.
const BACKOFF: u64 = 39;
/// Each undecodable frame costs two watches and a read or a list. Streams that live just long enough for a verification watch
/// cost one each. So a few of them may use up a minute's budget (I15) when the fault is healed. `docs/evidence/detection.md` promises the
/// recovery for the end of that minute.
const MINUTE: u64 = 61;

impl Inflict {
    /// Returns whether the stream lies: only an audit can detect it.
    pub fn lies(&self) -> bool {
        matches!(self, Self::Requests { rule: Rule::DropEvents, .. })
    }

    /// Returns whether it strikes all clients, of any cluster.
    pub fn is_everywhere(&self) -> bool {
        matches!(self, Self::Suspend(_) | Self::ClockJump(_) | Self::Starve(_))
    }

    /// Returns the part of the cluster that it is confined to.
    pub fn part(&self) -> Part {
        match self {
            Self::Requests { part, .. } => *part,
            _ => Part::WHOLE,
        }
    }

    /// Returns whether lists that are not streamed, and their other requests, are unaffected, and no answer demands a long wait.
    pub fn spares_lists(&self) -> bool {
        const SOON: u32 = 5;
        let Self::Requests { rule, on, .. } = self else { return false };
        let later = matches!(rule, Rule::TooManyRequests(wish) | Rule::CacheNotReady(wish) if *wish > SOON);
        // A client that is unauthorized for a watch is so for a list, so no list replaces the watch.
        let unknown = matches!(rule, Rule::Status(401, _));
        !on.strikes_lists() && !later && !unknown
    }

    /// Returns the `Retry-After` of every answer.
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

    /// Returns the time limits of its detection and recovery.
    pub fn bounds(&self) -> Bounds {
        match self {
            Self::BlackHole { .. } | Self::HalfOpen => bounds(15, 10),
            Self::End { .. } | Self::Cut { .. } | Self::SiteDown { .. } => bounds(1, 2),
            Self::GoAway | Self::StreamLimit(_) | Self::CloseWatches => harmless(2),
            Self::Delay(_) => harmless(BACKOFF),
            // Requests that timed out may have used up a minute's budget.
            Self::Throttle(_) => harmless(MINUTE),
            // A server that is down for more than a minute is dialled every 5 to 6 s.
            Self::NoName | Self::Refused | Self::NoAnswer | Self::HungUp | Self::NoDescriptors => {
                bounds(1, 10)
            }
            Self::ExpiredCertificate | Self::UntrustedCertificate => bounds(1, 10),
            Self::Lag { .. } => bounds(60, 10),
            Self::Compaction(_) | Self::ReplacedInGap(_) => bounds(1, 10),
            // A watch without events is found behind by the next probe, verified, and refused when it is reopened.
            Self::CompactionUnderWatches => harmless(60),
            Self::RollBack(_) => bounds(30, 5),
            Self::Suspend(_) | Self::ClockJump(_) => bounds(2, 10),
            Self::Starve(_) => harmless(10),
            Self::Users => harmless(5),
            // The content of a store does not depend on them.
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
            // Bytes arrive, so only their number or the age of the content reveals it, as with a stalled stream.
            Self::EndlessLine | Self::GiantObject(_) => bounds(60, BACKOFF),
            Self::GzipBomb(_) | Self::TruncatedGzip => bounds(1, BACKOFF),
            Self::Expired | Self::ExpiredInStream | Self::ErrorInStream => bounds(1, 5),
            Self::WithholdHeaders | Self::HoldHeaders if on == On::Lists => bounds(30, BACKOFF),
            Self::WithholdHeaders => bounds(90, BACKOFF),
            // The held event stays held until the next one, a bookmark, within a minute.
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
