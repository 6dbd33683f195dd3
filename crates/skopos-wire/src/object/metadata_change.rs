//! Changes to the metadata of an object in protobuf. The rest stays byte for byte.

use bytes::Bytes;

use super::protobuf::{METADATA, copy_fields, entries, field, metadata};
use super::{Encoding, RawObject};
use crate::protobuf::{nested, write_bytes};

/// Changes to an object's metadata.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetadataChange<'a> {
    /// The new resourceVersion.
    pub resource_version: &'a str,
    /// Labels that are added, or replace those of the same name.
    pub labels: &'a [(&'a str, &'a str)],
    /// Annotations that are added, or replace those of the same name.
    pub annotations: &'a [(&'a str, &'a str)],
}

impl RawObject {
    /// Returns the message of an object in protobuf with changed metadata, in the order in which Go writes it; `None` for an
    /// object in JSON.
    ///
    /// ```
    /// use skopos_wire::{Limits, MetadataChange, RawObject, protobuf};
    ///
    /// let json = br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","uid":"u","resourceVersion":"1"}}"#;
    /// let object = RawObject::scan(protobuf::from_json(json)?.into(), &Limits::default())?;
    /// let change = MetadataChange { resource_version: "9", labels: &[("cluster", "north")], annotations: &[] };
    /// let (kind, _) = object.to_message(None)?;
    /// let message = object.message_with(&change).expect("an object in protobuf");
    /// let changed = RawObject::scan(protobuf::object(kind, &message).into(), &Limits::default())?;
    /// assert_eq!((changed.resource_version().as_u64(), changed.label("cluster")), (Some(9), Some("north")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn message_with(&self, change: &MetadataChange<'_>) -> Option<Bytes> {
        let Encoding::Protobuf { .. } = self.0.encoding() else { return None };
        let content = self.read();
        let old = metadata(&content)?;
        let mut new = Vec::with_capacity(old.len() + 256);
        copy_fields(old, &mut new, |number| number < field::RESOURCE_VERSION)?;
        write_bytes(field::RESOURCE_VERSION, change.resource_version.as_bytes(), &mut new);
        copy_fields(old, &mut new, |number| number > field::RESOURCE_VERSION && number < field::LABELS)?;
        write_map(field::LABELS, old, change.labels, &mut new);
        write_map(field::ANNOTATIONS, old, change.annotations, &mut new);
        copy_fields(old, &mut new, |number| number > field::ANNOTATIONS)?;
        let mut message = Vec::with_capacity(content.len() + 256);
        write_bytes(METADATA, &new, &mut message);
        copy_fields(&content, &mut message, |number| number != METADATA)?;
        Some(message.into())
    }
}

/// Writes a map of strings, sorted by key as Go does.
fn write_map(number: u32, metadata: &[u8], added: &[(&str, &str)], out: &mut Vec<u8>) {
    let is_replaced = |key: &[u8]| added.iter().any(|(own, _)| own.as_bytes() == key);
    let mut pairs: Vec<_> = entries(metadata, number).filter(|(key, _)| !is_replaced(key)).collect();
    pairs.extend(added.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())));
    pairs.sort_by_key(|(key, _)| *key);
    for (key, value) in pairs {
        let _: Result<(), std::convert::Infallible> = nested(number, out, |out| {
            write_bytes(1, key, out);
            write_bytes(2, value, out);
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Limits, protobuf};

    const CHANGE: MetadataChange<'static> = MetadataChange {
        resource_version: "99",
        labels: &[("m/cluster", "north")],
        annotations: &[("m/cluster", "north"), ("a/version", "7")],
    };

    /// Returns the JSON of an object after the change, which is made in protobuf.
    fn changed(object: &Value) -> Value {
        let body = protobuf::from_json(object.to_string().as_bytes()).unwrap();
        let object = RawObject::scan(body.into(), &Limits::default()).unwrap();
        let (kind, _) = object.to_message(None).unwrap();
        let body = protobuf::object(kind, &object.message_with(&CHANGE).unwrap());
        serde_json::from_slice(&protobuf::to_json(&body).unwrap()).unwrap()
    }

    #[test]
    fn changes_only_named_metadata() {
        let mut object = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"k": "v"}, "metadata": {
            "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 3,
            "labels": {"z": "1", "m/cluster": "forged", "a": "2"}, "finalizers": ["f"]}});
        let told = changed(&object);
        object["metadata"]["resourceVersion"] = json!("99");
        object["metadata"]["labels"]["m/cluster"] = json!("north");
        object["metadata"]["annotations"] = json!({"m/cluster": "north", "a/version": "7"});
        assert_eq!(told, object);
    }

    #[test]
    fn encodes_as_changed_json_does() {
        let mut object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {
            "name": "a", "uid": "u", "resourceVersion": "7", "labels": {"z": "1", "m/cluster": "forged"}, "annotations": {"b": "2"}}});
        let body = protobuf::from_json(object.to_string().as_bytes()).unwrap();
        let raw = RawObject::scan(body.into(), &Limits::default()).unwrap();
        let (kind, _) = raw.to_message(None).unwrap();
        object["metadata"]["resourceVersion"] = json!("99");
        object["metadata"]["labels"]["m/cluster"] = json!("north");
        object["metadata"]["annotations"]["m/cluster"] = json!("north");
        object["metadata"]["annotations"]["a/version"] = json!("7");
        let encoded = protobuf::message(kind, object.to_string().as_bytes()).unwrap();
        assert_eq!(raw.message_with(&CHANGE).unwrap(), encoded);
    }

    #[test]
    fn json_has_no_message() {
        let value = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}});
        let object = RawObject::from_value(&value, &Limits::default()).unwrap();
        assert_eq!(object.message_with(&CHANGE), None);
    }
}
