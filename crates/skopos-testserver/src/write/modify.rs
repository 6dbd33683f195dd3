//! Changes of existing objects: update, patch and apply differ only in the state that the client wants.

use serde_json::Value;
use skopos_wire::{FieldError, Status, StatusCause, StatusDetails};

use super::options::{UnknownFields, WriteOptions};
use super::part::ObjectPart;
use super::{WriteOutcome, Writer, body, crds, defaults, invalid_object_status, metadata, validate};
use crate::object_ref::ObjectRef;
use crate::openapi;
use crate::patch::apply::{self, Conflict};
use crate::patch::managed::{Managers, Operation};
use crate::patch::{self, PatchError, PatchKind, PatchShape};
use crate::storage::{Draft, WriteError};

impl Writer<'_> {
    /// Replaces an object, or a part of it.
    ///
    /// # Errors
    /// The API server's errors: 400, 404, 409, 422.
    pub(crate) fn update(
        &self,
        object_ref: &ObjectRef,
        part: ObjectPart,
        object: Value,
        options: &WriteOptions,
    ) -> Result<WriteOutcome, Status> {
        let mut object = object;
        body::normalize(&mut object, object_ref)?;
        self.modify_object(object_ref, part, options, |_| Ok(object.clone()))
    }

    /// Applies a JSON, merge or strategic patch.
    ///
    /// # Errors
    /// The API server's errors: 400, 404, 409, 415, 422.
    pub(crate) fn patch(
        &self,
        object_ref: &ObjectRef,
        part: ObjectPart,
        kind: PatchKind,
        change: &Value,
        options: &WriteOptions,
    ) -> Result<WriteOutcome, Status> {
        let shape = PatchShape::root(&object_ref.resource);
        self.modify_object(object_ref, part, options, |old| {
            let mut new = patch::patch(kind, old, change, shape).map_err(|e| patch_status(&e))?;
            openapi::check_types(&object_ref.resource, &new)
                .map_err(|problem| unreadable_patch(&new, &problem))?;
            if !options.trusted {
                let before = openapi::unknown_fields(&object_ref.resource, old);
                let mut unknown = openapi::drop_unknown_fields(&object_ref.resource, &mut new);
                unknown.retain(|path| !before.contains(path));
                if options.unknown_fields == UnknownFields::Refuse {
                    reject_unknown_fields(object_ref, &unknown)?;
                }
            }
            // An update with another object's UID is a conflict; a patch that would change the UID is invalid.
            check_uid(object_ref, old, &new)?;
            body::normalize(&mut new, object_ref)?;
            Ok(new)
        })
    }

    /// Performs a server-side apply; creates the object if it does not exist, and returns whether it did.
    ///
    /// # Errors
    /// The API server's errors: 400, 404, 409 with the conflicts, 422.
    pub(crate) fn apply(
        &self,
        object_ref: &ObjectRef,
        part: ObjectPart,
        config: Value,
        options: &WriteOptions,
    ) -> Result<(WriteOutcome, bool), Status> {
        let mut config = config;
        body::normalize(&mut config, object_ref)?;
        if config["metadata"].get("managedFields").is_some_and(|m| m.as_array().is_none_or(|m| !m.is_empty()))
        {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        if !options.manager_named {
            let error = FieldError::required("fieldManager", "is required for apply patch");
            return Err(Status::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
        }
        if options.unknown_fields == UnknownFields::Refuse {
            reject_unknown_fields(object_ref, &openapi::unknown_fields(&object_ref.resource, &config))?;
        }
        let resource = &object_ref.resource;
        let manager = metadata::manager(&options.manager, Operation::Apply, resource, part.subresource());
        let version = config["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let config = restrict_to_part(resource.subresource("status").is_some(), part, config);
        let shape = PatchShape::root(resource);
        if self.state.storage.get(&object_ref.resource_key, &object_ref.key()).is_none()
            && part != ObjectPart::Status
            && version.is_empty()
        {
            let mut managers = Managers::default();
            let without_managed_fields = without_managed_fields(&config);
            apply::apply(None, &without_managed_fields, &mut managers, &manager, options.force, shape)
                .map_err(|e| patch_status(&e))?;
            let created = self.create_with(object_ref, config.clone(), options, |m, _| *m = managers.clone());
            match created {
                Err(status) if status.code == 409 => {}
                other => return other.map(|written| (written, true)),
            }
        }
        let written = self.modify_with(object_ref, part, options, |old| {
            let mut managers = Managers::from_json(&old["metadata"]["managedFields"]);
            let live = without_managed_fields(old);
            if managers.is_empty() {
                let earlier = metadata::manager(BEFORE_FIRST_APPLY, Operation::Update, resource, None);
                metadata::record(&mut managers, &earlier, None, &live, resource);
            }
            let mut new = apply::apply(
                Some(&live),
                &without_managed_fields(&config),
                &mut managers,
                &manager,
                options.force,
                shape,
            )
            .map_err(|e| patch_status(&e))?;
            if !version.is_empty() {
                new["metadata"]["resourceVersion"] = version.as_str().into();
            }
            Ok((new, Some(managers)))
        })?;
        Ok((written, false))
    }

    /// Changes an object with `edit`.
    ///
    /// # Errors
    /// Those of `edit` and of [`Writer::update`].
    pub(crate) fn modify_object(
        &self,
        object_ref: &ObjectRef,
        part: ObjectPart,
        options: &WriteOptions,
        edit: impl Fn(&Value) -> Result<Value, Status>,
    ) -> Result<WriteOutcome, Status> {
        self.modify_with(object_ref, part, options, |old| Ok((edit(old)?, None)))
    }

    /// Changes an object with `edit`; retries on the newest state after a concurrent write, unless the client requires a version.
    /// `edit` may set the managers itself.
    fn modify_with(
        &self,
        object_ref: &ObjectRef,
        part: ObjectPart,
        options: &WriteOptions,
        edit: impl Fn(&Value) -> Result<(Value, Option<Managers>), Status>,
    ) -> Result<WriteOutcome, Status> {
        let resource = &object_ref.resource;
        loop {
            let current = self
                .state
                .storage
                .get(&object_ref.resource_key, &object_ref.key())
                .ok_or_else(|| object_ref.not_found())?;
            let mut old = current.to_value();
            old["apiVersion"] = resource.api_version().into();
            let (wanted, managers) = edit(&old)?;
            check_preconditions(object_ref, options, &old, &wanted)?;
            let mut new = self.merge_update(object_ref, part, options, &old, &wanted);
            validate::object(resource, &new, Some(&old))?;

            let managers = managers.unwrap_or_else(|| {
                let mut managers = metadata::managers_before(Some(&old), &wanted);
                // An object without managers was cleared of them, and stays so until the first apply.
                if managers.is_empty() {
                    return managers;
                }
                let manager =
                    metadata::manager(&options.manager, Operation::Update, resource, part.subresource());
                metadata::record(&mut managers, &manager, Some(&old), &new, resource);
                managers
            });
            metadata::write_managers(&mut new, &managers, &self.state.clock.now_text());
            if metadata::is_unchanged(&old, &new) {
                return Ok(WriteOutcome::Stored(current));
            }
            if options.dry_run {
                return Ok(WriteOutcome::Dry(new));
            }
            match self.store(object_ref, &new, current.revision()) {
                Err(WriteError::Conflict { .. }) => {}
                Err(_) => return Err(object_ref.not_found()),
                Ok(written) => return written,
            }
        }
    }

    /// Returns the object to be stored: the client's writable fields, and the others unchanged.
    fn merge_update(
        &self,
        object_ref: &ObjectRef,
        part: ObjectPart,
        options: &WriteOptions,
        old: &Value,
        wanted: &Value,
    ) -> Value {
        let has_status = object_ref.resource.subresource("status").is_some();
        let mut new = match part {
            ObjectPart::Status => {
                let mut new = old.clone();
                replace_field(&mut new, wanted, "status");
                // The Deployment controller stores its revision there.
                if object_ref.resource.kind == "Deployment" && !object_ref.resource.custom {
                    replace_field(&mut new["metadata"], &wanted["metadata"], "annotations");
                }
                new
            }
            ObjectPart::Main if has_status && !options.trusted => {
                let mut new = wanted.clone();
                replace_field(&mut new, old, "status");
                new
            }
            ObjectPart::Main | ObjectPart::Whole | ObjectPart::Scale => wanted.clone(),
        };
        metadata::preserve_server_fields(old, &mut new);
        defaults::on_update(&object_ref.resource, old, &mut new);
        metadata::bump_generation(&object_ref.resource, part, old, &mut new);
        metadata::metadata_mut(&mut new)
            .insert("resourceVersion".into(), old["metadata"]["resourceVersion"].clone());
        new
    }

    /// Stores a changed object, or removes it if it is being deleted and nothing blocks that any more.
    fn store(
        &self,
        object_ref: &ObjectRef,
        new: &Value,
        expected: u64,
    ) -> Result<Result<WriteOutcome, Status>, WriteError> {
        let mut stored = new.clone();
        stored["apiVersion"] = skopos_serve::resources::group_version(
            &object_ref.resource.group,
            &object_ref.resource.storage_version,
        )
        .into();
        let draft = match Draft::from_value(&stored) {
            Ok(draft) => draft,
            Err(error) => return Ok(Err(invalid_object_status(&error))),
        };
        let definition = match crds::parse(&object_ref.resource, new) {
            Ok(definition) => definition,
            Err(status) => return Ok(Err(status)),
        };
        let metadata = &new["metadata"];
        let deleted = !metadata["deletionTimestamp"].is_null();
        let waits = metadata["finalizers"].as_array().is_some_and(|f| !f.is_empty())
            || metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) > 0
            || object_ref.resource.group.is_empty() && object_ref.resource.plural == "namespaces";
        let stored = if deleted && !waits {
            // Its last state is the one before this write, which is never stored; the response shows the unstored result.
            self.state.storage.delete(&object_ref.resource_key, &object_ref.key(), Some(expected))?;
            return Ok(Ok(WriteOutcome::Dry(new.clone())));
        } else {
            let stored = self.state.storage.update(&object_ref.resource_key, draft, Some(expected))?;
            definition.register(self.state);
            stored
        };
        Ok(Ok(WriteOutcome::Stored(stored)))
    }
}

/// Manager of the fields that existed before the first apply, if nothing was managed yet.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Refuses unknown fields, if there are any.
pub(super) fn reject_unknown_fields(object_ref: &ObjectRef, unknown: &[String]) -> Result<(), Status> {
    if unknown.is_empty() {
        return Ok(());
    }
    let unknown: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
    let problem = format!("strict decoding error: {}", unknown.join(", "));
    Err(body::undecodable_status(&object_ref.resource.kind, &object_ref.resource.version, &problem))
}

/// Returns the status for a patch that does not apply.
pub(super) fn patch_status(error: &PatchError) -> Status {
    match error {
        PatchError::Malformed(message) => Status::bad_request(message),
        PatchError::TooLarge(message) => {
            let message = format!("Request entity too large: {message}");
            Status::failure(413, skopos_wire::StatusReason::RequestEntityTooLarge, message)
        }
        PatchError::Unprocessable(_) => Status::failure(
            422,
            skopos_wire::StatusReason::Invalid,
            "the server rejected our request due to an error in our request",
        )
        .with_details(StatusDetails::default()),
        PatchError::Conflict(conflicts) => {
            let cause = |conflict: &Conflict| StatusCause {
                reason: "FieldManagerConflict".into(),
                message: format!("conflict with {}", conflict.manager),
                field: conflict.path.clone(),
            };
            Status::apply_conflict(error.to_string(), conflicts.iter().map(cause).collect())
        }
    }
}

/// Returns the status for a patch whose result Go cannot decode.
pub(super) fn unreadable_patch(patched: &Value, problem: &str) -> Status {
    Status::invalid("", "", "", &[FieldError::invalid("patch", &patched.to_string(), problem)])
}

/// Checks the UID; the error appears twice, from the checks of all objects and those of the kind.
fn check_uid(object_ref: &ObjectRef, old: &Value, wanted: &Value) -> Result<(), Status> {
    let uid = wanted["metadata"]["uid"].as_str().unwrap_or_default();
    if uid.is_empty() || old["metadata"]["uid"] == uid {
        return Ok(());
    }
    let error = FieldError::invalid("metadata.uid", uid, "field is immutable");
    let (group, kind) = (&object_ref.resource.group, &object_ref.resource.kind);
    Err(Status::invalid(group, kind, &object_ref.name, &[error.clone(), error]))
}

fn check_preconditions(
    object_ref: &ObjectRef,
    options: &WriteOptions,
    old: &Value,
    wanted: &Value,
) -> Result<(), Status> {
    let text =
        |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (wanted_uid, uid) = (text(wanted, "uid"), text(old, "uid"));
    if !wanted_uid.is_empty() && wanted_uid != uid {
        // The storage's own text.
        let problem = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted_uid}, UID in object meta: {uid}",
            object_ref.resource.plural,
            object_ref.key()
        );
        return Err(Status::conflict(object_ref.group_resource(), &object_ref.name, problem));
    }
    let (resource, version) = (&object_ref.resource, text(wanted, "resourceVersion"));
    if matches!(version.as_str(), "" | "0") {
        let conditional = resource.custom || KINDS_REQUIRING_VERSION.contains(&resource.kind.as_str());
        if options.trusted || !conditional {
            return Ok(());
        }
        // The error names the resource, not its kind.
        let problem = "must be specified for an update";
        let error = FieldError::invalid_literal("metadata.resourceVersion", 0, problem);
        return Err(Status::invalid(&resource.group, &resource.plural, &object_ref.name, &[error]));
    }
    if version.parse::<u64>().is_err() {
        let error = FieldError::invalid("metadata.resourceVersion", &version, "must be an integer");
        return Err(Status::invalid(&resource.group, &resource.kind, &object_ref.name, &[error]));
    }
    if version == text(old, "resourceVersion") {
        return Ok(());
    }
    Err(Status::modified(object_ref.group_resource(), &object_ref.name))
}

/// Built-in kinds whose updates must have a resourceVersion: `AllowUnconditionalUpdate` of kube-apiserver is false for them, and
/// for all custom resources.
const KINDS_REQUIRING_VERSION: [&str; 8] = [
    "CSIDriver",
    "CSINode",
    "CustomResourceDefinition",
    "Lease",
    "MutatingWebhookConfiguration",
    "PodDisruptionBudget",
    "ValidatingWebhookConfiguration",
    "VolumeAttachment",
];

/// Reduces an applied object to the part that is written.
fn restrict_to_part(has_status: bool, part: ObjectPart, mut config: Value) -> Value {
    let Some(map) = config.as_object_mut() else { return config };
    match part {
        ObjectPart::Main if has_status => {
            map.remove("status");
        }
        ObjectPart::Status => {
            map.retain(|field, _| matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
            if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.retain(|field, _| matches!(field.as_str(), "name" | "namespace"));
            }
        }
        _ => {}
    }
    config
}

fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    metadata::metadata_mut(&mut object).remove("managedFields");
    object
}

fn replace_field(target: &mut Value, source: &Value, field: &str) {
    let Some(target) = target.as_object_mut() else { return };
    match source.get(field) {
        Some(value) => target.insert(field.to_owned(), value.clone()),
        None => target.remove(field),
    };
}
