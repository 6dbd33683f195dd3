//! Control loop: events become work, work becomes writes, writes become events, until nothing changes any more.

use std::collections::BTreeMap;

use serde_json::Value;
use skopos_serve::EventType;
use tokio::time::{Instant, sleep_until};

use super::client::{ControllerClient, controller_of, json_contains};
use super::{deployment, endpoint_slice, garbage, job, node, pod, replica_set, stateful_set};
use crate::state::ServerState;
use crate::storage::{ReadScope, ResourceKey, Stored, StoredEvent, Tail};

/// Work item: the key of an object to reconcile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WorkItem {
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
const BATCH_SIZE: usize = 256;

/// Runs the controllers forever.
pub(super) async fn run(state: &ServerState) {
    let client = ControllerClient { state };
    node::create(client);
    let mut cursors: BTreeMap<ResourceKey, u64> = BTreeMap::new();
    let mut queue: BTreeMap<WorkItem, Instant> = BTreeMap::new();
    loop {
        let changed = state.activity.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let mut more = read_events(client, &mut cursors, &mut queue);
        let now = Instant::now();
        let due: Vec<WorkItem> =
            queue.iter().filter(|(_, at)| **at <= now).map(|(work, _)| work.clone()).collect();
        more |= !due.is_empty();
        for work in due {
            queue.remove(&work);
            if let Some(retry_at) = process(client, &work) {
                queue.entry(work).or_insert(retry_at);
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
fn process(client: ControllerClient<'_>, work: &WorkItem) -> Option<Instant> {
    match work {
        WorkItem::Deployment(key) => deployment::reconcile(client, key),
        WorkItem::ReplicaSet(key) => replica_set::reconcile(client, key),
        WorkItem::StatefulSet(key) => stateful_set::reconcile(client, key),
        WorkItem::Job(key) => job::reconcile(client, key),
        WorkItem::Service(key) => endpoint_slice::reconcile(client, key),
        WorkItem::Pod(key) => return pod::advance(client, key),
        WorkItem::Dependents { uid, namespace } => garbage::collect(client, uid, namespace.as_deref()),
        WorkItem::Owner { resource, key } => return garbage::process_owner(client, resource, key),
    }
    None
}

/// Reads the events since the last call; returns whether there may be more.
fn read_events(
    client: ControllerClient<'_>,
    cursors: &mut BTreeMap<ResourceKey, u64>,
    queue: &mut BTreeMap<WorkItem, Instant>,
) -> bool {
    let storage = &client.state.storage;
    let now = Instant::now();
    let mut more = false;
    for resource in client.state.registry.all().iter() {
        let key = ResourceKey::from(&**resource);
        let known = cursors.get(&key).copied();
        let went_back = known.is_some_and(|known| known > storage.revision());
        let tail = known.filter(|_| !went_back).map(|known| storage.events(&key, known, BATCH_SIZE));
        match tail {
            Some(Tail::Events { events, through }) => {
                more |= events.len() == BATCH_SIZE;
                cursors.insert(key.clone(), through);
                for event in events {
                    enqueue_event(&key, &event, queue);
                    let services = services_of(client, &key, &event).into_iter();
                    queue.extend(services.map(|service| (WorkItem::Service(service), now)));
                }
            }
            // At the start, or too far behind: check everything.
            Some(Tail::Lost) | None => {
                let (objects, revision) = storage.list(&key, ReadScope::default());
                cursors.insert(key.clone(), revision);
                if is_reconciled(&key) {
                    for object in objects.iter().filter(|object| !is_steady(object)) {
                        enqueue_object(&key, object.key(), &object.to_value(), queue);
                    }
                }
            }
        }
    }
    more
}

/// Returns whether the object is a pod in its steady state; there may be very many of them.
fn is_steady(object: &Stored) -> bool {
    json_contains(object.json_slice(), "\"phase\":\"Running\"")
        && json_contains(object.json_slice(), "\"restartPolicy\":\"Always\"")
}

/// Returns the Services whose slices an event may affect: those of a pod, or of a slice that a client changed or deleted.
fn services_of(client: ControllerClient<'_>, key: &ResourceKey, event: &StoredEvent) -> Vec<String> {
    match (&*key.group, &*key.plural) {
        ("", "pods") => endpoint_slice::services_of(client, event.object()),
        ("discovery.k8s.io", "endpointslices") => {
            endpoint_slice::service_of(event.object()).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn is_reconciled(key: &ResourceKey) -> bool {
    matches!((&*key.group, &*key.plural), ("", "pods" | "services") | ("apps" | "batch", _))
}

fn enqueue_event(key: &ResourceKey, event: &StoredEvent, queue: &mut BTreeMap<WorkItem, Instant>) {
    let object = event.object();
    if event.kind() == EventType::Deleted {
        // Pods and similar objects own nothing.
        if !matches!(&*key.plural, "pods" | "events" | "leases" | "endpoints" | "endpointslices") {
            let work = WorkItem::Dependents {
                uid: object.uid().to_owned(),
                namespace: object.namespace().map(str::to_owned),
            };
            queue.insert(work, Instant::now());
        }
        if is_reconciled(key) {
            enqueue_owner(&object.to_value(), queue);
        }
        return;
    }
    if is_reconciled(key) {
        enqueue_object(key, object.key(), &object.to_value(), queue);
    } else if !json_contains(object.json_slice(), "\"deletionTimestamp\"") {
        return;
    }
    if json_contains(object.json_slice(), "\"foregroundDeletion\"")
        || json_contains(object.json_slice(), "\"orphan\"")
    {
        let resource = (key.group.to_string(), key.plural.to_string());
        queue.insert(WorkItem::Owner { resource, key: object.key().to_string() }, Instant::now());
    }
}

fn enqueue_object(key: &ResourceKey, name: &str, object: &Value, queue: &mut BTreeMap<WorkItem, Instant>) {
    let name = name.to_owned();
    let work = match (&*key.group, &*key.plural) {
        ("", "pods") => WorkItem::Pod(name),
        ("", "services") => WorkItem::Service(name),
        ("apps", "deployments") => WorkItem::Deployment(name),
        ("apps", "replicasets") => WorkItem::ReplicaSet(name),
        ("apps", "statefulsets") => WorkItem::StatefulSet(name),
        ("batch", "jobs") => WorkItem::Job(name),
        _ => return,
    };
    queue.insert(work, Instant::now());
    enqueue_owner(object, queue);
}

fn enqueue_owner(object: &Value, queue: &mut BTreeMap<WorkItem, Instant>) {
    let Some(owner) = controller_of(object) else { return };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let key = format!("{}/{}", text(&object["metadata"]["namespace"]), text(&owner["name"]));
    let work = match owner["kind"].as_str() {
        Some("Deployment") => WorkItem::Deployment(key),
        Some("ReplicaSet") => WorkItem::ReplicaSet(key),
        Some("StatefulSet") => WorkItem::StatefulSet(key),
        Some("Job") => WorkItem::Job(key),
        _ => return,
    };
    queue.insert(work, Instant::now());
}
