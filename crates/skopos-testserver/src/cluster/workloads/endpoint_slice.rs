//! EndpointSlices: the addresses of the pods that a Service selects, as kube-controller-manager's endpointslice controller writes
//! them.
//!
//! A pod stays in its slice. New pods are added where there is room, so a change of one pod changes one slice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use skopos_serve::ResourceType;

use super::client::{ControllerClient, json_contains, ready, terminating};
use crate::storage::{ReadScope, ResourceKey, Stored};

/// Maximum number of endpoints of a slice (`--max-endpoints-per-slice`).
const MAX_ENDPOINTS: usize = 100;

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const HEADLESS: &str = "service.kubernetes.io/headless";
const MANAGER: &str = "endpointslice-controller.k8s.io";

/// Brings the slices of a Service up to date. Those of a deleted Service are collected as its dependents.
pub(super) fn reconcile(client: ControllerClient<'_>, key: &str) {
    let (Some(services), Some(slices)) =
        (client.resource("", "services"), client.resource("discovery.k8s.io", "endpointslices"))
    else {
        return;
    };
    let Some(service) = client.get(&services, key).filter(|service| !terminating(service)) else { return };
    if selector(&service).is_none() || service["spec"]["type"] == "ExternalName" {
        return;
    }
    let mut wanted = groups(client, &service);
    let mut kept = Vec::new();
    for slice in own_slices(client, &slices, &service) {
        let ports = slice["ports"].to_string();
        let endpoints = wanted.get_mut(&ports).map(|group| take_existing(&slice, group)).unwrap_or_default();
        kept.push(DesiredSlice { before: slice, ports, endpoints });
    }
    for (ports, group) in wanted {
        add_endpoints(&mut kept, &ports, group);
    }
    let (mut used, mut empty): (Vec<_>, Vec<_>) =
        kept.into_iter().partition(|slice| !slice.endpoints.is_empty());
    if used.is_empty() {
        // A slice without endpoints shows that the Service was reconciled.
        let new = || DesiredSlice { before: Value::Null, ports: "[]".to_owned(), endpoints: Vec::new() };
        used.push(empty.pop().unwrap_or_else(new));
    }
    // Additions first, so that no existing endpoint is missing between two writes.
    used.sort_by_key(|slice| slice.endpoints.len() < count(&slice.before));
    used.iter().for_each(|slice| write(client, &slices, &service, slice));
    empty.iter().for_each(|slice| client.delete(&slices, &slice.before));
}

/// Returns the keys of the Services that a pod affects: those that select it, and those that have it in a slice.
pub(super) fn services_of(client: ControllerClient<'_>, pod: &Stored) -> Vec<String> {
    let (Some(services), Some(slices)) =
        (client.resource("", "services"), client.resource("discovery.k8s.io", "endpointslices"))
    else {
        return Vec::new();
    };
    let list = |resource: &ResourceType| {
        client.state.storage.list(&ResourceKey::from(resource), ReadScope::new(pod.namespace())).0
    };
    let mut keys = BTreeSet::new();
    for service in list(&services).iter() {
        let selects = selector(&service.to_value())
            .is_some_and(|selector| selector.iter().all(|(label, value)| pod.label(label) == value.as_str()));
        if selects {
            keys.insert(service.key().to_string());
        }
    }
    let name = format!("\"name\":\"{}\"", pod.name());
    for slice in list(&slices).iter() {
        if let Some(service) = service_of(slice)
            && !keys.contains(&service)
            && json_contains(slice.json_slice(), &name)
        {
            keys.insert(service);
        }
    }
    keys.into_iter().collect()
}

/// Returns the key of the Service of a slice that this controller created.
pub(super) fn service_of(slice: &Stored) -> Option<String> {
    let service = slice.label(SERVICE_NAME).filter(|_| slice.label(MANAGED_BY) == Some(MANAGER))?;
    Some(format!("{}/{service}", slice.namespace()?))
}

/// Slice with its desired endpoints. `before` is null for a new one.
struct DesiredSlice {
    before: Value,
    /// JSON of the ports: pods whose named ports have other numbers need separate slices.
    ports: String,
    endpoints: Vec<Value>,
}

/// Endpoints by the name of their pod.
type EndpointsByPod = BTreeMap<String, Value>;

fn selector(service: &Value) -> Option<&serde_json::Map<String, Value>> {
    service["spec"]["selector"].as_object().filter(|selector| !selector.is_empty())
}

/// Returns the desired endpoints of the Service, by their ports.
fn groups(client: ControllerClient<'_>, service: &Value) -> BTreeMap<String, EndpointsByPod> {
    let mut groups: BTreeMap<String, EndpointsByPod> = BTreeMap::new();
    let Some(pods) = client.resource("", "pods") else { return groups };
    let namespace = service["metadata"]["namespace"].as_str();
    let (objects, _) = client.state.storage.list(&ResourceKey::from(&*pods), ReadScope::new(namespace));
    let selected = |pod: &&Arc<Stored>| {
        let mut labels = service["spec"]["selector"].as_object().into_iter().flatten();
        labels.all(|(label, value)| pod.label(label) == value.as_str())
    };
    for pod in objects.iter().filter(selected) {
        let pod = pod.to_value();
        let has_ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if has_ended || pod["status"]["podIP"].as_str().is_none_or(str::is_empty) {
            continue;
        }
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        groups.entry(ports(service, &pod).to_string()).or_default().insert(name, endpoint(service, &pod));
    }
    groups
}

fn endpoint(service: &Value, pod: &Value) -> Value {
    let serving = ready(pod);
    let publishes = service["spec"]["publishNotReadyAddresses"] == true;
    let mut endpoint = json!({
        "addresses": [pod["status"]["podIP"]],
        "conditions": {
            "ready": publishes || serving && !terminating(pod),
            "serving": serving,
            "terminating": terminating(pod),
        },
        "targetRef": {
            "kind": "Pod", "namespace": pod["metadata"]["namespace"], "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
        },
    });
    if let Some(node) = pod["spec"]["nodeName"].as_str() {
        endpoint["nodeName"] = node.into();
    }
    endpoint
}

/// Returns the ports of a Service on this pod. A named port that the pod lacks is omitted.
fn ports(service: &Value, pod: &Value) -> Value {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let port = |port: &Value| {
        let number = match &port["targetPort"] {
            Value::String(name) => container_port(pod, name)?,
            Value::Null => port["port"].clone(),
            number => number.clone(),
        };
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        Some(json!({"name": port["name"].as_str().unwrap_or_default(), "port": number, "protocol": protocol}))
    };
    ports.filter_map(port).collect()
}

fn container_port(pod: &Value, name: &str) -> Option<Value> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
    ports.find(|port| port["name"] == name).map(|port| port["containerPort"].clone())
}

/// Returns the slices of this Service that this controller created.
fn own_slices(client: ControllerClient<'_>, slices: &Arc<ResourceType>, service: &Value) -> Vec<Value> {
    let labels = json!({"matchLabels": {SERVICE_NAME: service["metadata"]["name"], MANAGED_BY: MANAGER}});
    client.controlled(slices, service, &labels)
}

/// Removes the slice's existing endpoints from a group and returns their current state.
fn take_existing(slice: &Value, group: &mut EndpointsByPod) -> Vec<Value> {
    let before = slice["endpoints"].as_array().into_iter().flatten();
    before.filter_map(|endpoint| group.remove(endpoint["targetRef"]["name"].as_str()?)).collect()
}

/// Adds new endpoints to slices of their ports that have room, fullest first, and to new ones.
fn add_endpoints(slices: &mut Vec<DesiredSlice>, ports: &str, group: EndpointsByPod) {
    for endpoint in group.into_values() {
        let with_room = slices
            .iter_mut()
            .filter(|slice| slice.ports == ports && slice.endpoints.len() < MAX_ENDPOINTS)
            .max_by_key(|slice| slice.endpoints.len());
        match with_room {
            Some(slice) => slice.endpoints.push(endpoint),
            None => slices.push(DesiredSlice {
                before: Value::Null,
                ports: ports.to_owned(),
                endpoints: vec![endpoint],
            }),
        }
    }
}

fn count(slice: &Value) -> usize {
    slice["endpoints"].as_array().map_or(0, Vec::len)
}

/// Writes a slice if it differs.
fn write(client: ControllerClient<'_>, slices: &Arc<ResourceType>, service: &Value, slice: &DesiredSlice) {
    let (endpoints, labels) = (Value::Array(slice.endpoints.clone()), labels(service));
    if slice.before.is_null() {
        let name = service["metadata"]["name"].as_str().unwrap_or_default();
        let object = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"generateName": format!("{name}-"), "labels": labels},
            "endpoints": endpoints,
            "ports": serde_json::from_str::<Value>(&slice.ports).unwrap_or_default(),
        });
        // After a name collision, the next event retries with another name.
        let _ = client.create(slices, service, object);
    } else if slice.before["endpoints"] != endpoints || slice.before["metadata"]["labels"] != labels {
        client.edit(slices, &slice.before, |slice| {
            slice["endpoints"] = endpoints.clone();
            slice["metadata"]["labels"] = labels.clone();
        });
    }
}

/// Returns the labels of a Service's slices: its own, and those that the controller reserves (`setEndpointSliceLabels`).
fn labels(service: &Value) -> Value {
    let own = service["metadata"]["labels"].as_object().into_iter().flatten();
    let own = own.filter(|(label, _)| ![SERVICE_NAME, MANAGED_BY, HEADLESS].contains(&label.as_str()));
    let mut labels: serde_json::Map<String, Value> =
        own.map(|(label, value)| (label.clone(), value.clone())).collect();
    labels.insert(SERVICE_NAME.to_owned(), service["metadata"]["name"].clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.into());
    if service["spec"]["clusterIP"] == "None" {
        labels.insert(HEADLESS.to_owned(), "".into());
    }
    labels.into()
}
