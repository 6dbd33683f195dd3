//! Everything that writes.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;
use skopos_wire::Status;

use crate::request::{RequestInfo, RequestTarget};
use crate::resources::ResourceType;
use crate::serve::respond::Response;
use crate::state::ServerState;
use crate::storage::{Draft, ResourceKey, storage_key};

/// Answers a request that writes, or reads a subresource other than `status`.
pub(crate) async fn handle(
    _: &ServerState,
    _: &RequestInfo,
    _: &RequestTarget,
    _: &HeaderMap,
    _: Bytes,
) -> Result<Response, Status> {
    Err(Status::internal_error("not served yet"))
}

/// Creates an object as a POST does.
pub(crate) fn create_object(state: &ServerState, object: Value) -> Result<Value, Status> {
    put(state, object, true)
}

/// Replaces an object as a PUT does.
pub(crate) fn update_object(state: &ServerState, object: Value) -> Result<Value, Status> {
    put(state, object, false)
}

/// Applies an object as a server-side apply with force does.
pub(crate) fn apply_object(state: &ServerState, object: Value) -> Result<Value, Status> {
    put(state, object, false)
}

/// Deletes an object as a DELETE without grace does.
pub(crate) fn delete_object(
    state: &ServerState,
    resource: &ResourceType,
    namespace: Option<&str>,
    name: &str,
) -> Result<Value, Status> {
    let gone = state.storage.delete(&ResourceKey::from(resource), &storage_key(namespace, name), None);
    gone.map(|o| o.to_value()).map_err(|e| Status::internal_error(e))
}

fn put(state: &ServerState, mut object: Value, new: bool) -> Result<Value, Status> {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let resource = state.registry.by_kind(&text("apiVersion"), &text("kind"));
    let resource = resource.ok_or_else(Status::resource_not_served)?;
    if object["metadata"]["uid"].is_null() {
        object["metadata"]["uid"] = uuid::Uuid::new_v4().to_string().into();
    }
    let draft = Draft::from_value(&object).map_err(|e| Status::bad_request(e.to_string()))?;
    let key = ResourceKey::from(&*resource);
    let stored =
        if new { state.storage.create(&key, draft) } else { state.storage.update(&key, draft, None) };
    stored.map(|o| o.to_value()).map_err(|e| Status::internal_error(e))
}
