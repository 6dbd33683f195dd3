//! Scale subresource: an `autoscaling/v1` Scale as a view of the fields with the replica counts.

use serde_json::{Value, json};
use skopos_serve::table::{JsonPath, PathValue};
use skopos_serve::{ScalePaths, Subresource};
use skopos_wire::Status;

use super::options::WriteOptions;
use super::part::ObjectPart;
use super::{WriteOutcome, Writer};
use crate::object_ref::ObjectRef;

impl Writer<'_> {
    /// Returns the Scale of an object.
    ///
    /// # Errors
    /// 404.
    pub(crate) fn scale(&self, object_ref: &ObjectRef) -> Result<Value, Status> {
        let paths = paths(object_ref)?;
        let current = self
            .state
            .storage
            .get(&object_ref.resource_key, &object_ref.key())
            .ok_or_else(|| object_ref.not_found())?;
        Ok(scale_of(&current.to_value(), paths))
    }

    /// Sets the replica count from a Scale.
    ///
    /// # Errors
    /// The API server's errors: 400, 404, 409, 422.
    pub(crate) fn set_scale(
        &self,
        object_ref: &ObjectRef,
        scale: &Value,
        options: &WriteOptions,
    ) -> Result<Value, Status> {
        let paths = paths(object_ref)?;
        let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
        let version = scale["metadata"]["resourceVersion"].clone();
        let uid = scale["metadata"]["uid"].clone();
        let written = self.modify_object(object_ref, ObjectPart::Scale, options, |old| {
            let mut new = old.clone();
            let pointer = paths.spec_replicas.replace('.', "/");
            set(&mut new, &pointer, json!(replicas));
            if version.as_str().is_some_and(|version| !version.is_empty()) {
                new["metadata"]["resourceVersion"] = version.clone();
            }
            if !uid.is_null() {
                new["metadata"]["uid"] = uid.clone();
            }
            Ok(new)
        })?;
        Ok(scale_of(&WriteOutcome::to_value(&written), paths))
    }
}

fn paths(object_ref: &ObjectRef) -> Result<&ScalePaths, Status> {
    match object_ref.resource.subresource("scale") {
        Some(Subresource::Scale(paths)) => Ok(paths),
        _ => Err(Status::resource_not_served()),
    }
}

fn scale_of(object: &Value, paths: &ScalePaths) -> Value {
    let at = |path: &str| JsonPath::parse(path).ok()?.first(object).and_then(PathValue::value).cloned();
    let metadata = &object["metadata"];
    let mut status = json!({"replicas": at(&paths.status_replicas).and_then(|v| v.as_i64()).unwrap_or(0)});
    let selector = paths.selector.as_deref().and_then(at);
    match selector {
        Some(Value::String(text)) => status["selector"] = text.into(),
        Some(selector) if selector.is_object() => {
            status["selector"] = skopos_serve::table::printed_selector(&selector).into();
        }
        _ => {}
    }
    let mut scale = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {"replicas": at(&paths.spec_replicas).and_then(|v| v.as_i64()).unwrap_or(0)},
        "status": status,
    });
    if let Some(namespace) = metadata.get("namespace") {
        scale["metadata"]["namespace"] = namespace.clone();
    }
    scale
}

fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for step in pointer.split('/').skip(1) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[step];
    }
    *at = value;
}
