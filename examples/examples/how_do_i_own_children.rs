//! How do I keep as many children as an object asks for, without creating one too many? And how do I tell people?
//!
//! ```console
//! cargo run -p skopos-examples --example how_do_i_own_children
//! ```
//!
//! A ConfigMap says how many Secrets it wants. They get generated names, so only the view tells how many there are: a controller that does not see
//! its own last write creates too many.
//!
//! | in controller-runtime | in kube-rs | here |
//! |---|---|---|
//! | `List` with an index on the owner, and expectations, by hand, as in the ReplicaSet controller | a reflector's store, and nothing against a stale one | `context.children::<Secret>()`, `context.wrote(&secret)` |
//! | `mgr.GetEventRecorderFor` | `kube::runtime::events::Recorder` | the same as kube-rs |

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use kube::{Client, Resource};
use kube_runtime::events::{Event, EventType, Recorder, Reporter};
use skopos::{InformerFactory, InformerOptions};
use skopos_controller::{Context, Controller, ControllerOptions, ControllerService, Outcome, ReconcileError};
use skopos_examples::Cluster;
use tokio_util::sync::CancellationToken;

fn controller(factory: &InformerFactory) -> anyhow::Result<ControllerService<ConfigMap>> {
    let maps = factory.informer::<ConfigMap>(InformerOptions::all().labels("secrets=yes")?)?;
    let secrets = factory.informer::<Secret>(InformerOptions::all())?;
    let client = factory.transport().client("default");
    let recorder = Recorder::new(client.clone(), Reporter::from("secret-maker"));
    Ok(Controller::new(maps, ControllerOptions::named("secret-maker").workers(4))
        .owns(secrets)
        .reconcile(move |context| reconcile(client.clone(), recorder.clone(), context)))
}

async fn reconcile(
    client: Client,
    recorder: Recorder,
    context: Context<ConfigMap>,
) -> Result<Outcome, ReconcileError> {
    let Some(object) = context.object() else { return Ok(Outcome::Done) };
    let owner: ConfigMap = object.decode()?;
    let wanted = owner.data.as_ref().and_then(|data| data.get("secrets")).map_or("0", String::as_str);
    // Another attempt would find the same text.
    let wanted: usize = wanted.parse().map_err(ReconcileError::terminal)?;
    let api = Api::<Secret>::namespaced(client, object.namespace().unwrap_or("default"));
    let children = context.children::<Secret>();
    let name = object.name();
    for _ in children.len()..wanted {
        let metadata = ObjectMeta {
            generate_name: Some(format!("{name}-")),
            owner_references: owner.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        };
        let secret = Secret { metadata, ..Secret::default() };
        context.wrote(&api.create(&PostParams::default(), &secret).await?)?;
    }
    for child in children.iter().skip(wanted) {
        api.delete(child.name(), &DeleteParams::default()).await?;
    }
    if children.len() != wanted {
        let event = Event {
            type_: EventType::Normal,
            reason: "Scaled".into(),
            note: Some(format!("from {} to {wanted} secrets", children.len())),
            action: "Scaling".into(),
            secondary: None,
        };
        recorder.publish(&event, &owner.object_ref(&())).await?;
        println!("{name}: from {} to {wanted} secrets", children.len());
    }
    Ok(Outcome::Done)
}

fn map(secrets: usize) -> serde_json::Value {
    let metadata = serde_json::json!({"name": "one", "namespace": "default", "labels": {"secrets": "yes"}});
    let data = serde_json::json!({"secrets": secrets.to_string()});
    serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let stop = CancellationToken::new();
    let controller = controller(&cluster.factory)?;
    let script = async {
        if let Some(server) = &cluster.server {
            server.create(map(5))?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            server.update(map(2))?;
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
    use skopos_testserver::{Fault, Lag, Match};

    use super::*;

    #[tokio::test]
    async fn lagging_watch_creates_no_extra_child() -> anyhow::Result<()> {
        let cluster = Cluster::connect().await?;
        let server = cluster.server.clone().expect("a test server");
        let _late =
            server.faults().inject(Fault::Lag(Lag::By(Duration::from_millis(300)))).on(Match::watch());
        let stop = CancellationToken::new();
        let mut running = tokio::task::JoinSet::new();
        running.spawn(controller(&cluster.factory)?.run(stop.clone()));
        server.create(map(3))?;
        let count = || server.list("secrets", Some("default")).map_or(0, |(secrets, _)| secrets.len());
        let becomes = async |wanted: usize| {
            let reached = async {
                while count() != wanted {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), reached).await.expect("as many as wanted");
        };
        becomes(3).await;
        for wanted in [5, 6, 7] {
            server.update(map(wanted))?;
            becomes(wanted).await;
        }
        server.update(map(1))?;
        becomes(1).await;
        stop.cancel();
        running.join_next().await.expect("it runs")??;
        let requests = server.requests();
        let created = requests
            .iter()
            .filter(|request| request.verb == "create" && request.resource.as_deref() == Some("secrets"));
        assert_eq!(created.count(), 7, "never one too many");
        Ok(())
    }
}
