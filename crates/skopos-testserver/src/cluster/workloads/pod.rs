//! Pods: they get a node at once, run a moment later, and finish if their restart policy lets them.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::{ControllerClient, terminating};
use super::node;

/// Time from a pod's scheduling to its readiness.
const START_DELAY: Duration = Duration::from_millis(200);
/// Run time of the containers of a pod that finishes.
const RUN_TIME: Duration = Duration::from_millis(500);

/// Advances the pod by one step; returns when the next step is due.
pub(super) fn advance(client: ControllerClient<'_>, key: &str) -> Option<Instant> {
    let pods = client.resource("", "pods")?;
    let pod = client.get(&pods, key).filter(|pod| !terminating(pod))?;
    let gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    let other_scheduler =
        pod["spec"]["schedulerName"].as_str().is_some_and(|name| name != "default-scheduler");
    let placed = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let restarts = pod["spec"]["restartPolicy"].as_str().is_none_or(|policy| policy == "Always");
    match pod["status"]["phase"].as_str() {
        Some("Pending") if !placed && (gated || other_scheduler) => None,
        Some("Pending") if !placed => {
            let (node, _) = node::for_pod(key);
            let now = client.now();
            client.edit(&pods, &pod, |pod| {
                pod["spec"]["nodeName"] = node.as_str().into();
                set_condition(&mut pod["status"], "PodScheduled", "True", &now);
            });
            Some(Instant::now() + START_DELAY)
        }
        Some("Pending") => match step_due_at(client, &pod, "PodScheduled", START_DELAY) {
            Some(later) => Some(later),
            None => {
                client.set_status(&pods, &pod, &running(client, key, &pod));
                (!restarts).then(|| Instant::now() + RUN_TIME)
            }
        },
        Some("Running") if !restarts => match step_due_at(client, &pod, "Ready", RUN_TIME) {
            Some(later) => Some(later),
            None => {
                client.set_status(&pods, &pod, &succeeded(client, &pod));
                None
            }
        },
        _ => None,
    }
}

/// Returns when a step is due that follows a condition after a delay; `None` if it is due now.
///
/// Times in objects have whole seconds, so a step may happen up to a second early; never late.
fn step_due_at(
    client: ControllerClient<'_>,
    pod: &Value,
    condition: &str,
    after: Duration,
) -> Option<Instant> {
    let conditions = pod["status"]["conditions"].as_array();
    let since = conditions.and_then(|all| all.iter().find(|c| c["type"] == condition));
    let since: Timestamp = since?["lastTransitionTime"].as_str()?.parse().ok()?;
    let passed = Duration::try_from(client.state.clock.now().duration_since(since)).ok()?;
    after.checked_sub(passed).filter(|left| !left.is_zero()).map(|left| Instant::now() + left)
}

fn running(client: ControllerClient<'_>, key: &str, pod: &Value) -> Value {
    let now = client.now();
    let (_, host) = node::for_pod(key);
    let address = {
        let mut rng = client.state.rng.lock();
        format!("10.{}.{}.{}", rng.u8(1..4), rng.u8(..), rng.u8(1..255))
    };
    let container = |container: &Value| {
        json!({
            "name": container["name"], "image": container["image"], "imageID": container["image"],
            "containerID": format!("none://{:032x}", client.state.rng.lock().u128(..)),
            "ready": true, "started": true, "restartCount": 0, "lastState": {},
            "state": {"running": {"startedAt": now}},
        })
    };
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut status = pod["status"].clone();
    status["phase"] = "Running".into();
    status["startTime"] = now.as_str().into();
    status["hostIP"] = host.as_str().into();
    status["hostIPs"] = json!([{"ip": host}]);
    status["podIP"] = address.as_str().into();
    status["podIPs"] = json!([{"ip": address}]);
    status["containerStatuses"] = containers.map(container).collect();
    for condition in ["Initialized", "ContainersReady", "Ready"] {
        set_condition(&mut status, condition, "True", &now);
    }
    status
}

fn succeeded(client: ControllerClient<'_>, pod: &Value) -> Value {
    let now = client.now();
    let mut status = pod["status"].clone();
    status["phase"] = "Succeeded".into();
    for condition in ["ContainersReady", "Ready"] {
        set_condition(&mut status, condition, "False", &now);
    }
    for container in status.get_mut("containerStatuses").and_then(Value::as_array_mut).into_iter().flatten() {
        let started = container["state"]["running"]["startedAt"].clone();
        container["ready"] = false.into();
        container["started"] = false.into();
        container["state"] = json!({"terminated": {
            "exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": now}});
    }
    status
}

fn set_condition(status: &mut Value, kind: &str, value: &str, now: &str) {
    let condition = json!({"type": kind, "status": value, "lastProbeTime": null, "lastTransitionTime": now});
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.retain(|c| c["type"] != kind);
        conditions.push(condition);
    }
}
