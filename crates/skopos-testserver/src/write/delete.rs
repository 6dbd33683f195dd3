//! Deletion of objects: at once, after their grace period, or once their finalizers are done.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value, json};
use skopos_wire::{GroupResource, Status};

use super::options::{DeleteOptions, Propagation};
use super::{Writer, crds, invalid_object_status, metadata};
use crate::object_ref::ObjectRef;
use crate::storage::{Draft, ReadScope, Stored, WriteError};

/// Result of a deletion.
#[derive(Clone, Debug)]
pub(crate) enum DeleteOutcome {
    /// The object is deleted; this was its last state.
    Deleted(Arc<Stored>),
    /// It exists until its finalizers or its grace period are over.
    Pending(Arc<Stored>),
    /// A dry run: this object would have been deleted.
    Dry(Arc<Stored>),
}

/// Namespaces that cannot be deleted.
const PROTECTED_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];
/// Grace period of a pod if neither it nor the deletion has one.
const DEFAULT_GRACE_SECONDS: i64 = 30;

impl Writer<'_> {
    /// Deletes an object.
    ///
    /// # Errors
    /// 403, 404, 409.
    pub(crate) fn delete(
        &self,
        object_ref: &ObjectRef,
        options: &DeleteOptions,
    ) -> Result<DeleteOutcome, Status> {
        let is_namespace = object_ref.resource.group.is_empty() && object_ref.resource.plural == "namespaces";
        if is_namespace && PROTECTED_NAMESPACES.contains(&object_ref.name.as_str()) {
            let problem = "this namespace may not be deleted";
            return Err(Status::forbidden(object_ref.group_resource(), &object_ref.name, problem));
        }
        loop {
            let current = self
                .state
                .storage
                .get(&object_ref.resource_key, &object_ref.key())
                .ok_or_else(|| object_ref.not_found())?;
            let object = current.to_value();
            check_preconditions(object_ref, &object, options)?;
            if options.dry_run {
                return Ok(DeleteOutcome::Dry(current));
            }
            let attempt = match self.plan_deletion(object_ref, &object, options) {
                DeletionPlan::Now => self.remove(object_ref, current.revision()),
                DeletionPlan::MarkAndRemove(marked) => {
                    self.mark_and_remove(object_ref, &marked, current.revision())
                }
                DeletionPlan::Mark(marked) => self.mark(object_ref, &marked, current.revision()),
                DeletionPlan::Wait => Ok(DeleteOutcome::Pending(current)),
            };
            match attempt {
                Err(WriteError::Conflict { .. }) => {}
                Err(_) => return Err(object_ref.not_found()),
                Ok(deletion) => {
                    if matches!(deletion, DeleteOutcome::Deleted(_)) {
                        self.after_removal(object_ref, &object);
                    }
                    return Ok(deletion);
                }
            }
        }
    }

    /// Removes an object, and ignores finalizers and grace period.
    pub(crate) fn remove_now(&self, object_ref: &ObjectRef) {
        if let Ok(stored) = self.state.storage.delete(&object_ref.resource_key, &object_ref.key(), None) {
            self.after_removal(object_ref, &stored.to_value());
        }
    }

    /// Removes all of these objects at one revision, and ignores finalizers and grace periods. Returns the last states of those
    /// that existed.
    pub(crate) fn expire(&self, object_refs: &[ObjectRef]) -> Vec<Arc<Stored>> {
        let keys: Vec<_> = object_refs
            .iter()
            .map(|object_ref| (object_ref.resource_key.clone(), object_ref.key()))
            .collect();
        let deleted = self.state.storage.delete_together(&keys);
        let deleted =
            object_refs.iter().zip(deleted).filter_map(|(object_ref, object)| Some((object_ref, object?)));
        deleted
            .map(|(object_ref, object)| {
                self.after_removal(object_ref, &object.to_value());
                object
            })
            .collect()
    }

    /// Returns the steps to delete an object.
    fn plan_deletion(&self, object_ref: &ObjectRef, object: &Value, options: &DeleteOptions) -> DeletionPlan {
        let is = |plural: &str| object_ref.resource.group.is_empty() && object_ref.resource.plural == plural;
        let grace = if is("pods") { pod_grace(object, options) } else { 0 };
        let mut marked = object.clone();
        let meta = metadata::metadata_mut(&mut marked);
        let mut finalizers: Vec<Value> =
            meta.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
        if self.state.lifecycle.collects_garbage() {
            // The garbage collector does the rest and removes the finalizer.
            let finalizer = match options.propagation {
                Propagation::Background => None,
                Propagation::Foreground => Some("foregroundDeletion"),
                Propagation::Orphan => Some("orphan"),
            };
            finalizers
                .extend(finalizer.filter(|f| !finalizers.iter().any(|have| have == f)).map(Value::from));
        }
        let removable = finalizers.is_empty() && grace == 0 && !is("namespaces");
        if removable && !(is("pods") && options.in_steps) {
            return DeletionPlan::Now;
        }
        let earlier = meta.get("deletionGracePeriodSeconds").and_then(Value::as_i64);
        let marked_before = meta.get("deletionTimestamp").is_some();
        if marked_before && !removable && earlier.is_none_or(|earlier| grace >= earlier) {
            return DeletionPlan::Wait;
        }
        let at = self.state.clock.now().checked_add(SignedDuration::from_secs(grace));
        let at = at.unwrap_or_else(|_| self.state.clock.now()).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        meta.insert("deletionTimestamp".into(), at.into());
        meta.insert("deletionGracePeriodSeconds".into(), json!(grace));
        if !finalizers.is_empty() {
            meta.insert("finalizers".into(), finalizers.into());
        }
        if let (false, Some(generation)) = (marked_before, meta.get("generation").and_then(Value::as_i64)) {
            meta.insert("generation".into(), json!(generation.saturating_add(1)));
        }
        if is("namespaces") {
            marked["status"]["phase"] = "Terminating".into();
        }
        if removable {
            DeletionPlan::MarkAndRemove(Box::new(marked))
        } else {
            DeletionPlan::Mark(Box::new(marked))
        }
    }

    fn mark(
        &self,
        object_ref: &ObjectRef,
        marked: &Value,
        expected: u64,
    ) -> Result<DeleteOutcome, WriteError> {
        let draft = Draft::from_value(marked).map_err(|_| WriteError::NotFound)?;
        let stored = self.state.storage.update(&object_ref.resource_key, draft, Some(expected))?;
        let grace = marked["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
        let is_namespace = object_ref.resource.group.is_empty() && object_ref.resource.plural == "namespaces";
        if grace > 0 || is_namespace {
            self.state.lifecycle.schedule_removal(
                object_ref.clone(),
                stored.uid(),
                Duration::from_secs(grace),
            );
        }
        Ok(DeleteOutcome::Pending(stored))
    }

    fn remove(&self, object_ref: &ObjectRef, expected: u64) -> Result<DeleteOutcome, WriteError> {
        let deleted =
            self.state.storage.delete(&object_ref.resource_key, &object_ref.key(), Some(expected))?;
        Ok(DeleteOutcome::Deleted(deleted))
    }

    /// Deletes a pod in two writes, as the API server does: watchers see it marked, and then deleted.
    fn mark_and_remove(
        &self,
        object_ref: &ObjectRef,
        marked: &Value,
        expected: u64,
    ) -> Result<DeleteOutcome, WriteError> {
        let draft = Draft::from_value(marked).map_err(|_| WriteError::NotFound)?;
        let marked = self.state.storage.update(&object_ref.resource_key, draft, Some(expected))?;
        self.remove(object_ref, marked.revision())
    }

    /// Removes the dependent state of a deleted object: the resources of a CustomResourceDefinition.
    fn after_removal(&self, object_ref: &ObjectRef, object: &Value) {
        if let Ok(definition) = crds::parse(&object_ref.resource, object)
            && let Some(resource) = definition.unregister(self.state)
        {
            let key = crate::storage::ResourceKey::from(&*resource);
            let (objects, _) = self.state.storage.list(&key, ReadScope::default());
            for object in objects {
                // Its finalizers no longer matter.
                let _ = self.state.storage.delete(&key, object.key(), None);
            }
            self.state.storage.drop_resource(&key);
        }
    }

    /// Ends the grace period of an object that is being deleted, and deletes it if it has no finalizers.
    ///
    /// # Errors
    /// When it is deleted already.
    pub(crate) fn end_grace(&self, object_ref: &ObjectRef, uid: &str) -> Result<(), Status> {
        loop {
            let current = self
                .state
                .storage
                .get(&object_ref.resource_key, &object_ref.key())
                .ok_or_else(|| object_ref.not_found())?;
            let mut object = current.to_value();
            if current.uid() != uid || object["metadata"]["deletionTimestamp"].is_null() {
                return Ok(());
            }
            object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            let held = object["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
            let draft = Draft::from_value(&object).map_err(|e| invalid_object_status(&e))?;
            let expected = Some(current.revision());
            let attempt = match self.state.storage.update(&object_ref.resource_key, draft, expected) {
                Ok(ended) if !held => self.remove(object_ref, ended.revision()).map(drop),
                other => other.map(drop),
            };
            match attempt {
                Err(WriteError::Conflict { .. }) => {}
                _ => return Ok(()),
            }
        }
    }
}

enum DeletionPlan {
    Now,
    MarkAndRemove(Box<Value>),
    Mark(Box<Value>),
    Wait,
}

/// Returns the grace period: none for a finished pod or one without a node.
fn pod_grace(pod: &Value, options: &DeleteOptions) -> i64 {
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if ended || pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
        return 0;
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64();
    options.grace_period_seconds.or(own).unwrap_or(DEFAULT_GRACE_SECONDS).max(0)
}

fn check_preconditions(
    object_ref: &ObjectRef,
    object: &Value,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let refuse = |what: &str, wanted: &str, found: &str, perhaps: &str| {
        let kind = GroupResource::new(&object_ref.resource.group, &object_ref.resource.kind);
        let problem = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object might have been {perhaps}"
        );
        Err(Status::conflict(kind, &object_ref.name, problem))
    };
    let (uid, version) = (text("uid"), text("resourceVersion"));
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        return refuse("UID", wanted, uid, "deleted and then recreated");
    }
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != version) {
        return refuse("ResourceVersion", wanted, version, "modified");
    }
    Ok(())
}
