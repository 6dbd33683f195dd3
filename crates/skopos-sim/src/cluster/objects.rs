//! Writes, and the record of them as the true state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skopos_wire::{Limits, ObjectKey, RawObject};

use super::{Cluster, Moment, NAMESPACES};
use crate::history::{Change, Fact, STAMP_LABEL, Seen, Shape};

/// Kind of the simulated objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Resource {
    /// Namespaced, small objects.
    ConfigMaps,
    /// Namespaced objects with fields for selectors.
    Pods,
    /// Cluster-scoped objects.
    Nodes,
}

/// A write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// The resource.
    pub resource: Resource,
    /// Index of the namespace in [`NAMESPACES`].
    pub namespace: u8,
    /// Number of the object.
    pub name: u8,
    /// The operation.
    pub kind: WriteKind,
    /// Determines labels and fields.
    pub salt: u32,
}

/// Operation of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteKind {
    /// Creates or updates the object.
    Put,
    /// Deletes the object, if it exists.
    Delete,
    /// Deletes the object if it exists, and creates another one of the same name.
    Replace,
    /// Expires a lease that it shares with this many others: those that exist are deleted at one RV.
    Expire(u8),
}

impl Resource {
    /// Returns the plural name.
    pub fn plural(self) -> &'static str {
        match self {
            Self::ConfigMaps => "configmaps",
            Self::Pods => "pods",
            Self::Nodes => "nodes",
        }
    }

    /// Returns the kind.
    pub fn kind(self) -> &'static str {
        match self {
            Self::ConfigMaps => "ConfigMap",
            Self::Pods => "Pod",
            Self::Nodes => "Node",
        }
    }

    /// Returns whether its objects are namespaced.
    pub fn is_namespaced(self) -> bool {
        self != Self::Nodes
    }
}

impl Write {
    /// Returns the key of its object.
    pub fn key(&self) -> ObjectKey {
        let name = format!("o{}", self.name);
        match self.namespace() {
            Some(namespace) => ObjectKey::namespaced(namespace, &name),
            None => ObjectKey::cluster(&name),
        }
    }

    /// Returns the writes of the objects that share a lease with it, and itself: this many further ones of its kind by name and
    /// then by namespace, and, for every other write, as many of another kind.
    pub fn lease(&self, others: u8) -> Vec<Write> {
        let other = match self.resource {
            Resource::ConfigMaps => Resource::Pods,
            Resource::Pods | Resource::Nodes => Resource::ConfigMaps,
        };
        let resources = [Some(self.resource), self.salt.is_multiple_of(2).then_some(other)];
        let of_kind = |resource| {
            (0..=others).map(move |step| {
                let name = self.name.wrapping_add(step);
                let namespace = self.namespace.wrapping_add(name / NAMES);
                Write { resource, namespace, name: name % NAMES, ..self.clone() }
            })
        };
        resources.into_iter().flatten().flat_map(of_kind).collect()
    }

    fn namespace(&self) -> Option<&'static str> {
        let namespace = NAMESPACES[usize::from(self.namespace) % NAMESPACES.len()];
        self.resource.is_namespaced().then_some(namespace)
    }
}

/// Number of objects of a kind in a namespace.
pub const NAMES: u8 = 6;

impl Cluster {
    /// Executes a write and records it; returns the new RV if something was changed.
    pub fn write(&self, write: &Write) -> Option<u64> {
        let key = write.key();
        let there = self.server.get(write.resource.plural(), key.namespace(), key.name()).ok();
        match (write.kind, there) {
            (WriteKind::Put, there) => self.put(write, &key, there.as_ref()),
            (WriteKind::Delete, Some(there)) => self.delete(write, &key, &there),
            (WriteKind::Delete, None) => None,
            (WriteKind::Expire(others), _) => self.expire(&write.lease(others)),
            (WriteKind::Replace, there) => {
                if let Some(there) = there {
                    self.delete(write, &key, &there)?;
                }
                self.put(write, &key, None)
            }
        }
    }

    fn put(&self, write: &Write, key: &ObjectKey, there: Option<&Value>) -> Option<u64> {
        let stamp = self.recorder.next_stamp();
        let object = object(write, key, stamp, there);
        let stored = match there {
            Some(_) => self.server.update(object),
            None => self.server.create(object),
        };
        let stored = stored.unwrap_or_else(|status| panic!("the write {write:?} was refused: {status:?}"));
        let change = if there.is_some() { Change::Updated } else { Change::Created };
        self.committed(write.resource, &stored, change)
    }

    fn delete(&self, write: &Write, key: &ObjectKey, there: &Value) -> Option<u64> {
        let before = self.server.resource_version();
        let deleted = self.server.delete(write.resource.plural(), key.namespace(), key.name());
        deleted.unwrap_or_else(|status| panic!("the deletion of {key} was refused: {status:?}"));
        let now = self.server.resource_version();
        assert_eq!(now, before + 1, "a deletion is one write");
        let mut last = there.clone();
        last["metadata"]["resourceVersion"] = now.to_string().into();
        self.committed(write.resource, &last, Change::Deleted)
    }

    /// Deletes the objects of a lease. Each deletion is recorded separately, in the order in which watches get it.
    fn expire(&self, lease: &[Write]) -> Option<u64> {
        let keys: Vec<_> = lease.iter().map(|write| (write.resource, write.key())).collect();
        let places = keys.iter().map(|(resource, key)| (resource.plural(), key.namespace(), key.name()));
        let gone = self.server.expire(places);
        let gone = gone.unwrap_or_else(|status| panic!("the lease of {keys:?} did not expire: {status:?}"));
        for last in &gone {
            let (resource, _) = keys.iter().find(|(resource, _)| last["kind"] == resource.kind())?;
            self.committed(*resource, last, Change::Deleted)?;
        }
        if let Some(halfway) = self.halfway.filter(|_| gone.len() > 1) {
            let moments = self.moments.clone();
            self.tasks.spawn(async move {
                tokio::time::sleep(halfway).await;
                moments.note(Moment::Parted);
            });
        }
        (!gone.is_empty()).then(|| self.server.resource_version())
    }

    fn committed(&self, resource: Resource, object: &Value, change: Change) -> Option<u64> {
        let raw = RawObject::from_value(object, &Limits::default()).ok()?;
        let seen: Seen = self.recorder.seen(&raw);
        self.recorder.record(Fact::Committed {
            cluster: self.id,
            resource: self.recorder.resource(resource.plural()),
            object: seen,
            shape: self.recorder.shape(&shape(object)),
            change,
        });
        self.moments.note(Moment::Committed);
        Some(seen.rv)
    }
}

fn object(write: &Write, key: &ObjectKey, stamp: u32, there: Option<&Value>) -> Value {
    let mut random = fastrand::Rng::with_seed(u64::from(write.salt));
    let mut labels = BTreeMap::from([(STAMP_LABEL, stamp.to_string())]);
    labels.insert("app", random.choice(["web", "db", "job"]).unwrap_or("web").to_owned());
    if random.bool() {
        labels.insert("tier", random.choice(["front", "back"]).unwrap_or("front").to_owned());
    }
    let mut metadata = json!({"name": key.name(), "labels": labels});
    if let Some(namespace) = key.namespace() {
        metadata["namespace"] = namespace.into();
    }
    let mut object = json!({"apiVersion": "v1", "kind": write.resource.kind(), "metadata": metadata});
    match write.resource {
        Resource::ConfigMaps => object["data"] = json!({"filler": "x".repeat(random.usize(0..200))}),
        Resource::Pods => {
            // The node of a pod does not change.
            let node = format!("n{}", random.u8(1..=3));
            let spec = there.map(|there| there["spec"].clone());
            object["spec"] = spec.unwrap_or_else(
                || json!({"nodeName": node, "containers": [{"name": "main", "image": "example.test/main:1"}]}),
            );
        }
        Resource::Nodes => object["spec"] = json!({"unschedulable": random.bool()}),
    }
    object
}

/// Returns the labels and fields of an object that selectors can match.
fn shape(object: &Value) -> Shape {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    let labels = labels
        .filter(|(name, _)| *name != STAMP_LABEL)
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect();
    let field = |path: &str, value: &Value| Some((path.to_owned(), value.as_str()?.to_owned()));
    let fields = [
        field("spec.nodeName", &object["spec"]["nodeName"]),
        field("status.phase", &object["status"]["phase"]),
    ];
    Shape { labels, fields: fields.into_iter().flatten().collect() }
}
