//! Creation of objects.

use serde_json::{Value, json};
use skopos_wire::{FieldError, GroupResource, Status, StatusCause, StatusReason};

use super::options::WriteOptions;
use super::{WriteOutcome, Writer, body, crds, defaults, invalid_object_status, metadata, validate};
use crate::object_ref::ObjectRef;
use crate::patch::managed::{Managers, Operation};
use crate::storage::{Draft, WriteError};

/// Maximum attempts to generate an unused name (as in Kubernetes).
const MAX_NAME_ATTEMPTS: usize = 8;

impl Writer<'_> {
    /// Creates an object. The name of the reference may be empty: then the object has the name.
    ///
    /// # Errors
    /// The API server's errors: 400, 403, 404 (namespace), 409, 422.
    pub(crate) fn create(
        &self,
        object_ref: &ObjectRef,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<WriteOutcome, Status> {
        body::normalize(&mut object, object_ref)?;
        if object["metadata"]["resourceVersion"].as_str().is_some_and(|rv| !rv.is_empty()) && !options.trusted
        {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Status::failure(500, StatusReason::default(), message));
        }
        let sent = object.clone();
        self.create_with(object_ref, object, options, |managers, object| {
            let manager = metadata::manager(&options.manager, Operation::Update, &object_ref.resource, None);
            *managers = metadata::managers_before(None, &sent);
            metadata::record(managers, &manager, None, object, &object_ref.resource);
        })
    }

    /// Creates an object that was checked already; `own` records its manager.
    pub(super) fn create_with(
        &self,
        object_ref: &ObjectRef,
        mut object: Value,
        options: &WriteOptions,
        own: impl Fn(&mut Managers, &Value),
    ) -> Result<WriteOutcome, Status> {
        let resource = &object_ref.resource;
        self.check_namespace(object_ref, options)?;
        if !options.trusted
            && resource.subresource("status").is_some()
            && let Some(map) = object.as_object_mut()
        {
            map.remove("status");
        }
        metadata::init_metadata(self.state, resource, &mut object);
        defaults::on_create(self.state, resource, &mut object);
        let prefix = match (object["metadata"]["name"].as_str(), object["metadata"]["generateName"].as_str())
        {
            (Some(name), _) if !name.is_empty() => None,
            (_, Some(prefix)) if !prefix.is_empty() => Some(prefix.to_owned()),
            _ => {
                let error = FieldError::required("metadata.name", "name or generateName is required");
                return Err(Status::invalid(&resource.group, &resource.kind, "", &[error]));
            }
        };
        for attempt in 1.. {
            if let Some(prefix) = &prefix {
                object["metadata"]["name"] = metadata::generated_name(self.state, prefix).into();
            }
            validate::object(resource, &object, None)?;
            let mut managers = Managers::default();
            own(&mut managers, &object);
            metadata::write_managers(&mut object, &managers, &self.state.clock.now_text());
            match self.store_new(object_ref, &object, options) {
                Err(WriteFailure::Taken) if prefix.is_some() && attempt < MAX_NAME_ATTEMPTS => {}
                Err(WriteFailure::Taken) => {
                    let is_terminating = self.is_being_deleted(object_ref, &object);
                    return Err(name_conflict(object_ref, &object, prefix.is_some(), is_terminating));
                }
                Err(WriteFailure::Other(status)) => return Err(*status),
                Ok(written) => return Ok(written),
            }
        }
        unreachable!("the last attempt returns")
    }

    /// Returns whether the object of that name is being deleted.
    fn is_being_deleted(&self, object_ref: &ObjectRef, object: &Value) -> bool {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let object_ref = ObjectRef { name: name.to_owned(), ..object_ref.clone() };
        let there = self.state.storage.get(&object_ref.resource_key, &object_ref.key());
        there.is_some_and(|there| !there.to_value()["metadata"]["deletionTimestamp"].is_null())
    }

    fn store_new(
        &self,
        object_ref: &ObjectRef,
        object: &Value,
        options: &WriteOptions,
    ) -> Result<WriteOutcome, WriteFailure> {
        let mut stored = object.clone();
        if object_ref.resource.version != object_ref.resource.storage_version {
            stored["apiVersion"] = skopos_serve::resources::group_version(
                &object_ref.resource.group,
                &object_ref.resource.storage_version,
            )
            .into();
        }
        let draft = Draft::from_value(&stored).map_err(|e| WriteFailure::from(invalid_object_status(&e)))?;
        if options.dry_run {
            let exists = self.state.storage.get(&object_ref.resource_key, &draft.key()).is_some();
            return if exists { Err(WriteFailure::Taken) } else { Ok(WriteOutcome::Dry(object.clone())) };
        }
        let definition = crds::parse(&object_ref.resource, object).map_err(WriteFailure::from)?;
        match self.state.storage.create(&object_ref.resource_key, draft) {
            Ok(stored) => {
                definition.register(self.state);
                Ok(WriteOutcome::Stored(stored))
            }
            Err(WriteError::AlreadyExists) => Err(WriteFailure::Taken),
            Err(other) => Err(Status::internal_error(other).into()),
        }
    }

    /// Checks that the namespace exists and is not being deleted; a trusted write creates it.
    fn check_namespace(&self, object_ref: &ObjectRef, options: &WriteOptions) -> Result<(), Status> {
        let Some(name) = &object_ref.namespace else { return Ok(()) };
        let Some(namespaces) = self.state.registry.resolve("", "v1", "namespaces") else { return Ok(()) };
        let namespace = ObjectRef::new(&namespaces, None, name);
        let Some(stored) = self.state.storage.get(&namespace.resource_key, name) else {
            if !options.trusted {
                return Err(namespace.not_found());
            }
            // Two writers may do so concurrently: then one of them finds it.
            return match self.create(&namespace, json!({"metadata": {"name": name}}), options) {
                Err(status) if status.reason != StatusReason::AlreadyExists => Err(status),
                _ => Ok(()),
            };
        };
        if options.trusted || stored.to_value()["metadata"]["deletionTimestamp"].is_null() {
            return Ok(());
        }
        let mut status = Status::forbidden(
            GroupResource::new(&object_ref.resource.group, &object_ref.resource.plural),
            &object_ref.name,
            format!("unable to create new content in namespace {name} because it is being terminated"),
        );
        if let Some(details) = &mut status.details {
            details.causes.push(StatusCause {
                reason: "NamespaceTerminating".into(),
                message: format!("namespace {name} is being terminated"),
                field: "metadata.namespace".into(),
            });
        }
        Err(status)
    }
}

enum WriteFailure {
    Taken,
    Other(Box<Status>),
}

impl From<Status> for WriteFailure {
    fn from(status: Status) -> Self {
        Self::Other(Box::new(status))
    }
}

fn name_conflict(object_ref: &ObjectRef, object: &Value, generated: bool, is_terminating: bool) -> Status {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if generated {
        return Status::generate_name_conflict(object_ref.group_resource(), name, 1);
    }
    let mut status = Status::already_exists(object_ref.group_resource(), name);
    if is_terminating {
        status.message = format!("object is being deleted: {}", status.message);
    }
    status
}
