//! Properties that hold for every request of a client. `tests/properties.rs` and the fuzz target in the repository's `fuzz/`
//! call the same function.
#![allow(dead_code, unreachable_pub, reason = "each user takes its part")]
#![allow(clippy::result_large_err, reason = "a Status is what the API answers")]

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use skopos_gateway::{Attributes, Identity, Impersonation, Path, Query, ResourceTarget, Target, headers};
use skopos_serve::{Registry, RequestInfo, RequestVerb};
use skopos_wire::Status;

/// Checks a request as text: `METHOD PATH?QUERY`, then `NAME: VALUE` a line. A refusal has the API server's form. An accepted
/// request means the same for authorization, for the member, and when it is parsed again, and it carries no identity but the
/// caller's.
pub fn gateway_request(text: &str) {
    let mut lines = text.lines();
    let (method, uri) = lines.next().unwrap_or_default().split_once(' ').unwrap_or(("GET", text));
    let method = Method::from_bytes(method.as_bytes()).unwrap_or(Method::GET);
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    headers_of(lines);
    let read = Path::parse(path).map_err(Status::from).and_then(|path| Ok((path, Query::parse(query)?)));
    let (path, query) = match read {
        Ok(read) => read,
        Err(status) => return refused(&status),
    };
    for segment in path.segments() {
        assert!(!segment.is_empty() && segment != "." && segment != "..", "{segment:?}");
        assert!(!segment.contains(['/', '\\', '%']) && !segment.contains(char::is_control), "{segment:?}");
    }
    let target = match Target::parse(&method, &path, &query) {
        Ok(target) => target,
        Err(status) => return refused(&status),
    };
    // The forwarded request is read as it was authorized, by the gateway itself and by an API server.
    let (sent_path, sent_query) = (path.to_string(), query.to_string());
    assert_eq!(Path::parse(&sent_path).as_ref(), Ok(&path));
    assert_eq!(Query::parse(&sent_query).as_ref(), Ok(&query));
    let uri = format!("{sent_path}?{sent_query}");
    let request = Request::builder().method(method).uri(uri.as_str()).body(()).expect("a URL");
    let registry = Registry::builtin();
    let info = RequestInfo::new(&request.into_parts().0, |group, version, plural| {
        registry.resolve(group, version, plural)
    });
    same(target.attributes(), &info, &uri);
    if let Target::Resource(target) = &target {
        placed(target, &info, &registry, &uri);
    }
}

/// Checks that a path that no API server serves is not answered from memory either, because it was authorized as another
/// resource.
fn placed(target: &ResourceTarget, info: &RequestInfo, registry: &Registry, uri: &str) {
    let what = &target.attributes;
    let Some(resource) = registry.resolve(&what.group, &what.version, &what.resource) else { return };
    // Authorized as the Namespace itself, and answered as that.
    let is_namespace = what.name == what.namespace;
    if what.subresource.is_empty() && info.target.is_none() && !is_namespace {
        assert!(target.place(resource.namespaced).is_err(), "{uri}: is nowhere, and was found");
    }
}

fn same(what: &Attributes, info: &RequestInfo, uri: &str) {
    let Some(read) = &info.target else { return };
    assert!(what.path.is_empty(), "{uri}: a resource was authorized as a path");
    if info.verb != RequestVerb::Other {
        assert_eq!(what.verb, info.verb.as_str(), "{uri}");
    }
    assert_eq!(
        (&what.group, &what.version, &what.resource),
        (&read.resource.group, &read.resource.version, &read.resource.plural),
        "{uri}"
    );
    assert_eq!(what.subresource, read.subresource.as_deref().unwrap_or_default(), "{uri}");
    if let Some(name) = &read.name {
        assert_eq!(&what.name, name, "{uri}");
    }
    // A Namespace is its own namespace for authorization.
    if read.resource.namespaced {
        assert_eq!(what.namespace, read.namespace.as_deref().unwrap_or_default(), "{uri}");
    }
}

fn headers_of<'a>(lines: impl Iterator<Item = &'a str>) {
    let mut sent = HeaderMap::new();
    for line in lines.take(100) {
        let Some((name, value)) = line.split_once(':') else { continue };
        let name = HeaderName::from_bytes(name.trim().as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value.trim())) {
            sent.append(name, value);
        }
    }
    let wanted = match Impersonation::parse(&sent) {
        Ok(wanted) => wanted,
        Err(error) => return refused(&Status::from(error)),
    };
    if let Err(error) = headers::admit(&mut sent) {
        return refused(&Status::from(error));
    }
    let plain = |name: &HeaderName| name.as_str().replace('_', "-");
    let of_impersonation =
        |name: &HeaderName| plain(name) == "impersonate" || plain(name).starts_with("impersonate-");
    assert!(wanted.is_some() || sent.iter().all(|(name, value)| !of_impersonation(name) || value.is_empty()));
    assert!(sent.keys().all(|name| !plain(name).starts_with("x-remote-")));
    let mut out = headers::outbound(&sent);
    assert!(!out.keys().any(of_impersonation), "{out:?}");
    let caller = Identity {
        groups: vec!["g".into()],
        extra: [("a_B".to_owned(), vec!["x".to_owned()])].into(),
        ..Identity::authenticated("jane", [])
    };
    headers::impersonate(&mut out, &caller).expect("this name can stand in a header");
    let known = |name: &str| name.starts_with("impersonate-") || ALLOWED.contains(&name);
    assert!(out.keys().all(|name| known(name.as_str())), "{out:?}");
    let all = |name: &str| out.get_all(name).iter().count();
    assert_eq!(
        (all("impersonate-user"), all("impersonate-group"), out["impersonate-user"].as_bytes()),
        (1, 1, &b"jane"[..])
    );
    let back = headers::inbound_answer(&sent);
    assert!(
        !back.contains_key("set-cookie")
            && !back.contains_key("location")
            && !back.contains_key("skopos-source")
    );
}

const ALLOWED: [&str; 7] = [
    "accept",
    "accept-encoding",
    "content-type",
    "content-encoding",
    "content-length",
    "if-none-match",
    "user-agent",
];

/// Checks that the status blames the client, has the API server's form, and is no longer than an answer may be.
fn refused(status: &Status) {
    assert!((400..500).contains(&status.code), "{status:?}");
    let json = serde_json::to_value(status).expect("a status is JSON");
    assert_eq!(json["status"], "Failure");
    assert!(status.message.len() < 64 * 1024 + 1000, "{}", status.message.len());
}
