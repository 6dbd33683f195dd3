//! Write path: create, update, patch, delete, and the subresources, with the API server's processing.
//!
//! ```text
//!  request ─▶ options, body ─▶ Writer ─▶ defaults, checks, generation, managedFields ─▶ storage
//!                                 ▲
//!  TestServer's own calls ────────┤
//!  workloads ─────────────────────┘
//! ```

mod body;
mod crds;
mod create;
mod defaults;
mod delete;
mod http;
mod metadata;
mod modify;
mod options;
mod part;
mod pods;
mod scale;
mod token;
mod validate;

use std::sync::Arc;

use serde_json::{Value, json};
use skopos_serve::ResourceType;
use skopos_wire::Status;

pub(crate) use self::delete::DeleteOutcome;
pub(crate) use self::http::{handle, method_not_allowed};
pub(crate) use self::options::{DeleteOptions, WriteOptions};
pub(crate) use self::part::ObjectPart;
use crate::object_ref::ObjectRef;
use crate::state::ServerState;
use crate::storage::{InvalidObject, Stored};

/// Writer of objects with the semantics of the API server. Cheap to create.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer<'a> {
    state: &'a ServerState,
}

/// Result of a write.
#[derive(Clone, Debug)]
pub(crate) enum WriteOutcome {
    /// The stored object.
    Stored(Arc<Stored>),
    /// The object that would be stored: the write was a dry run.
    Dry(Value),
}

impl<'a> Writer<'a> {
    pub(crate) fn new(state: &'a ServerState) -> Self {
        Self { state }
    }
}

impl WriteOutcome {
    /// Returns the object as a JSON value.
    pub(crate) fn to_value(&self) -> Value {
        match self {
            Self::Stored(stored) => stored.to_value(),
            Self::Dry(value) => value.clone(),
        }
    }
}

/// Returns the 400 for an object that the storage refuses. Everything is checked before, so such a request is malformed.
fn invalid_object_status(error: &InvalidObject) -> Status {
    Status::bad_request(error.to_string())
}

/// Creates an object, as a POST does.
///
/// # Errors
/// The API server's errors.
pub(crate) fn create_object(state: &ServerState, object: Value) -> Result<Value, Status> {
    let object_ref = object_ref_of(state, &object)?;
    // A generated name is not known yet.
    let object_ref = ObjectRef { name: String::new(), ..object_ref };
    Ok(Writer::new(state).create(&object_ref, object, &WriteOptions::trusted(TEST))?.to_value())
}

/// Replaces an object with its status, as a PUT does.
///
/// # Errors
/// The API server's errors.
pub(crate) fn update_object(state: &ServerState, object: Value) -> Result<Value, Status> {
    let object_ref = object_ref_of(state, &object)?;
    Ok(Writer::new(state)
        .update(&object_ref, ObjectPart::Whole, object, &WriteOptions::trusted(TEST))?
        .to_value())
}

/// Applies an object with its status, as a server-side apply with force does.
///
/// # Errors
/// The API server's errors.
pub(crate) fn apply_object(state: &ServerState, object: Value) -> Result<Value, Status> {
    let object_ref = object_ref_of(state, &object)?;
    let options = WriteOptions::trusted(TEST).forced();
    let (written, _) = Writer::new(state).apply(&object_ref, ObjectPart::Whole, object, &options)?;
    Ok(written.to_value())
}

/// Deletes an object, as a DELETE without a grace period does; returns its last state.
///
/// # Errors
/// The API server's errors.
pub(crate) fn delete_object(
    state: &ServerState,
    resource: &Arc<ResourceType>,
    namespace: Option<&str>,
    name: &str,
) -> Result<Value, Status> {
    let object_ref = ObjectRef::new(resource, namespace, name);
    match Writer::new(state).delete(&object_ref, &DeleteOptions::now())? {
        DeleteOutcome::Deleted(object) | DeleteOutcome::Pending(object) | DeleteOutcome::Dry(object) => {
            Ok(object.to_value())
        }
    }
}

/// Deletes the existing ones of these objects at one revision, in key order, as etcd does with the keys of a lease. Returns their
/// last states.
pub(crate) fn expire(state: &ServerState, mut lease: Vec<ObjectRef>) -> Vec<Value> {
    lease.sort_by_cached_key(|object_ref| (object_ref.resource_key.clone(), object_ref.key()));
    Writer::new(state).expire(&lease).iter().map(|object| object.to_value()).collect()
}

/// Sets a replica count, as the scale subresource does.
///
/// # Errors
/// The API server's errors.
pub(crate) fn scale_object(
    state: &ServerState,
    resource: &str,
    namespace: &str,
    name: &str,
    replicas: u32,
) -> Result<(), Status> {
    let resource = state.registry.lookup(resource).map_err(|_| Status::resource_not_served())?;
    let object_ref = ObjectRef::new(&resource, Some(namespace), name);
    let scale = serde_json::json!({"spec": {"replicas": replicas}});
    Writer::new(state).set_scale(&object_ref, &scale, &WriteOptions::trusted(TEST)).map(drop)
}

/// Creates kube-apiserver's own objects: the system namespaces, and the Service of the API with its endpoints on `port`.
///
/// # Errors
/// None, in a new server.
pub(crate) fn create_system_objects(state: &ServerState, port: u16) -> Result<(), Status> {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        create_as(
            state,
            APISERVER,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        )?;
    }
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default",
                     "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "sessionAffinity": "None",
                 "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]},
    });
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": "kubernetes", "namespace": "default",
                     "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": "127.0.0.1"}], "ports": ports}],
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "kubernetes", "namespace": "default",
                     "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": true}}],
        "ports": ports,
    });
    [service, endpoints, slice].into_iter().try_for_each(|object| create_as(state, APISERVER, object))
}

fn create_as(state: &ServerState, manager: &str, object: Value) -> Result<(), Status> {
    let object_ref = ObjectRef { name: String::new(), ..object_ref_of(state, &object)? };
    Writer::new(state).create(&object_ref, object, &WriteOptions::trusted(manager)).map(drop)
}

/// Field manager of the server's own objects.
const APISERVER: &str = "kube-apiserver";

/// Field manager of the test's own writes.
const TEST: &str = "skopos-testserver";

/// Returns the reference to an object, from its own fields.
fn object_ref_of(state: &ServerState, object: &Value) -> Result<ObjectRef, Status> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let resource = state.registry.by_kind(&api_version, &kind).ok_or_else(Status::resource_not_served)?;
    let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
    let namespace = if namespace.is_empty() { "default".to_owned() } else { namespace };
    Ok(ObjectRef::new(&resource, Some(&namespace), &name))
}
