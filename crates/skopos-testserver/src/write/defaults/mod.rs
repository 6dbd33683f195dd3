//! Defaults of the API server: those that kubectl and controllers rely on, not all.

use serde_json::{Map, Value, json};
use skopos_serve::ResourceType;

mod schema;

use super::metadata::metadata_mut;
use crate::state::ServerState;

/// Sets the defaults of a new object.
pub(super) fn on_create(state: &ServerState, resource: &ResourceType, object: &mut Value) {
    on_write(resource, object);
    match kind(resource) {
        Some("Namespace") => {
            let name = object["metadata"]["name"].clone();
            let labels = metadata_mut(object).entry("labels").or_insert_with(|| json!({}));
            labels["kubernetes.io/metadata.name"] = name;
            set(object, "/spec/finalizers", json!(["kubernetes"]));
            set(object, "/status/phase", json!("Active"));
        }
        Some("Pod") => {
            set(object, "/status/phase", json!("Pending"));
            set(object, "/status/qosClass", json!(quality_of_service(object)));
        }
        Some("PersistentVolumeClaim") => set(object, "/status/phase", json!("Pending")),
        Some("Service") => allocate_cluster_ip(state, object),
        Some("CustomResourceDefinition") => mark_established(state, object),
        _ => {}
    }
}

/// Sets the defaults of a changed object.
pub(super) fn on_update(resource: &ResourceType, old: &Value, new: &mut Value) {
    if kind(resource) == Some("Service") && new["spec"]["type"] != "ExternalName" {
        // Cluster IPs are kept unless they are changed.
        for field in ["clusterIP", "clusterIPs"] {
            let earlier = old["spec"][field].clone();
            if !earlier.is_null() && new["spec"].get(field).is_none_or(Value::is_null) {
                new["spec"][field] = earlier;
            }
        }
    }
    on_write(resource, new);
}

fn on_write(resource: &ResourceType, object: &mut Value) {
    if let Some(schema) = &resource.schema {
        schema::drop_nulls(schema, object);
        schema::fill(schema, object);
        return;
    }
    match kind(resource) {
        Some("Pod") => pod(object, ""),
        Some("Deployment") => {
            set(object, "/spec/replicas", json!(1));
            set(object, "/spec/revisionHistoryLimit", json!(10));
            set(object, "/spec/progressDeadlineSeconds", json!(600));
            set(object, "/spec/strategy/type", json!("RollingUpdate"));
            if object["spec"]["strategy"]["type"] == "RollingUpdate" {
                set(object, "/spec/strategy/rollingUpdate/maxSurge", json!("25%"));
                set(object, "/spec/strategy/rollingUpdate/maxUnavailable", json!("25%"));
            }
            pod(object, "/spec/template");
        }
        Some("ReplicaSet" | "ReplicationController") => {
            set(object, "/spec/replicas", json!(1));
            pod(object, "/spec/template");
        }
        Some("StatefulSet") => {
            set(object, "/spec/replicas", json!(1));
            set(object, "/spec/revisionHistoryLimit", json!(10));
            set(object, "/spec/podManagementPolicy", json!("OrderedReady"));
            set(object, "/spec/updateStrategy/type", json!("RollingUpdate"));
            pod(object, "/spec/template");
        }
        Some("DaemonSet") => {
            set(object, "/spec/revisionHistoryLimit", json!(10));
            set(object, "/spec/updateStrategy/type", json!("RollingUpdate"));
            pod(object, "/spec/template");
        }
        Some("Job") => {
            set(object, "/spec/backoffLimit", json!(6));
            set(object, "/spec/completions", json!(1));
            set(object, "/spec/parallelism", json!(1));
            set(object, "/spec/completionMode", json!("NonIndexed"));
            set(object, "/spec/suspend", json!(false));
            pod(object, "/spec/template");
        }
        Some("CronJob") => {
            set(object, "/spec/concurrencyPolicy", json!("Allow"));
            set(object, "/spec/suspend", json!(false));
            set(object, "/spec/successfulJobsHistoryLimit", json!(3));
            set(object, "/spec/failedJobsHistoryLimit", json!(1));
        }
        Some("Service") => service(object),
        Some("Secret") => secret(object),
        Some("PersistentVolumeClaim") => set(object, "/spec/volumeMode", json!("Filesystem")),
        _ => {}
    }
}

fn kind(resource: &ResourceType) -> Option<&str> {
    (!resource.custom).then_some(resource.kind.as_str())
}

/// Sets the defaults of a pod, or of the pod template at `at`. Does nothing without a spec.
fn pod(object: &mut Value, at: &str) {
    if !object.pointer(&format!("{at}/spec")).is_some_and(Value::is_object) {
        return;
    }
    let path = |field: &str| format!("{at}/spec/{field}");
    set(object, &path("restartPolicy"), json!("Always"));
    set(object, &path("terminationGracePeriodSeconds"), json!(30));
    set(object, &path("dnsPolicy"), json!("ClusterFirst"));
    set(object, &path("securityContext"), json!({}));
    set(object, &path("schedulerName"), json!("default-scheduler"));
    if at.is_empty() {
        set(object, &path("enableServiceLinks"), json!(true));
        set(object, &path("serviceAccountName"), json!("default"));
        set(object, &path("serviceAccount"), object["spec"]["serviceAccountName"].clone());
    }
    for containers in ["containers", "initContainers"] {
        let list = object.pointer_mut(&path(containers)).and_then(Value::as_array_mut);
        for container in list.into_iter().flatten() {
            let image = container["image"].as_str().unwrap_or_default();
            let moving =
                image.ends_with(":latest") || !image.rsplit('/').next().unwrap_or_default().contains(':');
            set(container, "/imagePullPolicy", json!(if moving { "Always" } else { "IfNotPresent" }));
            set(container, "/resources", json!({}));
            set(container, "/terminationMessagePath", json!("/dev/termination-log"));
            set(container, "/terminationMessagePolicy", json!("File"));
            for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
                set(port, "/protocol", json!("TCP"));
            }
        }
    }
}

fn service(object: &mut Value) {
    if !object["spec"].is_object() {
        return;
    }
    set(object, "/spec/type", json!("ClusterIP"));
    set(object, "/spec/sessionAffinity", json!("None"));
    if object["spec"]["type"] != "ExternalName" {
        set(object, "/spec/internalTrafficPolicy", json!("Cluster"));
        set(object, "/spec/ipFamilies", json!(["IPv4"]));
        set(object, "/spec/ipFamilyPolicy", json!("SingleStack"));
    }
    for port in object.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
        set(port, "/protocol", json!("TCP"));
        let number = port["port"].clone();
        set(port, "/targetPort", number);
    }
}

fn allocate_cluster_ip(state: &ServerState, object: &mut Value) {
    if !object["spec"].is_object() || object["spec"]["type"] == "ExternalName" {
        return;
    }
    let (a, b) = {
        let mut rng = state.rng.lock();
        (rng.u8(..), rng.u8(1..255))
    };
    set(object, "/spec/clusterIP", json!(format!("10.96.{a}.{b}")));
    let address = object["spec"]["clusterIP"].clone();
    set(object, "/spec/clusterIPs", json!([address]));
    if matches!(object["spec"]["type"].as_str(), Some("NodePort" | "LoadBalancer")) {
        for port in object.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let node_port = state.rng.lock().u16(30000..32768);
            set(port, "/nodePort", json!(node_port));
        }
    }
    set(object, "/status/loadBalancer", json!({}));
}

/// Moves `stringData`, which is write-only, into `data`.
fn secret(object: &mut Value) {
    use base64::Engine as _;
    set(object, "/type", json!("Opaque"));
    let Some(map) = object.as_object_mut() else { return };
    let Some(Value::Object(texts)) = map.remove("stringData") else { return };
    let data = map.entry("data").or_insert_with(|| json!({}));
    for (key, text) in texts {
        let text = text.as_str().unwrap_or_default();
        data[key] = base64::engine::general_purpose::STANDARD.encode(text).into();
    }
}

/// Marks a definition as established, because it is served at once.
fn mark_established(state: &ServerState, object: &mut Value) {
    let now = state.clock.now_text();
    let kind = object["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
    set(object, "/spec/names/singular", json!(kind.to_lowercase()));
    set(object, "/spec/names/listKind", json!(format!("{kind}List")));
    set(object, "/spec/conversion/strategy", json!("None"));
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now});
    let versions = object["spec"]["versions"].as_array().into_iter().flatten();
    let stored = versions.filter(|version| version["storage"] == true).map(|version| version["name"].clone());
    object["status"] = json!({
        "acceptedNames": object["spec"]["names"],
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "storedVersions": stored.collect::<Vec<_>>(),
    });
}

fn quality_of_service(pod: &Value) -> &'static str {
    let containers = || pod["spec"]["containers"].as_array().into_iter().flatten();
    let amounts =
        |container: &Value, what: &str| container["resources"][what].as_object().cloned().unwrap_or_default();
    if containers().all(|c| amounts(c, "limits").is_empty() && amounts(c, "requests").is_empty()) {
        return "BestEffort";
    }
    let guaranteed = |container: &Value| {
        let (limits, requests) = (amounts(container, "limits"), amounts(container, "requests"));
        ["cpu", "memory"].iter().all(|what| limits.contains_key(*what))
            && requests.iter().all(|(what, amount)| limits.get(what) == Some(amount))
    };
    if containers().all(guaranteed) { "Guaranteed" } else { "Burstable" }
}

/// Sets the value at a pointer if it is absent, and creates the objects on the path.
fn set(object: &mut Value, pointer: &str, default: Value) {
    let mut at = object;
    let mut steps = pointer.split('/').skip(1).peekable();
    while let Some(step) = steps.next() {
        let Some(map) = (match at {
            Value::Null => {
                *at = Value::Object(Map::new());
                at.as_object_mut()
            }
            other => other.as_object_mut(),
        }) else {
            return;
        };
        if steps.peek().is_none() {
            let place = map.entry(step).or_insert(Value::Null);
            if place.is_null() {
                *place = default;
            }
            return;
        }
        at = map.entry(step).or_insert(Value::Null);
    }
}
