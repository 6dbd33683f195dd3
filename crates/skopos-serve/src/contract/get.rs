//! GET of one object.

use http::StatusCode;
use skopos_wire::{GroupResource, Status};

use super::form::Purpose;
use super::options::{RequestedVersion, unmapped_version_error};
use super::{Form, Request, ServeOptions};
use crate::item::Item as _;
use crate::pretty;
use crate::respond::Response;
use crate::source::{Contents as _, ReadError, Source, VersionRequirement};

/// Answers a GET of one object.
///
/// # Errors
/// The API server's errors: 404, 406, 504.
pub async fn get<S: Source>(
    source: &S,
    options: &ServeOptions,
    request: &Request<'_, S::Item>,
) -> Result<Response, Status> {
    let form = Form::for_request(source, request, Purpose::One)?;
    let text = request.query.get("resourceVersion").unwrap_or_default();
    let wanted = match RequestedVersion::parse(text).ok_or_else(|| unmapped_version_error(text))? {
        RequestedVersion::Unset => VersionRequirement::Newest,
        RequestedVersion::Any => VersionRequirement::Any,
        RequestedVersion::At(version) => VersionRequirement::NotOlderThan(version),
    };
    let name = request.name.ok_or_else(Status::resource_not_served)?;
    let object = match read_object(source, options, wanted, request, name).await {
        // The requested state is compacted: answer with the current one.
        Err(ReadError::Compacted(_)) => {
            read_object(source, options, VersionRequirement::Newest, request, name).await
        }
        found => found,
    };
    let object = object.map_err(|error| error.into_status(|_| Status::list_expired()))?;
    let resource = GroupResource::new(&request.resource.group, &request.resource.plural);
    let object = object
        .filter(|object| request.permit.allows(object))
        .ok_or_else(|| Status::not_found(resource, name))?;
    let response = form.respond(StatusCode::OK, &object, object.revision(), source.now());
    Ok(if form.protobuf().is_none() && pretty::is_wanted(request.query) {
        pretty::indent(response)
    } else {
        response
    })
}

async fn read_object<S: Source>(
    source: &S,
    options: &ServeOptions,
    wanted: VersionRequirement,
    request: &Request<'_, S::Item>,
    name: &str,
) -> Result<Option<S::Item>, ReadError> {
    let contents = source.read(wanted, options.freshness_wait).await?;
    Ok(contents.get(request.namespace, name)?)
}
