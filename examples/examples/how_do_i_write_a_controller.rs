//! How do I write a controller? A ConfigMap for each Namespace, here.
//!
//! ```console
//! cargo run -p skopos-examples --example how_do_i_write_a_controller
//! ```
//!
//! | in controller-runtime | in kube-rs | here |
//! |---|---|---|
//! | `For(&Namespace{}).Owns(&ConfigMap{})` | `Controller::new(namespaces, …).owns(maps, …)` | `Controller::new(namespaces, …).owns(maps)` |
//! | `r.Get(ctx, req.NamespacedName, &ns)`; not found: return | the object is an argument, and a deletion is not told | `context.object()`, `None` after a deletion |
//! | `SetControllerReference` | `namespace.controller_owner_ref(&())` | the same as kube-rs |
//! | `r.Patch(ctx, obj, client.Apply, client.FieldOwner(…), client.ForceOwnership)` | `api.patch(…, &PatchParams::apply(…).force(), …)` | `context.apply(&api, &map)`, and the next reconciliation sees it |
//! | `ctrl.Result{RequeueAfter: d}`, an error, `reconcile.TerminalError` | `Action::requeue(d)`, `error_policy` | `Outcome::RequeueAfter(d)`, an error, `ReconcileError::terminal` |

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ObjectMeta};
use kube::{Client, Resource};
use skopos::{InformerFactory, InformerOptions};
use skopos_controller::{Context, Controller, ControllerOptions, ControllerService, Outcome, ReconcileError};
use skopos_examples::Cluster;
use tokio_util::sync::CancellationToken;

/// The name of the ConfigMap in each Namespace.
const NAME: &str = "about-this-namespace";

fn controller(factory: &InformerFactory) -> anyhow::Result<ControllerService<Namespace>> {
    let namespaces = factory.informer::<Namespace>(InformerOptions::all())?;
    let maps = factory.informer::<ConfigMap>(InformerOptions::all())?;
    let client = factory.transport().client("default");
    Ok(Controller::new(namespaces, ControllerOptions::named("about-namespaces"))
        .owns(maps)
        .reconcile(move |context| reconcile(client.clone(), context)))
}

async fn reconcile(client: Client, context: Context<Namespace>) -> Result<Outcome, ReconcileError> {
    // Its ConfigMap goes with it: the server deletes what it owned.
    let Some(object) = context.object() else { return Ok(Outcome::Done) };
    let namespace: Namespace = object.decode()?;
    if namespace.metadata.deletion_timestamp.is_some() {
        return Ok(Outcome::Done);
    }
    let labels = namespace.metadata.labels.clone().unwrap_or_default().len().to_string();
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            namespace: namespace.metadata.name.clone(),
            owner_references: namespace.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some([("labels".to_owned(), labels)].into()),
        ..ConfigMap::default()
    };
    let up_to_date = context
        .children::<ConfigMap>()
        .into_iter()
        .any(|child| child.name() == NAME && child.decode().is_ok_and(|child| child.data == map.data));
    if !up_to_date {
        context.apply(&Api::namespaced(client, object.name()), &map).await?;
        println!("{}: written, on a view that was at most {:?} old", object.name(), context.age());
    }
    Ok(Outcome::Done)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let stop = CancellationToken::new();
    let controller = controller(&cluster.factory)?;
    let handle = controller.handle();
    let some_seconds = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        println!("{}: {} reconciliations", handle.status(), handle.stats().total());
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(controller.run(stop.clone()), some_seconds);
    ended?;
    cluster.factory.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn each_namespace_has_a_map_which_is_mended() -> anyhow::Result<()> {
        let cluster = Cluster::connect().await?;
        let server = cluster.server.clone().expect("a test server");
        let stop = CancellationToken::new();
        let mut running = tokio::task::JoinSet::new();
        running.spawn(controller(&cluster.factory)?.run(stop.clone()));
        let labels = |namespace: &str| {
            let map = server.get("configmaps", Some(namespace), NAME).ok()?;
            map["data"]["labels"].as_str().map(str::to_owned)
        };
        let becomes = async |namespace: &str, wanted: &str| {
            let reached = async {
                while labels(namespace).as_deref() != Some(wanted) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), reached).await.expect(wanted);
        };
        let namespace = |labels| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new", "labels": labels}});
        server.create(namespace(json!({"kubernetes.io/metadata.name": "new"})))?;
        becomes("new", "1").await;
        server.delete("configmaps", Some("new"), NAME)?;
        becomes("new", "1").await;
        server.update(namespace(json!({"kubernetes.io/metadata.name": "new", "a": "b"})))?;
        becomes("new", "2").await;
        stop.cancel();
        running.join_next().await.expect("it runs")??;
        Ok(())
    }
}
