//! Item: one version of one object.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use skopos_wire::protobuf::{self, EncodeError, Kind};
use skopos_wire::{FieldSource, LabelSource};

use crate::event_type::EventType;
use crate::json::with_resource_version;

/// One version of one object. Sources return it behind a pointer, because it is cloned for each list and event.
pub trait Item: LabelSource + FieldSource + Send + Sync + 'static {
    /// Returns `metadata.namespace`; `None` for a cluster-scoped object.
    fn namespace(&self) -> Option<&str>;

    /// Returns `metadata.name`.
    fn name(&self) -> &str;

    /// Returns `metadata.resourceVersion`.
    fn revision(&self) -> u64;

    /// Returns the object as JSON. `kind` and `apiVersion` may be absent, as in items of typed lists. They are added or removed
    /// as the response needs; that is cheapest if they come first.
    fn json(&self) -> Bytes;

    /// Returns the object as JSON with another resourceVersion, as in the event that deletes it.
    fn json_at(&self, revision: u64) -> Bytes {
        match revision == self.revision() {
            true => self.json(),
            false => with_resource_version(&self.json(), revision),
        }
    }

    /// Returns the object's message with this resourceVersion, if the object is held in protobuf.
    fn message_at(&self, revision: u64) -> Option<Bytes> {
        let _ = revision;
        None
    }

    /// Returns the object's message in protobuf with this resourceVersion, as an object of `kind`.
    ///
    /// # Errors
    /// If the JSON does not fit the kind.
    fn message(&self, kind: &'static Kind, revision: u64) -> Result<Bytes, EncodeError> {
        match self.message_at(revision) {
            Some(message) => Ok(message),
            None => Ok(protobuf::message(kind, &self.json_at(revision))?.into()),
        }
    }

    /// Returns whether the JSON is made from another form at each call, so that it is worth caching.
    fn is_transcoded(&self) -> bool {
        false
    }

    /// Returns the buffer that the JSON is, or is made from. Within one source, the same buffer and revision always give the same
    /// JSON.
    fn origin(&self) -> Bytes {
        self.json()
    }

    /// Returns the sort key in lists of one namespace, or (with `None`) of all. Lists are in the order of these keys, or in any
    /// other order that [`Contents::page`](crate::Contents::page) uses consistently. Tokens carry them, so none of the
    /// parts between slashes may be empty, `.` or `..`.
    fn key(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(_) => self.name().to_owned(),
            None => object_key(self.namespace(), self.name()),
        }
    }

    /// Returns the cells of the source's [leading columns](crate::Source::columns).
    fn cells(&self) -> Vec<Value> {
        Vec::new()
    }

    /// Returns a ready watch frame, if any. It begins with [`EventType::frame_head`] and contains the current object.
    fn frame(&self, kind: EventType) -> Option<Bytes> {
        let _ = kind;
        None
    }
}

impl<T: Item> Item for Arc<T> {
    fn namespace(&self) -> Option<&str> {
        (**self).namespace()
    }

    fn name(&self) -> &str {
        (**self).name()
    }

    fn revision(&self) -> u64 {
        (**self).revision()
    }

    fn json(&self) -> Bytes {
        (**self).json()
    }

    fn json_at(&self, revision: u64) -> Bytes {
        (**self).json_at(revision)
    }

    fn message_at(&self, revision: u64) -> Option<Bytes> {
        (**self).message_at(revision)
    }

    fn message(&self, kind: &'static Kind, revision: u64) -> Result<Bytes, EncodeError> {
        (**self).message(kind, revision)
    }

    fn is_transcoded(&self) -> bool {
        (**self).is_transcoded()
    }

    fn origin(&self) -> Bytes {
        (**self).origin()
    }

    fn key(&self, namespace: Option<&str>) -> String {
        (**self).key(namespace)
    }

    fn cells(&self) -> Vec<Value> {
        (**self).cells()
    }

    fn frame(&self, kind: EventType) -> Option<Bytes> {
        (**self).frame(kind)
    }
}

/// Returns `NAMESPACE/NAME` or `NAME`.
pub fn object_key(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}
