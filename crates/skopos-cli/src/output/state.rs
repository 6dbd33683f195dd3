//! State of an object in a word or two, as in kubectl's columns.
use serde_json::Value;

/// Returns the state of an object at a glance: `1/1 Running`, `2/3 ready`, `Bound`. Empty if it has none.
pub(crate) fn state(kind: &str, object: &Value) -> String {
    if object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null()) {
        return "Terminating".into();
    }
    match kind {
        "Pod" => pod(object),
        "Deployment" | "StatefulSet" | "ReplicaSet" | "ReplicationController" => {
            let ready = number(object, "/status/readyReplicas");
            format!("{ready}/{} ready", object.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1))
        }
        "DaemonSet" => {
            let wanted = number(object, "/status/desiredNumberScheduled");
            format!("{}/{wanted} ready", number(object, "/status/numberReady"))
        }
        "Job" => {
            let wanted = object.pointer("/spec/completions").and_then(Value::as_u64).unwrap_or(1);
            format!("{}/{wanted} done", number(object, "/status/succeeded"))
        }
        "Node" => node(object),
        "Lease" => text(object, "/spec/holderIdentity").unwrap_or_default().into(),
        "Event" => text(object, "/reason").unwrap_or_default().into(),
        "Service" => text(object, "/spec/type").unwrap_or_default().into(),
        "ConfigMap" | "Secret" => {
            let keys = object.get("data").and_then(Value::as_object).map_or(0, serde_json::Map::len);
            skopos_console::human::count(keys as u64, "key")
        }
        _ => text(object, "/status/phase")
            .map(Into::into)
            .or_else(|| condition(object, "Ready").map(ready_word))
            .or_else(|| condition(object, "Available").map(ready_word))
            .unwrap_or_default(),
    }
}

fn pod(object: &Value) -> String {
    let statuses = object.pointer("/status/containerStatuses").and_then(Value::as_array);
    let ready = statuses.into_iter().flatten().filter(|status| status["ready"] == true).count();
    let containers = object.pointer("/spec/containers").and_then(Value::as_array).map_or(0, Vec::len);
    let waiting = statuses.into_iter().flatten().find_map(|status| {
        text(status, "/state/waiting/reason").or_else(|| text(status, "/state/terminated/reason"))
    });
    let phase = text(object, "/status/reason").or(waiting).or_else(|| text(object, "/status/phase"));
    format!("{ready}/{containers} {}", phase.unwrap_or("Unknown"))
}

fn node(object: &Value) -> String {
    let ready = match condition(object, "Ready") {
        Some("True") => "Ready",
        Some("False") => "NotReady",
        _ => "Unknown",
    };
    match object.pointer("/spec/unschedulable").and_then(Value::as_bool) {
        Some(true) => format!("{ready},SchedulingDisabled"),
        _ => ready.into(),
    }
}

fn ready_word(status: &str) -> String {
    if status == "True" { "Ready".into() } else { "NotReady".into() }
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)?.get("status")?.as_str()
}

fn number(object: &Value, path: &str) -> u64 {
    object.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

fn text<'a>(object: &'a Value, path: &str) -> Option<&'a str> {
    object.pointer(path)?.as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn states_read_as_kubectls_columns() {
        let running = json!({
            "spec": {"containers": [{}, {}]},
            "status": {"phase": "Running", "containerStatuses": [{"ready": true}, {"ready": false}]}
        });
        assert_eq!(state("Pod", &running), "1/2 Running");
        let crashing = json!({
            "spec": {"containers": [{}]},
            "status": {"phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}
        });
        assert_eq!(state("Pod", &crashing), "0/1 CrashLoopBackOff");
        assert_eq!(
            state("Deployment", &json!({"spec": {"replicas": 3}, "status": {"readyReplicas": 2}})),
            "2/3 ready"
        );
        let node = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}, "spec": {"unschedulable": true}});
        assert_eq!(state("Node", &node), "Ready,SchedulingDisabled");
        assert_eq!(state("PersistentVolumeClaim", &json!({"status": {"phase": "Bound"}})), "Bound");
        assert_eq!(state("ConfigMap", &json!({"data": {"a": "1"}})), "1 key");
        assert_eq!(
            state("Pod", &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
            "Terminating"
        );
    }

    #[test]
    fn wrong_types_are_no_trouble() {
        for kind in ["Pod", "Deployment", "Node", "Job", "ConfigMap", "Lease", "Widget"] {
            state(kind, &json!({"spec": 1, "status": [], "data": null, "metadata": "x"}));
            state(kind, &json!("text"));
        }
    }
}
