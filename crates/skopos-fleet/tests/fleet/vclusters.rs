//! Virtual clusters of a host, which follow their workloads: discovered, paused, resumed and removed.

use serde_json::{Value, json};
use skopos_fleet::kubeconfig::KubeconfigPolicy;
use skopos_fleet::source::VclusterSource;
use skopos_fleet::{Cluster, ClusterOptions, Condition, Fleet, PausedBy};
use skopos_testserver::{TestServer, VirtualCluster, VirtualClusters};
use tokio::time::Instant;

use crate::support::*;

const NS: &str = "vcluster-shop";
const SHOP: &str = "shop.vcluster-shop";

struct Bed {
    host: TestServer,
    virtuals: VirtualClusters,
    fleet: Fleet,
}

/// Makes a host with a running virtual cluster, and a fleet that follows it.
async fn bed() -> Bed {
    bed_with(options()).await
}

async fn bed_with(options: ClusterOptions) -> Bed {
    let world = World::default();
    let host = world.server_with("host", TestServer::builder().workloads(true));
    let virtuals = VirtualClusters::on(host.clone()).in_memory().start();
    *world.virtuals.lock() = Some(virtuals.clone());
    virtuals.create(&VirtualCluster::new("shop")).expect("created");
    virtuals.wait_up(NS, "shop").await.expect("up");
    let fleet = world.fleet_with(options);
    let host_cluster = join(&fleet, "host");
    fleet.follow(VclusterSource::new(host_cluster, KubeconfigPolicy::hostile()));
    Bed { host, virtuals, fleet }
}

impl Bed {
    async fn shop(&self) -> Cluster {
        eventually("it is found", || self.fleet.get(SHOP).is_some()).await;
        self.fleet.get(SHOP).expect("it is found")
    }

    /// Changes the workload as another client would.
    fn change(&self, change: impl FnOnce(&mut Value)) {
        let mut set = self.host.get("statefulsets", Some(NS), "shop").expect("a StatefulSet");
        change(&mut set);
        self.host.update(set).expect("updated");
    }

    /// Waits from the return of its server until the fleet reports that and its content is live.
    async fn live_again(&self, shop: &Cluster) {
        self.virtuals.wait_up(NS, "shop").await.expect("up");
        let ready = Instant::now();
        until_condition(shop, Condition::Live).await;
        let kind = shop.cached(&config_maps()).expect("it was kept");
        eventually("live", || kind.informer().freshness().is_live()).await;
        assert!(ready.elapsed() <= secs(2), "{:?}", ready.elapsed());
    }
}

fn paused_by(cluster: &Cluster) -> Option<PausedBy> {
    cluster.state().paused.as_ref().map(|paused| paused.by)
}

#[tokio::test(start_paused = true)]
async fn every_form_of_pause_is_detected() {
    let bed = bed().await;
    let shop = bed.shop().await;
    let labels = shop.labels();
    assert_eq!(
        (labels["skopos.dev/vcluster"].as_str(), labels["skopos.dev/namespace"].as_str()),
        ("shop", NS)
    );
    let endpoint = shop.spec().expect("a way");
    assert_eq!(endpoint.server().to_string(), "https://shop.vcluster-shop.svc:443/");
    assert_eq!(endpoint.config().tls_server_name.as_deref(), Some(SHOP));
    drop(shop.kind(&config_maps(), secs(5)).await.expect("a kind"));
    until_condition(&shop, Condition::Live).await;

    // By a plain scale to zero.
    bed.virtuals.scale(NS, "shop", 0).expect("scaled");
    until_condition(&shop, Condition::Paused).await;
    assert_eq!(paused_by(&shop), Some(PausedBy::ScaledDown));
    tokio::time::sleep(secs(3600)).await;
    let kind = shop.kind(&config_maps(), secs(0)).await.expect("what was there");
    assert!(kind.informer().freshness().age().expect("an age") >= secs(3500));
    drop(kind);
    assert_eq!(shop.kind(&resource("pods", "Pod"), secs(9)).await.unwrap_err().as_str(), "paused");
    bed.virtuals.scale(NS, "shop", 1).expect("scaled");
    bed.live_again(&shop).await;

    // By the vcluster CLI's annotations, written by hand.
    bed.change(|set| {
        set["metadata"]["annotations"] = json!({"loft.sh/paused": "true", "loft.sh/paused-replicas": "1"});
        set["spec"]["replicas"] = 0.into();
    });
    until_condition(&shop, Condition::Paused).await;
    assert_eq!(paused_by(&shop), Some(PausedBy::Annotation));
    tokio::time::sleep(secs(600)).await;
    bed.change(|set| {
        set["metadata"]["annotations"] = json!({});
        set["spec"]["replicas"] = 1.into();
    });
    bed.live_again(&shop).await;

    // By the platform's label.
    bed.change(|set| {
        set["metadata"]["labels"]["loft.sh/sleep-mode"] = "true".into();
        set["spec"]["replicas"] = 0.into();
    });
    until_condition(&shop, Condition::Paused).await;
    assert_eq!(paused_by(&shop), Some(PausedBy::Sleep));
    bed.change(|set| {
        set["metadata"]["labels"].as_object_mut().expect("labels").remove("loft.sh/sleep-mode");
        set["spec"]["replicas"] = 1.into();
    });
    bed.live_again(&shop).await;
    assert!(bed.fleet.problems().is_empty(), "{:?}", bed.fleet.problems());
    assert!(bed.fleet.shutdown(secs(9)).await);
    bed.virtuals.stop().await;
}

#[tokio::test(start_paused = true)]
async fn vcluster_without_resources_resumes_within_2s() {
    let bed = bed_with(ClusterOptions { prefetch_documents: true, ..options() }).await;
    let shop = bed.shop().await;
    until_condition(&shop, Condition::Live).await;
    for _ in 0..3 {
        bed.virtuals.scale(NS, "shop", 0).expect("scaled");
        until_condition(&shop, Condition::Paused).await;
        bed.virtuals.wait_down(NS, "shop").await.expect("down");
        bed.virtuals.scale(NS, "shop", 1).expect("scaled");
        bed.virtuals.wait_up(NS, "shop").await.expect("up");
        let ready = Instant::now();
        until_condition(&shop, Condition::Live).await;
        assert!(ready.elapsed() <= secs(2), "{:?}", ready.elapsed());
    }
    assert!(bed.fleet.shutdown(secs(9)).await);
    bed.virtuals.stop().await;
}

#[tokio::test(start_paused = true)]
async fn only_missing_workload_removes_vcluster() {
    let bed = bed().await;
    let shop = bed.shop().await;
    drop(shop.kind(&config_maps(), secs(5)).await.expect("a kind"));
    // Its Secret is gone for a moment: the known settings stay.
    let secret = bed.host.get("secrets", Some(NS), "vc-shop").expect("a Secret");
    bed.host.delete("secrets", Some(NS), "vc-shop").expect("deleted");
    eventually("it is told", || bed.fleet.problems().len() == 1).await;
    assert!(
        bed.fleet.problems()[0]
            .to_string()
            .contains("there is no kubeconfig in Secret vcluster-shop/vc-shop")
    );
    tokio::time::sleep(secs(60)).await;
    assert_eq!(shop.state().condition, Condition::Live);
    let mut again = secret;
    for field in ["resourceVersion", "uid", "creationTimestamp"] {
        again["metadata"].as_object_mut().expect("metadata").remove(field);
    }
    bed.host.create(again).expect("created");
    eventually("it is well", || bed.fleet.problems().is_empty()).await;
    // Another one is created: it is a member from its first moment on.
    bed.virtuals.create(&VirtualCluster::new("late").in_namespace(NS).deployment()).expect("created");
    eventually("it is found", || bed.fleet.get("late.vcluster-shop").is_some()).await;
    let late = bed.fleet.get("late.vcluster-shop").expect("found");
    bed.virtuals.wait_up(NS, "late").await.expect("up");
    eventually("it can be reached", || late.spec().is_some()).await;
    assert!(late.kind(&config_maps(), secs(5)).await.is_ok());
    // When deleted, it leaves, and its data stays readable.
    bed.host.delete("statefulsets", Some(NS), "shop").expect("deleted");
    until_condition(&shop, Condition::Removed).await;
    assert!(shop.cached(&config_maps()).expect("kept").has_content());
    assert!(bed.fleet.shutdown(secs(9)).await);
    bed.virtuals.stop().await;
}
