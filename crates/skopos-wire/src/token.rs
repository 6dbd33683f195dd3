//! Continue tokens: where a paged list goes on.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::status::go_quote_char;

/// The decoded form of a list's `continue` token, as kube-apiserver writes it.
///
/// To clients a token is opaque; this is for servers, and for tests of clients. On the wire it is unpadded base64url of
/// `{"v":"meta.k8s.io/v1","rv":N,"start":"key\u0000"}`.
///
/// ```
/// # use skopos_wire::ContinueToken;
/// let token = ContinueToken::new(42, "default/web-1\0");
/// assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The version whose pages the list goes on with; [`ContinueToken::LATEST`] after that one was compacted.
    pub resource_version: i64,
    /// The first key of the next page, relative to the resource's prefix and without a leading slash.
    pub start_key: String,
}

impl ContinueToken {
    /// The version of an *inconsistent continue*: go on at whatever the newest state is.
    pub const LATEST: i64 = -1;

    /// A token that goes on with `start_key` at `resource_version`.
    pub fn new(resource_version: i64, start_key: impl Into<String>) -> Self {
        Self { resource_version, start_key: start_key.into() }
    }

    /// Whether the pages that follow may show another state than those before.
    pub fn is_inconsistent(&self) -> bool {
        self.resource_version == Self::LATEST
    }

    /// The token as it stands in a list's metadata and in a request.
    pub fn encode(&self) -> String {
        let wire =
            Wire { v: VERSION.into(), rv: self.resource_version, start: self.start_key.as_str().into() };
        // A struct of two strings and a number always serializes.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&wire).unwrap_or_default())
    }

    /// Reads a token of a request.
    ///
    /// # Errors
    /// With the server's own texts; the caller's answer is 400 BadRequest.
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

/// Where Go's decoder finds that a text is no base64url: at the first strange letter, or at the lonely letter at the end.
fn corrupt_at(token: &str) -> usize {
    let strange = |byte: u8| !(byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    token.bytes().position(strange).unwrap_or(token.len().saturating_sub(1))
}

/// Returns what Go's decoder says of a text that is no JSON from its first byte on, or ends early: what a token of another origin decodes to. Other
/// problems are in serde's words.
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

/// Whether no segment of the path could lead out of the resource's prefix.
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
    /// Not base64url, not JSON, or a path that leads elsewhere.
    #[error("continue key is not valid: {0}")]
    Malformed(String),
    /// Written by another version of the server.
    #[error("continue key is not valid: server does not recognize this encoded version {0}")]
    UnknownVersion(String),
    /// The version is missing or 0.
    #[error("continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")]
    NoResourceVersion,
    /// The start key is missing.
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
    fn writes_what_kube_apiserver_writes() {
        let encoded = ContinueToken::new(7, "default/a\0").encode();
        let json = URL_SAFE_NO_PAD.decode(encoded).unwrap();
        assert_eq!(
            String::from_utf8(json).unwrap(),
            r#"{"v":"meta.k8s.io/v1","rv":7,"start":"default/a\u0000"}"#
        );
    }

    #[test]
    fn refuses_with_the_servers_texts() {
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
        // The first letter that is none of base64url's, or the last one where one is too many.
        for (token, at) in [("%%%", 0), ("a-b_9%", 5), ("ab c", 2), ("a+b/", 1), ("abcde", 4)] {
            let expected = format!("continue key is not valid: illegal base64 data at input byte {at}");
            assert_eq!(ContinueToken::decode(token).unwrap_err().to_string(), expected, "{token}");
        }
    }

    /// The texts are a kube-apiserver's (1.36).
    #[test]
    fn says_of_what_is_no_json_what_the_server_says() {
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
    fn knows_the_inconsistent_continue() {
        let token =
            ContinueToken::decode(&token(r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"/a\u0000"}"#)).unwrap();
        assert!(token.is_inconsistent() && !ContinueToken::new(1, "a").is_inconsistent());
        assert_eq!(token.start_key, "a\0");
    }
}
