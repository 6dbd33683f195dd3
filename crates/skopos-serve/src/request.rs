//! Request parsing: the verb, resource and parameters of a method and URL, as in the API server.

use std::borrow::Cow;
use std::sync::Arc;

use http::Method;
use http::request::Parts;

use crate::item::object_key;
use crate::resources::ResourceType;

/// Parsed API request.
#[derive(Clone, Debug)]
pub struct RequestInfo {
    /// Verb of the request.
    pub verb: RequestVerb,
    /// HTTP method.
    pub method: Method,
    /// Path, not decoded.
    pub path: String,
    /// Query parameters.
    pub query: Query,
    /// Resource, if the path names one that is served.
    pub target: Option<RequestTarget>,
}

/// Resource that a request addresses.
#[derive(Clone, Debug)]
pub struct RequestTarget {
    /// Resource type.
    pub resource: Arc<ResourceType>,
    /// Namespace; `None` for all namespaces or for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Object name.
    pub name: Option<String>,
    /// Subresource.
    pub subresource: Option<String>,
}

/// Verb of a request, as in authorization (the query tells `watch` from `list`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestVerb {
    /// GET of one object.
    Get,
    /// GET of a collection.
    List,
    /// GET of a collection as a stream.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
    /// Not for a resource: discovery, health, version, or a path that is not served.
    Other,
}

/// Decoded parameters of a URL, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl RequestInfo {
    /// Parses method, path and query; `find` looks up a resource by group, version and plural.
    pub fn new(parts: &Parts, find: impl Fn(&str, &str, &str) -> Option<Arc<ResourceType>>) -> Self {
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let path = parts.uri.path().to_owned();
        let (target, watch_path) = match resolve(&path, find) {
            Some((target, watch_path)) => (Some(target), watch_path),
            None => (None, false),
        };
        let verb = match &target {
            Some(target) => verb_of(&parts.method, target, watch_path, query.flag("watch")),
            None => RequestVerb::Other,
        };
        Self { verb, method: parts.method.clone(), path, query, target }
    }
}

/// Returns the verb. One object is watched with the legacy path or a field selector; with a name in the path, the parameter is
/// ignored.
fn verb_of(method: &Method, target: &RequestTarget, watch_path: bool, watch_parameter: bool) -> RequestVerb {
    let named = target.name.is_some();
    match *method {
        Method::GET | Method::HEAD if named && (!watch_path || target.subresource.is_some()) => {
            RequestVerb::Get
        }
        Method::GET | Method::HEAD if watch_path || watch_parameter => RequestVerb::Watch,
        Method::GET | Method::HEAD => RequestVerb::List,
        Method::POST => RequestVerb::Create,
        Method::PUT => RequestVerb::Update,
        Method::PATCH => RequestVerb::Patch,
        Method::DELETE if named => RequestVerb::Delete,
        Method::DELETE => RequestVerb::DeleteCollection,
        _ => RequestVerb::Other,
    }
}

/// Finds the resource of `/api/VERSION/...` or `/apis/GROUP/VERSION/...`; returns also whether the path has the legacy `/watch/`
/// prefix.
fn resolve(
    path: &str,
    find: impl Fn(&str, &str, &str) -> Option<Arc<ResourceType>>,
) -> Option<(RequestTarget, bool)> {
    let decoded: Vec<Cow<'_, str>> =
        path.trim_matches('/').split('/').map(|segment| percent_decode(segment, false)).collect();
    let segments: Vec<&str> = decoded.iter().map(|s| &**s).collect();
    let (group, version, rest) = match segments.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (rest, watch) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => (rest, true),
        rest => (rest, false),
    };
    if rest.iter().any(|segment| segment.is_empty()) {
        return None;
    }
    let find = |plural: &str| find(group, version, plural);
    let target = |resource: Arc<ResourceType>, namespace: Option<&str>, tail: &[&str]| {
        if namespace.is_some() && !resource.namespaced || tail.len() > 2 {
            return None;
        }
        Some(RequestTarget {
            resource,
            namespace: namespace.map(str::to_owned),
            name: tail.first().map(|s| (*s).to_owned()),
            subresource: tail.get(1).map(|s| (*s).to_owned()),
        })
    };
    let found = match rest {
        // `namespaces/NAME/status` and `namespaces/NAME/finalize` address the namespace itself.
        ["namespaces", _, sub @ ("status" | "finalize")] => {
            target(find("namespaces")?, None, &[rest[1], sub])
        }
        ["namespaces", namespace, plural, tail @ ..] => target(find(plural)?, Some(namespace), tail),
        [plural, tail @ ..] => target(find(plural)?, None, tail),
        [] => None,
    };
    // An object of a namespaced resource is only found below its namespace.
    let found = found.filter(|t| !(t.resource.namespaced && t.namespace.is_none() && t.name.is_some()));
    found.map(|target| (target, watch))
}

impl RequestTarget {
    /// Returns the key of the named object.
    pub fn key(&self) -> Option<String> {
        Some(object_key(self.namespace.as_deref(), self.name.as_deref()?))
    }
}

impl RequestVerb {
    /// Returns the verb's name in authorization.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Other => "other",
        }
    }
}

impl Query {
    /// Parses the query string of a URL.
    pub fn parse(query: &str) -> Self {
        let pairs = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                (percent_decode(name, true).into_owned(), percent_decode(value, true).into_owned())
            })
            .collect();
        Self { pairs }
    }

    /// Returns the first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Returns all values of a parameter.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.pairs.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Returns a boolean as the API server parses it: absent, `0` and `false` are false, everything else is true.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "0" | "false"))
    }
}

/// Decodes `%XX`, and `+` if it encodes a blank. Invalid escapes are left unchanged.
fn percent_decode(text: &str, plus_is_blank: bool) -> Cow<'_, str> {
    if !(text.contains('%') || plus_is_blank && text.contains('+')) {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let digit = |b: u8| (b as char).to_digit(16);
        match escape.and_then(|hex| Some(digit(hex[0])? * 16 + digit(hex[1])?)) {
            Some(byte) => {
                out.push(byte as u8);
                at += 3;
            }
            None => {
                out.push(if plus_is_blank && bytes[at] == b'+' { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: &str, uri: &str) -> RequestInfo {
        let request = http::Request::builder().method(method).uri(uri).body(()).unwrap();
        let registry = crate::Registry::builtin();
        RequestInfo::new(&request.into_parts().0, |group, version, plural| {
            registry.resolve(group, version, plural)
        })
    }

    fn place(info: &RequestInfo) -> (String, Option<String>, Option<String>) {
        let target = info.target.as_ref().unwrap();
        (target.resource.to_string(), target.key(), target.subresource.clone())
    }

    #[test]
    fn paths_name_resources_objects_and_subresources() {
        let pods = info("GET", "/api/v1/pods?limit=5");
        assert_eq!((pods.verb, place(&pods).0.as_str()), (RequestVerb::List, "v1 pods"));
        let pod = info("GET", "/api/v1/namespaces/a/pods/b/status");
        assert_eq!(place(&pod), ("v1 pods".into(), Some("a/b".into()), Some("status".into())));
        let namespace = info("PUT", "/api/v1/namespaces/a/status");
        assert_eq!(place(&namespace), ("v1 namespaces".into(), Some("a".into()), Some("status".into())));
        assert_eq!(info("GET", "/api/v1/namespaces/a").verb, RequestVerb::Get);
        let scale = info("PATCH", "/apis/apps/v1/namespaces/a/deployments/d/scale");
        assert_eq!((scale.verb, place(&scale).1), (RequestVerb::Patch, Some("a/d".into())));
        assert_eq!(
            info("DELETE", "/apis/apps/v1/namespaces/a/deployments").verb,
            RequestVerb::DeleteCollection
        );
    }

    #[test]
    fn watch_is_list_with_parameter_or_legacy_path() {
        assert_eq!(info("GET", "/api/v1/pods?watch=true").verb, RequestVerb::Watch);
        assert_eq!(info("GET", "/api/v1/pods?watch=1").verb, RequestVerb::Watch);
        assert_eq!(info("GET", "/api/v1/pods?watch=false").verb, RequestVerb::List);
        let one = info("GET", "/api/v1/watch/namespaces/a/pods/b");
        assert_eq!((one.verb, place(&one).1), (RequestVerb::Watch, Some("a/b".into())));
        assert_eq!(info("GET", "/api/v1/namespaces/a/pods/b?watch=1").verb, RequestVerb::Get);
    }

    #[test]
    fn unserved_path_has_no_target() {
        for path in [
            "/",
            "/api",
            "/api/v1",
            "/apis/apps/v1",
            "/api/v1/nothing",
            "/api/v1/pods/a",
            "/version",
            "/api/v1/namespaces/a/nodes",
            "/api/v1/namespaces/a/pods/b/c/d",
        ] {
            assert!(info("GET", path).target.is_none(), "{path}");
        }
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc%21%3Dd&x=1+2&y&x=%zz");
        assert_eq!(query.get("labelSelector"), Some("a=b,c!=d"));
        assert_eq!(query.all("x").collect::<Vec<_>>(), ["1 2", "%zz"]);
        assert!(query.flag("y") && !query.flag("z"));
    }
}
