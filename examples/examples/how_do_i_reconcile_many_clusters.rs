//! How do I run one controller over many clusters, which come and go?
//!
//! ```console
//! cargo run -p skopos-examples --example how_do_i_reconcile_many_clusters
//! ```
//!
//! | in controller-runtime | in kube-rs | here |
//! |---|---|---|
//! | multicluster-runtime: a provider engages clusters, a request carries a cluster's name | a `Controller` for each cluster, by hand | `FleetController`: a controller of its own in each cluster of a `Fleet` |

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use skopos::InformerOptions;
use skopos::transport::kubeconfig::Kubeconfig;
use skopos_controller::{Context, Controller, ControllerOptions, FleetController, Outcome, ReconcileError};
use skopos_fleet::{ClusterId, ClusterSpec, Fleet, FleetOptions};
use skopos_testserver::TestServer;
use tokio_util::sync::CancellationToken;

fn everywhere(fleet: &Fleet) -> FleetController<Pod> {
    FleetController::new(fleet.clone(), |cluster, informers| {
        let pods = informers.informer::<Pod>(InformerOptions::all())?;
        let cluster = cluster.id().clone();
        Ok(Controller::new(pods, ControllerOptions::named("pods")).reconcile(move |context: Context<Pod>| {
            println!("{cluster}: {}, at most {:?} old", context.key(), context.age());
            std::future::ready(Ok::<_, ReconcileError>(Outcome::Done))
        }))
    })
}

/// A test server with some pods, and how to reach it. In production clusters come from kubeconfigs, Secrets and vclusters.
async fn cluster(pods: usize) -> anyhow::Result<(TestServer, ClusterSpec)> {
    let server = TestServer::builder().tls(true).start().await?;
    server.load_pods(pods);
    let kubeconfig = server.kubeconfig();
    let config = Kubeconfig::parse(kubeconfig.as_bytes(), kubeconfig.len())?.config(None)?;
    Ok((server, ClusterSpec::from_config(config)))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let fleet = Fleet::new(FleetOptions::default());
    let (_paris, spec) = cluster(3).await?;
    fleet.join(ClusterId::new("paris")?, spec)?;
    let everywhere = everywhere(&fleet);
    let (handle, stop) = (everywhere.handle(), CancellationToken::new());
    let script = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (_tokyo, spec) = cluster(3).await?;
        fleet.join(ClusterId::new("tokyo")?, spec)?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        for (cluster, status) in handle.statuses() {
            println!("{cluster}: {status}");
        }
        stop.cancel();
        anyhow::Ok(())
    };
    let ((), script) = tokio::join!(everywhere.run(stop.clone()), script);
    script?;
    fleet.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use skopos_controller::Member;

    use super::*;

    #[tokio::test]
    async fn a_cluster_that_joins_is_reconciled() -> anyhow::Result<()> {
        let fleet = Fleet::new(FleetOptions::default());
        let everywhere = everywhere(&fleet);
        let (handle, stop) = (everywhere.handle(), CancellationToken::new());
        let mut running = tokio::task::JoinSet::new();
        running.spawn(everywhere.run(stop.clone()));
        let (_server, spec) = cluster(20).await?;
        fleet.join(ClusterId::new("paris")?, spec)?;
        let all = || {
            handle.members().values().any(|member| match member {
                Member::Runs(handle) => handle.stats().succeeded == 20,
                Member::Waits(_) => false,
            })
        };
        let reached = async {
            while !all() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), reached).await.expect("all pods");
        stop.cancel();
        running.join_next().await.expect("it runs")?;
        assert!(fleet.shutdown(Duration::from_secs(10)).await);
        Ok(())
    }
}
