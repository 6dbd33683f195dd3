//! Why, for programs.

use serde::{Deserialize, Serialize};

/// The reason of a [`Status`](super::Status).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
#[non_exhaustive]
pub enum StatusReason {
    /// 404: there is no such object, or no such resource.
    NotFound,
    /// 409: an object of that name exists.
    AlreadyExists,
    /// 409: the object has changed in between, or a precondition does not hold.
    Conflict,
    /// 410: as `Expired`, before Kubernetes 1.18.
    Gone,
    /// 410: the version is compacted away.
    Expired,
    /// 422: the object or the options are not valid.
    Invalid,
    /// 504: took too long, and may still happen.
    Timeout,
    /// 500: did not happen now, try again.
    ServerTimeout,
    /// 429: try again later.
    TooManyRequests,
    /// 401: who is asking?
    Unauthorized,
    /// 403: may not.
    Forbidden,
    /// 400: the request makes no sense.
    BadRequest,
    /// 500: the server is at fault.
    InternalError,
    /// 405: not with this verb.
    MethodNotAllowed,
    /// 406: no representation that was asked for.
    NotAcceptable,
    /// 413: the body is too large.
    RequestEntityTooLarge,
    /// 415: the body is in a format that the server does not know.
    UnsupportedMediaType,
    /// 503: not now.
    ServiceUnavailable,
    /// Any other; empty if the server gave none.
    Unknown(String),
}

impl StatusReason {
    /// The reason as it stands in JSON.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Unknown(text) => text,
            known => {
                NAMES.iter().find_map(|(reason, name)| (reason == known).then_some(*name)).unwrap_or_default()
            }
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Unknown(text) if text.is_empty())
    }
}

const NAMES: &[(StatusReason, &str)] = &[
    (StatusReason::NotFound, "NotFound"),
    (StatusReason::AlreadyExists, "AlreadyExists"),
    (StatusReason::Conflict, "Conflict"),
    (StatusReason::Gone, "Gone"),
    (StatusReason::Expired, "Expired"),
    (StatusReason::Invalid, "Invalid"),
    (StatusReason::Timeout, "Timeout"),
    (StatusReason::ServerTimeout, "ServerTimeout"),
    (StatusReason::TooManyRequests, "TooManyRequests"),
    (StatusReason::Unauthorized, "Unauthorized"),
    (StatusReason::Forbidden, "Forbidden"),
    (StatusReason::BadRequest, "BadRequest"),
    (StatusReason::InternalError, "InternalError"),
    (StatusReason::MethodNotAllowed, "MethodNotAllowed"),
    (StatusReason::NotAcceptable, "NotAcceptable"),
    (StatusReason::RequestEntityTooLarge, "RequestEntityTooLarge"),
    (StatusReason::UnsupportedMediaType, "UnsupportedMediaType"),
    (StatusReason::ServiceUnavailable, "ServiceUnavailable"),
];

impl Default for StatusReason {
    fn default() -> Self {
        Self::Unknown(String::new())
    }
}

impl From<String> for StatusReason {
    fn from(text: String) -> Self {
        match NAMES.iter().find(|(_, name)| *name == text) {
            Some((reason, _)) => reason.clone(),
            None => Self::Unknown(text),
        }
    }
}

impl From<&str> for StatusReason {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl From<StatusReason> for String {
    fn from(reason: StatusReason) -> Self {
        reason.as_str().to_owned()
    }
}

impl std::fmt::Display for StatusReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}
