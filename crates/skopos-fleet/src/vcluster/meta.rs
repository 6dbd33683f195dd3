//! Object metadata as read in this module.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// `metadata` of any object.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Meta {
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) namespace: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) resource_version: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) creation_timestamp: Option<jiff::Timestamp>,
    pub(super) deletion_timestamp: Option<String>,
}

// === impl Meta ===

impl Meta {
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }

    /// Returns whether an annotation is `true`.
    pub(super) fn says(&self, annotation: &str) -> bool {
        self.annotation(annotation) == Some("true")
    }
}

/// Deserializes `null` as the default, as the API server does.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Returns the metadata of listed objects.
pub(super) fn metas(objects: &[Box<RawValue>]) -> Vec<Meta> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Meta,
    }
    let meta =
        |json: &RawValue| serde_json::from_str::<Object>(json.get()).ok().map(|object| object.metadata);
    objects.iter().filter_map(|json| meta(json)).collect()
}
