//! Virtual clusters of a host that is reached from outside, over TCP and TLS. The names of their Services do not resolve here.

use std::collections::BTreeSet;

use kube::client::Body;
use skopos_fleet::kubeconfig::KubeconfigPolicy;
use skopos_fleet::source::{VclusterDial, VclusterSource};
use skopos_fleet::{Cluster, ClusterOptions, ClusterSpec, Condition, Fleet, FleetOptions};
use skopos_testserver::{CloseMode, Fault, Match, TestServer, VirtualCluster, VirtualClusters};

use crate::support::*;

const NS: &str = "vcluster-shop";
const SHOP: &str = "shop.vcluster-shop";

struct Outside {
    host: TestServer,
    virtuals: VirtualClusters,
    fleet: Fleet,
}

/// Makes a host with virtual clusters, and a fleet outside of it.
async fn outside(dial: VclusterDial, names: impl IntoIterator<Item = String>) -> Outside {
    let host = TestServer::builder().workloads(true).start().await.expect("a host");
    let virtuals = VirtualClusters::on(host.clone()).start();
    for name in names {
        virtuals.create(&VirtualCluster::new(&name)).expect("created");
    }
    let cluster = ClusterOptions { kinds: vec![config_maps()], ..ClusterOptions::default() };
    let fleet = Fleet::new(FleetOptions { cluster, ..FleetOptions::default() });
    let config = kube::Config::new(host.url().parse().expect("a url"));
    let member = fleet.join(id("host"), ClusterSpec::from_config(config)).expect("joined");
    fleet.follow(VclusterSource::new(member, KubeconfigPolicy::hostile()).dial(dial));
    Outside { host, virtuals, fleet }
}

impl Outside {
    async fn one(dial: VclusterDial) -> (Self, Cluster) {
        let outside = outside(dial, ["shop".to_owned()]).await;
        eventually("it is found", || outside.fleet.get(SHOP).is_some()).await;
        let shop = outside.fleet.get(SHOP).expect("it is found");
        (outside, shop)
    }

    fn server(&self) -> TestServer {
        self.virtuals.server(NS, "shop").expect("its server")
    }

    /// Creates an object in the virtual cluster, and waits until the fleet has it.
    async fn shows(&self, shop: &Cluster, name: &str) {
        self.server().create(config_map(name)).expect("created");
        eventually(name, || names(shop, &config_maps()).iter().any(|known| known == name)).await;
    }

    async fn end(self) {
        assert!(self.fleet.shutdown(secs(9)).await);
        self.virtuals.stop().await;
        self.host.stop().await;
    }
}

#[tokio::test]
async fn services_that_do_not_resolve_are_reached_through_the_host() {
    let (outside, shop) = Outside::one(VclusterDial::default()).await;
    until_condition(&shop, Condition::Live).await;
    outside.shows(&shop, "first").await;
    let request =
        http::Request::get("/api/v1/namespaces/default/configmaps/first").body(Body::empty()).unwrap();
    let answer = shop.request(request, secs(9)).await.expect("an answer");
    assert_eq!(answer.status(), 200);
    let stats = shop.stats().transport.expect("stats");
    let peers: BTreeSet<_> = stats.connections.iter().map(|connection| connection.peer.to_string()).collect();
    let way = "port-forward by host to app=vcluster,release=shop in vcluster-shop";
    assert_eq!(peers, [way.to_owned()].into());
    outside.end().await;
}

#[tokio::test]
async fn killed_pods_and_connections_lose_no_change() {
    let (outside, shop) = Outside::one(VclusterDial::PortForward).await;
    until_condition(&shop, Condition::Live).await;
    for round in 0..3 {
        outside.shows(&shop, &format!("before-{round}")).await;
        let is_new = |pod: &serde_json::Value, uid: &serde_json::Value| pod["metadata"]["uid"] != *uid;
        let pod = outside.host.get("pods", Some(NS), "shop-0").expect("its pod");
        outside.host.delete("pods", Some(NS), "shop-0").expect("deleted");
        eventually("another pod", || {
            outside
                .host
                .get("pods", Some(NS), "shop-0")
                .is_ok_and(|new| is_new(&new, &pod["metadata"]["uid"]))
        })
        .await;
        outside.virtuals.wait_up(NS, "shop").await.expect("up again");
        outside.shows(&shop, &format!("after-{round}")).await;
        // The tunnels die with the connections to the host.
        assert!(outside.host.faults().kill_connections(CloseMode::Rst) > 0);
        outside.shows(&shop, &format!("cut-{round}")).await;
    }
    until_condition(&shop, Condition::Live).await;
    outside.end().await;
}

#[tokio::test]
async fn a_paused_one_is_paused_and_comes_back() {
    let (outside, shop) = Outside::one(VclusterDial::PortForward).await;
    until_condition(&shop, Condition::Live).await;
    outside.virtuals.scale(NS, "shop", 0).expect("scaled");
    until_condition(&shop, Condition::Paused).await;
    outside.virtuals.scale(NS, "shop", 1).expect("scaled");
    until_condition(&shop, Condition::Live).await;
    outside.shows(&shop, "resumed").await;
    outside.end().await;
}

#[tokio::test]
async fn a_host_that_does_not_permit_it_is_the_reason() {
    let (outside, shop) = Outside::one(VclusterDial::PortForward).await;
    until_condition(&shop, Condition::Live).await;
    let forwards = Match::any().query("ports", "8443");
    let refused = outside.host.faults().inject(Fault::status(403, 0)).on(forwards);
    outside.host.faults().kill_connections(CloseMode::Rst);
    until_condition(&shop, Condition::Unreachable).await;
    let reason = shop.state().reason.clone().expect("a reason");
    for part in ["port-forward by host to", "host refuses to forward to pod shop-0", "pods/portforward"] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    drop(refused);
    until_condition(&shop, Condition::Live).await;
    outside.end().await;
}

#[tokio::test]
async fn a_hundred_are_reached_at_once() {
    let outside = outside(VclusterDial::PortForward, (0..100).map(|n| format!("c{n}"))).await;
    let named = |n| format!("c{n}.vcluster-c{n}");
    eventually("all are found", || (0..100).all(|n| outside.fleet.get(&named(n)).is_some())).await;
    for n in 0..100 {
        until_condition(&outside.fleet.get(&named(n)).expect("it is found"), Condition::Live).await;
    }
    outside.end().await;
}
