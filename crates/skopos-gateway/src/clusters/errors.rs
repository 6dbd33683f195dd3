//! Conversion of a fleet's errors to `Status` objects of the Kubernetes API.

use skopos_fleet::FleetError;
use skopos_wire::{GroupResource, Status, StatusDetails};

/// Converts an error to the API server's `Status`.
pub(crate) fn status_of(error: &FleetError) -> Status {
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

/// Returns the error for a cluster that was replaced or rerouted during the review of the caller's permissions.
pub(super) fn is_another_now() -> Status {
    retry_later("the cluster came to be another one, or to be reached another way, while it was asked")
}

/// Returns the error for a cluster that is not known yet, because not all sources have listed their clusters.
pub(super) fn not_known_yet() -> Status {
    let message =
        "it is not known yet whether there is such a cluster: not all sources of clusters have been read";
    retry_later(message)
}

fn retry_later(message: &str) -> Status {
    Status::service_unavailable(message)
        .with_details(StatusDetails { retry_after_seconds: 1, ..StatusDetails::default() })
}
