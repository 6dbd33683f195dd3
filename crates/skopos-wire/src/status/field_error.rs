//! Errors of single fields, with the API server's messages.

use std::fmt;

/// One invalid field of an object or of request options.
///
/// Displays as in the message of a 422: `spec.replicas: Invalid value: -1: must be greater than or equal to 0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The type of error.
    pub kind: FieldErrorKind,
    /// The path of the field, such as `spec.containers[0].name`.
    pub field: String,
    /// The value to show; empty for types of errors that show none.
    pub value: String,
    /// A human-readable description of a valid value; may be empty.
    pub detail: String,
}

/// Types of field errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldErrorKind {
    /// A missing required field.
    Required,
    /// A malformed or out-of-range value.
    Invalid,
    /// A value that is not one of those allowed.
    NotSupported,
    /// A field that is not allowed.
    Forbidden,
    /// A duplicate value.
    Duplicate,
    /// A reference to something that does not exist.
    NotFound,
    /// A value that is too long.
    TooLong,
}

impl FieldError {
    /// Creates the error of a missing required field.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, "", detail)
    }

    /// Creates the error of a field that is not allowed.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, "", detail)
    }

    /// Creates the error of a malformed text.
    pub fn invalid(field: impl Into<String>, value: &str, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, go_quote(value), detail)
    }

    /// Creates the error of a malformed or out-of-range number, boolean or null.
    pub fn invalid_literal(
        field: impl Into<String>,
        value: impl fmt::Display,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(FieldErrorKind::Invalid, field, value.to_string(), detail)
    }

    /// Creates the error of a text that is not one of those allowed.
    pub fn not_supported(field: impl Into<String>, value: &str, allowed: &[&str]) -> Self {
        let allowed: Vec<String> = allowed.iter().map(|text| go_quote(text)).collect();
        let detail = match allowed.as_slice() {
            [] => String::new(),
            allowed => format!("supported values: {}", allowed.join(", ")),
        };
        Self::new(FieldErrorKind::NotSupported, field, go_quote(value), detail)
    }

    /// Creates the error of a duplicate text.
    pub fn duplicate(field: impl Into<String>, value: &str) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, go_quote(value), "")
    }

    /// Creates the error of a text that refers to something that does not exist.
    pub fn not_found(field: impl Into<String>, value: &str) -> Self {
        Self::new(FieldErrorKind::NotFound, field, go_quote(value), "")
    }

    /// Creates the error of a field longer than `max` bytes.
    pub fn too_long(field: impl Into<String>, max: usize) -> Self {
        Self::new(FieldErrorKind::TooLong, field, "", format!("may not be more than {max} bytes"))
    }

    /// Returns the message without the field, as in the causes of a 422.
    pub fn body(&self) -> String {
        let mut body = self.kind.text().to_owned();
        for part in [&self.value, &self.detail] {
            if !part.is_empty() {
                body.push_str(": ");
                body.push_str(part);
            }
        }
        body
    }

    fn new(
        kind: FieldErrorKind,
        field: impl Into<String>,
        value: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self { kind, field: field.into(), value: value.into(), detail: detail.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl FieldErrorKind {
    /// Returns the reason, as in [`StatusCause::reason`](super::StatusCause::reason).
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::TooLong => "FieldValueTooLong",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::Duplicate => "Duplicate value",
            Self::NotFound => "Not found",
            Self::TooLong => "Too long",
        }
    }
}

/// Combinations of list and watch options that the API server rejects with 422 (rules L4 and W2).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListOptionsFault {
    /// `resourceVersionMatch` on a list without `resourceVersion`.
    MatchWithoutResourceVersion,
    /// `resourceVersionMatch` with `continue`.
    MatchWithContinue,
    /// A `resourceVersionMatch` on a list that is neither `Exact` nor `NotOlderThan`.
    UnknownMatch(String),
    /// `Exact` with version 0.
    ExactZero,
    /// `sendInitialEvents` on a list.
    SendInitialEventsOnList,
    /// `sendInitialEvents` on a watch without `NotOlderThan`.
    SendInitialEventsWithoutMatch,
    /// `sendInitialEvents` on a watch of a server that does not support it.
    SendInitialEventsNotOffered,
    /// `resourceVersionMatch` on a watch without `sendInitialEvents`.
    WatchMatchWithoutSendInitialEvents,
    /// A `resourceVersionMatch` on a watch that is not `NotOlderThan`.
    UnknownWatchMatch(String),
}

impl ListOptionsFault {
    /// Returns the field and the message of the API server's error.
    pub fn field_error(&self) -> FieldError {
        const MATCH: &str = "resourceVersionMatch";
        const SEND: &str = "sendInitialEvents";
        match self {
            Self::MatchWithoutResourceVersion => FieldError::forbidden(
                MATCH,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
            Self::MatchWithContinue => {
                FieldError::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided")
            }
            Self::UnknownMatch(value) => {
                FieldError::not_supported(MATCH, value, &["Exact", "NotOlderThan", ""])
            }
            Self::ExactZero => FieldError::forbidden(
                MATCH,
                r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#,
            ),
            Self::SendInitialEventsOnList => {
                FieldError::forbidden(SEND, "sendInitialEvents is forbidden for list")
            }
            Self::SendInitialEventsWithoutMatch => FieldError::forbidden(
                MATCH,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
            Self::SendInitialEventsNotOffered => FieldError::forbidden(
                SEND,
                "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
            ),
            Self::WatchMatchWithoutSendInitialEvents => FieldError::forbidden(
                MATCH,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
            Self::UnknownWatchMatch(value) => FieldError::not_supported(MATCH, value, &["NotOlderThan"]),
        }
    }
}

/// Quotes as Go's `%q` does, for the texts that occur in names and values.
pub(crate) fn go_quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            c => go_escape(c, &mut quoted),
        }
    }
    quoted.push('"');
    quoted
}

/// Quotes a character as the errors of Go's `encoding/json` do.
pub(crate) fn go_quote_char(c: char) -> String {
    let mut quoted = String::from("'");
    match c {
        '\'' => quoted.push_str("\\'"),
        c => go_escape(c, &mut quoted),
    }
    quoted.push('\'');
    quoted
}

fn go_escape(c: char, quoted: &mut String) {
    use std::fmt::Write as _;
    match c {
        '\\' => quoted.push_str("\\\\"),
        '\n' => quoted.push_str("\\n"),
        '\r' => quoted.push_str("\\r"),
        '\t' => quoted.push_str("\\t"),
        '\u{7}' => quoted.push_str("\\a"),
        '\u{8}' => quoted.push_str("\\b"),
        '\u{b}' => quoted.push_str("\\v"),
        '\u{c}' => quoted.push_str("\\f"),
        c if (c as u32) < 0x20 || c == '\u{7f}' => {
            // Writing to a String cannot fail.
            let _ = write!(quoted, "\\x{:02x}", c as u32);
        }
        // The characters of Latin-1 that are not printable.
        '\u{80}'..='\u{a0}' | '\u{ad}' => {
            let _ = write!(quoted, "\\u{:04x}", c as u32);
        }
        c => quoted.push(c),
    }
}
