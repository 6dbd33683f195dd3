//! How do I clean up outside of the cluster before an object disappears? With a finalizer.
//!
//! ```console
//! cargo run -p skopos-examples --example how_do_i_clean_up_after_an_object
//! ```
//!
//! | in controller-runtime | in kube-rs | here |
//! |---|---|---|
//! | `controllerutil.AddFinalizer`, `Update`, return, and the same once more when `DeletionTimestamp` is set | `finalizer(&api, NAME, object, \|event\| …)` | `with_finalizer(&api, NAME, object, \|work\| …)` |
//! | a conflict is an error of `Update` | a conflict is an error | the same; the key is retried, with a newer object |

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use skopos::{InformerFactory, InformerOptions};
use skopos_controller::finalizer::{Work, with_finalizer};
use skopos_controller::{Controller, ControllerOptions, ControllerService, Outcome};
use skopos_examples::Cluster;
use tokio_util::sync::CancellationToken;

const FINALIZER: &str = "example.com/registered";

/// The outside: names that are registered.
type Registry = Arc<Mutex<BTreeSet<String>>>;

fn controller(factory: &InformerFactory, registry: Registry) -> anyhow::Result<ControllerService<ConfigMap>> {
    let maps =
        factory.informer::<ConfigMap>(InformerOptions::namespace("default").labels("register=yes")?)?;
    let client = factory.transport().client("default");
    Ok(Controller::new(maps, ControllerOptions::named("registrar")).reconcile(move |context| {
        let (api, registry) = (Api::<ConfigMap>::default_namespaced(client.clone()), registry.clone());
        async move {
            let Some(object) = context.object() else { return Ok(Outcome::Done) };
            with_finalizer(&api, FINALIZER, object.decode()?, |work| async move {
                let mut registry = registry.lock();
                match work {
                    Work::Apply(map) => drop(registry.insert(map.name_any())),
                    Work::Cleanup(map) => drop(registry.remove(&map.name_any())),
                }
                println!("registered: {registry:?}");
                Ok(Outcome::Done)
            })
            .await
        }
    }))
}

fn map(name: &str) -> serde_json::Value {
    let metadata = serde_json::json!({"name": name, "namespace": "default", "labels": {"register": "yes"}});
    serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let stop = CancellationToken::new();
    let controller = controller(&cluster.factory, Registry::default())?;
    let script = async {
        if let Some(server) = &cluster.server {
            server.create(map("one"))?;
            server.create(map("two"))?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            server.delete("configmaps", Some("default"), "one")?;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        stop.cancel();
        anyhow::Ok(())
    };
    let (ended, script) = tokio::join!(controller.run(stop.clone()), script);
    ended?;
    script?;
    cluster.factory.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn deletion_during_downtime_is_cleaned_up_on_return() -> anyhow::Result<()> {
        let cluster = Cluster::connect().await?;
        let server = cluster.server.clone().expect("a test server");
        let registry = Registry::default();
        let has = async |wanted: &[&str]| {
            let reached = async {
                while !registry.lock().iter().eq(wanted) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), reached).await.expect("registered");
        };
        for round in 0..2 {
            let stop = CancellationToken::new();
            let mut running = tokio::task::JoinSet::new();
            running.spawn(controller(&cluster.factory, registry.clone())?.run(stop.clone()));
            if round == 0 {
                server.create(map("one"))?;
                server.create(map("two"))?;
                has(&["one", "two"]).await;
            } else {
                has(&["two"]).await;
            }
            stop.cancel();
            running.join_next().await.expect("it runs")??;
            if round == 0 {
                server.delete("configmaps", Some("default"), "one")?;
                assert!(server.get("configmaps", Some("default"), "one").is_ok(), "the finalizer keeps it");
            }
        }
        Ok(())
    }
}
