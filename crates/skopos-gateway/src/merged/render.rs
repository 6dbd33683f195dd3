//! Rendering of a member's object for the merged view: the same bytes, except for the fields that name its cluster.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use skopos_fleet::ClusterId;
use skopos_wire::{MetadataChange, RawObject};

use super::merged_version::MergedVersion;

/// The label and annotation with the name of the object's cluster.
pub(crate) const CLUSTER: &str = "skopos.dev/cluster";

/// The annotation with the object's version in its member.
pub(crate) const MEMBER_VERSION: &str = "skopos.dev/resource-version";

/// Returns the object with `merged_version` as its version, and the name of its cluster in a label and an annotation.
/// Replaces the member's own values of these: a member cannot choose the cluster of its objects.
pub(crate) fn render(object: &RawObject, cluster: &ClusterId, merged_version: MergedVersion) -> Bytes {
    let json = object.json();
    let version = object.resource_version().to_string();
    written(&json, cluster, &version, merged_version).map_or_else(|_| json.clone(), Bytes::from)
}

/// Returns the message of an object that is held in protobuf, changed as [`render`] changes it.
pub(crate) fn render_message(
    object: &RawObject,
    cluster: &ClusterId,
    merged_version: MergedVersion,
) -> Option<Bytes> {
    let version = object.resource_version().to_string();
    object.message_with(&MetadataChange {
        resource_version: &merged_version.to_string(),
        labels: &labels(cluster),
        annotations: &annotations(cluster, &version),
    })
}

fn labels(cluster: &ClusterId) -> [(&str, &str); 1] {
    [(CLUSTER, cluster.label_value())]
}

fn annotations<'a>(cluster: &'a ClusterId, version: &'a str) -> [(&'a str, &'a str); 2] {
    [(CLUSTER, cluster.as_str()), (MEMBER_VERSION, version)]
}

fn written(
    json: &[u8],
    cluster: &ClusterId,
    version: &str,
    merged_version: MergedVersion,
) -> Result<Vec<u8>, serde_json::Error> {
    let (labels, annotations) = (labels(cluster), annotations(cluster, version));
    let object: Members<'_> = serde_json::from_slice(json)?;
    let mut out = Vec::with_capacity(json.len() + 160);
    let mut writer = Writer::begin(&mut out);
    for (name, value) in &object.0 {
        writer.name(name);
        match &**name {
            "metadata" => metadata(&mut writer, value, merged_version, &labels, &annotations)?,
            _ => writer.raw(value.get()),
        }
    }
    writer.end();
    Ok(out)
}

fn metadata(
    writer: &mut Writer<'_>,
    metadata: &RawValue,
    merged_version: MergedVersion,
    labels: &[(&str, &str)],
    annotations: &[(&str, &str)],
) -> Result<(), serde_json::Error> {
    let members: Members<'_> = serde_json::from_str(metadata.get())?;
    let (mut had_labels, mut had_annotations) = (false, false);
    let mut own = writer.object();
    for (name, value) in &members.0 {
        own.name(name);
        match &**name {
            "resourceVersion" => own.raw(&format!("\"{merged_version}\"")),
            "labels" => {
                had_labels = true;
                marked(&mut own, Some(value), &[CLUSTER], labels)?;
            }
            "annotations" => {
                had_annotations = true;
                marked(&mut own, Some(value), &[CLUSTER, MEMBER_VERSION], annotations)?;
            }
            _ => own.raw(value.get()),
        }
    }
    if !had_labels && !labels.is_empty() {
        own.name("labels");
        marked(&mut own, None, &[], labels)?;
    }
    if !had_annotations {
        own.name("annotations");
        marked(&mut own, None, &[], annotations)?;
    }
    own.end();
    Ok(())
}

/// Writes a map of strings without the `reserved` keys, and with `added`.
fn marked(
    writer: &mut Writer<'_>,
    map: Option<&RawValue>,
    reserved: &[&str],
    added: &[(&str, &str)],
) -> Result<(), serde_json::Error> {
    // `null` is an empty map.
    let members: Option<Members<'_>> = map.map(|map| serde_json::from_str(map.get())).transpose()?.flatten();
    let mut own = writer.object();
    for (name, value) in members.iter().flat_map(|members| &members.0) {
        if !reserved.contains(&&**name) {
            own.name(name);
            own.raw(value.get());
        }
    }
    for (name, value) in added {
        own.name(name);
        own.text(value);
    }
    own.end();
    Ok(())
}

/// The fields of a JSON object, in order.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// A name, borrowed if it has no escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Name(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// Writer of a JSON object's fields.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl<'a> Writer<'a> {
    fn begin(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    fn object(&mut self) -> Writer<'_> {
        Writer::begin(self.out)
    }

    fn name(&mut self, name: &str) {
        if !std::mem::replace(&mut self.empty, false) {
            self.out.push(b',');
        }
        self.text(name);
        self.out.push(b':');
    }

    fn text(&mut self, text: &str) {
        // A string always serializes.
        self.out.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
    }

    fn raw(&mut self, json: &str) {
        self.out.extend_from_slice(json.as_bytes());
    }

    fn end(self) {
        self.out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use skopos_wire::{Limits, protobuf};

    use super::*;

    fn rendered(object: &Value, cluster: &str) -> Value {
        let object = RawObject::from_value(object, &Limits::default()).unwrap();
        let bytes = render(&object, &ClusterId::new(cluster).unwrap(), MergedVersion::new(99));
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn rendered_object_gains_only_cluster_and_version() {
        let object = json!({"kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "labels": {"app": "web"}},
            "spec": {"metadata": {"resourceVersion": "7"}}});
        let mut expected = object.clone();
        expected["metadata"]["resourceVersion"] = json!("99");
        expected["metadata"]["labels"][CLUSTER] = json!("north");
        expected["metadata"]["annotations"] = json!({CLUSTER: "north", MEMBER_VERSION: "7"});
        assert_eq!(rendered(&object, "north"), expected);
    }

    #[test]
    fn protobuf_is_changed_as_json_is() {
        let object = json!({"kind": "Pod", "apiVersion": "v1", "spec": {"nodeName": "n"},
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "7",
                "labels": {"app": "web", CLUSTER: "other"}, "annotations": {MEMBER_VERSION: "1", "x": "y"}}});
        let body = protobuf::from_json(object.to_string().as_bytes()).unwrap();
        let raw = RawObject::scan(body.into(), &Limits::default()).unwrap();
        for name in ["north", "arn:aws:x"] {
            let (cluster, version) = (ClusterId::new(name).unwrap(), MergedVersion::new(99));
            let (kind, _) = raw.to_message(None).unwrap();
            let message = render_message(&raw, &cluster, version).unwrap();
            assert_eq!(message, protobuf::message(kind, &render(&raw, &cluster, version)).unwrap());
        }
    }

    #[test]
    fn member_cannot_forge_cluster_label() {
        let object = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7",
            "labels": {CLUSTER: "other"}, "annotations": {CLUSTER: "other", MEMBER_VERSION: "1", "x": "y"}}});
        let rendered = rendered(&object, "north");
        assert_eq!(rendered["metadata"]["labels"], json!({CLUSTER: "north"}));
        assert_eq!(
            rendered["metadata"]["annotations"],
            json!({"x": "y", CLUSTER: "north", MEMBER_VERSION: "7"})
        );
        // Not even with escapes in the name, or with the name twice.
        let tricky = r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"7",
            "labels":{"skopos.dev\/cluster":"other","skopos.dev/cluste\u0072":"third"}}}"#;
        let object = RawObject::copy_from(tricky.as_bytes(), &Limits::default()).unwrap();
        let text = render(&object, &ClusterId::new("north").unwrap(), MergedVersion::new(1));
        let text = std::str::from_utf8(&text).unwrap();
        assert!(!text.contains("other") && !text.contains("third"), "{text}");
    }

    #[test]
    fn invalid_label_name_is_kept_in_annotation() {
        let object = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "labels": null}});
        for name in ["arn:aws:x", "admin@prod", "-a", &"x".repeat(64), "a.b_c-1"] {
            let rendered = rendered(&object, name);
            let id = ClusterId::new(name).unwrap();
            assert_eq!(rendered["metadata"]["labels"], json!({CLUSTER: id.label_value()}), "{name}");
            assert_eq!(rendered["metadata"]["annotations"][CLUSTER], *name);
        }
    }
}
