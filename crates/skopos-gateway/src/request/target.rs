//! Targets of requests to a cluster's API, parsed once for routing and for authorization.

use http::Method;
use skopos_wire::{FieldSelector, Status};

use super::path::Path;
use super::query::Query;
use crate::authz::Attributes;

/// A request to the API of a cluster, parsed as the API server does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A resource.
    Resource(ResourceTarget),
    /// Another path: discovery, OpenAPI, version, health.
    Path(Attributes),
}

/// A request for a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceTarget {
    /// The attributes to authorize.
    pub attributes: Attributes,
    /// True if the namespace and name come from the path, not from a selector.
    pub name_in_path: bool,
}

/// Segments of paths that connect to another server by way of the API server.
const CONNECTS: [&str; 4] = ["exec", "attach", "portforward", "proxy"];

impl Target {
    /// Parses a request.
    ///
    /// # Errors
    /// 405 for a method that the API does not have; 404 for the old `/proxy/` paths, and for `/watch/` paths, which
    /// `watch_path::spelled_as_list` has rewritten if they are watches; 400 for parameters
    /// that two readers could read differently.
    pub fn parse(method: &Method, path: &Path, query: &Query) -> Result<Self, Status> {
        let segments: Vec<&str> = path.segments().collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Self::other(method, path),
        };
        if matches!(rest, ["watch" | "proxy", _, ..]) {
            return Err(Status::resource_not_served());
        }
        let (namespace, rest) = match rest {
            // A Namespace is its own namespace, as for the API server.
            ["namespaces", name] | ["namespaces", name, "status" | "finalize"] => (*name, rest),
            ["namespaces", name, rest @ ..] => (*name, rest),
            rest => ("", rest),
        };
        let resource = rest.first().copied().unwrap_or_default();
        let name_in_path = rest.len() > 1;
        let mut attributes = Attributes {
            namespace: namespace.into(),
            name: rest.get(1).copied().unwrap_or_default().into(),
            subresource: rest.get(2).copied().unwrap_or_default().into(),
            ..Attributes::resource("", group, version, resource)
        };
        attributes.verb = verb(method, name_in_path, query)?.into();
        if !name_in_path && ["list", "watch", "deletecollection"].contains(&attributes.verb.as_str()) {
            attributes.name = name_of_selector(query)?;
        }
        Ok(Self::Resource(ResourceTarget { attributes, name_in_path }))
    }

    fn other(method: &Method, path: &Path) -> Result<Self, Status> {
        match *method {
            Method::GET | Method::HEAD => Ok(Self::Path(Attributes::path(&Method::GET, path.to_string()))),
            _ => Err(not_allowed()),
        }
    }

    /// Returns the attributes to authorize.
    pub fn attributes(&self) -> &Attributes {
        match self {
            Self::Resource(target) => &target.attributes,
            Self::Path(attributes) => attributes,
        }
    }
}

impl ResourceTarget {
    /// Returns the namespace of the objects: `None` for all namespaces or cluster-scoped objects.
    ///
    /// # Errors
    /// 404 if the path does not fit the scope of the resource. Authorization decides by the path, so a right in a namespace
    /// must not give access to cluster-scoped objects.
    pub fn place(&self, namespaced: bool) -> Result<Option<&str>, Status> {
        let Attributes { group, resource, namespace, name, .. } = &self.attributes;
        let is_inside = !namespace.is_empty();
        match namespaced {
            true if is_inside => Ok(Some(namespace)),
            true if !self.name_in_path => Ok(None),
            false if !is_inside => Ok(None),
            // A Namespace is its own namespace.
            false
                if self.name_in_path && group.is_empty() && resource == "namespaces" && name == namespace =>
            {
                Ok(None)
            }
            _ => Err(Status::resource_not_served()),
        }
    }

    /// Returns whether this is a stream to a server behind the API server. Some of them can be opened by a plain GET.
    pub fn connects(&self) -> bool {
        CONNECTS.contains(&self.attributes.subresource.as_str())
    }

    /// Returns whether this is a stream into a pod, by the only path of such streams.
    pub fn streams_into_pod(&self, path: &Path) -> bool {
        let segments: Vec<&str> = path.segments().collect();
        matches!(
            segments.as_slice(),
            ["api", "v1", "namespaces", _, "pods", _, "exec" | "attach" | "portforward"]
        )
    }

    /// Returns whether this reads the log of a pod.
    pub fn reads_log(&self) -> bool {
        self.attributes.subresource == "log"
    }

    /// Returns whether this only reads.
    pub fn reads(&self) -> bool {
        ["get", "list", "watch"].contains(&self.attributes.verb.as_str())
    }
}

fn verb(method: &Method, named: bool, query: &Query) -> Result<&'static str, Status> {
    Ok(match *method {
        Method::GET | Method::HEAD if named => "get",
        Method::GET | Method::HEAD if query.flag("watch")? => "watch",
        Method::GET | Method::HEAD => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if named => "delete",
        Method::DELETE => "deletecollection",
        _ => return Err(not_allowed()),
    })
}

/// Returns the name in a selector `metadata.name=x`. Such a list needs the right to that object only, as on the API server.
fn name_of_selector(query: &Query) -> Result<String, Status> {
    let Some(text) = query.single("fieldSelector")? else { return Ok(String::new()) };
    let selector = FieldSelector::parse(text).map_err(|error| Status::bad_request(error.message()))?;
    Ok(selector.exact("metadata.name").unwrap_or_default().to_owned())
}

fn not_allowed() -> Status {
    let message = "the server does not allow this method on the requested resource";
    Status::failure(405, skopos_wire::StatusReason::MethodNotAllowed, message)
}
