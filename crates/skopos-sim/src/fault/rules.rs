//! Faults of requests and bodies, as data.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use skopos_testserver::{CloseMode, Damage, Fault, Match, Status};

use crate::cluster::{NAMESPACES, Resource};

/// Kind of a fault of requests or their answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rule {
    /// The answer has this status; the second number is `Retry-After` in seconds, 0 for none.
    Status(u16, u32),
    /// 429 as plain text, as from priority and fairness.
    TooManyRequests(u32),
    /// 429 of a watch cache that is not ready.
    CacheNotReady(u32),
    /// 404: the resource is not served.
    NotServed,
    /// 410 as a status.
    Expired,
    /// 502 with a proxy's page.
    ProxyPage,
    /// A redirect to another host.
    Redirect,
    /// No headers until healed.
    WithholdHeaders,
    /// Headers are delayed by this time.
    DelayHeaders(Duration),
    /// Headers come with the first piece of the body.
    HoldHeaders,
    /// The content of the body comes when it ends.
    HoldUntilEnd,
    /// The connection is closed instead of an answer.
    KillConnection,
    /// The answer comes with GOAWAY.
    GoAway,
    /// The body delivers nothing more until healed.
    Stall,
    /// The body ends at once.
    Close,
    /// The body ends this long after it began.
    CloseAfter(Duration),
    /// RST_STREAM.
    Reset,
    /// Half a frame, then the end.
    HalfFrame,
    /// A frame that is not JSON.
    GarbageFrame,
    /// An object without readable labels.
    BrokenLabels,
    /// An object without metadata.
    NoMetadata,
    /// An object without a name.
    NoName,
    /// No bookmarks, not even the one at the end of a streamed list.
    WithholdBookmarks,
    /// Events are lost.
    DropEvents,
    /// Each event is repeated after the next one.
    RepeatEvents,
    /// 410 in the stream.
    ExpiredInStream,
    /// 500 in the stream.
    ErrorInStream,
    /// This many bytes at a time, at this interval.
    Slow(usize, Duration),
    /// A line that never ends.
    EndlessLine,
    /// One object of this size in bytes.
    GiantObject(u64),
    /// A compressed body of this size in bytes.
    GzipBomb(u64),
    /// A compressed body that is truncated.
    TruncatedGzip,
}

/// Kind of the affected requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum On {
    /// All.
    Everything,
    /// Watches.
    Watches,
    /// Watches that are opened from now on.
    NewWatches,
    /// Lists, probes among them.
    Lists,
    /// Reads of single objects.
    Gets,
}

/// Part of a cluster by resource and namespace, as rights are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Part {
    /// Only requests of this resource.
    pub resource: Option<Resource>,
    /// Only requests of this one of [`NAMESPACES`], without those of all namespaces.
    pub namespace: Option<u8>,
}

impl Rule {
    /// Returns the fault of the test server.
    pub(super) fn fault(&self) -> Fault {
        match self {
            Self::Status(code, retry_after) => Fault::status(*code, *retry_after),
            Self::TooManyRequests(retry_after) => Fault::too_many_requests(*retry_after),
            Self::CacheNotReady(retry_after) => Fault::cache_not_ready(*retry_after),
            Self::NotServed => Fault::Status(Status::resource_not_served()),
            Self::Expired => Fault::Status(Status::watch_expired()),
            Self::ProxyPage => Fault::Answer {
                code: 502,
                headers: vec![(http::header::CONTENT_TYPE, "text/html".into())],
                body: "<html><body>Bad Gateway</body></html>".into(),
            },
            Self::Redirect => Fault::Redirect("http://elsewhere.test/".into()),
            Self::WithholdHeaders => Fault::WithholdHeaders,
            Self::DelayHeaders(time) => Fault::DelayHeaders(*time),
            Self::HoldHeaders => Fault::HoldHeadersUntilData,
            Self::HoldUntilEnd => Fault::HoldUntilEnd,
            Self::KillConnection => Fault::KillConnection(CloseMode::Rst),
            Self::GoAway => Fault::GoAway,
            Self::Stall => Fault::Stall,
            Self::Close => Fault::Close,
            Self::CloseAfter(time) => Fault::CloseAfter(*time),
            Self::Reset => Fault::Reset,
            Self::HalfFrame => Fault::HalfFrame,
            Self::GarbageFrame => Fault::GarbageFrame,
            Self::BrokenLabels => Fault::Undecodable(Damage::Labels),
            Self::NoMetadata => Fault::Undecodable(Damage::NoMetadata),
            Self::NoName => Fault::Undecodable(Damage::NoName),
            Self::WithholdBookmarks => Fault::WithholdBookmarks,
            Self::DropEvents => Fault::DropEvents,
            Self::RepeatEvents => Fault::RepeatEvents,
            Self::ExpiredInStream => Fault::ErrorEvent(Status::watch_expired()),
            Self::ErrorInStream => Fault::ErrorEvent(Status::internal_error("injected failure")),
            Self::Slow(bytes, every) => Fault::Slow { bytes: *bytes, every: *every },
            Self::EndlessLine => Fault::EndlessLine,
            Self::GiantObject(bytes) => Fault::GiantObject { bytes: *bytes },
            Self::GzipBomb(bytes) => Fault::GzipBomb { bytes: *bytes },
            Self::TruncatedGzip => Fault::TruncatedGzip,
        }
    }
}

impl On {
    pub(super) fn matching(self, part: Part) -> Match {
        part.of(match self {
            Self::Everything => Match::any(),
            Self::Watches => Match::watch(),
            Self::NewWatches => Match::watch().new_requests(),
            Self::Lists => Match::list(),
            Self::Gets => Match::get(),
        })
    }

    /// Returns whether lists that are not streamed fail.
    pub(super) fn strikes_lists(self) -> bool {
        matches!(self, Self::Everything | Self::Lists)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.resource.map_or(Ok(()), |resource| write!(f, " of {}", resource.plural()))?;
        self.namespace().map_or(Ok(()), |namespace| write!(f, " in {namespace}"))
    }
}

impl Part {
    /// The whole cluster.
    pub const WHOLE: Self = Self { resource: None, namespace: None };

    /// Returns the name of the namespace.
    pub fn namespace(self) -> Option<&'static str> {
        self.namespace.map(|namespace| NAMESPACES[usize::from(namespace) % NAMESPACES.len()])
    }

    /// Returns whether requests of this resource belong to the part, in this namespace or in all (`None`).
    pub fn has(self, resource: &str, namespace: Option<&str>) -> bool {
        self.resource.is_none_or(|own| own.plural() == resource)
            && self.namespace().is_none_or(|own| Some(own) == namespace)
    }

    pub(super) fn of(self, requests: Match) -> Match {
        let requests = self.resource.into_iter().fold(requests, |of, own| of.resource(own.plural()));
        self.namespace().into_iter().fold(requests, Match::namespace)
    }
}
