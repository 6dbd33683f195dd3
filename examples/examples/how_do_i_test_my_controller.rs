//! How do I test my controller without a cluster? With a server in the process, its faults, and a clock that does not run.
//!
//! ```console
//! cargo test -p skopos-examples --example how_do_i_test_my_controller
//! ```
//!
//! | in controller-runtime | in kube-rs | here |
//! |---|---|---|
//! | `envtest`: starts etcd and kube-apiserver | a k3d cluster, or a `tower_test::mock` of each request | `TestServer::builder().start_in_memory()` |
//! | a fake client's interceptors | requests answered by hand | `server.faults().inject(…)` |
//! | real time | real time | `#[tokio::test(start_paused = true)]` |

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ObjectMeta};
use kube::{Client, Resource};
use skopos::{InformerFactory, InformerOptions};
use skopos_controller::{Context, Controller, ControllerOptions, ControllerService, Outcome, ReconcileError};
use skopos_testserver::TestServer;
use tokio_util::sync::CancellationToken;

/// The name of the ConfigMap in each Namespace.
const NAME: &str = "defaults";

/// The controller under test: each Namespace has a ConfigMap.
fn controller(factory: &InformerFactory) -> anyhow::Result<ControllerService<Namespace>> {
    let namespaces = factory.informer::<Namespace>(InformerOptions::all())?;
    let maps = factory.informer::<ConfigMap>(InformerOptions::all())?;
    let client = factory.transport().client("default");
    Ok(Controller::new(namespaces, ControllerOptions::named("defaults"))
        .owns(maps)
        .reconcile(move |context| reconcile(client.clone(), context)))
}

async fn reconcile(client: Client, context: Context<Namespace>) -> Result<Outcome, ReconcileError> {
    let Some(object) = context.object() else { return Ok(Outcome::Done) };
    let namespace: Namespace = object.decode()?;
    if context.children::<ConfigMap>().iter().any(|child| child.name() == NAME) {
        return Ok(Outcome::Done);
    }
    let metadata = ObjectMeta {
        name: Some(NAME.to_owned()),
        namespace: namespace.metadata.name.clone(),
        owner_references: namespace.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    let map = ConfigMap { metadata, ..ConfigMap::default() };
    context.apply(&Api::namespaced(client, object.name()), &map).await?;
    Ok(Outcome::Done)
}

/// Runs the controller on a test server for a moment; the tests below are the point of this example.
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = TestServer::builder().start_in_memory()?;
    let factory = InformerFactory::from_test_server(&server)?;
    let (controller, stop) = (controller(&factory)?, CancellationToken::new());
    let some_time = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        println!("{}", server.get("configmaps", Some("default"), NAME)?);
        stop.cancel();
        anyhow::Ok(())
    };
    let (ended, written) = tokio::join!(controller.run(stop.clone()), some_time);
    ended?;
    written
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use skopos_controller::ControllerStatus;
    use skopos_testserver::{Fault, Match};
    use tokio::task::JoinSet;

    use super::*;

    /// Waits until the Namespace has its ConfigMap, for at most an hour of the paused clock.
    async fn has_its_map(server: &TestServer, namespace: &str) {
        let reached = async {
            while server.get("configmaps", Some(namespace), NAME).is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(3600), reached).await.expect("it is written");
    }

    #[tokio::test(start_paused = true)]
    async fn survives_faults_and_waits_for_absent_server() -> anyhow::Result<()> {
        let server = TestServer::builder().start_in_memory()?;
        let factory = InformerFactory::from_test_server(&server)?;
        let controller = controller(&factory)?;
        let (handle, stop) = (controller.handle(), CancellationToken::new());
        let mut running = JoinSet::new();
        running.spawn(controller.run(stop.clone()));

        // Two writes fail, and the third succeeds.
        let fault =
            server.faults().inject(Fault::status(503, 0)).on(Match::write().resource("configmaps")).times(2);
        server.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))?;
        has_its_map(&server, "shop").await;
        assert_eq!(fault.hits(), 2);

        // An hour without a server takes no time, and nothing is reconciled.
        server.pause().await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(matches!(handle.status(), ControllerStatus::Stale { .. }));
        server.delete("configmaps", Some("shop"), NAME)?;
        server.resume().await?;
        has_its_map(&server, "shop").await;

        stop.cancel();
        running.join_next().await.expect("it runs")??;
        Ok(())
    }
}
