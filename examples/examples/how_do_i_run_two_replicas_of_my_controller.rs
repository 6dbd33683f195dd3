//! How do I run two replicas of my controller, of which one acts, with health, readiness and metrics?
//!
//! ```console
//! cargo run -p skopos-examples --example how_do_i_run_two_replicas_of_my_controller
//! ```
//!
//! Two replicas run in this process. In a cluster each is one of them, and ends with `run_until_signal`.
//!
//! | in controller-runtime | in kube-rs | here |
//! |---|---|---|
//! | `manager.New` with `LeaderElection: true` | – | `Manager::new`, `.election(…)`, `.controller(…)` |
//! | losing the lease ends the process | – | drops the work and stands by |
//! | `LeaderElectionReleaseOnCancel`, to be set with care | – | always: the Lease is released when the work has ended |
//! | `HealthProbeBindAddress`, `AddHealthzCheck`, `AddReadyzCheck` | – | `/healthz`, `/readyz`, `/metrics`; a standby is ready, a stale view is not |

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use skopos::{FactoryOptions, InformerFactory, InformerOptions, Transport, TransportOptions};
use skopos_controller::{
    Context, Controller, ControllerHandle, ControllerOptions, Manager, ManagerOptions, Outcome,
    ReconcileError,
};
use skopos_examples::Cluster;
use skopos_lease::{Election, LeaseOptions};
use tokio_util::sync::CancellationToken;

/// A replica: its manager, and the handle of its controller.
fn replica(cluster: &Cluster, name: &'static str) -> anyhow::Result<(Manager, ControllerHandle)> {
    let transport = Transport::from_config(cluster.config.clone(), TransportOptions::default())?;
    let factory = InformerFactory::new(transport, FactoryOptions::default());
    let mut options = LeaseOptions::new("default", "the-pod-counter");
    // In production this stays off: then the very first candidate waits 15 s.
    options.acquire_on_create = true;
    // On connections of its own, so that nothing else delays a renewal.
    let election = Election::from_config(cluster.config.clone(), options)?;
    let pods = factory.informer::<Pod>(InformerOptions::all())?;
    let controller = Controller::new(pods, ControllerOptions::named("pod-counter"))
        .elected(election.candidate())
        .reconcile(move |context: Context<Pod>| {
            let term = context.term().map(|term| term.number());
            println!("{name} reconciles {} in term {term:?}", context.key());
            std::future::ready(Ok::<_, ReconcileError>(Outcome::Done))
        });
    let handle = controller.handle();
    let mut options = ManagerOptions::default();
    options.listen = ([127, 0, 0, 1], 0).into();
    Ok((Manager::new(options).election(election).controller(controller), handle))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let ((one, of_one), (two, of_two)) = (replica(&cluster, "one")?, replica(&cluster, "two")?);
    let (stop_one, stop_two) = (CancellationToken::new(), CancellationToken::new());
    let script = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        println!("one is {}, two is {}; the leader ends", of_one.status(), of_two.status());
        let (leader, other) = match of_one.stats().total() > 0 {
            true => (&stop_one, &stop_two),
            false => (&stop_two, &stop_one),
        };
        leader.cancel();
        tokio::time::sleep(Duration::from_secs(2)).await;
        println!("one is {}, two is {}", of_one.status(), of_two.status());
        other.cancel();
    };
    let (one, two, ()) = tokio::join!(one.run(stop_one.clone()), two.run(stop_two.clone()), script);
    one?;
    two?;
    cluster.factory.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use skopos_controller::ControllerStatus;

    use super::*;

    #[tokio::test]
    async fn standby_replica_takes_over_after_shutdown() -> anyhow::Result<()> {
        let cluster = Cluster::connect().await?;
        let (first, of_first) = replica(&cluster, "first")?;
        let (second, of_second) = replica(&cluster, "second")?;
        let stops = [CancellationToken::new(), CancellationToken::new()];
        let reached = async |holds: &dyn Fn() -> bool| {
            let reached = async {
                while !holds() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), reached).await.expect("in time");
        };
        let mut run_of_first = tokio::task::JoinSet::new();
        run_of_first.spawn(first.run(stops[0].clone()));
        reached(&|| of_first.stats().succeeded > 50).await;
        let mut run_of_second = tokio::task::JoinSet::new();
        run_of_second.spawn(second.run(stops[1].clone()));
        reached(&|| of_second.status() == ControllerStatus::Standby).await;
        assert_eq!(of_second.stats().total(), 0);
        stops[0].cancel();
        run_of_first.join_next().await.expect("it runs")??;
        reached(&|| of_second.stats().succeeded > 50).await;
        stops[1].cancel();
        run_of_second.join_next().await.expect("it runs")??;
        Ok(())
    }
}
