//! The columns of pods.

use serde_json::Value;

use super::{AGE, Column, NAME, Row, joined};

pub(super) fn columns(kind: &str) -> Option<&'static [Column]> {
    (kind == "Pod").then_some(POD)
}

const POD: &[Column] = &[
    NAME,
    Column::new("Ready", "string", ready),
    Column::new("Status", "string", |row| status(row.object).into()),
    Column::new("Restarts", "string", restarts),
    AGE,
    Column::wide("IP", "string", |row| row.text_or(&["status", "podIP"], "<none>")),
    Column::wide("Node", "string", |row| row.text_or(&["spec", "nodeName"], "<none>")),
    Column::wide("Nominated Node", "string", |row| row.text_or(&["status", "nominatedNodeName"], "<none>")),
    Column::wide("Readiness Gates", "string", readiness_gates),
];

fn ready(row: &Row<'_>) -> Value {
    let statuses = row.items(&["status", "containerStatuses"]);
    let ready = statuses.filter(|c| c["ready"] == true && c["state"].get("running").is_some()).count();
    format!("{ready}/{}", row.count(&["spec", "containers"])).into()
}

fn restarts(row: &Row<'_>) -> Value {
    let (mut restarts, mut last) = (0, "");
    for container in row.items(&["status", "containerStatuses"]) {
        restarts += container["restartCount"].as_i64().unwrap_or(0);
        let finished = container["lastState"]["terminated"]["finishedAt"].as_str().unwrap_or_default();
        // RFC 3339 times of one zone sort as texts.
        last = last.max(finished);
    }
    if restarts > 0 && !last.is_empty() {
        return format!("{restarts} ({} ago)", row.since_text(last)).into();
    }
    restarts.to_string().into()
}

fn readiness_gates(row: &Row<'_>) -> Value {
    let total = row.count(&["spec", "readinessGates"]);
    if total == 0 {
        return "<none>".into();
    }
    let is_true = |gate: &Value| {
        row.items(&["status", "conditions"])
            .any(|c| c["type"] == gate["conditionType"] && c["status"] == "True")
    };
    let met = row.items(&["spec", "readinessGates"]).filter(|gate| is_true(gate)).count();
    format!("{met}/{total}").into()
}

/// The one word that kubectl shows for a pod: its phase, or the most telling reason of its containers.
pub(super) fn status(pod: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut word = match text(&pod["status"]["reason"]) {
        reason if reason.is_empty() => text(&pod["status"]["phase"]),
        reason => reason,
    };
    let gated = conditions(pod).any(|c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated");
    if gated {
        word = "SchedulingGated".to_owned();
    }
    match init_status(pod) {
        Some(init) => word = init,
        None => containers_status(pod, &mut word),
    }
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        word = if pod["status"]["reason"] == "NodeLost" { "Unknown" } else { "Terminating" }.to_owned();
    }
    word
}

/// `Init:1/2`, `Init:Error`, ... while init containers have not all succeeded.
fn init_status(pod: &Value) -> Option<String> {
    let total = pod["spec"]["initContainers"].as_array().map_or(0, Vec::len);
    for (done, container) in list(&pod["status"]["initContainerStatuses"]).enumerate() {
        let state = &container["state"];
        let terminated = &state["terminated"];
        let restartable = list(&pod["spec"]["initContainers"])
            .any(|c| c["name"] == container["name"] && c["restartPolicy"] == "Always");
        if terminated["exitCode"] == 0 || (restartable && container["started"] == true) {
            continue;
        }
        if !terminated.is_null() {
            return Some(format!("Init:{}", ended(terminated)));
        }
        let waiting = state["waiting"]["reason"].as_str().unwrap_or_default();
        if !waiting.is_empty() && waiting != "PodInitializing" {
            return Some(format!("Init:{waiting}"));
        }
        return Some(format!("Init:{done}/{total}"));
    }
    None
}

fn containers_status(pod: &Value, word: &mut String) {
    let mut running = false;
    // The first container counts most, so it comes last.
    for container in list(&pod["status"]["containerStatuses"]).rev() {
        let state = &container["state"];
        let waiting = state["waiting"]["reason"].as_str().unwrap_or_default();
        if !waiting.is_empty() {
            *word = waiting.to_owned();
        } else if state.get("terminated").is_some() {
            *word = ended(&state["terminated"]);
        } else if container["ready"] == true && state.get("running").is_some() {
            running = true;
        }
    }
    if word == "Completed" && running {
        let ready = conditions(pod).any(|c| c["type"] == "Ready" && c["status"] == "True");
        *word = if ready { "Running" } else { "NotReady" }.to_owned();
    }
}

fn ended(terminated: &Value) -> String {
    match (terminated["reason"].as_str().unwrap_or_default(), terminated["signal"].as_i64().unwrap_or(0)) {
        ("", 0) => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn conditions(pod: &Value) -> impl Iterator<Item = &Value> {
    list(&pod["status"]["conditions"])
}

fn list(value: &Value) -> std::slice::Iter<'_, Value> {
    value.as_array().map(|items| items.iter()).unwrap_or_default()
}

/// The names or the images of a pod template's containers.
pub(super) fn containers(row: &Row<'_>, field: &str) -> Value {
    let containers = row.items(&["spec", "template", "spec", "containers"]);
    joined(containers.filter_map(|c| c[field].as_str().map(str::to_owned)), "")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_word_for_a_pod() {
        let running = json!({"state": {"running": {}}, "ready": true});
        let cases = [
            (json!({"status": {"phase": "Pending"}}), "Pending"),
            (json!({"status": {"phase": "Running", "containerStatuses": [running]}}), "Running"),
            (json!({"metadata": {"deletionTimestamp": "x"}, "status": {"phase": "Running"}}), "Terminating"),
            (json!({"status": {"phase": "Failed", "reason": "Evicted"}}), "Evicted"),
            (
                json!({"status": {"phase": "Running", "containerStatuses": [
                    {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}, running]}}),
                "CrashLoopBackOff",
            ),
            (
                json!({"status": {"containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]}}),
                "ExitCode:3",
            ),
            (
                json!({"spec": {"initContainers": [{}, {}]}, "status": {"phase": "Pending", "initContainerStatuses": [
                    {"state": {"terminated": {"exitCode": 0}}}, {"state": {"running": {}}}]}}),
                "Init:1/2",
            ),
        ];
        for (pod, expected) in cases {
            assert_eq!(status(&pod), expected, "{pod}");
        }
    }
}
