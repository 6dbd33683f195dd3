//! Request faults.

use std::time::Duration;

use http::HeaderName;
use skopos_wire::Status;

use super::CloseMode;

/// Fault of a request.
///
/// Body faults ([`Fault::Stall`] and below) also affect streams that are open when they are injected, unless
/// [`Match::new_requests`](super::Match::new_requests) says otherwise.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// Answers with this status. `details.retryAfterSeconds` becomes the header `Retry-After`.
    Status(Status),
    /// Answers with anything: a proxy's HTML, or the plain text of priority and fairness.
    Answer {
        /// HTTP status code.
        code: u16,
        /// Headers, such as `Content-Type` or `Retry-After`.
        headers: Vec<(HeaderName, String)>,
        /// Response body.
        body: String,
    },
    /// Answers 307 with this `Location`.
    Redirect(String),
    /// Sends no headers until healed.
    WithholdHeaders,
    /// Delays the headers by this time.
    DelayHeaders(Duration),
    /// Sends the headers together with the first chunk of the body, as some proxies do.
    HoldHeadersUntilData,
    /// Closes the connection instead of answering.
    KillConnection(CloseMode),
    /// Answers, but tells the client to open another connection for later requests.
    GoAway,
    /// Shows an older state to watches and to reads that need not be the newest.
    Lag(Lag),

    /// Sends nothing more of the body until healed; the connection stays healthy.
    Stall,
    /// Sends the body only when it ends or exceeds a megabyte, as a buffering proxy does.
    HoldUntilEnd,
    /// Ends the body cleanly, at once.
    Close,
    /// Ends the body cleanly this long after its start.
    CloseAfter(Duration),
    /// Ends the body with an error: RST_STREAM on HTTP/2, a cut connection on HTTP/1.1.
    Reset,
    /// Sends half of the next frame and ends the body cleanly. Counts frames.
    HalfFrame,
    /// Replaces the next frame with invalid JSON. Counts frames.
    GarbageFrame,
    /// Damages the object of the next event, the first of a list, or the single object. Counts events.
    Undecodable(Damage),
    /// Sends no bookmark, not even the one at the end of the initial events.
    WithholdBookmarks,
    /// Drops events.
    DropEvents,
    /// Sends every event twice, the second time after the following event.
    RepeatEvents,
    /// Sends an ERROR event, then ends the body.
    ErrorEvent(Status),
    /// Sends the body in small chunks with pauses.
    Slow {
        /// Bytes per chunk.
        bytes: usize,
        /// Time between chunks.
        every: Duration,
    },

    /// Sends one line without an end, forever.
    EndlessLine,
    /// Sends a body with one giant object.
    GiantObject {
        /// Approximate size in bytes.
        bytes: u64,
    },
    /// Sends a compressed body that is huge when decompressed.
    GzipBomb {
        /// Decompressed size in bytes.
        bytes: u64,
    },
    /// Sends a compressed body that ends in the middle.
    TruncatedGzip,
}

/// Lag of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lag {
    /// A constant time.
    By(Duration),
    /// Nothing newer than this resourceVersion is visible.
    Frozen {
        /// Last visible resourceVersion.
        at: u64,
    },
}

/// Defect of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// `metadata.labels` is a number.
    Labels,
    /// `metadata` is missing.
    NoMetadata,
    /// `metadata.name` is missing.
    NoName,
    /// `metadata.name` contains a slash.
    NameWithSlash,
    /// `metadata.resourceVersion` is missing.
    NoResourceVersion,
    /// `spec` is a string, so that the metadata can be decoded and the object cannot.
    Spec,
    /// `kind` is another kind.
    Kind,
}

impl Fault {
    /// Creates a failure with a status code, in the API server's JSON form. `retry_after` is in seconds, 0 for none.
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

    /// Creates the 429 that the API server sends when too many requests are in flight (W16): plain text.
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

    /// Creates the 429 of a watch cache that is not ready (L11).
    pub fn cache_not_ready(retry_after: u32) -> Self {
        Self::Status(Status::storage_initializing(retry_after))
    }

    /// Returns whether the fault is decided before the request is handled.
    pub(super) fn applies_to_request(&self) -> bool {
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

    /// Returns whether the fault replaces the whole body.
    pub(super) fn is_hostile(&self) -> bool {
        matches!(
            self,
            Self::EndlessLine | Self::GiantObject { .. } | Self::GzipBomb { .. } | Self::TruncatedGzip
        )
    }

    /// Returns whether the fault affects bodies while they are sent.
    pub(super) fn applies_to_body(&self) -> bool {
        !self.applies_to_request() && !matches!(self, Self::Lag(_))
    }
}
