//! Controller that starts and stops the API servers as events of the host demand.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::registry::{InstanceRegistry, Options};
use super::syncer::{ClusterId, Instance};
use crate::server::TestServer;
use crate::storage::{ReadScope, ResourceKey, Stored, Tail};

/// Applications whose objects decide whether a virtual cluster is up.
const APPS: [&str; 2] = ["vcluster", "vcluster-etcd"];

/// Number of events read in one batch, after which other tasks get a turn.
const BATCH_SIZE: usize = 256;

/// Controller that keeps the virtual clusters in the state of their workloads in the host.
pub(super) struct Controller<'a> {
    pub(super) host: &'a TestServer,
    pub(super) registry: &'a InstanceRegistry,
    pub(super) options: &'a Options,
}

impl Controller<'_> {
    /// Runs forever.
    pub(super) async fn run(&self) {
        let resources =
            [("apps", "statefulsets"), ("apps", "deployments"), ("", "pods"), ("", "persistentvolumeclaims")];
        let mut cursors: BTreeMap<ResourceKey, u64> =
            resources.iter().map(|(group, plural)| (ResourceKey::new(group, plural), 0)).collect();
        loop {
            let changed = self.host.state().activity.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (touched, more) = self.read_events(&mut cursors);
            for id in touched {
                self.reconcile(&id).await;
            }
            if !more {
                changed.await;
            }
        }
    }

    /// Returns the clusters whose objects changed since the last call, and whether there may be more events.
    fn read_events(&self, cursors: &mut BTreeMap<ResourceKey, u64>) -> (BTreeSet<ClusterId>, bool) {
        let storage = &self.host.state().storage;
        let (mut touched, mut more) = (BTreeSet::new(), false);
        for (key, cursor) in cursors {
            match storage.events(key, *cursor, BATCH_SIZE) {
                Tail::Events { events, through } if *cursor > 0 && *cursor <= storage.revision() => {
                    more |= events.len() == BATCH_SIZE;
                    *cursor = through;
                    touched.extend(events.iter().filter_map(|event| id_of(event.object())));
                }
                // At the start, too far behind, or after a rollback: check everything.
                _ => {
                    let (objects, revision) = storage.list(key, ReadScope::default());
                    *cursor = revision;
                    touched.extend(objects.iter().filter_map(|object| id_of(object)));
                    touched.extend(self.registry.ids());
                }
            }
        }
        (touched, more)
    }

    async fn reconcile(&self, id: &ClusterId) {
        let workload = self.workload(id, &id.name, "vcluster");
        if let Some(workload) = &workload {
            self.ensure_claims(id, workload);
        }
        let up = self.has_pod(id, "vcluster") && self.etcd_runs(id);
        match self.registry.instance(id) {
            None if up => self.start_instance(id).await,
            None => {}
            Some(instance) if workload.is_none() && !self.has_data(id) => self.end(id, instance).await,
            Some(instance) => self.set_running(id, instance, up).await,
        }
    }

    async fn start_instance(&self, id: &ClusterId) {
        match Instance::start(self.host, id, self.options).await {
            Ok(instance) => {
                self.registry.put(id.clone(), instance.clone(), true);
                self.publish(id, &instance);
            }
            Err(error) => tracing::warn!(%error, ?id, "a virtual cluster does not start"),
        }
    }

    async fn set_running(&self, id: &ClusterId, instance: Instance, up: bool) {
        let was_up = self.registry.state(id) == super::VirtualState::Up;
        match (was_up, up) {
            (false, true) => match instance.server.resume().await {
                Ok(()) => {
                    self.registry.set_running(id, true);
                    self.publish(id, &instance);
                }
                Err(error) => tracing::warn!(%error, ?id, "a virtual cluster does not come back"),
            },
            (true, false) => {
                instance.server.pause().await;
                self.registry.set_running(id, false);
            }
            _ => {}
        }
    }

    async fn end(&self, id: &ClusterId, instance: Instance) {
        instance.server.pause().await;
        self.registry.remove(id);
        instance.server.stop().await;
    }

    fn publish(&self, id: &ClusterId, instance: &Instance) {
        if let Err(status) = instance.publish(self.host, id, self.options) {
            tracing::warn!(%status, ?id, "the Secret of a virtual cluster is refused");
        }
    }

    /// Returns the StatefulSet or Deployment of that name and application.
    fn workload(&self, id: &ClusterId, name: &str, app: &str) -> Option<Value> {
        let get = |resource| self.host.get(resource, Some(&id.namespace), name).ok();
        let found = get("statefulsets").or_else(|| get("deployments"))?;
        let labels = &found["metadata"]["labels"];
        (labels["app"] == app && labels["release"] == id.name.as_str()).then_some(found)
    }

    /// Returns whether its containers run: on a node, not being deleted, and not waiting for anything.
    fn has_pod(&self, id: &ClusterId, app: &str) -> bool {
        let (pods, _) = self
            .host
            .state()
            .storage
            .list(&ResourceKey::new("", "pods"), ReadScope::new(Some(&id.namespace)));
        let mut own = pods.iter().filter(|pod| has_app(pod, app) && pod.label("release") == Some(&id.name));
        own.any(|pod| is_running(&pod.to_value()))
    }

    fn etcd_runs(&self, id: &ClusterId) -> bool {
        let deployed = self.workload(id, &format!("{}-etcd", id.name), "vcluster-etcd").is_some();
        !deployed || self.has_pod(id, "vcluster-etcd")
    }

    /// Creates the claims of a StatefulSet's templates for each pod. They stay after its deletion; the first one holds the data.
    fn ensure_claims(&self, id: &ClusterId, set: &Value) {
        let templates = set["spec"]["volumeClaimTemplates"].as_array();
        let replicas = set["spec"]["replicas"].as_u64().unwrap_or(1);
        for (template, number) in
            templates.into_iter().flatten().flat_map(|t| (0..replicas).map(move |n| (t, n)))
        {
            let volume = template["metadata"]["name"].as_str().unwrap_or_default();
            let name = format!("{volume}-{}-{number}", id.name);
            if self.host.get("persistentvolumeclaims", Some(&id.namespace), &name).is_ok() {
                continue;
            }
            let labels = &set["spec"]["selector"]["matchLabels"];
            let claim = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": id.namespace, "labels": labels},
                "spec": template["spec"],
            });
            if let Err(status) = self.host.create(claim) {
                tracing::debug!(%status, ?id, "no claim");
            }
        }
    }

    fn has_data(&self, id: &ClusterId) -> bool {
        let claim = format!("data-{}-0", id.name);
        self.host.get("persistentvolumeclaims", Some(&id.namespace), &claim).is_ok()
    }
}

fn has_app(object: &Stored, app: &str) -> bool {
    object.label("app") == Some(app)
}

/// Returns the ID of an object's cluster, by its labels.
fn id_of(object: &Stored) -> Option<ClusterId> {
    let ours = APPS.iter().any(|app| has_app(object, app));
    let (namespace, name) = object.namespace().zip(object.label("release")).filter(|_| ours)?;
    Some(ClusterId { namespace: namespace.to_owned(), name: name.to_owned() })
}

fn is_running(pod: &Value) -> bool {
    let status = &pod["status"];
    let waiting = || {
        let containers = status["containerStatuses"].as_array();
        containers.is_some_and(|all| all.iter().any(|container| container["state"]["waiting"].is_object()))
    };
    let placed = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let going = !pod["metadata"]["deletionTimestamp"].is_null();
    placed && !going && matches!(status["phase"].as_str(), Some("Pending" | "Running")) && !waiting()
}
