//! The part of an object that receivers get, and its digest.

use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use skopos::RawObject;

/// The path of a field, such as `spec.replicas`. A dot in a name is written `\.`, as in kubectl's custom columns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldPath {
    text: String,
    segments: Vec<String>,
}

/// The part of an object that receivers get.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectContent {
    /// The whole object, or the selected fields by their paths.
    pub value: Value,
    /// The digest of `value`. Equal digests mean equal contents.
    pub digest: [u8; 16],
}

impl FromStr for FieldPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let trimmed = text.strip_prefix('.').unwrap_or(text);
        let (mut segments, mut segment) = (Vec::new(), String::new());
        let mut characters = trimmed.chars();
        while let Some(character) = characters.next() {
            match character {
                '\\' => segment.extend(characters.next()),
                '.' => segments.push(std::mem::take(&mut segment)),
                other => segment.push(other),
            }
        }
        segments.push(segment);
        match segments.iter().any(String::is_empty) {
            true => Err(format!("{text:?} is no path of a field, such as spec.replicas")),
            false => Ok(Self { text: trimmed.to_owned(), segments }),
        }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FieldPath {
    /// Returns the field. A number in a path is the index of an array.
    pub(crate) fn find<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.segments.iter().try_fold(object, |value, segment| match value {
            Value::Array(items) => items.get(segment.parse::<usize>().ok()?),
            other => other.get(segment),
        })
    }
}

impl ObjectContent {
    /// Reads these fields of an object. Without fields it is the whole object, except `managedFields`, which are only bookkeeping.
    pub fn new(object: &RawObject, fields: &[FieldPath]) -> Self {
        let mut whole = object.to_value();
        // The same content has the same digest, with any feature set of serde_json.
        whole.sort_all_objects();
        let meta = whole.get_mut("metadata").and_then(Value::as_object_mut);
        let version = meta.and_then(|meta| {
            meta.remove("managedFields");
            meta.remove("resourceVersion")
        });
        if !fields.is_empty() {
            let found = fields.iter().filter_map(|path| Some((path.to_string(), path.find(&whole)?.clone())));
            let mut value = Value::Object(found.collect::<Map<_, _>>());
            value.sort_all_objects();
            return Self { digest: digest(&value), value };
        }
        // A write that changes nothing gives an object no new version to report.
        let digest = digest(&whole);
        if let (Some(meta), Some(version)) =
            (whole.get_mut("metadata").and_then(Value::as_object_mut), version)
        {
            meta.insert("resourceVersion".to_owned(), version);
        }
        Self { digest, value: whole }
    }
}

fn digest(value: &Value) -> [u8; 16] {
    let hash = Sha256::digest(value.to_string().as_bytes());
    let mut digest = [0; 16];
    digest.copy_from_slice(&hash[..16]);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(version: &str, replicas: i64) -> RawObject {
        let value = serde_json::json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": version,
                "annotations": {"skopos.dev/a": "x"}, "managedFields": [{"manager": version}]},
            "spec": {"replicas": replicas, "list": [{"port": 80}]},
        });
        RawObject::from_value(&value, &skopos::Limits::default()).unwrap()
    }

    #[test]
    fn fields_are_found_by_their_paths() {
        let path = |text: &str| text.parse::<FieldPath>().unwrap();
        let fields = [
            path("spec.replicas"),
            path(".metadata.annotations.skopos\\.dev/a"),
            path("spec.list.0.port"),
            path("spec.none"),
        ];
        let content = ObjectContent::new(&object("7", 3), &fields);
        let expected = serde_json::json!({"spec.replicas": 3, "metadata.annotations.skopos\\.dev/a": "x", "spec.list.0.port": 80});
        assert_eq!(content.value, expected);
        assert!("spec..replicas".parse::<FieldPath>().unwrap_err().contains("spec.replicas"));
    }

    #[test]
    fn a_version_or_a_manager_is_no_content() {
        let (old, new) = (ObjectContent::new(&object("7", 3), &[]), ObjectContent::new(&object("8", 3), &[]));
        assert_eq!(old.digest, new.digest);
        assert_ne!(old.digest, ObjectContent::new(&object("8", 4), &[]).digest);
        assert_eq!(new.value["metadata"]["resourceVersion"], "8");
        assert_eq!(new.value["metadata"].get("managedFields"), None);
    }
}
