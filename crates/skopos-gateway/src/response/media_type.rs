//! Content types. Those of the Kubernetes API pass; a browser shows all others as plain text.

use http::{HeaderMap, HeaderValue, header};
use skopos_wire::Status;

/// Content types of answers. A browser runs none of them.
const ANSWERS: [&str; 13] = [
    JSON,
    YAML,
    PROTOBUF,
    CBOR,
    "application/cbor-seq",
    TEXT,
    // OpenAPI.
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
    // Keys of service accounts, and metrics.
    "application/jwk-set+json",
    "application/openmetrics-text",
    "application/vnd.google.protobuf",
];

/// Content types of request bodies. A web page can send none of them without a preflight request.
const REQUESTS: [&str; 9] = [
    JSON,
    YAML,
    PROTOBUF,
    CBOR,
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/apply-patch+cbor",
];

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const CBOR: &str = "application/cbor";
const TEXT: &str = "text/plain";

/// Replaces the content type of an answer by plain text, unless it is an unambiguous content type of the API.
pub(crate) fn restrict(headers: &mut HeaderMap, has_body: bool) {
    let shown = single(headers).is_some_and(|shown| is_of(shown, &ANSWERS));
    if !shown && (has_body || headers.contains_key(header::CONTENT_TYPE)) {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    }
}

/// Returns whether discovery, OpenAPI or the version can have this content type.
pub(crate) fn is_document(content_type: &str) -> bool {
    is_of(content_type, &ANSWERS)
}

/// Refuses a request body of a type that the API does not support. A body without a type is JSON, as for the API server.
///
/// # Errors
/// 415.
pub(crate) fn admit(headers: &HeaderMap) -> Result<(), Status> {
    if !headers.contains_key(header::CONTENT_TYPE) {
        return Ok(());
    }
    match single(headers).is_some_and(|sent| is_of(sent, &REQUESTS)) {
        true => Ok(()),
        false => Err(Status::unsupported_media_type(&REQUESTS)),
    }
}

/// Refuses a body that is not declared as JSON.
///
/// # Errors
/// 415.
pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), Status> {
    match single(headers).is_some_and(|sent| is_of(sent, &[JSON])) {
        true => Ok(()),
        false => Err(Status::unsupported_media_type(&[JSON])),
    }
}

/// Returns the content type, if there is exactly one.
fn single(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(header::CONTENT_TYPE).iter();
    let (first, None) = (all.next()?, all.next()) else { return None };
    first.to_str().ok()
}

/// Returns whether a content type is one of `known`, with plain parameters. Browsers split the header at commas and use the last
/// part, so nothing that could hide a comma is accepted.
fn is_of(content_type: &str, known: &[&str]) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    known.iter().any(|known| essence.eq_ignore_ascii_case(known)) && parts.all(is_plain_parameter)
}

fn is_plain_parameter(parameter: &str) -> bool {
    let is_plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._+/@=".contains(&b));
    parameter.is_empty()
        || parameter.split_once('=').is_some_and(|(name, value)| is_plain(name) && is_plain(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restricted(lines: &[&str], has_body: bool) -> Option<String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::CONTENT_TYPE, line.parse().unwrap());
        }
        restrict(&mut headers, has_body);
        assert!(headers.get_all(header::CONTENT_TYPE).iter().count() <= 1);
        headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn api_types_pass() {
        for known in [
            "application/json",
            "application/json; charset=utf-8",
            "application/json;stream=watch",
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
            "application/vnd.kubernetes.protobuf;stream=watch",
            "application/cbor",
            "application/cbor-seq",
            "text/plain",
            "text/plain; charset=utf-8",
            "text/plain; version=0.0.4; charset=utf-8; escaping=values",
            "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
            "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
            "application/jwk-set+json",
            "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
        ] {
            assert_eq!(restricted(&[known], true).as_deref(), Some(known));
        }
        assert_eq!(restricted(&[], false), None, "an empty answer needs none");
    }

    #[test]
    fn other_types_become_text() {
        for other in [
            &["text/html"][..],
            &["text/html; charset=utf-8"],
            &["TEXT/HTML"],
            &["application/xhtml+xml"],
            &["image/svg+xml"],
            &["text/xml"],
            &["application/pdf"],
            &["application/javascript"],
            &["text/css"],
            &["multipart/x-mixed-replace; boundary=x"],
            &["application/json, text/html"],
            &["application/json;a=b,text/html"],
            &["application/json;a=\"b,text/html\""],
            &["application/json\t,text/html"],
            &["application/json", "text/html"],
            &["application/json text/html"],
            &["application/json;text/html"],
            &["application/jsonp"],
            &["*/*"],
            &[""],
            &[],
        ] {
            assert_eq!(restricted(other, true).as_deref(), Some("text/plain; charset=utf-8"), "{other:?}");
        }
        assert_eq!(
            restricted(&["text/html"], false).as_deref(),
            Some("text/plain; charset=utf-8"),
            "304 too"
        );
    }

    #[test]
    fn bodies_need_an_api_type() {
        let sent = |line: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, line.parse().unwrap());
            (admit(&headers).map_err(|status| status.code), require_json(&headers).is_ok())
        };
        for known in ["application/json", "application/json; charset=UTF-8"] {
            assert_eq!(sent(known), (Ok(()), true), "{known}");
        }
        for known in ["application/apply-patch+yaml", "application/vnd.kubernetes.protobuf"] {
            assert_eq!(sent(known), (Ok(()), false), "{known}");
        }
        for other in [
            "text/plain",
            "text/plain;application/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=application/json",
            "application/json, text/plain",
            "",
        ] {
            assert_eq!(sent(other), (Err(415), false), "{other}");
        }
        assert!(admit(&HeaderMap::new()).is_ok() && require_json(&HeaderMap::new()).is_err());
    }
}
