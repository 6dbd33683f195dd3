//! Kubeconfigs in memory, from which the gateway gets its clusters and their names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::BoxFuture;
use skopos_fleet::source::{ClusterSink, DiscoveredCluster};
use skopos_fleet::{Cluster as FleetCluster, ClusterId, ClusterSpec, Fleet, Source};
use tokio_util::sync::CancellationToken;

use super::Named;
use crate::cluster::Cluster;
use crate::history::Member;
use crate::plan::GatewayPlan;
use crate::users::Scene;

/// A kubeconfig without a file.
struct Kubeconfig {
    number: usize,
    contexts: BTreeMap<ClusterId, DiscoveredCluster>,
}

/// Makes the fleet follow the plan's kubeconfigs, and returns the members in the order of their names.
///
/// # Errors
/// When some context has not become a member.
pub(super) async fn follow(
    fleet: &Fleet,
    scene: &Scene,
    clusters: &[Arc<Cluster>],
    plan: &GatewayPlan,
) -> anyhow::Result<Arc<[Named]>> {
    let kubeconfigs = plan.contexts.iter().map(|context| context.kubeconfig + 1).max().unwrap_or_default();
    for number in 0..kubeconfigs {
        fleet.follow(Kubeconfig::of(plan, number));
    }
    // The sources report their contexts as soon as they run.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let members = fleet.members();
    ensure!(members.len() == plan.contexts.len(), "{} members of {:?}", members.len(), plan.contexts);
    members.values().map(|member| named(scene, clusters, member)).collect()
}

/// Records the member. Its kubeconfig determines its cluster, and its name does not.
fn named(scene: &Scene, clusters: &[Arc<Cluster>], member: &FleetCluster) -> anyhow::Result<Named> {
    let name = member.id().to_string();
    let spec = member.spec().with_context(|| format!("nothing says how {name} is reached"))?;
    let cluster = cluster_at(spec.server()).and_then(|at| clusters.get(at));
    let cluster = cluster.with_context(|| format!("{name} leads to {}", spec.server()))?.id;
    let context = member.original_name().map_or_else(|| name.clone(), |context| context.to_string());
    let id = scene.recorder.member(Member { name: name.clone(), context: context.clone(), cluster });
    Ok(Named { id, name, context })
}

/// Returns the index of the plan's cluster with this address.
pub(super) fn cluster_at(server: &http::Uri) -> Option<usize> {
    server.host()?.strip_suffix(".test")?.strip_prefix("cluster-")?.parse().ok()
}

impl Kubeconfig {
    fn of(plan: &GatewayPlan, number: usize) -> Self {
        let own = || plan.contexts.iter().filter(|context| context.kubeconfig == number);
        let ids = ClusterId::from_names(own().map(|context| context.name.as_str()).collect::<Vec<_>>());
        let listed = own().map(|context| {
            let server = http::Uri::try_from(format!("http://cluster-{}.test", context.cluster));
            let config = kube::Config::new(server.unwrap_or_default());
            let name = Some(context.name.as_str().into());
            DiscoveredCluster { name, ..DiscoveredCluster::up(ClusterSpec::from_config(config)) }
        });
        Self { number, contexts: ids.into_iter().zip(listed).collect() }
    }
}

impl Source for Kubeconfig {
    fn name(&self) -> String {
        format!("kubeconfig {}", self.number)
    }

    fn is_trusted(&self) -> bool {
        true
    }

    fn run(self: Box<Self>, sink: ClusterSink, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            sink.publish(self.contexts);
            stop.cancelled().await;
        })
    }
}
