//! The columns of the remaining kinds: network, storage, access, the cluster itself.

use serde_json::Value;

use super::{AGE, Column, NAME, Row, joined, printed_selector};

pub(super) fn columns(kind: &str) -> Option<&'static [Column]> {
    Some(match kind {
        "Service" => SERVICE,
        "Endpoints" => ENDPOINTS,
        "EndpointSlice" => ENDPOINT_SLICE,
        "Ingress" => INGRESS,
        "IngressClass" => INGRESS_CLASS,
        "NetworkPolicy" => NETWORK_POLICY,
        "ConfigMap" => CONFIG_MAP,
        "Secret" => SECRET,
        "ServiceAccount" => SERVICE_ACCOUNT,
        "Namespace" => NAMESPACE,
        "Node" => NODE,
        "Event" => EVENT,
        "PersistentVolume" => VOLUME,
        "PersistentVolumeClaim" => CLAIM,
        "StorageClass" => STORAGE_CLASS,
        "VolumeAttachment" => ATTACHMENT,
        "CSINode" => CSI_NODE,
        "Lease" => LEASE,
        "PriorityClass" => PRIORITY_CLASS,
        "RoleBinding" | "ClusterRoleBinding" => ROLE_BINDING,
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => WEBHOOKS,
        _ => return None,
    })
}

const NONE: &str = "<none>";
const UNSET: &str = "<unset>";

const SERVICE: &[Column] = &[
    NAME,
    Column::new("Type", "string", |row| row.at(&["spec", "type"])),
    Column::new("Cluster-IP", "string", |row| row.text_or(&["spec", "clusterIP"], NONE)),
    Column::new("External-IP", "string", external_ip),
    Column::new("Port(s)", "string", service_ports),
    AGE,
    Column::wide("Selector", "string", |row| printed_selector(row.get(&["spec", "selector"])).into()),
];

const ENDPOINTS: &[Column] = &[NAME, Column::new("Endpoints", "string", endpoints), AGE];

const ENDPOINT_SLICE: &[Column] = &[
    NAME,
    Column::new("AddressType", "string", |row| row.at(&["addressType"])),
    Column::new("Ports", "string", |row| joined(row.items(&["ports"]).map(|p| p["port"].to_string()), UNSET)),
    Column::new("Endpoints", "string", |row| {
        let addresses = row.items(&["endpoints"]).flat_map(|e| texts(&e["addresses"]));
        joined(addresses.map(str::to_owned), UNSET)
    }),
    AGE,
];

const INGRESS: &[Column] = &[
    NAME,
    Column::new("Class", "string", |row| row.text_or(&["spec", "ingressClassName"], NONE)),
    Column::new("Hosts", "string", |row| {
        joined(row.items(&["spec", "rules"]).filter_map(|rule| text(rule, "host")), "*")
    }),
    Column::new("Address", "string", |row| load_balancers(row).into()),
    Column::new("Ports", "string", |row| {
        if row.count(&["spec", "tls"]) > 0 { "80, 443" } else { "80" }.into()
    }),
    AGE,
];

const INGRESS_CLASS: &[Column] = &[
    NAME,
    Column::new("Controller", "string", |row| row.at(&["spec", "controller"])),
    Column::new("Parameters", "string", |row| row.text_or(&["spec", "parameters", "name"], NONE)),
    AGE,
];

const NETWORK_POLICY: &[Column] = &[
    NAME,
    Column::new("Pod-Selector", "string", |row| printed_selector(row.get(&["spec", "podSelector"])).into()),
    AGE,
];

const CONFIG_MAP: &[Column] = &[
    NAME,
    Column::new("Data", "string", |row| (row.count(&["data"]) + row.count(&["binaryData"])).into()),
    AGE,
];

const SECRET: &[Column] = &[
    NAME,
    Column::new("Type", "string", |row| row.at(&["type"])),
    Column::new("Data", "string", |row| row.count(&["data"]).into()),
    AGE,
];

const SERVICE_ACCOUNT: &[Column] =
    &[NAME, Column::new("Secrets", "string", |row| row.count(&["secrets"]).into()), AGE];

const NAMESPACE: &[Column] =
    &[NAME, Column::new("Status", "string", |row| row.at(&["status", "phase"])), AGE];

const NODE: &[Column] = &[
    NAME,
    Column::new("Status", "string", node_status),
    Column::new("Roles", "string", node_roles),
    AGE,
    Column::new("Version", "string", |row| row.at(&["status", "nodeInfo", "kubeletVersion"])),
    Column::wide("Internal-IP", "string", |row| node_address(row, "InternalIP")),
    Column::wide("External-IP", "string", |row| node_address(row, "ExternalIP")),
    Column::wide("OS-Image", "string", |row| row.text_or(&["status", "nodeInfo", "osImage"], "<unknown>")),
    Column::wide("Kernel-Version", "string", |row| {
        row.text_or(&["status", "nodeInfo", "kernelVersion"], "<unknown>")
    }),
    Column::wide("Container-Runtime", "string", |row| {
        row.text_or(&["status", "nodeInfo", "containerRuntimeVersion"], "<unknown>")
    }),
];

const EVENT: &[Column] = &[
    Column::new("Last Seen", "string", |row| event_time(row, "lastTimestamp")),
    Column::new("Type", "string", |row| row.at(&["type"])),
    Column::new("Reason", "string", |row| row.at(&["reason"])),
    Column::new("Object", "string", |row| {
        let object = if row.get(&["regarding"]).is_null() { "involvedObject" } else { "regarding" };
        let kind = row.text(&[object, "kind"]).to_lowercase();
        format!("{kind}/{}", row.text(&[object, "name"])).into()
    }),
    Column::wide("Subobject", "string", |row| row.at(&["involvedObject", "fieldPath"])),
    Column::wide("Source", "string", |row| {
        let component = row.text(&["source", "component"]);
        let reporter = row.text(&["reportingComponent"]);
        if component.is_empty() { reporter } else { component }.into()
    }),
    Column::new("Message", "string", |row| {
        let message = if row.get(&["note"]).is_null() { "message" } else { "note" };
        row.text(&[message]).trim().into()
    }),
    Column::wide("First Seen", "string", |row| event_time(row, "firstTimestamp")),
    Column::wide("Count", "string", |row| row.number(&["count"]).max(1).into()),
    Column { name: "Name", r#type: "string", priority: 1, cell: |row| row.name() },
];

const VOLUME: &[Column] = &[
    NAME,
    Column::new("Capacity", "string", |row| row.at(&["spec", "capacity", "storage"])),
    Column::new("Access Modes", "string", |row| access_modes(row.get(&["spec", "accessModes"]))),
    Column::new("Reclaim Policy", "string", |row| row.at(&["spec", "persistentVolumeReclaimPolicy"])),
    Column::new("Status", "string", phase),
    Column::new("Claim", "string", |row| {
        let claim = |field: &str| row.text(&["spec", "claimRef", field]);
        if claim("name").is_empty() {
            "".into()
        } else {
            format!("{}/{}", claim("namespace"), claim("name")).into()
        }
    }),
    Column::new("StorageClass", "string", |row| row.text_or(&["spec", "storageClassName"], "")),
    Column::new("VolumeAttributesClass", "string", |row| {
        row.text_or(&["spec", "volumeAttributesClassName"], UNSET)
    }),
    Column::new("Reason", "string", |row| row.text_or(&["status", "reason"], "")),
    AGE,
    Column::wide("VolumeMode", "string", |row| row.text_or(&["spec", "volumeMode"], UNSET)),
];

const CLAIM: &[Column] = &[
    NAME,
    Column::new("Status", "string", phase),
    Column::new("Volume", "string", |row| row.text_or(&["spec", "volumeName"], "")),
    Column::new("Capacity", "string", |row| row.text_or(&["status", "capacity", "storage"], "")),
    Column::new("Access Modes", "string", |row| access_modes(row.get(&["status", "accessModes"]))),
    Column::new("StorageClass", "string", |row| row.text_or(&["spec", "storageClassName"], "")),
    Column::new("VolumeAttributesClass", "string", |row| {
        row.text_or(&["spec", "volumeAttributesClassName"], UNSET)
    }),
    AGE,
    Column::wide("VolumeMode", "string", |row| row.text_or(&["spec", "volumeMode"], UNSET)),
];

const STORAGE_CLASS: &[Column] = &[
    NAME,
    Column::new("Provisioner", "string", |row| row.at(&["provisioner"])),
    Column::new("ReclaimPolicy", "string", |row| row.text_or(&["reclaimPolicy"], "Delete")),
    Column::new("VolumeBindingMode", "string", |row| row.text_or(&["volumeBindingMode"], "Immediate")),
    Column::new("AllowVolumeExpansion", "string", |row| (row.get(&["allowVolumeExpansion"]) == true).into()),
    AGE,
];

const ATTACHMENT: &[Column] = &[
    NAME,
    Column::new("Attacher", "string", |row| row.at(&["spec", "attacher"])),
    Column::new("PV", "string", |row| row.text_or(&["spec", "source", "persistentVolumeName"], "")),
    Column::new("Node", "string", |row| row.at(&["spec", "nodeName"])),
    Column::new("Attached", "boolean", |row| (row.get(&["status", "attached"]) == true).into()),
    AGE,
];

const CSI_NODE: &[Column] =
    &[NAME, Column::new("Drivers", "integer", |row| row.count(&["spec", "drivers"]).into()), AGE];

const LEASE: &[Column] =
    &[NAME, Column::new("Holder", "string", |row| row.text_or(&["spec", "holderIdentity"], "")), AGE];

const PRIORITY_CLASS: &[Column] = &[
    NAME,
    Column::new("Value", "integer", |row| row.number(&["value"]).into()),
    Column::new("Global-Default", "boolean", |row| (row.get(&["globalDefault"]) == true).into()),
    AGE,
];

const ROLE_BINDING: &[Column] = &[
    NAME,
    Column::new("Role", "string", |row| {
        format!("{}/{}", row.text(&["roleRef", "kind"]), row.text(&["roleRef", "name"])).into()
    }),
    AGE,
    Column::wide("Users", "string", |row| subjects(row, "User")),
    Column::wide("Groups", "string", |row| subjects(row, "Group")),
    Column::wide("ServiceAccounts", "string", |row| subjects(row, "ServiceAccount")),
];

const WEBHOOKS: &[Column] =
    &[NAME, Column::new("Webhooks", "integer", |row| row.count(&["webhooks"]).into()), AGE];

fn external_ip(row: &Row<'_>) -> Value {
    let own = texts(row.get(&["spec", "externalIPs"])).map(str::to_owned).collect::<Vec<_>>();
    match row.text(&["spec", "type"]) {
        "ExternalName" => row.text_or(&["spec", "externalName"], NONE),
        "LoadBalancer" => {
            let all = [load_balancers(row)].into_iter().filter(|text| !text.is_empty()).chain(own);
            joined(all, "<pending>")
        }
        _ => joined(own, NONE),
    }
}

fn load_balancers(row: &Row<'_>) -> String {
    let ingress = row.items(&["status", "loadBalancer", "ingress"]);
    ingress.filter_map(|i| text(i, "ip").or_else(|| text(i, "hostname"))).collect::<Vec<_>>().join(",")
}

fn service_ports(row: &Row<'_>) -> Value {
    let port = |port: &Value| {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        match port["nodePort"].as_i64().unwrap_or(0) {
            0 => format!("{}/{protocol}", port["port"]),
            node_port => format!("{}:{node_port}/{protocol}", port["port"]),
        }
    };
    joined(row.items(&["spec", "ports"]).map(port), NONE)
}

fn endpoints(row: &Row<'_>) -> Value {
    const SHOWN: usize = 3;
    let mut all = Vec::new();
    for subset in row.items(&["subsets"]) {
        for port in list(&subset["ports"]) {
            let addresses = list(&subset["addresses"]).filter_map(|a| a["ip"].as_str());
            all.extend(addresses.map(|ip| format!("{ip}:{}", port["port"])));
        }
    }
    match all.len() {
        0 => NONE.into(),
        n if n > SHOWN => format!("{} + {} more...", all[..SHOWN].join(","), n - SHOWN).into(),
        _ => all.join(",").into(),
    }
}

fn node_status(row: &Row<'_>) -> Value {
    let ready = row.items(&["status", "conditions"]).find(|c| c["type"] == "Ready");
    let mut words = vec![match ready.and_then(|c| c["status"].as_str()) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if row.get(&["spec", "unschedulable"]) == true {
        words.push("SchedulingDisabled");
    }
    words.join(",").into()
}

fn node_roles(row: &Row<'_>) -> Value {
    let labels = row.get(&["metadata", "labels"]).as_object().into_iter().flatten();
    let roles = labels.filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) if !role.is_empty() => Some(role.to_owned()),
        _ if key == "kubernetes.io/role" => value.as_str().map(str::to_owned),
        _ => None,
    });
    joined(roles, NONE)
}

fn node_address(row: &Row<'_>, kind: &str) -> Value {
    let address = row.items(&["status", "addresses"]).find(|a| a["type"] == kind);
    address.and_then(|a| a["address"].as_str()).unwrap_or(NONE).into()
}

fn event_time(row: &Row<'_>, field: &str) -> Value {
    let time = match row.text(&[field]) {
        "" => row.text(&["eventTime"]),
        time => time,
    };
    row.since_text(time).into()
}

fn phase(row: &Row<'_>) -> Value {
    if row.get(&["metadata", "deletionTimestamp"]).is_null() {
        row.at(&["status", "phase"])
    } else {
        "Terminating".into()
    }
}

fn access_modes(modes: &Value) -> Value {
    let short = |mode: &str| match mode {
        "ReadWriteOnce" => "RWO".to_owned(),
        "ReadOnlyMany" => "ROX".to_owned(),
        "ReadWriteMany" => "RWX".to_owned(),
        "ReadWriteOncePod" => "RWOP".to_owned(),
        other => other.to_owned(),
    };
    joined(texts(modes).map(short), "")
}

fn subjects(row: &Row<'_>, kind: &str) -> Value {
    let name = |subject: &Value| match subject["namespace"].as_str() {
        Some(namespace) => format!("{namespace}/{}", subject["name"].as_str().unwrap_or_default()),
        None => subject["name"].as_str().unwrap_or_default().to_owned(),
    };
    let names = row.items(&["subjects"]).filter(|s| s["kind"] == kind).map(name).collect::<Vec<_>>();
    names.join(", ").into()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    list(value).filter_map(Value::as_str)
}

fn text(value: &Value, field: &str) -> Option<String> {
    value[field].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::super::{IncludeObject, TableWriter};
    use super::*;
    use crate::resources::Registry;

    fn cells(resource: &str, object: &Value) -> Value {
        let resource = Registry::builtin().lookup(resource).unwrap();
        TableWriter::new(&resource, IncludeObject::None).row(object, vec![], Timestamp::UNIX_EPOCH)["cells"]
            .clone()
    }

    #[test]
    fn services_and_nodes_read_as_in_kubectl() {
        let service = json!({"metadata": {"name": "web", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1", "selector": {"app": "web"},
                     "ports": [{"port": 80, "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]}});
        assert_eq!(
            cells("svc", &service),
            json!(["web", "LoadBalancer", "10.0.0.1", "<pending>", "80:30080/TCP,53/UDP", "0s", "app=web"])
        );
        let node = json!({"metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": ""}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.36.0"},
                       "addresses": [{"type": "InternalIP", "address": "10.1.0.1"}]}});
        let cells = cells("node", &node);
        assert_eq!(cells[1], "Ready,SchedulingDisabled");
        assert_eq!(
            (&cells[2], &cells[4], &cells[5]),
            (&json!("worker"), &json!("v1.36.0"), &json!("10.1.0.1"))
        );
    }

    #[test]
    fn many_endpoints_are_counted() {
        let addresses: Vec<_> = (1..=5).map(|i| json!({"ip": format!("10.0.0.{i}")})).collect();
        let object = json!({"metadata": {"name": "e"}, "subsets": [{"addresses": addresses, "ports": [{"port": 80}]}]});
        assert_eq!(cells("ep", &object)[1], "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 2 more...");
    }
}
