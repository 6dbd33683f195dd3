//! Subresources of pods: eviction, binding, log.

use serde_json::{Value, json};
use skopos_wire::{GroupResource, LabelSelector, Status, StatusCause};

use super::Writer;
use super::options::{DeleteOptions, WriteOptions};
use super::part::ObjectPart;
use crate::object_ref::ObjectRef;
use crate::storage::{ReadScope, ResourceKey};

impl Writer<'_> {
    /// Deletes a pod, unless a PodDisruptionBudget forbids it.
    ///
    /// # Errors
    /// 404, 409, 429.
    pub(crate) fn evict(
        &self,
        object_ref: &ObjectRef,
        eviction: &Value,
        options: DeleteOptions,
    ) -> Result<(), Status> {
        let pod = self
            .state
            .storage
            .get(&object_ref.resource_key, &object_ref.key())
            .ok_or_else(|| object_ref.not_found())?;
        let budgets = ResourceKey::new("policy", "poddisruptionbudgets");
        let (budgets, _) = self.state.storage.list(&budgets, ReadScope::new(object_ref.namespace.as_deref()));
        for budget in budgets {
            let budget = budget.to_value();
            let selector = skopos_serve::table::printed_selector(&budget["spec"]["selector"]);
            let matches = LabelSelector::parse(&selector).is_ok_and(|selector| selector.matches(&*pod));
            // A budget without a computed status allows everything here: there is no controller for it.
            if matches && budget["status"]["disruptionsAllowed"] == 0 {
                let message = "Cannot evict pod as it would violate the pod's disruption budget.";
                let mut status = Status::too_many_requests(message, 0);
                if let Some(details) = &mut status.details {
                    let name = budget["metadata"]["name"].as_str().unwrap_or_default();
                    details.causes.push(StatusCause {
                        reason: "DisruptionBudget".into(),
                        message: format!("The disruption budget {name} does not allow it now"),
                        field: String::new(),
                    });
                }
                return Err(status);
            }
        }
        let options = match eviction.get("deleteOptions") {
            Some(body) => options.with_body(body)?,
            None => options,
        };
        self.delete(object_ref, &options).map(drop)
    }

    /// Binds a pod to a node.
    ///
    /// # Errors
    /// 404; 409 if it is on another node already.
    pub(crate) fn bind(
        &self,
        object_ref: &ObjectRef,
        binding: &Value,
        options: &WriteOptions,
    ) -> Result<(), Status> {
        let node = binding["target"]["name"].as_str().unwrap_or_default().to_owned();
        let now = self.state.clock.now_text();
        let bound = self.modify_object(object_ref, ObjectPart::Whole, options, |old| {
            let there = old["spec"]["nodeName"].as_str().unwrap_or_default();
            if !there.is_empty() {
                let resource = GroupResource::new("", "pods/binding");
                let problem = format!("pod {} is already assigned to node {there:?}", object_ref.name);
                return Err(Status::conflict(resource, &object_ref.name, problem));
            }
            let mut new = old.clone();
            new["spec"]["nodeName"] = node.as_str().into();
            let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
            match new["status"]["conditions"].as_array_mut() {
                Some(conditions) => {
                    conditions.retain(|c| c["type"] != "PodScheduled");
                    conditions.push(condition);
                }
                None => new["status"]["conditions"] = json!([condition]),
            }
            Ok(new)
        });
        bound.map(drop)
    }

    /// Returns a few fixed lines.
    ///
    /// # Errors
    /// 404; 400 while the pod does not run.
    pub(crate) fn log(&self, object_ref: &ObjectRef) -> Result<String, Status> {
        let pod = self
            .state
            .storage
            .get(&object_ref.resource_key, &object_ref.key())
            .ok_or_else(|| object_ref.not_found())?
            .to_value();
        if pod["status"]["phase"] == "Pending" {
            let container = pod["spec"]["containers"][0]["name"].as_str().unwrap_or_default();
            let message = format!(
                "container {container:?} in pod {:?} is waiting to start: ContainerCreating",
                object_ref.name
            );
            return Err(Status::bad_request(message));
        }
        Ok(format!(
            "{} started\n{} is a pod of a test server: there is no more to say\n",
            object_ref.name, object_ref.name
        ))
    }
}
