//! Continue tokens: the position of the next page of a list.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::status::go_quote_char;

/// The decoded form of a list's `continue` token, as kube-apiserver writes it.
///
/// A token is opaque to clients; this is for servers, and for tests of clients. On the wire it is unpadded base64url of
/// `{"v":"meta.k8s.io/v1","rv":N,"start":"key\u0000"}`.
///
/// ```
/// # use skopos_wire::ContinueToken;
/// let token = ContinueToken::new(42, "default/web-1\0");
/// assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The version of the remaining pages; [`ContinueToken::LATEST`] after that one was compacted.
    pub resource_version: i64,
    /// The first key of the next page, relative to the resource's prefix and without a leading slash.
    pub start_key: String,
}

impl ContinueToken {
    /// The version of an *inconsistent continue*: the pages continue at the newest state.
    pub const LATEST: i64 = -1;

    /// Creates a token that continues with `start_key` at `resource_version`.
    pub fn new(resource_version: i64, start_key: impl Into<String>) -> Self {
        Self { resource_version, start_key: start_key.into() }
    }

    /// Returns whether the remaining pages may show another state than those before.
    pub fn is_inconsistent(&self) -> bool {
        self.resource_version == Self::LATEST
    }

    /// Encodes the token for a list's metadata or a request.
    pub fn encode(&self) -> String {
        let wire =
            Wire { v: VERSION.into(), rv: self.resource_version, start: self.start_key.as_str().into() };
        // A struct of two strings and a number always serializes.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&wire).unwrap_or_default())
    }

    /// Decodes the token of a request.
    ///
    /// # Errors
    /// If the token is invalid, with the server's own messages; the right response is 400 BadRequest.
    pub fn decode(token: &str) -> Result<Self, InvalidToken> {
        let corrupt =
            |_| InvalidToken::Malformed(format!("illegal base64 data at input byte {}", corrupt_at(token)));
        let json = URL_SAFE_NO_PAD.decode(token).map_err(corrupt)?;
        let wire: Wire<'_> = serde_json::from_slice(&json)
            .map_err(|error| InvalidToken::Malformed(go_problem(&json, &error)))?;
        if wire.v != VERSION {
            return Err(InvalidToken::UnknownVersion(wire.v.into_owned()));
        }
        if wire.rv == 0 {
            return Err(InvalidToken::NoResourceVersion);
        }
        if wire.start.is_empty() {
            return Err(InvalidToken::NoStartKey);
        }
        let key = wire.start.strip_prefix('/').unwrap_or(&wire.start);
        if !is_clean(key) {
            return Err(InvalidToken::Malformed(wire.start.into_owned()));
        }
        Ok(Self::new(wire.rv, key))
    }
}

/// Returns the position where Go's decoder rejects a text as base64url: the first invalid letter, or the single letter left
/// over at the end.
fn corrupt_at(token: &str) -> usize {
    let strange = |byte: u8| !(byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    token.bytes().position(strange).unwrap_or(token.len().saturating_sub(1))
}

/// Returns the error of Go's decoder for a text that is not JSON from its first byte on, or ends early. Tokens from
/// elsewhere decode to such texts. Other problems have serde's messages.
fn go_problem(json: &[u8], error: &serde_json::Error) -> String {
    let first = json.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
    match first {
        Some(byte) if !matches!(byte, b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
            format!("invalid character {} looking for beginning of value", go_quote_char(char::from(*byte)))
        }
        Some(_) if !error.is_eof() => error.to_string(),
        _ => "unexpected end of JSON input".to_owned(),
    }
}

/// Returns whether no segment of the path can lead out of the resource's prefix.
fn is_clean(key: &str) -> bool {
    key.split('/').all(|segment| !matches!(segment, "" | "." | ".."))
}

const VERSION: &str = "meta.k8s.io/v1";

#[derive(Serialize, Deserialize)]
struct Wire<'a> {
    #[serde(default, borrow)]
    v: std::borrow::Cow<'a, str>,
    #[serde(default)]
    rv: i64,
    #[serde(default, borrow)]
    start: std::borrow::Cow<'a, str>,
}

/// A `continue` that the server did not write. The caller is at fault: it must start a new list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidToken {
    /// A token that is not base64url or not JSON, or whose path leads out of the prefix.
    #[error("continue key is not valid: {0}")]
    Malformed(String),
    /// A token written by another version of the server.
    #[error("continue key is not valid: server does not recognize this encoded version {0}")]
    UnknownVersion(String),
    /// A token whose version is missing or 0.
    #[error("continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")]
    NoResourceVersion,
    /// A token without a start key.
    #[error("continue key is not valid: encoded start key empty (version meta.k8s.io/v1)")]
    NoStartKey,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(json: &str) -> String {
        URL_SAFE_NO_PAD.encode(json)
    }

    #[test]
    fn encodes_token_like_kube_apiserver() {
        let encoded = ContinueToken::new(7, "default/a\0").encode();
        let json = URL_SAFE_NO_PAD.decode(encoded).unwrap();
        assert_eq!(
            String::from_utf8(json).unwrap(),
            r#"{"v":"meta.k8s.io/v1","rv":7,"start":"default/a\u0000"}"#
        );
    }

    #[test]
    fn rejects_token_with_api_server_messages() {
        let text = |json: &str| ContinueToken::decode(&token(json)).unwrap_err().to_string();
        assert_eq!(
            text(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#),
            "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)"
        );
        assert_eq!(
            text(r#"{"v":"meta.k8s.io/v1","rv":1}"#),
            "continue key is not valid: encoded start key empty (version meta.k8s.io/v1)"
        );
        assert_eq!(
            text(r#"{"v":"v2","rv":1,"start":"a"}"#),
            "continue key is not valid: server does not recognize this encoded version v2"
        );
        assert_eq!(
            text(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../a"}"#),
            "continue key is not valid: ../a"
        );
        // The first letter that is not base64url, or the last one if it is left over.
        for (token, at) in [("%%%", 0), ("a-b_9%", 5), ("ab c", 2), ("a+b/", 1), ("abcde", 4)] {
            let expected = format!("continue key is not valid: illegal base64 data at input byte {at}");
            assert_eq!(ContinueToken::decode(token).unwrap_err().to_string(), expected, "{token}");
        }
    }

    /// Checks the messages of a kube-apiserver (1.36).
    #[test]
    fn rejects_non_json_with_api_server_messages() {
        for (bytes, character) in [
            (&b"i\xb7"[..], "'i'"),
            (b"'", r"'\''"),
            (b" \\", r"'\\'"),
            (b"\0", r"'\x00'"),
            (b"\x07", r"'\a'"),
            (b"\x1b", r"'\x1b'"),
            (b"\x7f", r"'\x7f'"),
            (b"\x80", r"'\u0080'"),
            (b"\xad", r"'\u00ad'"),
            (b"\xe9", "'é'"),
        ] {
            let error = ContinueToken::decode(&URL_SAFE_NO_PAD.encode(bytes)).unwrap_err().to_string();
            let expected = format!(
                "continue key is not valid: invalid character {character} looking for beginning of value"
            );
            assert_eq!(error, expected);
        }
        for early in ["\"", "{", " \n", r#"{"a""#] {
            let error = ContinueToken::decode(&token(early)).unwrap_err().to_string();
            assert_eq!(error, "continue key is not valid: unexpected end of JSON input", "{early}");
        }
    }

    #[test]
    fn recognizes_inconsistent_continue_token() {
        let token =
            ContinueToken::decode(&token(r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"/a\u0000"}"#)).unwrap();
        assert!(token.is_inconsistent() && !ContinueToken::new(1, "a").is_inconsistent());
        assert_eq!(token.start_key, "a\0");
    }
}
