//! Protection against web pages. A page must not use the rights of the person at the browser, and no answer may act as a page.
//!
//! ```text
//!  write or upgrade ──────────────────────────▶ same origin only                                      admit_change
//!  identity that browsers send automatically ─▶ no navigation, same origin only                       admit_ambient
//!  every answer ──────────────────────────────▶ a content type of the API, a policy that runs nothing  protect
//! ```
//!
//! This module is the only place with these rules: pages of the gateway itself would get theirs here.

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use http_body::Body as _;
use skopos_wire::{GroupResource, Status};

use super::authority::Authority;
use super::headers;
use crate::response::{Response, media_type};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The content policy of all answers: a browser runs nothing of them, and no page can frame them.
const CONTENT_POLICY: HeaderValue =
    HeaderValue::from_static("sandbox; default-src 'none'; frame-ancestors 'none'");

/// Refuses cross-origin requests that could change something: all methods but GET and HEAD, and upgrades. This holds for every kind
/// of authentication.
///
/// # Errors
/// 403.
pub(crate) fn admit_change(method: &Method, headers: &HeaderMap, is_tls: bool) -> Result<(), Status> {
    let reads = *method == Method::GET || *method == Method::HEAD;
    if reads && !headers::wants_upgrade(headers) {
        return Ok(());
    }
    refuse_other_origins(headers, is_tls)
}

/// Refuses navigations and cross-origin reads. For callers whose identity a browser sends automatically: a client certificate, or a
/// connection from this machine.
///
/// # Errors
/// 403.
pub(crate) fn admit_ambient(headers: &HeaderMap, is_tls: bool) -> Result<(), Status> {
    if values(headers, &FETCH_MODE).any(|mode| mode.ends_with("navigate")) {
        return Err(refused("a navigation of a browser (header Sec-Fetch-Mode)"));
    }
    refuse_other_origins(headers, is_tls)
}

/// Makes an answer harmless to browsers.
pub(crate) fn protect(answer: &mut Response) {
    let has_body = !answer.body().is_end_stream();
    let headers = answer.headers_mut();
    media_type::restrict(headers, has_body);
    // Browsers must not guess another type.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, CONTENT_POLICY);
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
}

fn refuse_other_origins(headers: &HeaderMap, is_tls: bool) -> Result<(), Status> {
    let own = Authority::from_headers(headers);
    let is_own = |origin: &HeaderValue| own.as_ref().is_some_and(|own| own.is_origin(origin, is_tls));
    if !headers.get_all(header::ORIGIN).iter().all(is_own) {
        return Err(refused("a page of another origin (header Origin)"));
    }
    match values(headers, &FETCH_SITE).all(|site| site == "same-origin" || site == "none") {
        true => Ok(()),
        false => Err(refused("a page of another site (header Sec-Fetch-Site)")),
    }
}

/// Returns the values of a header that browsers set. A value that is not text matches none of theirs.
fn values<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("?"))
}

fn refused(sender: &str) -> Status {
    let why = format!(
        "the request comes from {sender}, which could misuse the rights of the person in front of the browser: use kubectl, \
         curl or another client"
    );
    Status::forbidden(GroupResource::new("", ""), "", why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response;

    type Lines = &'static [(&'static str, &'static str)];

    const OWN: [(&str, &str); 1] = [("host", "gateway:6443")];

    fn sent(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in OWN.iter().chain(lines) {
            headers.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        headers
    }

    fn is_admitted(admitted: Result<(), Status>) -> bool {
        admitted.inspect_err(|status| assert_eq!(status.code, 403)).is_ok()
    }

    /// Headers of a browser, and whether the request is same-origin: with TLS, and without.
    const REQUESTS: [(Lines, bool, bool); 14] = [
        (&[], true, true),
        (&[("origin", "https://gateway:6443")], true, true),
        (&[("origin", "https://Gateway:6443"), ("sec-fetch-site", "same-origin")], true, true),
        (&[("sec-fetch-site", "none")], true, true),
        (&[("origin", "http://gateway:6443")], false, true),
        (&[("origin", "https://gateway")], false, false),
        (&[("origin", "https://gateway:6444")], false, false),
        (&[("origin", "https://evil.example")], false, false),
        (&[("origin", "https://gateway:6443.evil.example")], false, false),
        (&[("origin", "null")], false, false),
        (&[("origin", "")], false, false),
        (&[("origin", "https://gateway:6443"), ("origin", "https://evil.example")], false, false),
        (&[("sec-fetch-site", "cross-site")], false, false),
        (&[("origin", "https://gateway:6443"), ("sec-fetch-site", "same-site")], false, false),
    ];

    #[test]
    fn cross_origin_writes_are_refused() {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
            for (lines, with_tls, without) in REQUESTS {
                let is_admitted = |is_tls| is_admitted(admit_change(&method, &sent(lines), is_tls));
                assert_eq!(
                    (is_admitted(true), is_admitted(false)),
                    (with_tls, without),
                    "{method} {lines:?}"
                );
            }
        }
        let elsewhere = sent(&[("origin", "https://evil.example")]);
        for method in [Method::GET, Method::HEAD] {
            assert!(is_admitted(admit_change(&method, &elsewhere, true)), "reads depend on the identity");
        }
        let mut nameless = sent(&[("origin", "https://gateway:6443")]);
        nameless.remove(header::HOST);
        assert!(!is_admitted(admit_change(&Method::POST, &nameless, true)), "the own origin is unknown");
    }

    #[test]
    fn cross_origin_upgrades_are_refused() {
        for (lines, with_tls, _) in REQUESTS {
            let upgrade = [("upgrade", "websocket"), ("connection", "Upgrade")];
            let lines: Vec<_> = lines.iter().chain(&upgrade).copied().collect();
            let admitted = admit_change(&Method::GET, &sent(&lines), true);
            assert_eq!(is_admitted(admitted), with_tls, "{lines:?}");
        }
    }

    #[test]
    fn ambient_identity_is_limited_to_same_origin_fetches() {
        for (lines, with_tls, _) in REQUESTS {
            assert_eq!(is_admitted(admit_ambient(&sent(lines), true)), with_tls, "{lines:?}");
        }
        for (mode, fine) in [
            ("navigate", false),
            ("nested-navigate", false),
            ("cors", true),
            ("same-origin", true),
            ("websocket", true),
        ] {
            let headers = sent(&[("sec-fetch-mode", mode), ("sec-fetch-site", "same-origin")]);
            assert_eq!(is_admitted(admit_ambient(&headers, true)), fine, "{mode}");
        }
    }

    #[test]
    fn answers_are_harmless_to_browsers() {
        let mut answer = response::text(http::StatusCode::OK, "<script>");
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html"));
        answer
            .headers_mut()
            .insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src *"));
        protect(&mut answer);
        let said = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(said("content-type"), "text/plain; charset=utf-8");
        assert_eq!(said("content-security-policy"), "sandbox; default-src 'none'; frame-ancestors 'none'");
        assert_eq!(said("cross-origin-resource-policy"), "same-origin");
        assert_eq!(said("x-content-type-options"), "nosniff");
    }
}
