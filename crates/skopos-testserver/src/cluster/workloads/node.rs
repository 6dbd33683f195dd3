//! Nodes for the pods.

use serde_json::{Value, json};

use super::client::ControllerClient;

/// Number of nodes.
const NODES: usize = 3;

/// Creates the nodes, unless they exist.
pub(super) fn create(client: ControllerClient<'_>) {
    for number in 1..=NODES {
        // They exist already if the test created them.
        let _ = crate::write::create_object(client.state, node(client, number));
    }
}

/// Returns the node for the pod of that key: always the same for the same key.
pub(super) fn for_pod(key: &str) -> (String, String) {
    let number =
        key.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % NODES + 1;
    (name(number), address(number))
}

fn name(number: usize) -> String {
    format!("node-{number}")
}

fn address(number: usize) -> String {
    format!("172.16.0.{number}")
}

fn node(client: ControllerClient<'_>, number: usize) -> Value {
    let now = client.now();
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": "",
               "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    let room = json!({"cpu": "16", "memory": "64Gi", "pods": "110"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name(number), "labels": {
            "kubernetes.io/hostname": name(number), "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}},
        "spec": {"podCIDR": format!("10.{number}.0.0/16")},
        "status": {
            "capacity": room,
            "allocatable": room,
            "addresses": [{"type": "InternalIP", "address": address(number)}, {"type": "Hostname", "address": name(number)}],
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ],
            "nodeInfo": {"kubeletVersion": format!("v1.{}.0", crate::version::MINOR), "osImage": "Skopos",
                "kernelVersion": "none", "containerRuntimeVersion": "none://0", "operatingSystem": "linux",
                "architecture": "amd64", "machineID": "", "systemUUID": "", "bootID": "", "kubeProxyVersion": ""},
        },
    })
}
