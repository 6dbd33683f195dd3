//! Reasons shown to callers of merged views, in the gateway's own words. They concern only the requested resource or the
//! cluster as a whole. Errors of another resource would reveal who uses it, and a member's text would reach the callers of all
//! members. Observers and the log have the full text.

use skopos::{Cause, ResourceId, StaleReason};
use skopos_fleet::{Cluster, Condition, FleetError};

/// Returns the meaning of a fleet error for a caller.
pub(crate) fn describe_error(error: &FleetError) -> String {
    match error {
        FleetError::Unreachable { since, .. } => format!("unreachable for {:.0?}", since.elapsed()),
        FleetError::Paused { paused, .. } => paused.to_string(),
        FleetError::Removed { .. } => "it left".into(),
        FleetError::Deadline { waited, .. } => format!("no answer within {waited:.1?}"),
        FleetError::Refused { code, .. } => format!("it answers {code}"),
        FleetError::Failing { .. } => "it fails to list them".into(),
        // This text comes from the gateway itself.
        FleetError::Budget { reason, .. } => reason.to_string(),
        FleetError::Config { .. } => "its configuration cannot be used".into(),
        FleetError::Transport { error, .. } => format!("connection: {}", error.kind().root().label()),
        FleetError::Malformed { .. } => "its answer cannot be read".into(),
        _ => "it cannot be asked".into(),
    }
}

/// Returns the state of a cluster as far as it concerns this resource; `None` if nothing is wrong.
pub(crate) fn describe_cluster(cluster: &Cluster, resource: &ResourceId) -> Option<String> {
    let state = cluster.state();
    let is_of_another = state.kind.as_ref().is_some_and(|kind| kind != resource);
    let condition = match (state.condition, &state.paused) {
        (Condition::Paused, Some(paused)) => Some(format!("paused {paused}")),
        (Condition::Live, _) => None,
        (Condition::Degraded, _) if is_of_another => None,
        (condition, _) => Some(format!("{condition} for {:.0?}", state.since.elapsed())),
    };
    let freshness = cluster.cached(resource).map(|kind| kind.informer().freshness());
    let code = freshness.as_ref().and_then(|freshness| freshness.reason()).and_then(code);
    let reasons: Vec<String> = condition.into_iter().chain(code).collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// Returns a stale reason without names and quotes; `None` if it does not concern the cluster.
fn code(reason: &StaleReason) -> Option<String> {
    Some(match reason {
        StaleReason::Reflector(state) => match state.reason.as_ref()?.cause() {
            Cause::Connection(error_kind) => format!("connection: {}", error_kind.root().label()),
            Cause::Answer { code, .. } => format!("it answers {code}"),
            Cause::Silence => "its watch is silent".into(),
            Cause::Unusable => "its answer cannot be used".into(),
            _ => return None,
        },
        StaleReason::Undecodable { .. } => "some of its objects cannot be read".into(),
        StaleReason::AuditMismatch { .. } => "an audit found differences".into(),
        StaleReason::AgeBound => "its age is not proven".into(),
        StaleReason::Restored { .. } => "from a checkpoint".into(),
        StaleReason::ClockSuspended { .. } => "the gateway's machine slept".into(),
        _ => return None,
    })
}
