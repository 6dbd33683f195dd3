//! Services and their slices, for the plans with a notifier, and the record of them as the true state.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skopos_testserver::{EventType, WriteRecord};
use skopos_wire::{Limits, ObjectKey, RawObject};

use super::{Cluster, NAMESPACES};
use crate::history::{Address, AtOutside, ClusterId, Fact, Ready, Recorder, STAMP_LABEL};

/// A change of a Service and its slices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceWrite {
    /// The number of the Service.
    pub service: u8,
    /// The change.
    pub what: ServiceChange,
}

/// A change of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceChange {
    /// It gets these endpoints, each by its number; it is created if it does not exist.
    Endpoints {
        /// Ready endpoints.
        ready: Vec<u8>,
        /// Endpoints that fail their checks.
        failing: Vec<u8>,
        /// Endpoints that are terminating.
        ending: Vec<u8>,
        /// True if they are in two slices.
        split: bool,
    },
    /// Its content changes, and its endpoints do not.
    Touch,
    /// The notifier's source no longer selects it.
    Deselect,
    /// The notifier's source selects it again.
    Select,
    /// It is deleted with its slices.
    Delete,
    /// It is deleted, and another one of the same name is created with the same endpoints.
    Replace,
}

/// Number of Services.
pub const SERVICES: u8 = 6;
/// Number of endpoints of each.
pub const ENDPOINTS: u8 = 5;
/// The namespace of the Lease, which every cluster has. Its uid is the cluster's identity.
pub const SYSTEM: &str = "kube-system";

/// The label that the notifier's source selects.
pub const SELECTED: &str = "outside";
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Returns the key of a Service.
pub fn service_key(service: u8) -> ObjectKey {
    let namespace = NAMESPACES[usize::from(service) % NAMESPACES.len()];
    ObjectKey::namespaced(namespace, format!("s{service}"))
}

/// Returns the address of an endpoint.
pub fn address(service: u8, endpoint: u8) -> Address {
    Address(u32::from_be_bytes([10, 0, service, endpoint]))
}

impl Cluster {
    /// Changes a Service and its slices. The server's observer records the writes.
    pub fn write_service(&self, write: &ServiceWrite) {
        let key = service_key(write.service);
        let there = self.server.get("services", key.namespace(), key.name()).ok();
        match &write.what {
            ServiceChange::Endpoints { ready, failing, ending, split } => {
                let service = match there {
                    Some(service) => service,
                    None => self.store("services", service_object(&key)),
                };
                let of = |numbers: &[u8], condition| {
                    let number = |number: &u8| (address(write.service, *number), condition);
                    numbers.iter().map(number).collect::<Vec<_>>()
                };
                let all = [of(ready, Ready::Yes), of(failing, Ready::No), of(ending, Ready::Ending)].concat();
                let (first, second) = all.split_at(if *split { all.len() / 2 } else { all.len() });
                for (number, part) in [first, second].into_iter().enumerate() {
                    self.store("endpointslices", slice_object(&service, number, part));
                }
            }
            ServiceChange::Touch => {
                if let Some(mut service) = there {
                    service["metadata"]["labels"][STAMP_LABEL] =
                        self.recorder.next_stamp().to_string().into();
                    self.store("services", service);
                }
            }
            ServiceChange::Deselect => self.label(&key, false),
            ServiceChange::Select => self.label(&key, true),
            ServiceChange::Delete => drop(self.delete_service(&key)),
            ServiceChange::Replace => {
                let slices = self.delete_service(&key);
                if slices.is_empty() {
                    return;
                }
                let service = self.store("services", service_object(&key));
                for mut slice in slices {
                    let metadata = json!({
                        "namespace": slice["metadata"]["namespace"], "name": slice["metadata"]["name"],
                        "labels": {SELECTED: "true", SERVICE_NAME: key.name()}, "ownerReferences": [owner(&service)],
                    });
                    slice["metadata"] = metadata;
                    self.store("endpointslices", slice);
                }
            }
        }
    }

    fn store(&self, resource: &str, object: Value) -> Value {
        let (namespace, name) =
            (object["metadata"]["namespace"].as_str(), object["metadata"]["name"].as_str());
        let there = self.server.get(resource, namespace, name.unwrap_or_default()).ok();
        let put = match there {
            // An update without a change is not written.
            Some(there) if is_alike(&there, &object) => return there,
            Some(_) => self.server.update(object),
            None => self.server.create(object),
        };
        put.unwrap_or_else(|status| panic!("a write of {resource} was refused: {status:?}"))
    }

    /// Returns the slices of a Service.
    fn slices(&self, key: &ObjectKey) -> Vec<Value> {
        let names = (0..2).map(|number| slice_name(key.name(), number));
        names.filter_map(|name| self.server.get("endpointslices", key.namespace(), &name).ok()).collect()
    }

    fn label(&self, key: &ObjectKey, selected: bool) {
        let service = self.server.get("services", key.namespace(), key.name()).ok();
        let slices = self.slices(key).into_iter().map(|slice| ("endpointslices", slice));
        for (resource, mut object) in service.map(|service| ("services", service)).into_iter().chain(slices) {
            match (selected, object["metadata"]["labels"].as_object_mut()) {
                (true, Some(labels)) => drop(labels.insert(SELECTED.to_owned(), "true".into())),
                (false, Some(labels)) => drop(labels.remove(SELECTED)),
                (_, None) => {}
            }
            self.store(resource, object);
        }
    }

    /// Deletes a Service and its slices, and returns the slices as they were.
    fn delete_service(&self, key: &ObjectKey) -> Vec<Value> {
        let slices = self.slices(key);
        if self.server.delete("services", key.namespace(), key.name()).is_err() {
            return Vec::new();
        }
        for slice in &slices {
            let name = slice["metadata"]["name"].as_str().unwrap_or_default();
            let deleted = self.server.delete("endpointslices", key.namespace(), name);
            deleted.unwrap_or_else(|status| panic!("the deletion of {name} was refused: {status:?}"));
        }
        slices
    }
}

/// Records a change of a Service or a slice at the moment of the commit.
pub(super) fn committed(recorder: &Recorder, cluster: ClusterId, record: &WriteRecord) {
    let is_slice = *record.resource == *"endpointslices";
    if !is_slice && *record.resource != *"services" {
        return;
    }
    let Ok(raw) = RawObject::from_value(&record.object, &Limits::default()) else { return };
    let (object, gone) = (recorder.seen(&raw), record.kind == EventType::Deleted);
    let asks = !gone && raw.label(SELECTED).is_some();
    let fact = if is_slice {
        let Some(service) = raw.label(SERVICE_NAME) else { return };
        let service =
            recorder.key(&ObjectKey::namespaced(raw.key().namespace().unwrap_or_default(), service));
        let endpoints = if asks { endpoints(&record.object) } else { Box::default() };
        AtOutside::Slice { cluster, object, service, endpoints, asks, gone }
    } else {
        AtOutside::Service { cluster, object, asks, gone }
    };
    recorder.record(Fact::Outside(fact));
}

fn is_alike(there: &Value, new: &Value) -> bool {
    let parts = ["spec", "ports", "endpoints"];
    let labels = |object: &Value| object["metadata"]["labels"].clone();
    labels(there) == labels(new) && parts.iter().all(|part| new[part].is_null() || there[part] == new[part])
}

fn endpoints(slice: &Value) -> Box<[(Address, Ready)]> {
    let of = |endpoint: &Value| {
        let address: std::net::Ipv4Addr = endpoint["addresses"][0].as_str()?.parse().ok()?;
        let is = |condition: &str| endpoint["conditions"][condition].as_bool() == Some(true);
        let ready = match (is("terminating"), is("ready")) {
            (true, _) => Ready::Ending,
            (false, true) => Ready::Yes,
            (false, false) => Ready::No,
        };
        Some((Address(address.into()), ready))
    };
    slice["endpoints"].as_array().into_iter().flatten().filter_map(of).collect()
}

fn service_object(key: &ObjectKey) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": key.namespace(), "name": key.name(), "labels": {SELECTED: "true"}},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]},
    })
}

fn slice_name(service: &str, number: usize) -> String {
    format!("{service}-{number}")
}

fn owner(service: &Value) -> Value {
    let meta = &service["metadata"];
    json!({"apiVersion": "v1", "kind": "Service", "name": meta["name"], "uid": meta["uid"], "controller": true})
}

fn slice_object(service: &Value, number: usize, endpoints: &[(Address, Ready)]) -> Value {
    let endpoint = |(address, ready): &(Address, Ready)| {
        json!({
            "addresses": [address.to_string()],
            "conditions": {
                "ready": *ready == Ready::Yes, "serving": *ready != Ready::No, "terminating": *ready == Ready::Ending,
            },
        })
    };
    let meta = &service["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    let mut labels = json!({SERVICE_NAME: name});
    if !meta["labels"][SELECTED].is_null() {
        labels[SELECTED] = "true".into();
    }
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "namespace": meta["namespace"], "name": slice_name(name, number), "labels": labels,
            "ownerReferences": [owner(service)],
        },
        "ports": if endpoints.is_empty() { json!([]) } else { json!([{"name": "http", "port": 8080, "protocol": "TCP"}]) },
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
    })
}
