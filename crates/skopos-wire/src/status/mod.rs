//! `Status`: how an API server says what went wrong, or that it went well.

mod constructors;
mod field_error;
mod reason;

use serde::{Deserialize, Serialize};

use crate::ContinueToken;

pub use constructors::GroupResource;
pub(crate) use constructors::aggregate;
pub use field_error::{FieldError, FieldErrorKind, ListOptionsFault};
pub use reason::StatusReason;

/// A Kubernetes `Status`, in the exact JSON shape of the API server.
///
/// Servers make one with a constructor that knows the text ([`Status::not_found`] and so on); clients ask what it means
/// ([`Status::is_expired`] and so on).
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
    /// List metadata, of which an expired continue token uses `continue`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub metadata: StatusMeta,
    /// `Success` or `Failure`.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// For people.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// For programs. Empty if the server gave none.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "StatusReason::is_empty")]
    pub reason: StatusReason,
    /// More about the reason.
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
    /// Of a 410 in the middle of a paged list: the token that goes on at the newest state.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub continue_token: Option<String>,
    /// Not used by the API server itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<i64>,
}

/// What a [`Status`] is about.
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
    /// Each single thing that is wrong.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// After how many seconds to try again; 0 if the server does not say.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One of the things that are wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCause {
    /// For programs, such as `FieldValueInvalid`.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// For people.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The field that it is about, such as `spec.containers[0].name`.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl Status {
    /// Reads a Status from the body of a response, if it is one.
    pub fn from_slice(json: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Kind {
            kind: String,
        }
        let is_status = serde_json::from_slice::<Kind>(json).is_ok_and(|body| body.kind == "Status");
        if is_status { serde_json::from_slice(json).ok() } else { None }
    }

    /// The body of a response.
    pub fn to_vec(&self) -> Vec<u8> {
        // Structs of strings and numbers always serialize.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The reason, for programs.
    pub fn reason(&self) -> &StatusReason {
        &self.reason
    }

    /// The single things that are wrong.
    pub fn causes(&self) -> &[StatusCause] {
        self.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default()
    }

    /// After how many seconds the server wants to be asked again; `None` if it does not say.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0)
    }

    /// Whether something went wrong.
    pub fn is_failure(&self) -> bool {
        self.status != SUCCESS
    }

    /// Whether the version that was asked for is compacted away (reason `Expired`, or `Gone` before Kubernetes 1.18, or
    /// simply 410): only a new list helps.
    pub fn is_expired(&self) -> bool {
        matches!(self.reason, StatusReason::Expired | StatusReason::Gone) || self.code == 410
    }

    /// Whether the server has not reached the version that was asked for, in any of the dialects: a cause
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

    /// The token with which a paged list whose version is compacted away can go on at the newest state. What came before
    /// and what comes after are then of different states.
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
    /// A failure that says nothing more.
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

/// Go writes and reads null for whatever is empty.
fn null_as_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl ContinueToken {
    /// The token that goes on at the newest state after `self`'s version was compacted away.
    pub fn inconsistent(&self) -> Self {
        Self::new(Self::LATEST, self.start_key.clone())
    }
}
