//! Columns of Services, endpoints, Ingresses, network policies and IP addresses.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::row::{
    AGE, BuiltinColumn, NAME, NONE, TableRow, UNKNOWN, UNSET, first_few, joined, list, or, texts,
};
use super::super::selector::{printed_labels, printed_selector_or};

pub(super) fn core_columns(kind: &str) -> Option<&'static [BuiltinColumn]> {
    Some(match kind {
        "Service" => SERVICE,
        "Endpoints" => ENDPOINTS,
        _ => return None,
    })
}

pub(super) fn columns(kind: &str) -> Option<&'static [BuiltinColumn]> {
    Some(match kind {
        "EndpointSlice" => ENDPOINT_SLICE,
        "Ingress" => INGRESS,
        "IngressClass" => INGRESS_CLASS,
        "NetworkPolicy" => NETWORK_POLICY,
        "ServiceCIDR" => SERVICE_CIDR,
        "IPAddress" => IP_ADDRESS,
        _ => return None,
    })
}

/// Number of items shown of a long list.
const MAX_SHOWN: usize = 3;

const SERVICE: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Type", "string", |row| row.cell(&["spec", "type"])),
    BuiltinColumn::new("Cluster-IP", "string", |row| match row.items(&["spec", "clusterIPs"]).next() {
        Some(first) => first.as_str().unwrap_or_default().into(),
        None => row.text_or(&["spec", "clusterIP"], NONE),
    }),
    BuiltinColumn::new("External-IP", "string", external_ip),
    BuiltinColumn::new("Port(s)", "string", service_ports),
    AGE,
    BuiltinColumn::wide("Selector", |row| printed_labels(row.get(&["spec", "selector"])).into()),
];

const ENDPOINTS: &[BuiltinColumn] = &[NAME, BuiltinColumn::new("Endpoints", "string", endpoints), AGE];

const ENDPOINT_SLICE: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("AddressType", "string", |row| row.cell(&["addressType"])),
    BuiltinColumn::new("Ports", "string", |row| {
        let port = |port: &Value| match (&port["port"], port["name"].as_str()) {
            (Value::Number(number), _) => number.to_string(),
            (_, Some(name)) => name.to_owned(),
            (_, None) => "*".to_owned(),
        };
        or(first_few(&row.items(&["ports"]).map(port).collect::<Vec<_>>(), MAX_SHOWN, ","), UNSET)
    }),
    BuiltinColumn::new("Endpoints", "string", |row| {
        let addresses = row.items(&["endpoints"]).flat_map(|endpoint| texts(&endpoint["addresses"]));
        or(first_few(&addresses.collect::<Vec<_>>(), MAX_SHOWN, ","), UNSET)
    }),
    AGE,
];

const INGRESS: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Class", "string", |row| row.set_or(&["spec", "ingressClassName"], NONE)),
    BuiltinColumn::new("Hosts", "string", hosts),
    BuiltinColumn::new("Address", "string", |row| load_balancers(row).into()),
    BuiltinColumn::new("Ports", "string", |row| {
        if row.count(&["spec", "tls"]) > 0 { "80, 443" } else { "80" }.into()
    }),
    AGE,
];

const INGRESS_CLASS: &[BuiltinColumn] = &[
    BuiltinColumn::new("Name", "string", |row| {
        let annotation =
            row.text(&["metadata", "annotations", "ingressclass.kubernetes.io/is-default-class"]);
        let mark = if annotation == "true" { " (default)" } else { "" };
        format!("{}{mark}", row.text(&["metadata", "name"])).into()
    })
    .with_format("name"),
    BuiltinColumn::new("Controller", "string", |row| row.cell(&["spec", "controller"])),
    BuiltinColumn::new("Parameters", "string", |row| {
        let text = |field: &str| row.text(&["spec", "parameters", field]);
        match (row.is_set(&["spec", "parameters"]), row.is_set(&["spec", "parameters", "apiGroup"])) {
            (false, _) => NONE.into(),
            (true, false) => format!("{}/{}", text("kind"), text("name")).into(),
            (true, true) => format!("{}.{}/{}", text("kind"), text("apiGroup"), text("name")).into(),
        }
    }),
    AGE,
];

const NETWORK_POLICY: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Pod-Selector", "string", |row| {
        printed_selector_or(row.get(&["spec", "podSelector"]), "<error>").into()
    }),
    AGE,
];

const SERVICE_CIDR: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("CIDRs", "string", |row| joined(texts(row.get(&["spec", "cidrs"]))).into()),
    AGE,
];

const IP_ADDRESS: &[BuiltinColumn] = &[NAME, BuiltinColumn::new("ParentRef", "string", parent)];

fn external_ip(row: &TableRow<'_>) -> Value {
    let own = || joined(texts(row.get(&["spec", "externalIPs"])));
    match row.text(&["spec", "type"]) {
        "ClusterIP" | "NodePort" => or(own(), NONE),
        "LoadBalancer" => {
            let all = [load_balancers(row), own()].into_iter().filter(|text| !text.is_empty());
            or(all.collect::<Vec<_>>().join(","), "<pending>")
        }
        "ExternalName" => row.cell(&["spec", "externalName"]),
        _ => UNKNOWN.into(),
    }
}

fn load_balancers(row: &TableRow<'_>) -> String {
    let text = |ingress: &'_ Value, field: &str| {
        ingress[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let ingress = row.items(&["status", "loadBalancer", "ingress"]);
    let all: BTreeSet<String> =
        ingress.filter_map(|i| text(i, "ip").or_else(|| text(i, "hostname"))).collect();
    joined(all.iter().map(String::as_str))
}

fn service_ports(row: &TableRow<'_>) -> Value {
    let port = |port: &Value| {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        match port["nodePort"].as_i64().unwrap_or(0) {
            0 => format!("{}/{protocol}", port["port"]),
            node_port => format!("{}:{node_port}/{protocol}", port["port"]),
        }
    };
    or(row.items(&["spec", "ports"]).map(port).collect::<Vec<_>>().join(","), NONE)
}

fn endpoints(row: &TableRow<'_>) -> Value {
    if row.count(&["subsets"]) == 0 {
        return NONE.into();
    }
    let mut all = Vec::new();
    for subset in row.items(&["subsets"]) {
        let addresses = || list(&subset["addresses"]).map(|a| a["ip"].as_str().unwrap_or_default());
        if list(&subset["ports"]).len() == 0 {
            all.extend(addresses().map(str::to_owned));
        }
        for port in list(&subset["ports"]) {
            all.extend(addresses().map(|ip| match ip.contains(':') {
                true => format!("[{ip}]:{}", port["port"]),
                false => format!("{ip}:{}", port["port"]),
            }));
        }
    }
    first_few(&all, MAX_SHOWN, ",").into()
}

fn hosts(row: &TableRow<'_>) -> Value {
    let rules = row.items(&["spec", "rules"]);
    let mut shown = Vec::new();
    for rule in rules.clone() {
        // A rule without a host counts among the omitted ones, but only after the third host.
        if shown.len() == MAX_SHOWN {
            return format!("{} + {} more...", shown.join(","), rules.len() - MAX_SHOWN).into();
        }
        shown.extend(rule["host"].as_str().filter(|host| !host.is_empty()));
    }
    or(shown.join(","), "*")
}

fn parent(row: &TableRow<'_>) -> Value {
    if !row.is_set(&["spec", "parentRef"]) {
        return NONE.into();
    }
    let text = |field: &str| row.text(&["spec", "parentRef", field]);
    let mut parent = text("resource").to_lowercase();
    if !text("group").is_empty() {
        parent = format!("{parent}.{}", text("group").to_lowercase());
    }
    if !text("namespace").is_empty() {
        parent = format!("{parent}/{}", text("namespace"));
    }
    format!("{parent}/{}", text("name")).into()
}
