//! An object of the merged view, as lists and watches send it.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::Value;
use skopos_fleet::ClusterId;
use skopos_serve::Item;
use skopos_wire::{FieldSource, LabelSource, ObjectKey, RawObject};

use super::contents::Entry;
use super::merged_version::MergedVersion;
use super::render::{self, CLUSTER};

/// One version of one object of one member. Cloning copies three words.
#[derive(Clone, Debug)]
pub(crate) struct MergedItem {
    cluster: ClusterId,
    entry: Entry,
}

impl MergedItem {
    pub(crate) fn new(cluster: ClusterId, entry: Entry) -> Self {
        Self { cluster, entry }
    }

    pub(crate) fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// Returns the merged version of the object's last change.
    pub(crate) fn merged_version(&self) -> MergedVersion {
        self.entry.merged_version
    }

    fn object(&self) -> &RawObject {
        &self.entry.object
    }
}

impl LabelSource for MergedItem {
    fn label(&self, key: &str) -> Option<&str> {
        match key {
            CLUSTER => Some(self.cluster.label_value()),
            _ => self.object().label(key),
        }
    }
}

impl FieldSource for MergedItem {
    fn field(&self, path: &str) -> Option<Cow<'_, str>> {
        FieldSource::field(self.object(), path)
    }
}

impl Item for MergedItem {
    fn namespace(&self) -> Option<&str> {
        self.object().namespace()
    }

    fn name(&self) -> &str {
        self.object().name()
    }

    fn revision(&self) -> u64 {
        self.entry.merged_version.number()
    }

    fn json(&self) -> Bytes {
        render::render(self.object(), &self.cluster, self.entry.merged_version)
    }

    fn json_at(&self, revision: u64) -> Bytes {
        render::render(self.object(), &self.cluster, MergedVersion::new(revision))
    }

    fn message_at(&self, revision: u64) -> Option<Bytes> {
        render::render_message(self.object(), &self.cluster, MergedVersion::new(revision))
    }

    fn is_transcoded(&self) -> bool {
        self.object().is_protobuf() || self.object().is_compact()
    }

    fn origin(&self) -> Bytes {
        self.object().buffer().clone()
    }

    fn key(&self, namespace: Option<&str>) -> String {
        position(&self.cluster, self.entry.key(), namespace)
    }

    fn cells(&self) -> Vec<Value> {
        vec![Value::from(self.cluster.as_str())]
    }
}

/// Returns the object's position in lists: `CLUSTER/NAMESPACE/NAME`, or `CLUSTER/NAME` if the list is of one namespace or
/// the object has none.
fn position(cluster: &ClusterId, key: &ObjectKey, scope: Option<&str>) -> String {
    match key.namespace() {
        Some(namespace) if scope.is_none() => format!("{cluster}/{namespace}/{}", key.name()),
        _ => format!("{cluster}/{}", key.name()),
    }
}

/// A parsed position in lists.
#[derive(Debug, PartialEq)]
pub(crate) struct ListPosition<'a> {
    pub(crate) cluster: &'a str,
    /// The key; `None` for the position of the cluster's first object.
    pub(crate) key: Option<ObjectKey>,
    /// True for the position behind the key, not at it.
    pub(crate) behind: bool,
}

impl<'a> ListPosition<'a> {
    /// Reads the output of [`Item::key`]; a NUL at the end means the position behind it. Accepts any text, because tokens
    /// come from clients.
    pub(crate) fn read(text: &'a str, scope: Option<&str>) -> Self {
        let (text, behind) = match text.strip_suffix('\0') {
            Some(text) => (text, true),
            None => (text, false),
        };
        let (cluster, rest) = text.split_once('/').unwrap_or((text, ""));
        let key = match (scope, rest.split_once('/')) {
            _ if rest.is_empty() => None,
            (Some(namespace), _) => Some(ObjectKey::namespaced(namespace, rest)),
            (None, Some((namespace, name))) => Some(ObjectKey::namespaced(namespace, name)),
            (None, None) => Some(ObjectKey::cluster(rest)),
        };
        Self { cluster, key, behind }
    }

    /// Returns whether the key, of the same cluster, comes before this position.
    pub(crate) fn is_after(&self, key: &ObjectKey) -> bool {
        match &self.key {
            None => false,
            Some(own) if self.behind => key <= own,
            Some(own) => key < own,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skopos_wire::Limits;

    use super::*;

    fn item(namespace: &str, name: &str) -> MergedItem {
        let value = json!({"metadata": {"namespace": namespace, "name": name, "uid": "u", "resourceVersion": "7",
            "labels": {"app": "web", CLUSTER: "forged"}}});
        let object = RawObject::from_value(&value, &Limits::default()).unwrap();
        MergedItem::new(
            ClusterId::new("north").unwrap(),
            Entry { object, merged_version: MergedVersion::new(9) },
        )
    }

    #[test]
    fn a_place_is_read_as_it_was_written() {
        for (namespace, scope) in [("shop", None), ("shop", Some("shop")), ("", None)] {
            let item = item(namespace, "web");
            for end in ["", "\0"] {
                let text = item.key(scope) + end;
                let position = ListPosition::read(&text, scope);
                assert_eq!((position.cluster, position.behind), ("north", !end.is_empty()), "{text}");
                assert_eq!(position.key.as_ref(), Some(item.entry.key()), "{text}");
                assert_eq!(position.is_after(item.entry.key()), position.behind);
            }
        }
        assert_eq!(
            ListPosition::read("north", None),
            ListPosition { cluster: "north", key: None, behind: false }
        );
        // Whatever a token says.
        for text in ["", "/", "\0", "a//", "//\0", "a/b/c/d"] {
            let _ = ListPosition::read(text, None);
            let _ = ListPosition::read(text, Some("x"));
        }
    }

    #[test]
    fn selectors_see_cluster_and_ignore_forged_label() {
        let item = item("shop", "web");
        assert_eq!(item.label(CLUSTER), Some("north"));
        assert_eq!(item.label("app"), Some("web"));
        assert_eq!(item.field("metadata.name").as_deref(), Some("web"));
        assert_eq!(item.cells(), ["north"]);
        assert_eq!(item.revision(), 9);
    }
}
