//! Object metadata, as far as operations on virtual clusters read it.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// `metadata` of any object.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Its namespace; empty if it has none.
    #[serde(deserialize_with = "or_default")]
    pub namespace: String,
    /// The resource version; empty if it is unknown.
    #[serde(deserialize_with = "or_default")]
    pub resource_version: String,
    /// The labels.
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
    /// The annotations.
    #[serde(deserialize_with = "or_default")]
    pub annotations: BTreeMap<String, String>,
    /// The creation time.
    pub creation_timestamp: Option<jiff::Timestamp>,
    /// The time of its deletion, if it is being deleted.
    pub deletion_timestamp: Option<String>,
}

impl Meta {
    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    /// Returns the value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }

    /// Returns whether an annotation is `true`.
    pub fn says(&self, annotation: &str) -> bool {
        self.annotation(annotation) == Some("true")
    }
}

/// Deserializes `null` as the default, as the API server does.
///
/// # Errors
/// If it is neither `null` nor valid.
pub fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Returns the metadata of listed objects.
pub fn metas(objects: &[Box<RawValue>]) -> Vec<Meta> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Meta,
    }
    let meta =
        |json: &RawValue| serde_json::from_str::<Object>(json.get()).ok().map(|object| object.metadata);
    objects.iter().filter_map(|json| meta(json)).collect()
}
