//! Conditions of a status, as the Kubernetes API conventions have them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Sets a condition, and returns whether anything changed. `lastTransitionTime` moves only when the condition's status changes, so
/// `condition.last_transition_time` counts only then.
///
/// ```
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
/// use skopos_controller::conditions::{condition, set};
///
/// let mut conditions = Vec::new();
/// let noon = Time("2026-01-01T12:00:00Z".parse().unwrap());
/// let later = Time("2026-01-01T13:00:00Z".parse().unwrap());
/// assert!(set(&mut conditions, condition("Ready", false, "Starting", "no pod yet", 1, noon.clone())));
/// assert!(set(&mut conditions, condition("Ready", false, "Pulling", "the image is pulled", 1, later.clone())));
/// assert_eq!(conditions[0].last_transition_time, noon, "it is as unready as before");
/// assert!(!set(&mut conditions, condition("Ready", false, "Pulling", "the image is pulled", 1, later.clone())));
/// assert!(set(&mut conditions, condition("Ready", true, "Running", "", 1, later.clone())));
/// assert_eq!(conditions[0].last_transition_time, later);
/// ```
pub fn set(conditions: &mut Vec<Condition>, condition: Condition) -> bool {
    let Some(known) = conditions.iter_mut().find(|known| known.type_ == condition.type_) else {
        conditions.push(condition);
        return true;
    };
    let last_transition_time = match known.status == condition.status {
        true => known.last_transition_time.clone(),
        false => condition.last_transition_time.clone(),
    };
    let condition = Condition { last_transition_time, ..condition };
    let changed = *known != condition;
    *known = condition;
    changed
}

/// Makes a condition.
pub fn condition(
    type_: impl Into<String>,
    holds: bool,
    reason: impl Into<String>,
    message: impl Into<String>,
    observed_generation: i64,
    now: Time,
) -> Condition {
    Condition {
        type_: type_.into(),
        status: if holds { "True" } else { "False" }.to_owned(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: Some(observed_generation),
        last_transition_time: now,
    }
}
