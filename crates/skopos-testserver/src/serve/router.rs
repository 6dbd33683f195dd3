//! Routing of requests to the parts of the server.

use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode};
use skopos_serve::respond::{self, Response};
use skopos_serve::{Request, RequestInfo, RequestTarget, RequestVerb, Verb, discovery};
use skopos_wire::Status;

use crate::faults::RequestAttributes;
use crate::source::StoredResource;
use crate::state::ServerState;
use crate::{openapi, version, write};

/// Answers a request with a complete body and an authenticated user.
pub(crate) async fn handle(state: &ServerState, info: &RequestInfo, parts: &Parts, body: Bytes) -> Response {
    let Some(target) = &info.target else {
        return non_resource(state, info, parts).await;
    };
    let response = resource(state, info, target, parts, body).await;
    response.unwrap_or_else(|status| skopos_serve::error(&parts.headers, &status))
}

async fn resource(
    state: &ServerState,
    info: &RequestInfo,
    target: &RequestTarget,
    parts: &Parts,
    body: Bytes,
) -> Result<Response, Status> {
    if target.subresource.is_none() && !allowed(info, target) {
        return Err(write::method_not_allowed());
    }
    let read = Request::new(target, &info.query, &parts.headers);
    let source = || StoredResource::new(state, &target.resource, RequestAttributes::from_parts(parts));
    match info.verb {
        RequestVerb::List => skopos_serve::list(&source(), &state.contract, &read).await,
        RequestVerb::Watch => skopos_serve::watch(&source(), &state.contract, &read).await,
        RequestVerb::Get if target.subresource.as_deref().is_none_or(|sub| sub == "status") => {
            skopos_serve::get(&source(), &state.contract, &read).await
        }
        // Other subresources, and all writes.
        RequestVerb::Other => Err(write::method_not_allowed()),
        _ => write::handle(state, info, target, &parts.headers, body).await,
    }
}

fn allowed(info: &RequestInfo, target: &RequestTarget) -> bool {
    let verb = match info.verb {
        RequestVerb::Get => Verb::Get,
        RequestVerb::List => Verb::List,
        RequestVerb::Watch => Verb::Watch,
        RequestVerb::Create => Verb::Create,
        RequestVerb::Update => Verb::Update,
        RequestVerb::Patch => Verb::Patch,
        RequestVerb::Delete => Verb::Delete,
        RequestVerb::DeleteCollection => Verb::DeleteCollection,
        RequestVerb::Other => return false,
    };
    target.resource.allows(verb)
}

/// Returns whether the path is below the core group or another built-in group. There, the 404 has a Status, elsewhere plain text
/// (W16).
fn is_below_builtin_group(state: &ServerState, path: &str) -> bool {
    let mut segments = path.trim_start_matches('/').split('/');
    match (segments.next(), segments.next(), segments.next()) {
        (Some("api"), Some(_), _) => true,
        (Some("apis"), Some(group), Some(_)) => {
            state.registry.all().iter().any(|resource| resource.group == group && !resource.custom)
        }
        _ => false,
    }
}

async fn non_resource(state: &ServerState, info: &RequestInfo, parts: &Parts) -> Response {
    let path = match info.path.trim_end_matches('/') {
        "" => "/",
        path => path,
    };
    let read = matches!(info.method, Method::GET | Method::HEAD);
    match path {
        "/version" if read => respond::json(StatusCode::OK, &version::document()),
        path if read && is_probe(path) => probe(state, path),
        _ => {
            if let Some(response) =
                discovery::answer(&info.method, path, &parts.headers, &state.registry.all())
            {
                return response;
            }
            if let Some(response) = openapi::handle(state, info, &parts.headers) {
                return response;
            }
            if is_below_builtin_group(state, path) {
                return respond::status(&Status::resource_not_served());
            }
            respond::text(StatusCode::NOT_FOUND, "404 page not found\n")
        }
    }
}

fn is_probe(path: &str) -> bool {
    ["/healthz", "/readyz", "/livez"]
        .iter()
        .any(|probe| path.strip_prefix(probe).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

fn probe(state: &ServerState, path: &str) -> Response {
    if path.starts_with("/readyz") && state.faults.is_shutting_down() {
        return respond::text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "[-]shutdown failed: reason withheld\nreadyz check failed\n",
        );
    }
    respond::text(StatusCode::OK, "ok")
}
