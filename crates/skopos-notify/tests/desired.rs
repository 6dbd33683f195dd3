//! The desired state, which evaluates only what has changed.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;
use skopos::{Informer, InformerOptions};
use skopos_notify::desired::{ClaimSource, ClusterContent, Desired, VirtualServiceSource};
use skopos_notify::sink::memory::MemorySink;
use skopos_notify::{DesiredEntries, Packed, Readiness};
use support::{Cluster, annotated, endpoints, secs, service_object, slice_object};
use tokio::time::sleep;

struct Looks {
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
}

impl Looks {
    async fn new(cluster: &Cluster) -> Self {
        let services = cluster.factory.informer(InformerOptions::all()).expect("an informer");
        let slices = cluster.factory.informer(InformerOptions::all()).expect("an informer");
        let looks = Self { services, slices };
        looks.services.wait_synced(secs(60)).await.expect("it syncs");
        looks.slices.wait_synced(secs(60)).await.expect("it syncs");
        looks
    }

    fn content(&self) -> ClusterContent {
        ClusterContent {
            services: Some(self.services.snapshot()),
            slices: Some(self.slices.snapshot()),
            pods: None,
        }
    }
}

fn virtual_services() -> ClaimSource {
    ClaimSource::VirtualServices(VirtualServiceSource {
        annotation: "skopos.dev/vip".into(),
        labels: BTreeMap::new(),
    })
}

fn desired() -> Desired {
    let sources = vec![annotated(), endpoints("{service}", false), virtual_services()];
    Desired::new(Arc::new(MemorySink::zone()), sources)
}

/// Returns a generator of numbers below a bound, the same in each run.
fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

fn change(cluster: &Cluster, number: &mut impl FnMut(u64) -> u64) {
    let server = &cluster.server;
    let service = format!("s{}", number(4));
    let slice = format!("slice{}", number(6));
    match number(8) {
        0 => drop(server.delete("services", Some("default"), &service)),
        1 => drop(server.delete("endpointslices", Some("default"), &slice)),
        2..=4 => {
            let mut object = service_object(&service);
            let annotations = json!({"skopos.dev/hostname": format!("shared,h{}", number(3)), "skopos.dev/vip": "10.8.0.1"});
            if number(2) == 0 {
                object["metadata"]["annotations"] = annotations;
            }
            object["spec"]["externalIPs"] = json!([format!("192.0.2.{}", number(9))]);
            let _ = server.create(object.clone());
            let _ = server.update(object);
        }
        _ => {
            let addresses: Vec<_> = (0..number(4)).map(|_| format!("10.0.0.{}", number(5))).collect();
            let endpoints: Vec<_> = addresses
                .iter()
                .map(|address| (address.as_str(), ["ready", "notReady", "terminating"][number(3) as usize]))
                .collect();
            let uid = server.get("services", Some("default"), &service);
            let uid = uid.map(|service| service["metadata"]["uid"].clone()).unwrap_or_else(|_| json!("gone"));
            let mut object = slice_object(&service, &slice, &uid, &endpoints);
            if number(3) == 0 {
                object["metadata"]["ownerReferences"] = json!([]);
            }
            let _ = server.create(object.clone());
            let _ = server.update(object);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn incremental_view_equals_full_view() {
    for seed in 0..20 {
        let cluster = Cluster::new().await;
        let looks = Looks::new(&cluster).await;
        let (mut kept, mut number) = (desired(), numbers(seed));
        for round in 0..60 {
            change(&cluster, &mut number);
            if number(3) > 0 {
                sleep(secs(1) / 20).await;
            }
            let (content, mut fresh) = (looks.content(), desired());
            assert_eq!(kept.look(content.clone()), fresh.look(content), "seed {seed}, round {round}");
            assert_eq!(kept.rejected().collect::<Vec<_>>(), fresh.rejected().collect::<Vec<_>>());
        }
        cluster.end().await;
    }
}

fn members(entries: &DesiredEntries, name: &str) -> Vec<(String, Readiness)> {
    let entries = entries.get(name).map(Packed::unpack).unwrap_or_default();
    let members = entries.iter().flat_map(|entry| &entry.members);
    members.map(|(value, ready)| (value.to_string(), *ready)).collect()
}

#[tokio::test(start_paused = true)]
async fn virtual_address_maps_ports_to_endpoints() {
    let cluster = Cluster::new().await;
    let looks = Looks::new(&cluster).await;
    let mut object = service_object("web");
    object["metadata"]["annotations"] = json!({"skopos.dev/vip": "10.8.0.1, fd00::1, nonsense"});
    object["spec"]["ports"] = json!([
        {"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"},
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "s", "port": 9, "protocol": "SCTP"},
    ]);
    let service = cluster.server.create(object).expect("a Service");
    cluster
        .server
        .create(slice_object(
            "web",
            "web-1",
            &service["metadata"]["uid"],
            &[("10.0.0.1", "ready"), ("10.0.0.2", "notReady")],
        ))
        .expect("a slice");
    sleep(secs(1)).await;
    let mut desired = Desired::new(Arc::new(MemorySink::balancer()), vec![virtual_services()]);
    let entries = desired.look(looks.content());
    let names: Vec<_> = entries.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["tcp/10.8.0.1:80", "tcp/[fd00::1]:80", "udp/10.8.0.1:53", "udp/[fd00::1]:53"]);
    let web =
        [("10.0.0.1:8080".to_owned(), Readiness::Ready), ("10.0.0.2:8080".to_owned(), Readiness::NotReady)];
    assert_eq!(members(&entries, "tcp/10.8.0.1:80"), web);
    // The other family has its own slice, without this port.
    assert_eq!(members(&entries, "tcp/[fd00::1]:80"), []);
    assert_eq!(members(&entries, "udp/10.8.0.1:53"), []);
    let reasons: Vec<_> = desired.rejected().map(|rejected| rejected.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [r#""nonsense" in skopos.dev/vip is no address"#, "port 9 is SCTP: only TCP and UDP are balanced"]
    );
    cluster.end().await;
}
