//! Deletion of objects: at once, after their grace period, or once their finalizers are done.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value, json};
use skopos_wire::{GroupResource, Status};

use super::options::{DeleteOptions, Propagation};
use super::{Writer, crds, metadata, unstorable};
use crate::place::Place;
use crate::storage::{Draft, Scope, Stored, WriteError};

/// Result of a deletion.
#[derive(Clone, Debug)]
pub(crate) enum Deletion {
    /// The object is deleted; this was its last state.
    Gone(Arc<Stored>),
    /// It exists until its finalizers or its grace period are over.
    Pending(Arc<Stored>),
    /// A dry run: this object would have been deleted.
    Dry(Arc<Stored>),
}

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];
/// Grace period of a pod if neither it nor the deletion has one.
const DEFAULT_GRACE_SECONDS: i64 = 30;

impl Writer<'_> {
    /// Deletes an object.
    ///
    /// # Errors
    /// 403, 404, 409.
    pub(crate) fn delete(&self, place: &Place, options: &DeleteOptions) -> Result<Deletion, Status> {
        let is_namespace = place.resource.group.is_empty() && place.resource.plural == "namespaces";
        if is_namespace && IMMORTAL.contains(&place.name.as_str()) {
            let problem = "this namespace may not be deleted";
            return Err(Status::forbidden(place.group_resource(), &place.name, problem));
        }
        loop {
            let current =
                self.state.storage.get(&place.storage, &place.key()).ok_or_else(|| place.not_found())?;
            let object = current.to_value();
            check_preconditions(place, &object, options)?;
            if options.dry_run {
                return Ok(Deletion::Dry(current));
            }
            let attempt = match self.plan(place, &object, options) {
                Plan::Now => self.remove(place, current.revision()),
                Plan::MarkAndGo(marked) => self.mark_and_remove(place, &marked, current.revision()),
                Plan::Mark(marked) => self.mark(place, &marked, current.revision()),
                Plan::Wait => Ok(Deletion::Pending(current)),
            };
            match attempt {
                Err(WriteError::Conflict { .. }) => {}
                Err(_) => return Err(place.not_found()),
                Ok(deletion) => {
                    if matches!(deletion, Deletion::Gone(_)) {
                        self.after_removal(place, &object);
                    }
                    return Ok(deletion);
                }
            }
        }
    }

    /// Removes an object, and ignores finalizers and grace period.
    pub(crate) fn remove_now(&self, place: &Place) {
        if let Ok(stored) = self.state.storage.delete(&place.storage, &place.key(), None) {
            self.after_removal(place, &stored.to_value());
        }
    }

    /// Removes all of these objects at one revision, and ignores finalizers and grace periods. Returns the last states of those
    /// that existed.
    pub(crate) fn expire(&self, places: &[Place]) -> Vec<Arc<Stored>> {
        let keys: Vec<_> = places.iter().map(|place| (place.storage.clone(), place.key())).collect();
        let gone = self.state.storage.delete_together(&keys);
        let gone = places.iter().zip(gone).filter_map(|(place, object)| Some((place, object?)));
        gone.map(|(place, object)| {
            self.after_removal(place, &object.to_value());
            object
        })
        .collect()
    }

    /// Returns the steps to delete an object.
    fn plan(&self, place: &Place, object: &Value, options: &DeleteOptions) -> Plan {
        let is = |plural: &str| place.resource.group.is_empty() && place.resource.plural == plural;
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
        let goes = finalizers.is_empty() && grace == 0 && !is("namespaces");
        if goes && !(is("pods") && options.in_steps) {
            return Plan::Now;
        }
        let earlier = meta.get("deletionGracePeriodSeconds").and_then(Value::as_i64);
        let marked_before = meta.get("deletionTimestamp").is_some();
        if marked_before && !goes && earlier.is_none_or(|earlier| grace >= earlier) {
            return Plan::Wait;
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
        if goes { Plan::MarkAndGo(Box::new(marked)) } else { Plan::Mark(Box::new(marked)) }
    }

    fn mark(&self, place: &Place, marked: &Value, expected: u64) -> Result<Deletion, WriteError> {
        let draft = Draft::from_value(marked).map_err(|_| WriteError::NotFound)?;
        let stored = self.state.storage.update(&place.storage, draft, Some(expected))?;
        let grace = marked["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
        let is_namespace = place.resource.group.is_empty() && place.resource.plural == "namespaces";
        if grace > 0 || is_namespace {
            self.state.lifecycle.expect(place.clone(), stored.uid(), Duration::from_secs(grace));
        }
        Ok(Deletion::Pending(stored))
    }

    fn remove(&self, place: &Place, expected: u64) -> Result<Deletion, WriteError> {
        let gone = self.state.storage.delete(&place.storage, &place.key(), Some(expected))?;
        Ok(Deletion::Gone(gone))
    }

    /// Deletes a pod in two writes, as the API server does: watchers see it marked, and then deleted.
    fn mark_and_remove(&self, place: &Place, marked: &Value, expected: u64) -> Result<Deletion, WriteError> {
        let draft = Draft::from_value(marked).map_err(|_| WriteError::NotFound)?;
        let marked = self.state.storage.update(&place.storage, draft, Some(expected))?;
        self.remove(place, marked.revision())
    }

    /// Removes the dependent state of a deleted object: the resources of a CustomResourceDefinition.
    fn after_removal(&self, place: &Place, object: &Value) {
        if let Ok(definition) = crds::parse(&place.resource, object)
            && let Some(resource) = definition.unregister(self.state)
        {
            let key = crate::storage::ResourceKey::from(&*resource);
            let (objects, _) = self.state.storage.list(&key, Scope::default());
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
    pub(crate) fn end_grace(&self, place: &Place, uid: &str) -> Result<(), Status> {
        loop {
            let current =
                self.state.storage.get(&place.storage, &place.key()).ok_or_else(|| place.not_found())?;
            let mut object = current.to_value();
            if current.uid() != uid || object["metadata"]["deletionTimestamp"].is_null() {
                return Ok(());
            }
            object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            let held = object["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
            let draft = Draft::from_value(&object).map_err(|e| unstorable(&e))?;
            let expected = Some(current.revision());
            let attempt = match self.state.storage.update(&place.storage, draft, expected) {
                Ok(ended) if !held => self.remove(place, ended.revision()).map(drop),
                other => other.map(drop),
            };
            match attempt {
                Err(WriteError::Conflict { .. }) => {}
                _ => return Ok(()),
            }
        }
    }
}

enum Plan {
    Now,
    MarkAndGo(Box<Value>),
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

fn check_preconditions(place: &Place, object: &Value, options: &DeleteOptions) -> Result<(), Status> {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let refuse = |what: &str, wanted: &str, found: &str, perhaps: &str| {
        let kind = GroupResource::new(&place.resource.group, &place.resource.kind);
        let problem = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object might have been {perhaps}"
        );
        Err(Status::conflict(kind, &place.name, problem))
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
