//! Request bodies: JSON or YAML, and the checks of an object that precede every write.

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde_json::Value;
use skopos_serve::ResourceType;
use skopos_serve::resources::split_api_version;
use skopos_wire::{Status, protobuf};

use super::metadata::metadata_mut;
use crate::object_ref::ObjectRef;
use crate::openapi::check_types;

/// Media types that the server can decode.
const ACCEPTED_MEDIA_TYPES: [&str; 3] = ["application/json", "application/yaml", protobuf::MEDIA_TYPE];

/// Returns the media type of a request's body, without parameters; JSON if there is no header.
pub(super) fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match value.split(';').next().unwrap_or_default().trim() {
        "" | "*/*" => "application/json",
        media_type => media_type,
    }
}

/// Parses an object.
///
/// # Errors
/// 415 for other media types (such as CBOR), 400 if the body is not an object.
pub(super) fn object(headers: &HeaderMap, body: &[u8]) -> Result<Value, Status> {
    let value = match content_type(headers) {
        // Protobuf was converted to JSON when the body was read.
        "application/json" | protobuf::MEDIA_TYPE => json(body)?,
        "application/yaml" => yaml(body)?,
        _ => return Err(Status::unsupported_media_type(&ACCEPTED_MEDIA_TYPES)),
    };
    if value.is_object() { Ok(value) } else { Err(Status::bad_request("the body is not a JSON object")) }
}

pub(super) fn json(body: &[u8]) -> Result<Value, Status> {
    serde_json::from_slice(body).map_err(|e| Status::bad_request(format!("error decoding body: {e}")))
}

/// Parses YAML. JSON is YAML too, and far more common here.
pub(super) fn yaml(body: &[u8]) -> Result<Value, Status> {
    match serde_json::from_slice(body) {
        Ok(value) => Ok(value),
        Err(_) => serde_saphyr::from_slice(body)
            .map_err(|e| Status::bad_request(format!("error decoding YAML: {e}"))),
    }
}

/// Checks that an object has the kind, namespace and name of the request, and the field types of that kind; defaults the kind,
/// namespace and name.
///
/// # Errors
/// 400 if they differ.
pub(super) fn normalize(object: &mut Value, object_ref: &ObjectRef) -> Result<(), Status> {
    let resource = &object_ref.resource;
    check_types(resource, object)
        .map_err(|problem| undecodable_status(&resource.kind, &resource.version, &problem))?;
    check_kind(object, resource)?;
    let metadata = metadata_mut(object);
    let given = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    match &object_ref.namespace {
        Some(namespace) if given.is_empty() || given == namespace => {
            metadata.insert("namespace".into(), namespace.as_str().into());
        }
        Some(_) => {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        // A namespace of a cluster-scoped object is ignored.
        None => {
            metadata.remove("namespace");
        }
    }
    let given = metadata.get("name").and_then(Value::as_str).unwrap_or_default();
    if object_ref.name.is_empty() || given == object_ref.name {
        return Ok(());
    }
    if given.is_empty() {
        metadata.insert("name".into(), object_ref.name.as_str().into());
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "the name of the object ({given}) does not match the name on the URL ({})",
        object_ref.name
    )))
}

/// Returns the 400 for an object that Go cannot decode.
pub(super) fn undecodable_status(kind: &str, version: &str, problem: &str) -> Status {
    Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {problem}"))
}

/// Checks the kind; an absent one is filled in. The errors have Go's own texts.
fn check_kind(object: &mut Value, resource: &ResourceType) -> Result<(), Status> {
    let expected = resource.api_version();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (mut given, mut kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    if given.is_empty() {
        given.clone_from(&expected);
        object["apiVersion"] = expected.as_str().into();
    }
    if kind.is_empty() {
        kind.clone_from(&resource.kind);
        object["kind"] = kind.as_str().into();
    }
    if given == expected && kind == resource.kind {
        return Ok(());
    }
    if resource.custom {
        return Err(Status::bad_request(format!(
            "the API version in the data ({given}) does not match the expected API version ({expected})"
        )));
    }
    let (_, version) = split_api_version(&given);
    let problem = if given == expected {
        let (group, name) = (package(resource), &resource.kind);
        format!("converting ({version}.{kind}) to ({group}.{name}): unknown conversion")
    } else {
        const SCHEME: &str = "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30";
        format!("no kind {kind:?} is registered for version {given:?} in scheme {SCHEME:?}")
    };
    let expected = &resource.kind;
    Err(Status::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {expected}: {problem}"
    )))
}

/// Returns the Go package of a group's types.
fn package(resource: &ResourceType) -> &str {
    match resource.group.split('.').next() {
        None | Some("") => "core",
        Some(package) => package,
    }
}
