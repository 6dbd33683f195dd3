//! Header policies: headers accepted from clients, forwarded to members, and returned to clients.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use skopos_wire::{GroupResource, Status};

use super::via::VIA;
use crate::auth::Identity;

/// A refusal of a request's headers: the client's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// A `Connection` header names another header to drop, which could make a proxy lose its own.
    #[error("the header \"Connection\" may only say keep-alive, close or upgrade, not {0:?}")]
    ConnectionNames(String),
}

/// Refuses headers that no client may send, and removes those that only a trusted proxy could set.
///
/// # Errors
/// If a `Connection` header names other headers.
pub fn admit(headers: &mut HeaderMap) -> Result<(), HeaderError> {
    let mut forged = Vec::new();
    for name in headers.keys() {
        if canonical(name).starts_with("x-remote-") {
            forged.push(name.clone());
        }
    }
    for value in headers.get_all(header::CONNECTION) {
        for token in value.to_str().unwrap_or("?").split(',').map(str::trim) {
            if !["", "keep-alive", "close", "upgrade"].iter().any(|known| token.eq_ignore_ascii_case(known)) {
                return Err(HeaderError::ConnectionNames(token.chars().take(100).collect()));
            }
        }
    }
    for name in forged {
        headers.remove(name);
    }
    Ok(())
}

/// Returns whether the client asks for another protocol on this connection.
pub fn wants_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE) || has_token(headers, header::CONNECTION, "upgrade")
}

/// Returns whether a header that lists tokens contains this one.
pub fn has_token(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    let has = |value: &HeaderValue| {
        value.to_str().is_ok_and(|v| v.split(',').any(|found| found.trim().eq_ignore_ascii_case(token)))
    };
    headers.get_all(name).iter().any(has)
}

/// Returns the headers of the request to a member: only those of the allow-list.
pub fn outbound(inbound: &HeaderMap) -> HeaderMap {
    const ALLOWED: [HeaderName; 8] = [
        // The transport adds this gateway to it.
        VIA,
        header::ACCEPT,
        header::ACCEPT_ENCODING,
        header::CONTENT_TYPE,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::IF_NONE_MATCH,
        header::USER_AGENT,
    ];
    copy(inbound, &ALLOWED)
}

/// Returns the headers of a member's answer for the client: no cookies, no redirects, no connection headers.
pub fn inbound_answer(from_member: &HeaderMap) -> HeaderMap {
    const ALLOWED: [HeaderName; 10] = [
        header::CACHE_CONTROL,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::CONTENT_TYPE,
        header::ETAG,
        header::LAST_MODIFIED,
        header::RETRY_AFTER,
        header::VARY,
        header::WARNING,
        HeaderName::from_static("audit-id"),
    ];
    copy(from_member, &ALLOWED)
}

/// Returns whether the client asks for a table, as kubectl does for output to a terminal.
pub(crate) fn wants_table(headers: &HeaderMap) -> bool {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accept.flat_map(|accept| accept.split(',')).next().is_some_and(|first| first.contains("as=Table"))
}

/// Copies the allowed headers.
pub(crate) fn pass_on(from: &HeaderMap, to: &mut HeaderMap, allowed: &[HeaderName]) {
    for name in allowed {
        for value in from.get_all(name) {
            to.append(name, value.clone());
        }
    }
}

/// Sets the impersonation headers of a request to a member. Existing ones are replaced.
///
/// # Errors
/// If a name in the identity is not valid in a header.
pub fn impersonate(headers: &mut HeaderMap, identity: &Identity) -> Result<(), Status> {
    let value = |text: &str| {
        HeaderValue::from_str(text).map_err(|_| {
            let problem = "the caller's identity cannot be written into a header";
            Status::forbidden(GroupResource::new("", ""), "", problem)
        })
    };
    let already: Vec<HeaderName> =
        headers.keys().filter(|name| canonical(name).starts_with("impersonate-")).cloned().collect();
    for name in already {
        headers.remove(name);
    }
    headers.insert("impersonate-user", value(&identity.user)?);
    if !identity.uid.is_empty() {
        headers.insert("impersonate-uid", value(&identity.uid)?);
    }
    for group in &identity.groups {
        headers.append("impersonate-group", value(group)?);
    }
    for (key, values) in &identity.extra {
        let name = HeaderName::try_from(format!("impersonate-extra-{}", extra_key(key)));
        let name =
            name.map_err(|_| Status::bad_request("the caller's identity has an unusable extra key"))?;
        for extra in values {
            headers.append(name.clone(), value(extra)?);
        }
    }
    Ok(())
}

/// The source and age of an answer, for its headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// `memory`, `member`, `merged` or `gateway`.
    pub source: &'static str,
    /// An upper bound on the age of the content, if there is one.
    pub age: Option<Duration>,
    /// A warning for people, which kubectl prints.
    pub warning: Option<String>,
}

/// Writes the stamp into the headers of an answer.
pub fn stamp(headers: &mut HeaderMap, stamp: &Stamp) {
    headers.insert("skopos-source", HeaderValue::from_static(stamp.source));
    if let Some(age) = stamp.age {
        // Rounded up: a bound must stay one.
        let millis = age.as_nanos().div_ceil(1_000_000);
        let text = format!("{}.{:03}", millis / 1000, millis % 1000);
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert("skopos-age", value);
        }
    }
    if let Some(value) = stamp.warning.as_deref().and_then(warning) {
        headers.append(header::WARNING, value);
    }
}

/// Formats a warning as the API server does. Characters that are invalid in a header become question marks.
pub fn warning(text: &str) -> Option<HeaderValue> {
    let mut quoted = String::with_capacity(text.len() + 10);
    for c in text.chars().take(1000) {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            _ => quoted.push('?'),
        }
    }
    HeaderValue::from_str(&format!("299 - \"{quoted}\"")).ok()
}

/// Returns the name with underscores as dashes, as some servers read it. Header names are lower case already.
fn canonical(name: &HeaderName) -> String {
    name.as_str().replace('_', "-")
}

fn copy(from: &HeaderMap, allowed: &[HeaderName]) -> HeaderMap {
    let mut copied = HeaderMap::new();
    pass_on(from, &mut copied, allowed);
    copied
}

/// Returns the key of an extra as the API server reads it: lower case, percent-encoded if it is not an HTTP token.
fn extra_key(key: &str) -> String {
    let mut encoded = String::with_capacity(key.len());
    for byte in key.to_lowercase().bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' => encoded.push(byte as char),
            // A proxy could read an underscore as a dash.
            other => encoded.push_str(&format!("%{other:02x}")),
        }
    }
    encoded
}

impl From<HeaderError> for Status {
    fn from(error: HeaderError) -> Self {
        Status::bad_request(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn forged_identities_of_a_front_proxy_are_removed() {
        let mut sent = headers(&[
            ("X-Remote-User", "admin"),
            ("X-Remote-Group", "system:masters"),
            ("x_remote_user", "admin"),
            ("X-Remote-Extra-Scopes", "all"),
            ("X-Other", "stays"),
        ]);
        admit(&mut sent).unwrap();
        assert_eq!(sent.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-other"]);
    }

    #[test]
    fn connection_names_no_other_header() {
        for harmless in ["keep-alive", "close", "Upgrade", "keep-alive, Upgrade", ""] {
            admit(&mut headers(&[("connection", harmless)])).unwrap();
        }
        for trick in ["Impersonate-User", "close, Impersonate-User", "X-Forwarded-For", "authorization"] {
            let error = admit(&mut headers(&[("connection", trick)])).unwrap_err();
            assert_eq!(Status::from(error).code, 400, "{trick}");
        }
        let second = admit(&mut headers(&[("connection", "close"), ("connection", "impersonate-group")]));
        assert!(second.is_err());
    }

    #[test]
    fn only_listed_headers_go_on() {
        let sent = headers(&[
            ("accept", "application/json"),
            ("authorization", "Bearer secret"),
            ("cookie", "session=1"),
            ("te", "trailers"),
            ("proxy-authorization", "Basic x"),
            ("x-forwarded-for", "10.0.0.1"),
            ("host", "gateway"),
            ("user-agent", "kubectl"),
        ]);
        let out = outbound(&sent);
        let mut names: Vec<_> = out.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "user-agent"]);
        let back = inbound_answer(&headers(&[
            ("set-cookie", "a=b"),
            ("location", "https://elsewhere"),
            ("alt-svc", "h3"),
            ("content-type", "application/json"),
            ("warning", "299 - \"old\""),
            ("skopos-source", "forged"),
        ]));
        assert_eq!(back.len(), 2);
    }

    #[test]
    fn an_identity_replaces_and_is_complete() {
        let identity = Identity {
            user: "jane".into(),
            uid: "7".into(),
            groups: vec!["dev".into(), "system:authenticated".into()],
            extra: [("Example.com/Scopes_x".to_owned(), vec!["a".to_owned(), "b".to_owned()])].into(),
            ..Identity::default()
        };
        let mut out = headers(&[
            ("impersonate-user", "admin"),
            ("impersonate-group", "system:masters"),
            ("impersonate_group", "system:masters"),
            ("impersonate-extra-other", "x"),
        ]);
        impersonate(&mut out, &identity).unwrap();
        let all = |name: &str| out.get_all(name).iter().map(|v| v.to_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(all("impersonate-user"), ["jane"]);
        assert_eq!(all("impersonate-uid"), ["7"]);
        assert_eq!(all("impersonate-group"), ["dev", "system:authenticated"]);
        assert_eq!(all("impersonate-extra-example.com%2fscopes%5fx"), ["a", "b"]);
        assert!(all("impersonate_group").is_empty() && all("impersonate-extra-other").is_empty());
    }

    #[test]
    fn rejects_user_name_that_breaks_header() {
        let identity =
            Identity { user: "jane\r\nimpersonate-group: system:masters".into(), ..Identity::default() };
        assert_eq!(impersonate(&mut HeaderMap::new(), &identity).unwrap_err().code, 403);
    }

    #[test]
    fn response_carries_source_age_and_warning() {
        let mut out = HeaderMap::new();
        let warning = Some("cluster \"a\" is paused\r\nset-cookie: é".to_owned());
        stamp(&mut out, &Stamp { source: "memory", age: Some(Duration::from_nanos(2_000_000_001)), warning });
        assert_eq!(out["skopos-source"], "memory");
        assert_eq!(out["skopos-age"], "2.001");
        assert_eq!(out["warning"], r#"299 - "cluster \"a\" is paused??set-cookie: ?""#);
    }

    #[test]
    fn upgrades_are_seen_in_both_headers() {
        assert!(wants_upgrade(&headers(&[("upgrade", "websocket")])));
        assert!(wants_upgrade(&headers(&[("connection", "keep-alive, Upgrade")])));
        assert!(!wants_upgrade(&headers(&[("connection", "keep-alive")])));
    }
}
