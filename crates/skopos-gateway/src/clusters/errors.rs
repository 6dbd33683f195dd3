//! How a fleet's errors are told to clients of the Kubernetes API.

use skopos_fleet::FleetError;
use skopos_wire::{GroupResource, Status};

/// The API server's words for it.
#[must_use]
pub fn status_of(error: &FleetError) -> Status {
    match error {
        FleetError::UnknownCluster { name } => {
            Status::not_found(GroupResource::new("skopos.dev", "clusters"), name)
        }
        FleetError::Refused { code, .. } => Status::failure(*code, String::new(), error.to_string()),
        FleetError::Deadline { .. } => Status::timeout(error, 1),
        FleetError::Malformed { .. } => Status::failure(502, "BadGateway".to_owned(), error.to_string()),
        _ => Status::service_unavailable(error.to_string()),
    }
}
