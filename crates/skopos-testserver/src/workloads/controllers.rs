//! Control loop: events become work, work becomes writes, writes become events, until nothing changes any more.

use std::collections::BTreeMap;

use serde_json::Value;
use skopos_serve::EventType;
use tokio::time::{Instant, sleep_until};

use super::cluster::{Cluster, contains, controller_of};
use super::{deployment, endpoint_slice, garbage, job, node, pod, replica_set, stateful_set};
use crate::state::ServerState;
use crate::storage::{Change, ResourceKey, Scope, Stored, Tail};

/// Work item: the key of an object to reconcile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    Deployment(String),
    ReplicaSet(String),
    StatefulSet(String),
    Job(String),
    Pod(String),
    /// The EndpointSlices of a Service.
    Service(String),
    /// The dependents of an object that is deleted or being deleted, by its UID.
    Dependents {
        uid: String,
        namespace: Option<String>,
    },
    /// An object that is deleted after its dependents, or orphans them.
    Owner {
        resource: (String, String),
        key: String,
    },
}

/// Number of events read in one batch, after which other tasks get a turn.
const BATCH: usize = 256;

/// Runs the controllers forever.
pub(super) async fn run(state: &ServerState) {
    let cluster = Cluster { state };
    node::create(cluster);
    let mut cursors: BTreeMap<ResourceKey, u64> = BTreeMap::new();
    let mut queue: BTreeMap<Work, Instant> = BTreeMap::new();
    loop {
        let changed = state.activity.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let mut more = read_events(cluster, &mut cursors, &mut queue);
        let now = Instant::now();
        let due: Vec<Work> =
            queue.iter().filter(|(_, at)| **at <= now).map(|(work, _)| work.clone()).collect();
        more |= !due.is_empty();
        for work in due {
            queue.remove(&work);
            if let Some(again) = perform(cluster, &work) {
                queue.entry(work).or_insert(again);
            }
        }
        if more {
            tokio::task::yield_now().await;
            continue;
        }
        match queue.values().min() {
            Some(at) => tokio::select! {
                biased;
                () = changed => {}
                () = sleep_until(*at) => {}
            },
            None => changed.await,
        }
    }
}

/// Processes a work item; returns when to process it again, if known.
fn perform(cluster: Cluster<'_>, work: &Work) -> Option<Instant> {
    match work {
        Work::Deployment(key) => deployment::reconcile(cluster, key),
        Work::ReplicaSet(key) => replica_set::reconcile(cluster, key),
        Work::StatefulSet(key) => stateful_set::reconcile(cluster, key),
        Work::Job(key) => job::reconcile(cluster, key),
        Work::Service(key) => endpoint_slice::reconcile(cluster, key),
        Work::Pod(key) => return pod::advance(cluster, key),
        Work::Dependents { uid, namespace } => garbage::collect(cluster, uid, namespace.as_deref()),
        Work::Owner { resource, key } => return garbage::settle(cluster, resource, key),
    }
    None
}

/// Reads the events since the last call; returns whether there may be more.
fn read_events(
    cluster: Cluster<'_>,
    cursors: &mut BTreeMap<ResourceKey, u64>,
    queue: &mut BTreeMap<Work, Instant>,
) -> bool {
    let storage = &cluster.state.storage;
    let now = Instant::now();
    let mut more = false;
    for resource in cluster.state.registry.all().iter() {
        let key = ResourceKey::from(&**resource);
        let known = cursors.get(&key).copied();
        let went_back = known.is_some_and(|known| known > storage.revision());
        let tail = known.filter(|_| !went_back).map(|known| storage.events(&key, known, BATCH));
        match tail {
            Some(Tail::Events { events, through }) => {
                more |= events.len() == BATCH;
                cursors.insert(key.clone(), through);
                for event in events {
                    note_event(&key, &event, queue);
                    let services = services_of(cluster, &key, &event).into_iter();
                    queue.extend(services.map(|service| (Work::Service(service), now)));
                }
            }
            // At the start, or too far behind: check everything.
            Some(Tail::Lost) | None => {
                let (objects, revision) = storage.list(&key, Scope::default());
                cursors.insert(key.clone(), revision);
                if is_worked_on(&key) {
                    for object in objects.iter().filter(|object| !is_at_rest(object)) {
                        note_object(&key, object.key(), &object.to_value(), queue);
                    }
                }
            }
        }
    }
    more
}

/// Returns whether the object is a pod in its steady state; there may be very many of them.
fn is_at_rest(object: &Stored) -> bool {
    contains(object.json_slice(), "\"phase\":\"Running\"")
        && contains(object.json_slice(), "\"restartPolicy\":\"Always\"")
}

/// Returns the Services whose slices an event may affect: those of a pod, or of a slice that a client changed or deleted.
fn services_of(cluster: Cluster<'_>, key: &ResourceKey, event: &Change) -> Vec<String> {
    match (&*key.group, &*key.plural) {
        ("", "pods") => endpoint_slice::services_of(cluster, event.object()),
        ("discovery.k8s.io", "endpointslices") => {
            endpoint_slice::service_of(event.object()).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn is_worked_on(key: &ResourceKey) -> bool {
    matches!((&*key.group, &*key.plural), ("", "pods" | "services") | ("apps" | "batch", _))
}

fn note_event(key: &ResourceKey, event: &Change, queue: &mut BTreeMap<Work, Instant>) {
    let object = event.object();
    if event.kind() == EventType::Deleted {
        // Pods and similar objects own nothing.
        if !matches!(&*key.plural, "pods" | "events" | "leases" | "endpoints" | "endpointslices") {
            let work = Work::Dependents {
                uid: object.uid().to_owned(),
                namespace: object.namespace().map(str::to_owned),
            };
            queue.insert(work, Instant::now());
        }
        if is_worked_on(key) {
            note_owner(&object.to_value(), queue);
        }
        return;
    }
    if is_worked_on(key) {
        note_object(key, object.key(), &object.to_value(), queue);
    } else if !contains(object.json_slice(), "\"deletionTimestamp\"") {
        return;
    }
    if contains(object.json_slice(), "\"foregroundDeletion\"") || contains(object.json_slice(), "\"orphan\"")
    {
        let resource = (key.group.to_string(), key.plural.to_string());
        queue.insert(Work::Owner { resource, key: object.key().to_string() }, Instant::now());
    }
}

fn note_object(key: &ResourceKey, name: &str, object: &Value, queue: &mut BTreeMap<Work, Instant>) {
    let name = name.to_owned();
    let work = match (&*key.group, &*key.plural) {
        ("", "pods") => Work::Pod(name),
        ("", "services") => Work::Service(name),
        ("apps", "deployments") => Work::Deployment(name),
        ("apps", "replicasets") => Work::ReplicaSet(name),
        ("apps", "statefulsets") => Work::StatefulSet(name),
        ("batch", "jobs") => Work::Job(name),
        _ => return,
    };
    queue.insert(work, Instant::now());
    note_owner(object, queue);
}

fn note_owner(object: &Value, queue: &mut BTreeMap<Work, Instant>) {
    let Some(owner) = controller_of(object) else { return };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let key = format!("{}/{}", text(&object["metadata"]["namespace"]), text(&owner["name"]));
    let work = match owner["kind"].as_str() {
        Some("Deployment") => Work::Deployment(key),
        Some("ReplicaSet") => Work::ReplicaSet(key),
        Some("StatefulSet") => Work::StatefulSet(key),
        Some("Job") => Work::Job(key),
        _ => return,
    };
    queue.insert(work, Instant::now());
}
