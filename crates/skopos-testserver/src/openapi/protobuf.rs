//! Conversion of protobuf request bodies to JSON: `kubectl create deployment` and typed Go clients send them.
//!
//! Only the fields of the catalog are decoded; others, and kinds that it does not describe, are omitted.

use bytes::Bytes;
use http::{HeaderMap, header};
use jiff::Timestamp;
use serde_json::{Map, Value};
use skopos_serve::resources::split_api_version;
use skopos_wire::Status;
use skopos_wire::protobuf::{Envelope, Field as Wire, MEDIA_TYPE, Message};

use super::catalog::{Definition, Field, FieldType, builtin_name, catalog};

/// Returns the body as JSON if the headers say that it is protobuf; otherwise returns it unchanged.
///
/// # Errors
/// 400 if it cannot be decoded.
pub(crate) fn to_json(headers: &HeaderMap, body: Bytes) -> Result<Bytes, Status> {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if body.is_empty() || !content_type.starts_with(MEDIA_TYPE) {
        return Ok(body);
    }
    let object = decode(&body)
        .ok_or_else(|| Status::bad_request("the body is not protobuf of a kind that is known"))?;
    Ok(Bytes::from(object.to_string()))
}

/// Decodes the envelope and the object in it.
fn decode(body: &[u8]) -> Option<Value> {
    let envelope = Envelope::read(body)?;
    let (group, version) = split_api_version(envelope.api_version);
    let definition = catalog().get(&builtin_name(group, version, envelope.kind))?;
    let mut object = Map::new();
    object.insert("apiVersion".into(), envelope.api_version.into());
    object.insert("kind".into(), envelope.kind.into());
    fill(&mut object, definition, &[], &Message::read(envelope.object)?)?;
    Some(Value::Object(object))
}

/// Adds the fields of a message whose numbers begin with `prefix`.
fn fill(
    object: &mut Map<String, Value>,
    definition: &Definition,
    prefix: &[u64],
    message: &Message<'_>,
) -> Option<()> {
    for (number, values) in message.by_number() {
        let mut path = prefix.to_vec();
        path.push(number);
        if let Some(field) = definition.fields.iter().find(|field| field.number == path) {
            if let Some(value) = field_value(field, &values)? {
                object.insert(field.name.to_owned(), value);
            }
        } else if definition.fields.iter().any(|field| field.number.starts_with(&path)) {
            for value in values {
                fill(object, definition, &path, &Message::read(value.bytes()?)?)?;
            }
        }
    }
    Some(())
}

/// Returns the value of a field; the inner `None` if it is unset, as far as protobuf can tell.
fn field_value(field: &Field, values: &[Wire<'_>]) -> Option<Option<Value>> {
    match &field.r#type {
        FieldType::List(item) => {
            let mut items = Vec::new();
            for value in values {
                items.extend(single(item, value)?);
            }
            Some(Some(Value::Array(items)))
        }
        FieldType::Map(inner) => {
            let mut map = Map::new();
            for value in values {
                let entry = Message::read(value.bytes()?)?;
                let key = String::from_utf8(entry.bytes(1).unwrap_or_default().to_vec()).ok()?;
                let value = entry.last(2).map_or(Some(None), |value| single(inner, &value))?;
                map.insert(key, value.unwrap_or_else(|| Value::from("")));
            }
            Some(Some(Value::Object(map)))
        }
        r#type => {
            let value = single(r#type, values.last()?)?;
            // Fields that are not pointers in Go are encoded even if they are unset.
            let unset = match &value {
                Some(Value::String(text)) => text.is_empty(),
                Some(Value::Bool(false)) | Some(Value::Number(_))
                    if !SIGNIFICANT_ZERO_FIELDS.contains(&field.name) =>
                {
                    value.as_ref().is_some_and(|v| v == false || v.as_f64() == Some(0.0))
                }
                _ => false,
            };
            Some(value.filter(|_| !unset))
        }
    }
}

/// Fields in which zero or false differs from unset.
const SIGNIFICANT_ZERO_FIELDS: [&str; 26] = [
    "activeDeadlineSeconds",
    "allowPrivilegeEscalation",
    "automountServiceAccountToken",
    "backoffLimit",
    "blockOwnerDeletion",
    "completions",
    "controller",
    "defaultMode",
    "enableServiceLinks",
    "failedJobsHistoryLimit",
    "fsGroup",
    "gracePeriodSeconds",
    "immutable",
    "mode",
    "parallelism",
    "privileged",
    "readOnlyRootFilesystem",
    "replicas",
    "revisionHistoryLimit",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "successfulJobsHistoryLimit",
    "suspend",
    "terminationGracePeriodSeconds",
    "ttlSecondsAfterFinished",
];

/// Returns one value of a type; the inner `None` for an unset time.
fn single(r#type: &FieldType, wire: &Wire<'_>) -> Option<Option<Value>> {
    use base64::Engine as _;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok().map(Value::from);
    let value = match r#type {
        FieldType::Definition(name) => {
            let mut object = Map::new();
            fill(&mut object, catalog().get(name)?, &[], &Message::read(wire.bytes()?)?)?;
            Value::Object(object)
        }
        FieldType::Simple("integer") => Value::from(wire.integer()?),
        FieldType::Simple("boolean") => Value::from(wire.integer()? != 0),
        FieldType::Simple("number") => Value::from(f64::from_bits(wire.integer()?.cast_unsigned())),
        FieldType::Simple("bytes") => base64::engine::general_purpose::STANDARD.encode(wire.bytes()?).into(),
        FieldType::Simple("quantity") => text(Message::read(wire.bytes()?)?.bytes(1).unwrap_or_default())?,
        FieldType::Simple(kind @ ("time" | "microtime")) => {
            let time = Message::read(wire.bytes()?)?;
            let number = |field: u64| time.last(field).and_then(|value| value.integer()).unwrap_or(0);
            let (seconds, nanos) = (number(1), i32::try_from(number(2)).ok()?);
            if (seconds, nanos) == (0, 0) {
                return Some(None);
            }
            let format = if *kind == "time" { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S.%6fZ" };
            Timestamp::new(seconds, nanos).ok()?.strftime(format).to_string().into()
        }
        FieldType::Simple("intstr") => {
            let message = Message::read(wire.bytes()?)?;
            match message.last(1).and_then(|kind| kind.integer()) {
                Some(1) => text(message.bytes(3).unwrap_or_default())?,
                _ => message.last(2).and_then(|number| number.integer()).unwrap_or(0).into(),
            }
        }
        // JSON inside protobuf.
        FieldType::Simple("any") => {
            let json = Message::read(wire.bytes()?)?;
            serde_json::from_slice(json.bytes(1).unwrap_or(b"null")).unwrap_or(Value::Null)
        }
        FieldType::Simple(_) => text(wire.bytes()?)?,
        FieldType::List(_) | FieldType::Map(_) => return None,
    };
    Some(Some(value))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::json;
    use skopos_wire::protobuf::MAGIC;

    use super::*;

    /// Encodes a field of bytes.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2, content.len() as u8];
        bytes.extend_from_slice(content);
        bytes
    }

    fn decoded(body: Vec<u8>) -> Result<Value, Status> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        to_json(&headers, body.into()).map(|json| serde_json::from_slice(&json).unwrap())
    }

    #[test]
    fn decodes_object_by_field_numbers() {
        let label = [field(1, b"app"), field(2, b"web")].concat();
        let metadata = [field(1, b"web"), field(3, b""), field(8, b""), field(11, &label)].concat();
        let port = [field(2, b"TCP"), vec![3 << 3, 80], field(4, &[1 << 3, 1, 3 << 3 | 2, 1, b'x'])].concat();
        let service = [field(1, &metadata), field(2, &field(1, &port))].concat();
        let type_meta = [field(1, b"v1"), field(2, b"Service")].concat();
        let body = [MAGIC.to_vec(), field(1, &type_meta), field(2, &service)].concat();
        let expected = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "web", "labels": {"app": "web"}},
            "spec": {"ports": [{"protocol": "TCP", "port": 80, "targetPort": "x"}]},
        });
        assert_eq!(decoded(body), Ok(expected));
    }

    #[test]
    fn messages_without_a_name_in_json_are_opened() {
        // A volume has its source in a nested message.
        let volume = [field(1, b"v"), field(2, &field(6, &field(1, b"s")))].concat();
        let pod = field(2, &field(1, &volume));
        let type_meta = [field(1, b"v1"), field(2, b"Pod")].concat();
        let body = [MAGIC.to_vec(), field(1, &type_meta), field(2, &pod)].concat();
        let pod = decoded(body).unwrap();
        assert_eq!(pod["spec"]["volumes"], json!([{"name": "v", "secret": {"secretName": "s"}}]));
    }

    #[test]
    fn rubbish_is_refused() {
        for body in [b"rubbish".to_vec(), MAGIC.to_vec(), [MAGIC, &[0xff; 12]].concat()] {
            assert_eq!(decoded(body).unwrap_err().code, 400);
        }
    }
}
