//! Objects as JSON bytes: their head (kind and apiVersion), and the few places that rewrite the head or the resourceVersion.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::resources::ResourceType;

/// Returns an object's JSON with `metadata.resourceVersion` replaced, and nothing else.
///
/// Anything but a JSON object with metadata is returned unchanged.
pub fn with_resource_version(json: &Bytes, revision: u64) -> Bytes {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        metadata: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct Metadata<'a> {
        #[serde(borrow, rename = "resourceVersion")]
        revision: Option<&'a RawValue>,
    }
    let Ok(object) = serde_json::from_slice::<Object<'_>>(json) else { return json.clone() };
    let metadata = object.metadata.get();
    let Ok(parsed) = serde_json::from_str::<Metadata<'_>>(metadata) else { return json.clone() };
    let offset = |part: &str| part.as_ptr() as usize - json.as_ptr() as usize;
    let quoted = format!("\"{revision}\"");
    let (from, to, new) = match parsed.revision {
        Some(old) => (offset(old.get()), offset(old.get()) + old.get().len(), quoted),
        None => {
            let at = offset(metadata) + 1;
            let comma = if metadata[1..].trim_start().starts_with('}') { "" } else { "," };
            (at, at, format!("\"resourceVersion\":{quoted}{comma}"))
        }
    };
    Bytes::from([&json[..from], new.as_bytes(), &json[to..]].concat())
}

/// Returns the object with `kind` and the resource's `apiVersion`. Most objects are stored with both.
pub(crate) fn with_type_meta(json: Bytes, resource: &ResourceType) -> Bytes {
    match TypeMeta::parse(&json) {
        Some(type_meta) if has_api_version(type_meta.api_version, resource) => json,
        Some(type_meta) => join_type_meta(type_meta.kind, resource, &json[type_meta.end..]),
        None => rebuild(&json, |kind, rest| join_type_meta(kind.unwrap_or(&resource.kind), resource, rest)),
    }
}

/// Returns whether the object has both already.
pub(crate) fn has_type_meta(json: &[u8], resource: &ResourceType) -> bool {
    TypeMeta::parse(json).is_some_and(|type_meta| has_api_version(type_meta.api_version, resource))
}

/// Returns the object without `kind` and `apiVersion`, as in items of typed lists: the text after its `{`.
pub(crate) fn without_type_meta(json: &[u8]) -> Cow<'_, [u8]> {
    match TypeMeta::parse(json) {
        Some(type_meta) => Cow::Borrowed(&json[type_meta.end..]),
        None if json.starts_with(b"{\"metadata\":") => Cow::Borrowed(&json[1..]),
        None => Cow::Owned(rebuild(json, |_, rest| Bytes::copy_from_slice(rest)).into()),
    }
}

/// Returns the metadata of an object as a `PartialObjectMetadata`.
pub(crate) fn partial_object_metadata(json: &[u8]) -> Bytes {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        metadata: &'a RawValue,
    }
    let metadata = serde_json::from_slice::<Object<'_>>(json).map_or("{}", |o| o.metadata.get());
    let head = "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":";
    Bytes::from([head, metadata, "}"].concat())
}

/// Returns a JSON string literal.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Head of an object: `{"kind":"...","apiVersion":"...",` or the two in reverse order.
#[derive(Debug, PartialEq)]
struct TypeMeta<'a> {
    kind: &'a str,
    api_version: &'a str,
    /// Offset of the text after the head.
    end: usize,
}

impl<'a> TypeMeta<'a> {
    fn parse(json: &'a [u8]) -> Option<Self> {
        let rest = json.strip_prefix(b"{")?;
        let (first, value, rest) = member(rest)?;
        let (second, other, rest) = member(rest)?;
        let (kind, api_version) = match (first, second) {
            (b"kind", b"apiVersion") => (value, other),
            (b"apiVersion", b"kind") => (other, value),
            _ => return None,
        };
        Some(Self { kind, api_version, end: json.len() - rest.len() })
    }
}

/// Parses `"name":"value",` without escapes and blanks; returns the rest too.
fn member(text: &[u8]) -> Option<(&[u8], &str, &[u8])> {
    let (name, rest) = string(text)?;
    let (value, rest) = string(rest.strip_prefix(b":")?)?;
    Some((name, std::str::from_utf8(value).ok()?, rest.strip_prefix(b",")?))
}

fn string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let end = text.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    (text[end] == b'"').then(|| (&text[..end], &text[end + 1..]))
}

fn has_api_version(text: &str, resource: &ResourceType) -> bool {
    match text.split_once('/') {
        Some((group, version)) => group == resource.group && version == resource.version,
        None => resource.group.is_empty() && text == resource.version,
    }
}

fn join_type_meta(kind: &str, resource: &ResourceType, rest: &[u8]) -> Bytes {
    let (kind, api_version) = (quoted(kind), quoted(&resource.api_version()));
    let parts: [&[u8]; 6] =
        [b"{\"kind\":", kind.as_bytes(), b",\"apiVersion\":", api_version.as_bytes(), b",", rest];
    Bytes::from(parts.concat())
}

/// Rebuilds an object: `build` gets its kind and the text after the head, up to the closing brace.
fn rebuild(json: &[u8], build: impl FnOnce(Option<&str>, &[u8]) -> Bytes) -> Bytes {
    let Ok(mut members) = serde_json::from_slice::<BTreeMap<Cow<'_, str>, &RawValue>>(json) else {
        return Bytes::copy_from_slice(json);
    };
    let kind = members.remove("kind").and_then(|kind| serde_json::from_str::<String>(kind.get()).ok());
    members.remove("apiVersion");
    let mut rest = Vec::with_capacity(json.len());
    // The API server writes the metadata first, too.
    let metadata = members.remove("metadata").map(|metadata| (Cow::from("metadata"), metadata));
    for (name, value) in metadata.into_iter().chain(members) {
        if !rest.is_empty() {
            rest.push(b',');
        }
        rest.extend_from_slice(quoted(&name).as_bytes());
        rest.push(b':');
        rest.extend_from_slice(value.get().as_bytes());
    }
    rest.push(b'}');
    build(kind.as_deref(), &rest)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pods() -> ResourceType {
        ResourceType::new("", "v1", "pods", "Pod")
    }

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn adds_missing_type_meta() {
        let cases = [
            (
                r#"{"kind":"Pod","apiVersion":"v1","metadata":{}}"#,
                r#"{"kind":"Pod","apiVersion":"v1","metadata":{}}"#,
            ),
            (
                r#"{"apiVersion":"v1","kind":"Pod","metadata":{}}"#,
                r#"{"apiVersion":"v1","kind":"Pod","metadata":{}}"#,
            ),
            (r#"{"metadata":{},"spec":1}"#, r#"{"kind":"Pod","apiVersion":"v1","metadata":{},"spec":1}"#),
            (
                r#"{"kind":"Old","apiVersion":"v0","metadata":{}}"#,
                r#"{"kind":"Old","apiVersion":"v1","metadata":{}}"#,
            ),
            (
                r#"{"apiVersion":"v1","data":{"a":"b"},"kind":"Pod","metadata":{}}"#,
                r#"{"kind":"Pod","apiVersion":"v1","metadata":{},"data":{"a":"b"}}"#,
            ),
            ("[]", "[]"),
        ];
        for (json, expected) in cases {
            assert_eq!(text(&with_type_meta(Bytes::from(json), &pods())), expected);
        }
    }

    #[test]
    fn an_item_of_a_typed_list_has_no_head() {
        for json in [
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"a":1},"spec":2}"#,
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"a":1},"spec":2}"#,
            r#"{"metadata":{"a":1},"spec":2}"#,
            r#"{"apiVersion":"v1","spec":2,"kind":"Pod","metadata":{"a":1}}"#,
        ] {
            assert_eq!(text(&without_type_meta(json.as_bytes())), r#""metadata":{"a":1},"spec":2}"#);
        }
    }

    #[test]
    fn replaces_resource_version_in_place_or_adds_it() {
        let of =
            |json: &str| text(&with_resource_version(&Bytes::copy_from_slice(json.as_bytes()), 9)).to_owned();
        assert_eq!(
            of(
                r#"{"spec":{"metadata":{"resourceVersion":"1"}},"metadata":{"name":"a","resourceVersion":"12","uid":"u"}}"#
            ),
            r#"{"spec":{"metadata":{"resourceVersion":"1"}},"metadata":{"name":"a","resourceVersion":"9","uid":"u"}}"#
        );
        assert_eq!(of(r#"{"metadata":{ }}"#), r#"{"metadata":{"resourceVersion":"9" }}"#);
        assert_eq!(of(r#"{"metadata":{"a":1}}"#), r#"{"metadata":{"resourceVersion":"9","a":1}}"#);
        assert_eq!(of("nonsense"), "nonsense");
    }

    #[test]
    fn partial_object_has_only_metadata() {
        let partial: Value =
            serde_json::from_slice(&partial_object_metadata(br#"{"spec":1,"metadata":{"name":"a"}}"#))
                .unwrap();
        assert_eq!(
            partial,
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}})
        );
    }
}
