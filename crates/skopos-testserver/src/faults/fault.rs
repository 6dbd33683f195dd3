//! The faults of requests.

use std::time::Duration;

use http::HeaderName;
use skopos_wire::Status;

use super::How;

/// What goes wrong with a request.
///
/// Faults of bodies ([`Fault::Stall`] and below) also strike streams that are open when they are injected, unless
/// [`Match::new_requests`](super::Match::new_requests) says otherwise.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// Answers with this status. `details.retryAfterSeconds` becomes the header `Retry-After`.
    Status(Status),
    /// Answers with anything: a proxy's HTML, the plain text of priority and fairness.
    Answer {
        /// The HTTP status code.
        code: u16,
        /// Headers, such as `Content-Type` or `Retry-After`.
        headers: Vec<(HeaderName, String)>,
        /// The body.
        body: String,
    },
    /// Answers 307 with this `Location`.
    Redirect(String),
    /// Sends no headers until healed.
    WithholdHeaders,
    /// Sends the headers so much later.
    DelayHeaders(Duration),
    /// Sends the headers together with the first piece of the body, as some proxies do.
    HoldHeadersUntilData,
    /// Closes the connection instead of answering.
    KillConnection(How),
    /// Answers, but tells the client to open another connection for what follows.
    GoAway,
    /// Reads that need not be newest, and watches, see an older state.
    Lag(Lag),

    /// Nothing more of the body comes until healed; the connection is well.
    Stall,
    /// What the body brings comes when it ends, or is more than a megabyte: as through a proxy that buffers.
    HoldUntilEnd,
    /// The body ends cleanly, at once.
    Close,
    /// The body ends cleanly so long after it began.
    CloseAfter(Duration),
    /// The body ends with an error: RST_STREAM on HTTP/2, a cut connection on HTTP/1.1.
    Reset,
    /// The next frame comes half, and then the body ends cleanly. Counts frames.
    HalfFrame,
    /// The next frame comes as something that is no JSON. Counts frames.
    GarbageFrame,
    /// The object of the next event is damaged, or the first of a list, or the one that is read. Counts events.
    Undecodable(Damage),
    /// No bookmark is sent, not even the one at the end of the initial events.
    WithholdBookmarks,
    /// Events are lost on the way.
    DropEvents,
    /// Every event is sent twice, the second time after the one that follows it.
    RepeatEvents,
    /// An ERROR event, and then the end.
    ErrorEvent(Status),
    /// So many bytes at a time, so far apart.
    Slow {
        /// Bytes at a time.
        bytes: usize,
        /// The time between them.
        every: Duration,
    },

    /// The body is a line without an end, forever.
    EndlessLine,
    /// The body has one object of so many bytes.
    GiantObject {
        /// About how large it is.
        bytes: u64,
    },
    /// The body is compressed, and so many bytes when decompressed.
    GzipBomb {
        /// How large it is when decompressed.
        bytes: u64,
    },
    /// The body is compressed and ends in the middle.
    TruncatedGzip,
}

/// How far behind a lagging server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lag {
    /// Always so much time.
    By(Duration),
    /// It sees nothing newer than this resourceVersion.
    Frozen {
        /// The resourceVersion.
        at: u64,
    },
}

/// What is wrong with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// `metadata.labels` is a number.
    Labels,
    /// There is no metadata.
    NoMetadata,
    /// `metadata.name` is missing.
    NoName,
    /// `metadata.name` has a slash in it.
    NameWithSlash,
    /// `metadata.resourceVersion` is missing.
    NoResourceVersion,
    /// `spec` is a text, so that the metadata can be read and the object not.
    Spec,
    /// It is of another kind.
    Kind,
}

// === impl Fault ===

impl Fault {
    /// A failure with a status code, in the API server's JSON form. `retry_after` is in seconds, 0 for none.
    #[must_use]
    pub fn status(code: u16, retry_after: u32) -> Self {
        let text = http::StatusCode::from_u16(code).ok().and_then(|code| code.canonical_reason());
        let message = text.unwrap_or("injected failure");
        Self::Status(match code {
            401 => Status::unauthorized(),
            410 => Status::list_expired(),
            429 => Status::too_many_requests("Too many requests, please try again later.", retry_after),
            500 => Status::internal_error("injected failure"),
            504 => Status::timeout("request did not complete within the allotted timeout", retry_after),
            code => {
                let reason = message.split_whitespace().collect::<String>();
                let details =
                    skopos_wire::StatusDetails { retry_after_seconds: retry_after, ..Default::default() };
                Status::failure(code, reason, message).with_details(details)
            }
        })
    }

    /// 429 as the API server sends it when too many requests are in flight (W16): plain text.
    #[must_use]
    pub fn too_many_requests(retry_after: u32) -> Self {
        Self::Answer {
            code: 429,
            headers: vec![
                (http::header::RETRY_AFTER, retry_after.to_string()),
                (http::header::CONTENT_TYPE, "text/plain; charset=utf-8".into()),
            ],
            body: "Too many requests, please try again later.\n".into(),
        }
    }

    /// 429 of a watch cache that is not ready (L11).
    #[must_use]
    pub fn cache_not_ready(retry_after: u32) -> Self {
        Self::Status(Status::storage_initializing(retry_after))
    }

    /// Whether it is decided before the request is handled.
    pub(super) fn is_of_request(&self) -> bool {
        matches!(
            self,
            Self::Status(_)
                | Self::Answer { .. }
                | Self::Redirect(_)
                | Self::WithholdHeaders
                | Self::DelayHeaders(_)
                | Self::HoldHeadersUntilData
                | Self::KillConnection(_)
                | Self::GoAway
        ) || self.is_hostile()
    }

    /// Whether it replaces the whole body.
    pub(super) fn is_hostile(&self) -> bool {
        matches!(
            self,
            Self::EndlessLine | Self::GiantObject { .. } | Self::GzipBomb { .. } | Self::TruncatedGzip
        )
    }

    /// Whether it strikes bodies while they are sent.
    pub(super) fn is_of_body(&self) -> bool {
        !self.is_of_request() && !matches!(self, Self::Lag(_))
    }
}
