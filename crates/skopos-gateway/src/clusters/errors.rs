//! How a fleet's errors are told to clients of the Kubernetes API.

use skopos_fleet::FleetError;
use skopos_wire::{GroupResource, Status, StatusDetails};

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

/// Whoever was asked for the caller's rights is not who would answer.
pub(super) fn is_another_now() -> Status {
    come_again("the cluster came to be another one, or to be reached another way, while it was asked")
}

/// Nobody can say whether there is such a cluster: not all who list clusters have been heard.
pub(super) fn not_known_yet() -> Status {
    let message =
        "it is not known yet whether there is such a cluster: not all sources of clusters have been read";
    come_again(message)
}

fn come_again(message: &str) -> Status {
    Status::service_unavailable(message)
        .with_details(StatusDetails { retry_after_seconds: 1, ..StatusDetails::default() })
}
