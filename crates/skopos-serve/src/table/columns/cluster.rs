//! Columns of the cluster's infrastructure, such as nodes, namespaces and leases, and of the remaining kinds.

use serde_json::Value;

use super::super::row::{AGE, BuiltinColumn, NAME, NONE, TableRow, UNKNOWN, UNSET, first_few, or};
use super::storage::quantity;

pub(super) fn core_columns(kind: &str) -> Option<&'static [BuiltinColumn]> {
    Some(match kind {
        "ConfigMap" => CONFIG_MAP,
        "Secret" => SECRET,
        "ServiceAccount" => SERVICE_ACCOUNT,
        "Namespace" => NAMESPACE,
        "Node" => NODE,
        "Event" => EVENT,
        "ResourceQuota" => QUOTA,
        "ComponentStatus" => COMPONENT_STATUS,
        _ => return None,
    })
}

pub(super) fn columns(group: &str, kind: &str) -> Option<&'static [BuiltinColumn]> {
    Some(match (group, kind) {
        ("events.k8s.io", "Event") => EVENT,
        ("coordination.k8s.io", "Lease") => LEASE,
        ("coordination.k8s.io", "LeaseCandidate") => LEASE_CANDIDATE,
        ("scheduling.k8s.io", "PriorityClass") => PRIORITY_CLASS,
        ("node.k8s.io", "RuntimeClass") => RUNTIME_CLASS,
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => FLOW_SCHEMA,
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => PRIORITY_LEVEL,
        ("internal.apiserver.k8s.io", "StorageVersion") => STORAGE_VERSION,
        ("storagemigration.k8s.io", "StorageVersionMigration") => STORAGE_MIGRATION,
        ("apiregistration.k8s.io", "APIService") => API_SERVICE,
        _ => return None,
    })
}

const CONFIG_MAP: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Data", "string", |row| (row.count(&["data"]) + row.count(&["binaryData"])).into()),
    AGE,
];

const SECRET: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Type", "string", |row| row.cell(&["type"])),
    BuiltinColumn::new("Data", "string", |row| row.count(&["data"]).into()),
    AGE,
];

const SERVICE_ACCOUNT: &[BuiltinColumn] = &[NAME, AGE];

const NAMESPACE: &[BuiltinColumn] =
    &[NAME, BuiltinColumn::new("Status", "string", |row| row.cell(&["status", "phase"])), AGE];

const NODE: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Status", "string", node_status),
    BuiltinColumn::new("Roles", "string", node_roles),
    AGE,
    BuiltinColumn::new("Version", "string", |row| row.cell(&["status", "nodeInfo", "kubeletVersion"])),
    BuiltinColumn::wide("Internal-IP", |row| node_address(row, "InternalIP")),
    BuiltinColumn::wide("External-IP", |row| node_address(row, "ExternalIP")),
    BuiltinColumn::wide("OS-Image", |row| row.text_or(&["status", "nodeInfo", "osImage"], UNKNOWN)),
    BuiltinColumn::wide("Kernel-Version", |row| {
        let info = |field: &str| row.text(&["status", "nodeInfo", field]);
        let kernel = if info("kernelVersion").is_empty() { UNKNOWN } else { info("kernelVersion") };
        match info("architecture") {
            "" => kernel.into(),
            architecture => format!("{kernel} ({architecture})").into(),
        }
    }),
    BuiltinColumn::wide("Container-Runtime", |row| {
        row.text_or(&["status", "nodeInfo", "containerRuntimeVersion"], UNKNOWN)
    }),
];

/// Columns of Events. Both API groups serve the same kind with different field names.
const EVENT: &[BuiltinColumn] = &[
    BuiltinColumn::new("Last Seen", "string", |row| event_last_seen(row).into()),
    BuiltinColumn::new("Type", "string", |row| row.cell(&["type"])),
    BuiltinColumn::new("Reason", "string", |row| row.cell(&["reason"])),
    BuiltinColumn::new("Object", "string", |row| {
        let kind = event_text(row, &["involvedObject", "kind"], &["regarding", "kind"]).to_lowercase();
        match event_text(row, &["involvedObject", "name"], &["regarding", "name"]) {
            "" => kind.into(),
            name => format!("{kind}/{name}").into(),
        }
    }),
    BuiltinColumn::wide("Subobject", |row| {
        event_text(row, &["involvedObject", "fieldPath"], &["regarding", "fieldPath"]).into()
    }),
    BuiltinColumn::wide("Source", event_source),
    BuiltinColumn::new("Message", "string", |row| event_text(row, &["message"], &["note"]).trim().into()),
    BuiltinColumn::wide("First Seen", |row| event_first_seen(row).into()),
    BuiltinColumn::wide("Count", |row| {
        let count = row.number(&["count"]).max(row.number(&["deprecatedCount"]));
        match row.is_set(&["series"]) {
            true => row.number(&["series", "count"]).into(),
            false => count.max(1).into(),
        }
    }),
    BuiltinColumn::wide("Name", |row| row.name()).with_format("name"),
];

const QUOTA: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Request", "string", |row| quotas(row, false)),
    BuiltinColumn::new("Limit", "string", |row| quotas(row, true)),
    AGE,
];

const COMPONENT_STATUS: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Status", "string", |row| {
        match row.items(&["conditions"]).find(|condition| condition["type"] == "Healthy") {
            Some(condition) if condition["status"] == "True" => "Healthy",
            Some(_) => "Unhealthy",
            None => "Unknown",
        }
        .into()
    }),
    BuiltinColumn::new("Message", "string", |row| component_health(row, "message")),
    BuiltinColumn::new("Error", "string", |row| component_health(row, "error")),
];

const LEASE: &[BuiltinColumn] =
    &[NAME, BuiltinColumn::new("Holder", "string", |row| row.cell(&["spec", "holderIdentity"])), AGE];

const LEASE_CANDIDATE: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("LeaseName", "string", |row| row.cell(&["spec", "leaseName"])),
    BuiltinColumn::new("BinaryVersion", "string", |row| row.cell(&["spec", "binaryVersion"])),
    BuiltinColumn::new("EmulationVersion", "string", |row| row.cell(&["spec", "emulationVersion"])),
    AGE,
];

const PRIORITY_CLASS: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Value", "integer", |row| row.number(&["value"]).into()),
    BuiltinColumn::new("Global-Default", "boolean", |row| row.flag(&["globalDefault"])),
    AGE,
    BuiltinColumn::new("PreemptionPolicy", "string", |row| row.cell(&["preemptionPolicy"])),
];

const RUNTIME_CLASS: &[BuiltinColumn] =
    &[NAME, BuiltinColumn::new("Handler", "string", |row| row.cell(&["handler"])), AGE];

const FLOW_SCHEMA: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("PriorityLevel", "string", |row| {
        row.cell(&["spec", "priorityLevelConfiguration", "name"])
    }),
    BuiltinColumn::new("MatchingPrecedence", "string", |row| {
        row.number(&["spec", "matchingPrecedence"]).into()
    }),
    BuiltinColumn::new("DistinguisherMethod", "string", |row| {
        row.set_or(&["spec", "distinguisherMethod", "type"], NONE)
    }),
    AGE,
    BuiltinColumn::new("MissingPL", "string", |row| match row.condition("Dangling") {
        Some(condition) => condition["status"].as_str().unwrap_or_default().into(),
        None => "?".into(),
    }),
];

const PRIORITY_LEVEL: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Type", "string", |row| row.cell(&["spec", "type"])),
    BuiltinColumn::new("NominalConcurrencyShares", "string", |row| {
        number_or_none(row, &["spec", "limited", "nominalConcurrencyShares"])
    }),
    BuiltinColumn::new("Queues", "string", |row| queuing(row, "queues")),
    BuiltinColumn::new("HandSize", "string", |row| queuing(row, "handSize")),
    BuiltinColumn::new("QueueLengthLimit", "string", |row| queuing(row, "queueLengthLimit")),
    AGE,
];

const STORAGE_VERSION: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("CommonEncodingVersion", "string", |row| {
        row.set_or(&["status", "commonEncodingVersion"], UNSET)
    }),
    BuiltinColumn::new("StorageVersions", "string", |row| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let versions = row.items(&["status", "storageVersions"]);
        let versions =
            versions.map(|v| format!("{}={}", text(&v["apiServerID"]), text(&v["encodingVersion"])));
        or(first_few(&versions.collect::<Vec<_>>(), 3, ","), UNSET)
    }),
    AGE,
];

const STORAGE_MIGRATION: &[BuiltinColumn] = &[
    BuiltinColumn::new("Name", "string", |row| row.name()),
    BuiltinColumn::new("Resource", "string", |row| {
        let text = |field: &str| row.text(&["spec", "resource", field]);
        match text("group") {
            "" => text("resource").into(),
            group => format!("{}.{group}", text("resource")).into(),
        }
    }),
    BuiltinColumn::new("Status", "string", |row| {
        let holds = row.items(&["status", "conditions"]).filter(|condition| condition["status"] == "True");
        let mut types = holds.filter_map(|condition| condition["type"].as_str());
        types
            .rfind(|r#type| matches!(*r#type, "Running" | "Failed" | "Succeeded"))
            .unwrap_or("Unknown")
            .into()
    }),
];

const API_SERVICE: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Service", "string", |row| {
        let text = |field: &str| row.text(&["spec", "service", field]);
        match row.is_set(&["spec", "service"]) {
            true => format!("{}/{}", text("namespace"), text("name")).into(),
            false => "Local".into(),
        }
    }),
    BuiltinColumn::new("Available", "string", |row| {
        let Some(condition) = row.condition("Available") else { return "Unknown".into() };
        match (condition["status"].as_str().unwrap_or_default(), condition["reason"].as_str()) {
            (status @ "True", _) | (status, None | Some("")) => status.into(),
            (status, Some(reason)) => format!("{status} ({reason})").into(),
        }
    }),
    AGE,
];

fn node_status(row: &TableRow<'_>) -> Value {
    let mut words = vec![match row.items(&["status", "conditions"]).rfind(|c| c["type"] == "Ready") {
        Some(ready) if ready["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if row.get(&["spec", "unschedulable"]) == true {
        words.push("SchedulingDisabled");
    }
    words.join(",").into()
}

fn node_roles(row: &TableRow<'_>) -> Value {
    let labels = row.get(&["metadata", "labels"]).as_object().into_iter().flatten();
    let role = |(key, value): (&'_ String, &'_ Value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()),
        None if key == "kubernetes.io/role" => value.as_str().map(str::to_owned),
        None => None,
    };
    let mut roles: Vec<String> = labels.filter_map(role).filter(|role| !role.is_empty()).collect();
    roles.sort();
    roles.dedup();
    or(roles.join(","), NONE)
}

fn node_address(row: &TableRow<'_>, r#type: &str) -> Value {
    let address = row.items(&["status", "addresses"]).find(|address| address["type"] == r#type);
    address.and_then(|address| address["address"].as_str()).unwrap_or(NONE).into()
}

/// Returns a text of an event; its field has different names in `v1` and `events.k8s.io/v1`.
fn event_text<'a>(row: &TableRow<'a>, core: &[&str], new: &[&str]) -> &'a str {
    match row.text(core) {
        "" => row.text(new),
        text => text,
    }
}

fn event_first_seen(row: &TableRow<'_>) -> String {
    match event_text(row, &["firstTimestamp"], &["deprecatedFirstTimestamp"]) {
        "" => row.since(&["eventTime"]),
        time => row.since_text(time),
    }
}

fn event_last_seen(row: &TableRow<'_>) -> String {
    if row.is_set(&["series"]) {
        return row.since(&["series", "lastObservedTime"]);
    }
    match event_text(row, &["lastTimestamp"], &["deprecatedLastTimestamp"]) {
        "" => event_first_seen(row),
        time => row.since_text(time),
    }
}

fn event_source(row: &TableRow<'_>) -> Value {
    let source = |field: &str| event_text(row, &["source", field], &["deprecatedSource", field]);
    let component = match source("component") {
        "" => event_text(row, &["reportingComponent"], &["reportingController"]),
        component => component,
    };
    let instance = match source("host") {
        "" => row.text(&["reportingInstance"]),
        host => host,
    };
    if instance.is_empty() { component.into() } else { format!("{component}, {instance}").into() }
}

/// Returns usage and quota of the resources that begin with `limits.`, or of the others.
fn quotas(row: &TableRow<'_>, limits: bool) -> Value {
    let hard = row.get(&["status", "hard"]).as_object().into_iter().flatten();
    let hard = hard.filter(|(resource, _)| resource.starts_with("limits.") == limits);
    let text = |value: &Value| quantity(value).as_str().unwrap_or_default().to_owned();
    let used = |resource: &String| text(row.get(&["status", "used", resource]));
    let all = hard.map(|(resource, hard)| format!("{resource}: {}/{}", used(resource), text(hard)));
    all.collect::<Vec<_>>().join(", ").into()
}

fn component_health(row: &TableRow<'_>, field: &str) -> Value {
    let healthy = row.items(&["conditions"]).find(|condition| condition["type"] == "Healthy");
    healthy.and_then(|condition| condition[field].as_str()).unwrap_or_default().into()
}

fn queuing(row: &TableRow<'_>, field: &str) -> Value {
    number_or_none(row, &["spec", "limited", "limitResponse", "queuing", field])
}

fn number_or_none(row: &TableRow<'_>, path: &[&str]) -> Value {
    let value = row.get(path);
    if value.is_null() { NONE.into() } else { value.clone() }
}
