//! CustomResourceDefinitions: they change the served resources.

use std::sync::Arc;

use serde_json::Value;
use skopos_serve::ResourceType;
use skopos_wire::{FieldError, Status};

use crate::state::ServerState;

/// Resources that an object defines: none, unless it is a CustomResourceDefinition.
pub(super) struct Definition(Vec<ResourceType>);

/// Parses the definition, if the object is one.
///
/// # Errors
/// 422 if it cannot be served.
pub(super) fn parse(resource: &ResourceType, object: &Value) -> Result<Definition, Status> {
    if resource.custom || resource.plural != "customresourcedefinitions" {
        return Ok(Definition(Vec::new()));
    }
    ResourceType::from_crd(object).map(Definition).map_err(|error| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let field = if error.problem == "Required value" {
            FieldError::required(error.field, "")
        } else {
            FieldError::invalid(error.field, name, error.problem)
        };
        Status::invalid(&resource.group, &resource.kind, name, &[field])
    })
}

impl Definition {
    /// Serves the resources from now on.
    pub(super) fn register(&self, state: &ServerState) {
        if let Some(first) = self.0.first() {
            // Versions that are no longer served are removed.
            let served = |r: &ResourceType| self.0.iter().any(|new| new.version == r.version);
            let earlier = state.registry.all();
            let earlier = earlier.iter().filter(|r| r.group == first.group && r.plural == first.plural);
            if earlier.into_iter().any(|r| !served(r)) {
                state.registry.unregister(&first.group, &first.plural);
            }
        }
        for resource in &self.0 {
            state.registry.register(resource.clone());
        }
    }

    /// Stops serving the resources; returns one of the versions, if there were any.
    pub(super) fn unregister(&self, state: &ServerState) -> Option<Arc<ResourceType>> {
        let first = self.0.first()?;
        let served = state.registry.resolve(&first.group, &first.version, &first.plural);
        state.registry.unregister(&first.group, &first.plural);
        served
    }
}
