//! `Status`: an API server's report of a failure or success.

mod constructors;
mod field_error;
mod reason;

pub use constructors::GroupResource;
pub(crate) use constructors::aggregate;
pub(crate) use field_error::go_quote_char;
pub use field_error::{FieldError, FieldErrorKind, ListOptionsFault};
pub use reason::StatusReason;
use serde::{Deserialize, Serialize};

use crate::ContinueToken;
use crate::protobuf;

/// A Kubernetes `Status`, in the exact JSON shape of the API server.
///
/// Servers create one with a constructor that knows the message ([`Status::not_found`] and so on); clients query its
/// meaning ([`Status::is_expired`] and so on).
///
/// ```
/// # use skopos_wire::{GroupResource, Status};
/// let status = Status::not_found(GroupResource::new("apps", "deployments"), "web");
/// assert_eq!(
///     serde_json::to_string(&status).unwrap(),
///     r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"web\" not found","reason":"NotFound","details":{"name":"web","group":"apps","kind":"deployments"},"code":404}"#
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Always `Status`.
    #[serde(default = "kind")]
    pub kind: String,
    /// Always `v1`.
    #[serde(default = "api_version")]
    pub api_version: String,
    /// List metadata. An expired continue token uses its `continue`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub metadata: StatusMeta,
    /// `Success` or `Failure`.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// The human-readable message.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The machine-readable reason. Empty if the server sent none.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "StatusReason::is_empty")]
    pub reason: StatusReason,
    /// Details of the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    /// The HTTP status code, or 0.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub code: u16,
}

/// The metadata of a [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusMeta {
    /// Not used by the API server itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// The token of a 410 in the middle of a paged list, which continues at the newest state.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub continue_token: Option<String>,
    /// Not used by the API server itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<i64>,
}

/// The subject of a [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusDetails {
    /// The object's name.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The API group.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource (`pods`), or the kind for an invalid object.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The object's uid.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The single causes of the failure.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// Seconds before a retry; 0 if the server sets none.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// A single cause of a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCause {
    /// The machine-readable reason, such as `FieldValueInvalid`.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The human-readable message.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The field at fault, such as `spec.containers[0].name`.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl Status {
    /// Parses a Status from the body of a response, if it is one: in JSON, or in protobuf.
    pub fn from_slice(json: &[u8]) -> Option<Self> {
        if json.starts_with(protobuf::MAGIC) {
            let envelope = protobuf::Envelope::read(json)?;
            return if envelope.kind == "Status" { protobuf::decode(json).ok() } else { None };
        }
        #[derive(Deserialize)]
        struct Kind {
            kind: String,
        }
        let is_status = serde_json::from_slice::<Kind>(json).is_ok_and(|body| body.kind == "Status");
        if is_status { serde_json::from_slice(json).ok() } else { None }
    }

    /// Returns the body of a response.
    pub fn to_vec(&self) -> Vec<u8> {
        // Structs of strings and numbers always serialize.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Returns the machine-readable reason.
    pub fn reason(&self) -> &StatusReason {
        &self.reason
    }

    /// Returns the single causes of the failure.
    pub fn causes(&self) -> &[StatusCause] {
        self.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default()
    }

    /// Returns the seconds before a retry that the server requests; `None` if it sets none.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0)
    }

    /// Returns whether this is a failure.
    pub fn is_failure(&self) -> bool {
        self.status != SUCCESS
    }

    /// Returns whether the requested version is compacted (reason `Expired`, or `Gone` before Kubernetes 1.18, or code
    /// 410). Only a new list helps.
    pub fn is_expired(&self) -> bool {
        matches!(self.reason, StatusReason::Expired | StatusReason::Gone) || self.code == 410
    }

    /// Returns whether the server has not reached the requested version, in any of the dialects: a cause
    /// `ResourceVersionTooLarge` (1.18.6 and newer), a cause with only the message (1.17.0 to 1.18.5), or only the message
    /// of a timeout (older).
    pub fn is_too_large_resource_version(&self) -> bool {
        if self.causes().iter().any(|cause| cause.reason == TOO_LARGE_CAUSE) {
            return true;
        }
        let timeout = self.reason == StatusReason::Timeout || self.code == 504;
        timeout
            && (self.causes().iter().any(|cause| cause.message == TOO_LARGE_MESSAGE)
                || self.message.contains(TOO_LARGE_MESSAGE))
    }

    /// Returns the token with which a paged list whose version is compacted can continue at the newest state. The pages
    /// before and after then show different states.
    pub fn inconsistent_continue(&self) -> Option<&str> {
        self.metadata.continue_token.as_deref().filter(|token| self.is_expired() && !token.is_empty())
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reason = self.reason.as_str();
        match (self.message.as_str(), reason) {
            ("", "") => write!(f, "HTTP status {}", self.code),
            ("", reason) => f.write_str(reason),
            (message, "") => f.write_str(message),
            (message, reason) => write!(f, "{message} ({reason})"),
        }
    }
}

impl std::error::Error for Status {}

impl Default for Status {
    /// Creates a failure without further information.
    fn default() -> Self {
        Self {
            kind: kind(),
            api_version: api_version(),
            metadata: StatusMeta::default(),
            status: FAILURE.into(),
            message: String::new(),
            reason: StatusReason::default(),
            details: None,
            code: 0,
        }
    }
}

const SUCCESS: &str = "Success";
const FAILURE: &str = "Failure";
const TOO_LARGE_CAUSE: &str = "ResourceVersionTooLarge";
const TOO_LARGE_MESSAGE: &str = "Too large resource version";

fn kind() -> String {
    "Status".into()
}

fn api_version() -> String {
    "v1".into()
}

fn is_zero<T: Default + PartialEq>(n: &T) -> bool {
    *n == T::default()
}

/// Treats null as the default, because Go writes and reads null for empty values.
fn null_as_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl ContinueToken {
    /// Returns the token that continues at the newest state after `self`'s version was compacted.
    #[must_use]
    pub fn inconsistent(&self) -> Self {
        Self::new(Self::LATEST, self.start_key.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_null_and_unknown_status_fields() {
        let odd = br#"{"kind":"Status","metadata":null,"reason":"Odd","details":{"causes":null,"x":1},"code":null,"x":1}"#;
        let status = Status::from_slice(odd).unwrap();
        assert_eq!(status.reason(), &StatusReason::Unknown("Odd".into()));
    }

    #[test]
    fn knows_every_dialect_of_too_large() {
        let current = Status::too_large_resource_version(9, 7, 1);
        let mut cause_message_only = current.clone();
        cause_message_only.details.as_mut().unwrap().causes[0].reason.clear();
        cause_message_only.message = "Timeout".into();
        let message_only = Status::timeout("Too large resource version: 9, current: 7", 0);
        for status in [current, cause_message_only, message_only] {
            assert!(status.is_too_large_resource_version(), "{status:?}");
        }
        assert!(!Status::timeout("something else", 0).is_too_large_resource_version());
        assert!(!Status::bad_request("Too large resource version").is_too_large_resource_version());
    }

    #[test]
    fn recognizes_expiry_and_recovery_hints() {
        for status in [Status::gone("x"), Status::list_expired(), Status::failure(410, "", "")] {
            assert!(status.is_expired());
            assert_eq!(status.inconsistent_continue(), None);
        }
        let status = Status::continue_expired(Some("default/a\0"));
        let token = ContinueToken::decode(status.inconsistent_continue().unwrap()).unwrap();
        assert!(token.is_inconsistent());
        assert_eq!(token.start_key, "default/a\0");
        assert_eq!(Status::too_many_requests("x", 3).retry_after_seconds(), Some(3));
        assert_eq!(Status::unauthorized().retry_after_seconds(), None);
    }

    #[test]
    fn parses_sparse_status_and_rejects_other_bodies() {
        for none in ["", "{}", "404 page not found", r#"{"kind":"Pod"}"#, r#"{"kind":"Status","code":"x"}"#] {
            assert_eq!(Status::from_slice(none.as_bytes()), None, "{none}");
        }
        let little = Status::from_slice(br#"{"kind":"Status","details":{"retryAfterSeconds":0}}"#).unwrap();
        assert_eq!((little.kind.as_str(), little.api_version.as_str()), ("Status", "v1"));
        assert!(little.reason().is_empty() && little.causes().is_empty());
        assert_eq!(little.retry_after_seconds(), None, "0 is as good as nothing");
        let success = Status::from_slice(br#"{"kind":"Status","status":"Success"}"#).unwrap();
        assert_eq!((little.is_failure(), success.is_failure()), (true, false));
    }

    #[test]
    fn display_shows_message_reason_or_code() {
        let failure = |reason: &str, message: &str| Status::failure(418, reason, message).to_string();
        assert_eq!(failure("", ""), "HTTP status 418");
        assert_eq!(failure("Odd", ""), "Odd");
        assert_eq!(failure("", "no"), "no");
        assert_eq!(failure("Odd", "no"), "no (Odd)");
    }

    #[test]
    fn only_410_in_any_dialect_causes_relist() {
        let failure = |code, reason: &str| Status::failure(code, reason, "");
        for status in [failure(410, ""), failure(410, "Odd"), failure(0, "Expired"), failure(0, "Gone")] {
            assert!(status.is_expired(), "{status:?}");
        }
        for mut status in [failure(500, ""), failure(429, "TooManyRequests"), failure(404, "NotFound")] {
            status.metadata.continue_token = Some("token".into());
            assert!(!status.is_expired(), "{status:?}");
            assert_eq!(status.inconsistent_continue(), None, "{status:?}");
        }
        let mut without = failure(410, "Expired");
        without.metadata.continue_token = Some(String::new());
        assert_eq!(without.inconsistent_continue(), None, "an empty token is none");
    }

    #[test]
    fn version_too_large_requires_cause_or_timeout() {
        let with = |code, reason: &str, cause: StatusCause| {
            Status::failure(code, reason, "")
                .with_details(StatusDetails { causes: vec![cause], ..StatusDetails::default() })
        };
        let reason = StatusCause { reason: "ResourceVersionTooLarge".into(), ..StatusCause::default() };
        let message = StatusCause { message: "Too large resource version".into(), ..StatusCause::default() };
        let odd = StatusCause { message: "odd".into(), ..StatusCause::default() };
        for (status, expected) in [
            (with(0, "", reason), true),
            (with(504, "", message.clone()), true),
            (with(0, "Timeout", message.clone()), true),
            (with(500, "", message), false),
            (with(504, "Timeout", odd), false),
        ] {
            assert_eq!(status.is_too_large_resource_version(), expected, "{status:?}");
        }
    }
}
