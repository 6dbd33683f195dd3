//! A notifier with an inventory as its sink: each pod is an item.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use skopos_notify::PlanOptions;
use skopos_notify::desired::{ClaimSource, PodSource, PodTemplates};
use skopos_notify::service::SinkOptions;
use skopos_notify::sink::rest::{ItemTemplate, RestOptions, RestSink};
use support::inventory::{Fault, Inventory};
use support::{Cluster, quick, secs};
use tokio::time::{sleep, timeout};

const GATE: &str = "skopos.dev/attached";

fn options(inventory: &Inventory, gate: Option<&str>) -> SinkOptions {
    let item = ItemTemplate::parse("/nodes/{node}/hosts/{host}").expect("a template");
    let mut rest = RestOptions::new(inventory.url("").parse().expect("a URL"), "/hosts?owner=skopos", item);
    rest.fields = vec!["ip".to_owned()];
    rest.http.allow = vec!["127.0.0.0/8".parse().expect("a network")];
    let body = BTreeMap::from([("ip".to_owned(), "{pod.ip}".to_owned())]);
    let url = inventory.url("/nodes/{pod.label:tree}/hosts/{pod.name}");
    let source = PodSource {
        namespaces: Vec::new(),
        labels: BTreeMap::from([("tree".to_owned(), "*".to_owned())]),
        ready: true,
        item: PodTemplates::parse(&url, &body).expect("templates"),
        gate: gate.map(str::to_owned),
    };
    let mut options = quick("tree", RestSink::new(rest).expect("a sink"), ClaimSource::Pods(source));
    options.plan = PlanOptions::default();
    options.plan.keep_last = false;
    options.plan.settle = secs(1) / 5;
    options.plan.confirm = secs(1) / 2;
    options
}

fn pod(name: &str, ip: &str, conditions: &[&str]) -> Value {
    let conditions: Vec<_> =
        conditions.iter().map(|condition| json!({"type": condition, "status": "True"})).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "default", "name": name, "labels": {"tree": "shop"}},
        "spec": {"containers": [{"name": "main", "image": "main"}]},
        "status": {"podIP": ip, "phase": "Running", "conditions": conditions},
    })
}

/// Writes a pod with its status, as a kubelet does.
async fn put(cluster: &Cluster, pod: Value) {
    let name = pod["metadata"]["name"].as_str().expect("a name").to_owned();
    // It may exist already.
    let _ = cluster.server.create(pod.clone());
    let pods: Api<Pod> = Api::namespaced(cluster.factory.transport().client("default"), "default");
    let patch = Patch::Merge(json!({"status": pod["status"]}));
    pods.patch_status(&name, &PatchParams::default(), &patch).await.expect("a pod");
}

async fn becomes(inventory: &Inventory, wanted: &[(&str, &str)]) {
    let wanted: BTreeMap<_, _> =
        wanted.iter().map(|(name, ip)| (format!("/nodes/shop/hosts/{name}"), json!({"ip": ip}))).collect();
    let waiting = async {
        while inventory.items() != wanted {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = timeout(secs(60), waiting).await;
    assert!(waited.is_ok(), "{:?} in place of {wanted:?}", inventory.items());
}

#[tokio::test]
async fn pods_are_mounted_while_they_are_ready() {
    let (cluster, inventory) = (Cluster::quick().await, Inventory::new().await);
    put(&cluster, pod("a", "10.0.0.1", &["Ready"])).await;
    put(&cluster, pod("b", "10.0.0.2", &[])).await;
    let running = cluster.run(vec![options(&inventory, None)]);
    becomes(&inventory, &[("a", "10.0.0.1")]).await;
    put(&cluster, pod("b", "10.0.0.2", &["Ready"])).await;
    becomes(&inventory, &[("a", "10.0.0.1"), ("b", "10.0.0.2")]).await;
    put(&cluster, pod("a", "10.0.0.1", &[])).await;
    becomes(&inventory, &[("b", "10.0.0.2")]).await;
    // A pod of a StatefulSet is created again under its name, with another address.
    cluster.server.delete("pods", Some("default"), "b").expect("a pod");
    put(&cluster, pod("b", "10.0.0.3", &["Ready"])).await;
    becomes(&inventory, &[("b", "10.0.0.3")]).await;
    cluster.server.delete("pods", Some("default"), "b").expect("a pod");
    becomes(&inventory, &[]).await;
    running.equal(0).await;
    running.stop().await;
    cluster.end().await;
}

#[tokio::test]
async fn restart_removes_stale_items_and_repairs_drift() {
    let (cluster, inventory) = (Cluster::quick().await, Inventory::new().await);
    for index in 0..5 {
        put(&cluster, pod(&format!("p{index}"), "10.0.0.1", &["Ready"])).await;
    }
    let running = cluster.run(vec![options(&inventory, None)]);
    running.until(0, |report| report.is_equal() && report.outside == 5).await;
    running.kill().await;
    cluster.server.delete("pods", Some("default"), "p0").expect("a pod");
    inventory.set("/nodes/shop/hosts/p1", json!({"ip": "10.9.9.9"}));
    let running = cluster.run(vec![options(&inventory, None)]);
    let left: Vec<_> = (1..5).map(|index| format!("p{index}")).collect();
    let left: Vec<_> = left.iter().map(|name| (name.as_str(), "10.0.0.1")).collect();
    becomes(&inventory, &left).await;
    running.equal(0).await;
    running.stop().await;
    cluster.end().await;
}

#[tokio::test]
async fn failing_inventory_is_spared_and_then_catches_up() {
    let (cluster, inventory) = (Cluster::quick().await, Inventory::new().await);
    put(&cluster, pod("a", "10.0.0.1", &["Ready"])).await;
    // Lists are answered, and writes fail.
    inventory.script(|request| (request.method == "PUT").then_some(Fault::Status(500, "")));
    let running = cluster.run(vec![options(&inventory, None)]);
    running.until(0, |report| report.problem_count == 1 && report.steps.get("unknown") == Some(&3)).await;
    let writes = inventory.requests().iter().filter(|request| request.method == "PUT").count();
    assert!(writes <= 4, "{writes} writes in three seconds");
    inventory.script(|_| None);
    becomes(&inventory, &[("a", "10.0.0.1")]).await;
    // An invalid list shows nothing about the content.
    inventory.script(|request| {
        (request.method == "GET").then(|| Fault::Body("", r#"{"error": "maintenance"}"#.to_owned()))
    });
    let report = running.until(0, |report| report.sink_problem.is_some()).await;
    assert!(!report.is_equal());
    running.stop().await;
    cluster.end().await;
}

#[tokio::test]
async fn readiness_gate_opens_when_item_is_written() {
    let (cluster, inventory) = (Cluster::quick().await, Inventory::new().await);
    let gated = |name: &str, ip: &str, conditions: &[&str]| {
        let mut pod = pod(name, ip, conditions);
        pod["spec"]["readinessGates"] = json!([{"conditionType": GATE}]);
        pod
    };
    let refuses = Arc::new(AtomicBool::new(true));
    let refusing = refuses.clone();
    inventory.script(move |request| {
        let is_refused =
            refusing.load(Ordering::SeqCst) && request.method == "PUT" && request.path.ends_with("/a");
        is_refused.then_some(Fault::Status(403, ""))
    });
    put(&cluster, gated("a", "10.0.0.1", &[])).await;
    put(&cluster, gated("b", "10.0.0.2", &[])).await;
    let running = cluster.run(vec![options(&inventory, Some(GATE))]);
    let is_told = |name: &str| {
        let pod = cluster.server.get("pods", Some("default"), name).expect("a pod");
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| condition["type"] == GATE && condition["status"] == "True")
    };
    running.until(0, |report| report.is_equal()).await;
    put(&cluster, gated("a", "10.0.0.1", &["ContainersReady"])).await;
    running.until(0, |report| report.problem_count == 1).await;
    put(&cluster, gated("b", "10.0.0.2", &["ContainersReady"])).await;
    let told = async |name: &str| {
        let waiting = async {
            while !is_told(name) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(secs(60), waiting).await.unwrap_or_else(|_| panic!("{name} is not told"));
    };
    // Both have waited since before this one was confirmed, and the inventory has refused the other.
    told("b").await;
    assert!(!is_told("a"));
    refuses.store(false, Ordering::SeqCst);
    told("a").await;
    becomes(&inventory, &[("a", "10.0.0.1"), ("b", "10.0.0.2")]).await;
    running.stop().await;
    cluster.end().await;
}
