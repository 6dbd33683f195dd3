//! Changes of existing objects: update, patch and apply differ only in the state that the client wants.

use serde_json::Value;
use skopos_wire::{FieldError, Status, StatusCause, StatusDetails};

use super::options::{UnknownFields, WriteOptions};
use super::part::Part;
use super::{Writer, Written, body, crds, defaults, metadata, unstorable, validate};
use crate::openapi;
use crate::patch::apply::{self, Conflict};
use crate::patch::managed::{Managers, Operation};
use crate::patch::{self, PatchError, PatchKind, Shape};
use crate::place::Place;
use crate::storage::{Draft, WriteError};

impl Writer<'_> {
    /// Replaces an object, or a part of it.
    ///
    /// # Errors
    /// The API server's errors: 400, 404, 409, 422.
    pub(crate) fn update(
        &self,
        place: &Place,
        part: Part,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        let mut object = object;
        body::settle(&mut object, place)?;
        self.modify_object(place, part, options, |_| Ok(object.clone()))
    }

    /// Applies a JSON, merge or strategic patch.
    ///
    /// # Errors
    /// The API server's errors: 400, 404, 409, 415, 422.
    pub(crate) fn patch(
        &self,
        place: &Place,
        part: Part,
        kind: PatchKind,
        change: &Value,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        let shape = Shape::root(&place.resource);
        self.modify_object(place, part, options, |old| {
            let mut new = patch::patch(kind, old, change, shape).map_err(|e| patch_status(&e))?;
            openapi::check_types(&place.resource, &new)
                .map_err(|problem| unreadable_patch(&new, &problem))?;
            if !options.trusted {
                let before = openapi::unknown_fields(&place.resource, old);
                let mut unknown = openapi::drop_unknown_fields(&place.resource, &mut new);
                unknown.retain(|path| !before.contains(path));
                if options.unknown_fields == UnknownFields::Refuse {
                    refuse(place, &unknown)?;
                }
            }
            // An update with another object's UID is a conflict; a patch that would change the UID is invalid.
            check_uid(place, old, &new)?;
            body::settle(&mut new, place)?;
            Ok(new)
        })
    }

    /// Performs a server-side apply; creates the object if it does not exist, and returns whether it did.
    ///
    /// # Errors
    /// The API server's errors: 400, 404, 409 with the conflicts, 422.
    pub(crate) fn apply(
        &self,
        place: &Place,
        part: Part,
        config: Value,
        options: &WriteOptions,
    ) -> Result<(Written, bool), Status> {
        let mut config = config;
        body::settle(&mut config, place)?;
        if config["metadata"].get("managedFields").is_some_and(|m| m.as_array().is_none_or(|m| !m.is_empty()))
        {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        if !options.manager_named {
            let error = FieldError::required("fieldManager", "is required for apply patch");
            return Err(Status::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
        }
        if options.unknown_fields == UnknownFields::Refuse {
            refuse(place, &openapi::unknown_fields(&place.resource, &config))?;
        }
        let resource = &place.resource;
        let manager = metadata::manager(&options.manager, Operation::Apply, resource, part.subresource());
        let version = config["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let config = only_part(resource.subresource("status").is_some(), part, config);
        let shape = Shape::root(resource);
        if self.state.storage.get(&place.storage, &place.key()).is_none()
            && part != Part::Status
            && version.is_empty()
        {
            let mut managers = Managers::default();
            let bare = bare(&config);
            apply::apply(None, &bare, &mut managers, &manager, options.force, shape)
                .map_err(|e| patch_status(&e))?;
            let created = self.create_with(place, config.clone(), options, |m, _| *m = managers.clone());
            match created {
                Err(status) if status.code == 409 => {}
                other => return other.map(|written| (written, true)),
            }
        }
        let written = self.modify_with(place, part, options, |old| {
            let mut managers = Managers::from_json(&old["metadata"]["managedFields"]);
            let live = bare(old);
            if managers.is_empty() {
                let earlier = metadata::manager(BEFORE_FIRST_APPLY, Operation::Update, resource, None);
                metadata::record(&mut managers, &earlier, None, &live, resource);
            }
            let mut new =
                apply::apply(Some(&live), &bare(&config), &mut managers, &manager, options.force, shape)
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
        place: &Place,
        part: Part,
        options: &WriteOptions,
        edit: impl Fn(&Value) -> Result<Value, Status>,
    ) -> Result<Written, Status> {
        self.modify_with(place, part, options, |old| Ok((edit(old)?, None)))
    }

    /// Changes an object with `edit`; retries on the newest state after a concurrent write, unless the client requires a version.
    /// `edit` may set the managers itself.
    fn modify_with(
        &self,
        place: &Place,
        part: Part,
        options: &WriteOptions,
        edit: impl Fn(&Value) -> Result<(Value, Option<Managers>), Status>,
    ) -> Result<Written, Status> {
        let resource = &place.resource;
        loop {
            let current =
                self.state.storage.get(&place.storage, &place.key()).ok_or_else(|| place.not_found())?;
            let mut old = current.to_value();
            old["apiVersion"] = resource.api_version().into();
            let (wanted, managers) = edit(&old)?;
            check_preconditions(place, options, &old, &wanted)?;
            let mut new = self.settled(place, part, options, &old, &wanted);
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
            if metadata::same(&old, &new) {
                return Ok(Written::Stored(current));
            }
            if options.dry_run {
                return Ok(Written::Dry(new));
            }
            match self.store(place, &new, current.revision()) {
                Err(WriteError::Conflict { .. }) => {}
                Err(_) => return Err(place.not_found()),
                Ok(written) => return written,
            }
        }
    }

    /// Returns the object to be stored: the client's writable fields, and the others unchanged.
    fn settled(
        &self,
        place: &Place,
        part: Part,
        options: &WriteOptions,
        old: &Value,
        wanted: &Value,
    ) -> Value {
        let has_status = place.resource.subresource("status").is_some();
        let mut new = match part {
            Part::Status => {
                let mut new = old.clone();
                replace_field(&mut new, wanted, "status");
                // The Deployment controller stores its revision there.
                if place.resource.kind == "Deployment" && !place.resource.custom {
                    replace_field(&mut new["metadata"], &wanted["metadata"], "annotations");
                }
                new
            }
            Part::Main if has_status && !options.trusted => {
                let mut new = wanted.clone();
                replace_field(&mut new, old, "status");
                new
            }
            Part::Main | Part::Whole | Part::Scale => wanted.clone(),
        };
        metadata::carry_over(old, &mut new);
        defaults::on_update(&place.resource, old, &mut new);
        metadata::bump_generation(&place.resource, part, old, &mut new);
        metadata::metadata_mut(&mut new)
            .insert("resourceVersion".into(), old["metadata"]["resourceVersion"].clone());
        new
    }

    /// Stores a changed object, or removes it if it is being deleted and nothing blocks that any more.
    fn store(
        &self,
        place: &Place,
        new: &Value,
        expected: u64,
    ) -> Result<Result<Written, Status>, WriteError> {
        let mut stored = new.clone();
        stored["apiVersion"] =
            skopos_serve::resources::group_version(&place.resource.group, &place.resource.storage_version)
                .into();
        let draft = match Draft::from_value(&stored) {
            Ok(draft) => draft,
            Err(error) => return Ok(Err(unstorable(&error))),
        };
        let definition = match crds::parse(&place.resource, new) {
            Ok(definition) => definition,
            Err(status) => return Ok(Err(status)),
        };
        let metadata = &new["metadata"];
        let deleted = !metadata["deletionTimestamp"].is_null();
        let waits = metadata["finalizers"].as_array().is_some_and(|f| !f.is_empty())
            || metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) > 0
            || place.resource.group.is_empty() && place.resource.plural == "namespaces";
        let stored = if deleted && !waits {
            // Its last state is the one before this write, which is never stored; the response shows the unstored result.
            self.state.storage.delete(&place.storage, &place.key(), Some(expected))?;
            return Ok(Ok(Written::Dry(new.clone())));
        } else {
            let stored = self.state.storage.update(&place.storage, draft, Some(expected))?;
            definition.register(self.state);
            stored
        };
        Ok(Ok(Written::Stored(stored)))
    }
}

/// Manager of the fields that existed before the first apply, if nothing was managed yet.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Refuses unknown fields, if there are any.
pub(super) fn refuse(place: &Place, unknown: &[String]) -> Result<(), Status> {
    if unknown.is_empty() {
        return Ok(());
    }
    let unknown: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
    let problem = format!("strict decoding error: {}", unknown.join(", "));
    Err(body::unreadable(&place.resource.kind, &place.resource.version, &problem))
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
fn check_uid(place: &Place, old: &Value, wanted: &Value) -> Result<(), Status> {
    let uid = wanted["metadata"]["uid"].as_str().unwrap_or_default();
    if uid.is_empty() || old["metadata"]["uid"] == uid {
        return Ok(());
    }
    let error = FieldError::invalid("metadata.uid", uid, "field is immutable");
    let (group, kind) = (&place.resource.group, &place.resource.kind);
    Err(Status::invalid(group, kind, &place.name, &[error.clone(), error]))
}

fn check_preconditions(
    place: &Place,
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
            place.resource.plural,
            place.key()
        );
        return Err(Status::conflict(place.group_resource(), &place.name, problem));
    }
    let (resource, version) = (&place.resource, text(wanted, "resourceVersion"));
    if matches!(version.as_str(), "" | "0") {
        let conditional = resource.custom || CONDITIONAL.contains(&resource.kind.as_str());
        if options.trusted || !conditional {
            return Ok(());
        }
        // The error names the resource, not its kind.
        let problem = "must be specified for an update";
        let error = FieldError::invalid_literal("metadata.resourceVersion", 0, problem);
        return Err(Status::invalid(&resource.group, &resource.plural, &place.name, &[error]));
    }
    if version.parse::<u64>().is_err() {
        let error = FieldError::invalid("metadata.resourceVersion", &version, "must be an integer");
        return Err(Status::invalid(&resource.group, &resource.kind, &place.name, &[error]));
    }
    if version == text(old, "resourceVersion") {
        return Ok(());
    }
    Err(Status::modified(place.group_resource(), &place.name))
}

/// Built-in kinds whose updates must have a resourceVersion: `AllowUnconditionalUpdate` of kube-apiserver is false for them, and
/// for all custom resources.
const CONDITIONAL: [&str; 8] = [
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
fn only_part(has_status: bool, part: Part, mut config: Value) -> Value {
    let Some(map) = config.as_object_mut() else { return config };
    match part {
        Part::Main if has_status => {
            map.remove("status");
        }
        Part::Status => {
            map.retain(|field, _| matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
            if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.retain(|field, _| matches!(field.as_str(), "name" | "namespace"));
            }
        }
        _ => {}
    }
    config
}

fn bare(object: &Value) -> Value {
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
