//! Request classes, which decide on connections and deadlines.

use std::fmt;
use std::time::Duration;

use http::Method;

/// The class of a request. It decides on deadlines and connections.
///
/// Put it into the extensions of a request, alone or in [`RequestOptions`]; otherwise it is inferred from method and path
/// by [`RequestClass::infer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestClass {
    /// A single object, discovery, or a subresource.
    Read,
    /// A collection, or a page of it.
    List,
    /// A stream that may be silent for long: a watch, or `log?follow=true`.
    Watch,
    /// A request that changes something.
    Write,
    /// A small request that proves freshness; short deadlines.
    Probe,
}

impl RequestClass {
    /// All classes.
    pub const ALL: [RequestClass; 5] = [Self::Read, Self::List, Self::Watch, Self::Write, Self::Probe];

    /// Infers the class from method and URL, by the form of Kubernetes' paths.
    pub fn infer(method: &Method, uri: &http::Uri) -> Self {
        if method != Method::GET && method != Method::HEAD {
            return Self::Write;
        }
        let flag = |name: &str| {
            uri.query().is_some_and(|query| {
                query.split('&').any(|pair| match pair.split_once('=') {
                    Some((key, value)) => {
                        key == name && matches!(value, "true" | "1" | "t" | "T" | "TRUE" | "True")
                    }
                    // The API server reads a bare `watch` as true.
                    None => pair == name,
                })
            })
        };
        let segments: Vec<&str> = uri.path().split('/').filter(|s| !s.is_empty()).collect();
        if flag("watch") || (segments.last() == Some(&"log") && flag("follow")) {
            return Self::Watch;
        }
        // The path may begin with a proxy's: the API begins at the first `api` or `apis`.
        let Some(root) = segments.iter().position(|s| *s == "api" || *s == "apis") else {
            return Self::Read;
        };
        let group = if segments[root] == "api" { 2 } else { 3 };
        let mut rest = segments.get(root + group..).unwrap_or_default();
        // The deprecated form of a watch: `/api/v1/watch/pods`.
        if rest.len() > 1 && rest[0] == "watch" {
            return Self::Watch;
        }
        if rest.len() > 2 && rest[0] == "namespaces" {
            rest = &rest[2..];
        }
        if rest.len() == 1 { Self::List } else { Self::Read }
    }
}

impl fmt::Display for RequestClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Write => "write",
            Self::Probe => "probe",
        })
    }
}

/// The ID of one connection within a transport; found in the extensions of every response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub(crate) u64);

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// Options of one request; put them into the request's extensions.
#[derive(Clone, Debug, Default)]
pub struct RequestOptions {
    /// The class, where inferring it would be wrong.
    pub class: Option<RequestClass>,
    /// A connection not to use: the request gets another one, to verify the server or that connection.
    pub avoid_connection: Option<ConnectionId>,
    /// The bound of the whole call, from now to the last byte of the body, beside the deadlines of its class. Its expiry
    /// does not count against the connection.
    pub deadline: Option<Duration>,
    /// The behavior while dials fail: wait for the next ones (`true`), for at most the connect deadline, or fail at once
    /// with the last error (`false`). By default only [`RequestClass::Watch`] waits.
    pub wait_for_connection: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_inferred_from_paths() {
        let cases = [
            ("GET", "/api/v1/pods?limit=500", RequestClass::List),
            ("GET", "/api/v1/pods?watch=true&resourceVersion=5", RequestClass::Watch),
            ("GET", "/api/v1/pods?watch=1", RequestClass::Watch),
            ("GET", "/api/v1/pods?watch=0", RequestClass::List),
            ("GET", "/api/v1/pods?watch", RequestClass::Watch),
            ("GET", "/api/v1/namespaces", RequestClass::List),
            ("GET", "/api/v1/namespaces/a", RequestClass::Read),
            ("GET", "/api/v1/namespaces/a/pods", RequestClass::List),
            ("GET", "/api/v1/namespaces/a/pods/b", RequestClass::Read),
            ("GET", "/api/v1/namespaces/a/pods/b/log?follow=true", RequestClass::Watch),
            ("GET", "/api/v1/namespaces/a/pods/b/log", RequestClass::Read),
            ("GET", "/apis/apps/v1/deployments", RequestClass::List),
            ("GET", "/apis/apps/v1/namespaces/x/deployments/y/status", RequestClass::Read),
            ("GET", "/apis/apps/v1", RequestClass::Read),
            ("GET", "/apis", RequestClass::Read),
            ("GET", "/version", RequestClass::Read),
            ("GET", "/k8s/clusters/c-1/api/v1/nodes", RequestClass::List),
            ("GET", "/api/v1/watch/pods", RequestClass::Watch),
            ("GET", "/api/v1/namespaces/api/pods", RequestClass::List),
            ("GET", "/api/v1/namespaces/watch/pods/watch", RequestClass::Read),
            ("POST", "/api/v1/namespaces/a/pods", RequestClass::Write),
            ("DELETE", "/api/v1/namespaces/a/pods?watch=true", RequestClass::Write),
        ];
        for (method, uri, class) in cases {
            let method: Method = method.parse().unwrap();
            assert_eq!(RequestClass::infer(&method, &uri.parse().unwrap()), class, "{method} {uri}");
        }
    }
}
