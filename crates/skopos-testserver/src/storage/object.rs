//! Stored version of an object: its JSON as sent to clients, and the few fields that the server needs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use skopos_serve::{EventType, Item, object_key};
use skopos_wire::protobuf::{self, EncodeError, Kind};
use skopos_wire::{FieldSource, LabelSource, Limits, RawObject};
use thiserror::Error;

/// Version of an object. Its JSON is part of a ready watch frame. So an event is serialized once, shared by all watchers, and
/// needs no second copy of the object.
#[derive(Debug)]
pub(crate) struct Stored {
    revision: u64,
    frame: Bytes,
    object_at: u32,
    key: Arc<str>,
    uid: Box<str>,
    labels: Box<[(Box<str>, Box<str>)]>,
    /// The object in protobuf, once a client has asked for it.
    message: OnceLock<(&'static Kind, Bytes)>,
}

/// Object ready to be stored. Only its resourceVersion is missing; the storage inserts it under its lock.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    /// `{"kind":..,"apiVersion":..,"metadata":{..,"resourceVersion":"`
    head: Vec<u8>,
    /// Text after the resourceVersion's digits.
    tail: Vec<u8>,
    namespace: Option<Box<str>>,
    name: Box<str>,
    uid: Box<str>,
    labels: Box<[(Box<str>, Box<str>)]>,
}

/// Reason why JSON is not an object that a Kubernetes API server could store.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum InvalidObject {
    #[error("not a JSON object with an object `metadata`: {0}")]
    Json(String),
    #[error("{0} is missing or not a string")]
    Missing(&'static str),
}

/// Text after the object in a watch frame.
const FRAME_TAIL: &[u8] = b"}\n";

impl Stored {
    /// Returns the revision of this version; for the object of a deletion, the deletion's.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the object's JSON, with kind and apiVersion.
    pub(crate) fn json(&self) -> Bytes {
        self.frame.slice(self.object_at as usize..self.frame.len() - FRAME_TAIL.len())
    }

    /// Returns the object's JSON as a borrowed slice.
    pub(crate) fn json_slice(&self) -> &[u8] {
        &self.frame[self.object_at as usize..self.frame.len() - FRAME_TAIL.len()]
    }

    /// Returns the key `NAMESPACE/NAME` or `NAME`, by which lists are sorted.
    pub(crate) fn key(&self) -> &Arc<str> {
        &self.key
    }

    pub(crate) fn name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.key.split_once('/').map(|(namespace, _)| namespace)
    }

    pub(crate) fn uid(&self) -> &str {
        &self.uid
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(k, _)| &**k == key).map(|(_, v)| &**v)
    }

    /// Returns the object as a JSON value. Stored JSON is valid, so this never fails in practice.
    pub(crate) fn to_value(&self) -> Value {
        serde_json::from_slice(self.json_slice()).unwrap_or(Value::Null)
    }

    /// Returns this version with another revision, as the final state in a deletion.
    pub(crate) fn deleted_at(&self, revision: u64) -> Self {
        let draft = Draft::from_bytes(self.json_slice());
        match draft {
            Ok(draft) => draft.stamp(revision, EventType::Deleted, self.key.clone()),
            Err(_) => unreachable!("stored objects were drafts once"),
        }
    }

    /// Returns the approximate memory use in bytes.
    pub(super) fn cost(&self) -> usize {
        self.frame.len() + 200
    }
}

impl LabelSource for Stored {
    fn label(&self, key: &str) -> Option<&str> {
        Stored::label(self, key)
    }
}

/// Each call scans the JSON.
impl FieldSource for Stored {
    fn field(&self, path: &str) -> Option<Cow<'_, str>> {
        let raw = RawObject::scan(self.json(), &Limits::default()).ok()?;
        raw.field(path).map(Cow::Owned)
    }
}

impl Item for Stored {
    fn namespace(&self) -> Option<&str> {
        self.namespace()
    }

    fn name(&self) -> &str {
        self.name()
    }

    fn revision(&self) -> u64 {
        self.revision
    }

    fn json(&self) -> Bytes {
        self.json()
    }

    fn message(&self, kind: &'static Kind, revision: u64) -> Result<Bytes, EncodeError> {
        if revision != self.revision {
            return Ok(protobuf::message(kind, &self.json_at(revision))?.into());
        }
        if let Some((_, message)) = self.message.get().filter(|(own, _)| *own == kind) {
            return Ok(message.clone());
        }
        let message = Bytes::from(protobuf::message(kind, self.json_slice())?);
        // Another version of the API may be first; then the others are not kept.
        let _ = self.message.set((kind, message.clone()));
        Ok(message)
    }

    fn frame(&self, kind: EventType) -> Option<Bytes> {
        self.frame.starts_with(kind.frame_head()).then(|| self.frame.clone())
    }
}

impl Draft {
    /// Parses an object. `metadata.resourceVersion` is ignored.
    ///
    /// # Errors
    /// When `kind`, `apiVersion` or `metadata.name` is missing.
    pub(crate) fn from_value(object: &Value) -> Result<Self, InvalidObject> {
        let json = serde_json::to_vec(object).map_err(|e| InvalidObject::Json(e.to_string()))?;
        Self::from_bytes(&json)
    }

    /// Parses an object from JSON text.
    pub(crate) fn from_bytes(json: &[u8]) -> Result<Self, InvalidObject> {
        type Fields<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;
        let bad = |e: serde_json::Error| InvalidObject::Json(e.to_string());
        let mut top: Fields<'_> = serde_json::from_slice(json).map_err(bad)?;
        let metadata = top.remove("metadata").ok_or(InvalidObject::Missing("metadata"))?;
        let mut metadata: Fields<'_> = serde_json::from_str(metadata.get()).map_err(bad)?;
        metadata.remove("resourceVersion");
        let kind = top.remove("kind").ok_or(InvalidObject::Missing("kind"))?;
        let api_version = top.remove("apiVersion").ok_or(InvalidObject::Missing("apiVersion"))?;
        let name = text(metadata.get("name")).ok_or(InvalidObject::Missing("metadata.name"))?;
        let namespace = text(metadata.get("namespace")).filter(|ns| !ns.is_empty());
        let uid = text(metadata.get("uid")).unwrap_or_default();
        let labels: BTreeMap<Cow<'_, str>, Option<Cow<'_, str>>> = match metadata.get("labels") {
            Some(raw) => Option::deserialize(&mut serde_json::Deserializer::from_str(raw.get()))
                .map_err(bad)?
                .unwrap_or_default(),
            None => BTreeMap::new(),
        };
        let labels = labels.into_iter().map(|(k, v)| (k.into(), v.unwrap_or_default().into())).collect();

        let mut head = Vec::with_capacity(256);
        for part in ["{\"kind\":", kind.get(), ",\"apiVersion\":", api_version.get(), ","] {
            head.extend_from_slice(part.as_bytes());
        }
        head.extend_from_slice(b"\"metadata\":{");
        for field in ["name", "generateName", "namespace", "uid"] {
            if let Some(raw) = metadata.remove(field) {
                push_field(&mut head, field, raw);
                head.push(b',');
            }
        }
        head.extend_from_slice(b"\"resourceVersion\":\"");

        let mut tail = Vec::with_capacity(json.len());
        tail.push(b'"');
        let managed = metadata.remove("managedFields");
        for (field, raw) in
            metadata.iter().map(|(f, r)| (&**f, *r)).chain(managed.map(|m| ("managedFields", m)))
        {
            tail.push(b',');
            push_field(&mut tail, field, raw);
        }
        tail.push(b'}');
        for (field, raw) in &top {
            tail.push(b',');
            push_field(&mut tail, field, raw);
        }
        tail.push(b'}');
        Ok(Self { head, tail, namespace, name, uid, labels })
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the object as a JSON value, with an empty resourceVersion. A draft is valid JSON, so this never fails in practice.
    pub(super) fn to_value(&self) -> Value {
        serde_json::from_slice(&[&self.head[..], &self.tail].concat()).unwrap_or(Value::Null)
    }

    pub(crate) fn key(&self) -> String {
        object_key(self.namespace(), &self.name)
    }

    pub(super) fn stamp(self, revision: u64, event: EventType, key: Arc<str>) -> Stored {
        let event_head = event.frame_head();
        let digits = revision.to_string();
        let parts = [event_head, &self.head, digits.as_bytes(), &self.tail, FRAME_TAIL];
        let mut frame = Vec::with_capacity(parts.iter().map(|p| p.len()).sum());
        for part in parts {
            frame.extend_from_slice(part);
        }
        let object_at = event_head.len() as u32;
        Stored {
            revision,
            frame: frame.into(),
            object_at,
            key,
            uid: self.uid,
            labels: self.labels,
            message: OnceLock::new(),
        }
    }
}

fn text(raw: Option<&&RawValue>) -> Option<Box<str>> {
    let text: Cow<'_, str> = serde_json::from_str(raw?.get()).ok()?;
    Some(text.into())
}

fn push_field(out: &mut Vec<u8>, field: &str, raw: &RawValue) {
    out.extend_from_slice(Value::from(field).to_string().as_bytes());
    out.push(b':');
    out.extend_from_slice(raw.get().as_bytes());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_draft_becomes_an_object_and_a_frame() {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "n"},
            "metadata": {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "999",
                "labels": {"x": "y"}, "managedFields": [], "annotations": {"q\"": "\n"}}});
        let draft = Draft::from_value(&object).unwrap();
        let stored = draft.stamp(7, EventType::Added, Arc::from("b/a"));
        let mut expected = object.clone();
        expected["metadata"]["resourceVersion"] = json!("7");
        assert_eq!(stored.to_value(), expected);
        assert_eq!(
            serde_json::from_slice::<Value>(&stored.frame(EventType::Added).unwrap()).unwrap(),
            json!({"type": "ADDED", "object": expected})
        );
        assert_eq!(stored.frame(EventType::Modified), None, "there is only the one of its event");
        assert_eq!((stored.namespace(), stored.name(), stored.label("x")), (Some("b"), "a", Some("y")));
        let gone = stored.deleted_at(9);
        assert_eq!(gone.to_value()["metadata"]["resourceVersion"], "9");
        assert!(gone.frame(EventType::Deleted).is_some());
    }

    #[test]
    fn rejects_invalid_objects() {
        assert_eq!(Draft::from_bytes(b"{}").unwrap_err(), InvalidObject::Missing("metadata"));
        assert!(matches!(Draft::from_bytes(b"[]"), Err(InvalidObject::Json(_))));
        let nameless = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}});
        assert_eq!(Draft::from_value(&nameless).unwrap_err(), InvalidObject::Missing("metadata.name"));
    }
}
