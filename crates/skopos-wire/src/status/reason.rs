//! Machine-readable reasons.

use serde::{Deserialize, Serialize};

/// The reason of a [`Status`](super::Status).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
#[non_exhaustive]
pub enum StatusReason {
    /// 404: the object or resource does not exist.
    NotFound,
    /// 409: an object of that name exists.
    AlreadyExists,
    /// 409: the object has changed in between, or a precondition does not hold.
    Conflict,
    /// 410: as `Expired`, before Kubernetes 1.18.
    Gone,
    /// 410: the version is compacted.
    Expired,
    /// 422: the object or the options are invalid.
    Invalid,
    /// 504: the operation took too long and may still complete.
    Timeout,
    /// 500: the operation could not complete at this time; try again.
    ServerTimeout,
    /// 429: try again later.
    TooManyRequests,
    /// 401: the client is not authenticated.
    Unauthorized,
    /// 403: the client is not allowed to do this.
    Forbidden,
    /// 400: the request is malformed.
    BadRequest,
    /// 500: the server is at fault.
    InternalError,
    /// 405: the verb is not supported.
    MethodNotAllowed,
    /// 406: no requested representation is available.
    NotAcceptable,
    /// 413: the body is too large.
    RequestEntityTooLarge,
    /// 415: the format of the body is not supported.
    UnsupportedMediaType,
    /// 503: the service is not available now.
    ServiceUnavailable,
    /// Any other reason; empty if the server sent none.
    Unknown(String),
}

impl StatusReason {
    /// Returns the reason as it is in JSON.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Unknown(text) => text,
            known => {
                NAMES.iter().find_map(|(reason, name)| (reason == known).then_some(*name)).unwrap_or_default()
            }
        }
    }

    /// Returns whether there is no reason.
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
