//! GET of one object.

use http::StatusCode;
use http::request::Parts;
use skopos_wire::{GroupResource, Status};

use super::form::Purpose;
use super::options::{Version, unmapped_version_error};
use super::{Form, View};
use crate::faults::RequestFacts;
use crate::request::{RequestInfo, RequestTarget};
use crate::serve::respond::{self, Response};
use crate::state::ServerState;

/// Answers a GET of one object.
pub(crate) async fn get(
    state: &ServerState,
    info: &RequestInfo,
    target: &RequestTarget,
    parts: &Parts,
) -> Result<Response, Status> {
    let form = Form::negotiate(&parts.headers, &info.query, target, Purpose::One, state.clock.now())?;
    let text = info.query.get("resourceVersion").unwrap_or_default();
    let version = Version::parse(text).ok_or_else(|| unmapped_version_error(text))?;
    let view = View::new(&state.storage, &state.faults, &RequestFacts::of(parts));
    if let Version::At(version) = version {
        view.wait_for(version, state.contract.freshness_wait).await?;
    }
    let (Some(key), Some(name)) = (target.key(), &target.name) else {
        return Err(Status::resource_not_served());
    };
    let object = match (version, view.limit()) {
        (Version::Unset, _) | (_, None) => state.storage.get(&target.storage, &key),
        // What was there then; if that is compacted, what is there now.
        (_, Some(revision)) => state
            .storage
            .get_at(&target.storage, &key, revision)
            .unwrap_or_else(|_| state.storage.get(&target.storage, &key)),
    };
    let resource = GroupResource::new(&target.resource.group, &target.resource.plural);
    let object = object.ok_or_else(|| Status::not_found(resource, name))?;
    Ok(respond::json_bytes(StatusCode::OK, form.object(&object)))
}
