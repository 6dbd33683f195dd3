//! Classification of failures: the only place that looks at codes, reasons and texts.

use std::time::Duration;

use skopos_wire::{Status, StatusReason};

use super::{Cause, Condition, Failure, Reason, Trouble};
use crate::Time;

/// A classified failure.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) meaning: Meaning,
    /// For people, and for programs above the reflector.
    pub(super) reason: Reason,
    /// The time for which the server asks to be left alone.
    pub(super) retry_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// 410: the history that we need is gone, or the continue token is.
    Expired,
    /// Our RV lies in the server's future.
    TooLargeResourceVersion,
    /// The server cannot read one of its objects; the watch cannot continue past it.
    ServerReadError,
    /// No connection: nothing was sent. The transport tries again on its own schedule.
    CannotConnect {
        retry_at: Option<Time>,
    },
    /// The connection broke, or the stream was cut.
    Lost,
    /// No data within the time limit.
    TimedOut,
    Unauthorized,
    Forbidden,
    NotServed,
    Throttled,
    /// 5xx.
    ServerError,
    /// The status is a success, but the body is not what a Kubernetes API server sends.
    Malformed,
    /// The pages of a list never end.
    Endless,
    /// The list exceeds the limits.
    TooLarge,
    /// The response is not usable as HTTP: a redirect, broken HTTP.
    Protocol,
    /// Any other 4xx.
    Rejected,
    /// The transport was shut down.
    Closed,
}

impl Verdict {
    pub(super) fn from_failure(failure: &Failure) -> Verdict {
        match failure {
            Failure::Answer { code, status, retry_after } => {
                let mut verdict = classify_response(*code, status.as_deref());
                verdict.retry_after = verdict.retry_after.max(*retry_after);
                verdict
            }
            Failure::Connection { trouble, reason, retry_at } => {
                let meaning = match trouble {
                    Trouble::CannotConnect => Meaning::CannotConnect { retry_at: *retry_at },
                    Trouble::Lost => Meaning::Lost,
                    Trouble::TimedOut => Meaning::TimedOut,
                    Trouble::NoCredentials => Meaning::Unauthorized,
                    Trouble::Protocol => Meaning::Protocol,
                    Trouble::Closed => Meaning::Closed,
                };
                Verdict { meaning, reason: reason.clone(), retry_after: None }
            }
            Failure::Malformed { reason } => Verdict::new(Meaning::Malformed, &**reason),
        }
    }

    /// Classifies a Status that came as an ERROR event in a stream.
    pub(super) fn from_event(status: &Status) -> Verdict {
        classify_response(status.code, Some(status))
    }

    /// Makes a verdict on a problem that the reflector itself has detected.
    pub(super) fn new(meaning: Meaning, message: impl Into<Box<str>>) -> Verdict {
        let cause = match meaning {
            Meaning::TimedOut => Cause::Silence,
            Meaning::Malformed | Meaning::Endless | Meaning::TooLarge => Cause::Unusable,
            _ => Cause::Other,
        };
        Verdict { meaning, reason: Reason::new(cause, message), retry_after: None }
    }

    /// Returns whether the server will refuse this however often, and for whichever reflector, the client asks.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self.meaning, Meaning::Forbidden | Meaning::NotServed | Meaning::Rejected)
    }

    /// Returns whether a list may succeed where a stream failed: the failure does not apply to all requests.
    pub(super) fn list_may_succeed(&self) -> bool {
        !matches!(
            self.meaning,
            Meaning::CannotConnect { .. } | Meaning::Throttled | Meaning::Unauthorized | Meaning::Closed
        )
    }

    /// Returns whether the server has, or may have, begun the work, so that another attempt costs it as much again.
    pub(super) fn was_served(&self) -> bool {
        matches!(
            self.meaning,
            Meaning::Lost
                | Meaning::TimedOut
                | Meaning::Malformed
                | Meaning::Endless
                | Meaning::TooLarge
                | Meaning::Protocol
        )
    }

    /// Returns the condition of a reflector that waits because of this.
    pub(super) fn condition(&self) -> Condition {
        match self.meaning {
            Meaning::CannotConnect { .. } => Condition::Unreachable,
            Meaning::Unauthorized => Condition::Unauthorized,
            Meaning::Forbidden => Condition::Forbidden,
            Meaning::NotServed => Condition::NotServed,
            Meaning::Throttled => Condition::Throttled,
            Meaning::ServerError
            | Meaning::Malformed
            | Meaning::Endless
            | Meaning::TooLarge
            | Meaning::Protocol
            | Meaning::ServerReadError => Condition::ServerError,
            Meaning::Rejected => Condition::Rejected,
            Meaning::Closed => Condition::Stopped,
            Meaning::Expired | Meaning::TooLargeResourceVersion | Meaning::Lost | Meaning::TimedOut => {
                Condition::Retrying
            }
        }
    }
}

fn classify_response(code: u16, status: Option<&Status>) -> Verdict {
    let meaning = status.and_then(classify_status).unwrap_or(match code {
        401 => Meaning::Unauthorized,
        403 => Meaning::Forbidden,
        404 => Meaning::NotServed,
        410 => Meaning::Expired,
        429 => Meaning::Throttled,
        400..=499 => Meaning::Rejected,
        // A redirect is no response of an API server, and neither is a success status here.
        _ => Meaning::ServerError,
    });
    let message = match status.map(|status| status.message.as_str()) {
        Some(message) if !message.is_empty() => format!("{message} (HTTP {code})"),
        _ => format!("the server answered HTTP {code}"),
    };
    let cause =
        Cause::Answer { code, reason: status.map(|status| status.reason.clone()).unwrap_or_default() };
    let retry_after =
        status.and_then(|status| status.retry_after_seconds()).map(|s| Duration::from_secs(u64::from(s)));
    Verdict { meaning, reason: Reason::new(cause, message), retry_after }
}

/// Returns the meaning if the Status is more specific than the code.
fn classify_status(status: &Status) -> Option<Meaning> {
    if status.is_expired() {
        return Some(Meaning::Expired);
    }
    if status.is_too_large_resource_version() {
        return Some(Meaning::TooLargeResourceVersion);
    }
    match status.reason() {
        StatusReason::Unauthorized => Some(Meaning::Unauthorized),
        StatusReason::Forbidden => Some(Meaning::Forbidden),
        StatusReason::TooManyRequests => Some(Meaning::Throttled),
        // metav1.StatusReasonStoreReadError, since Kubernetes 1.32.
        StatusReason::Unknown(reason) if *reason == *"StorageReadError" => Some(Meaning::ServerReadError),
        _ => None,
    }
}
