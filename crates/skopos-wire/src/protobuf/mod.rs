//! Kubernetes' protobuf: the envelope, and the fields of the built-in kinds by a table.
//!
//! ```text
//!  schema.txt ─▶ Kind ─▶ check ─▶ View ────▶ JSON as Go writes it
//!                 │         └───▶ InOrder ─▶ serde, so any type that reads the JSON
//!                 └── encode ◀── JSON
//! ```
//!
//! No kind has code of its own: the table says number, type and JSON name of each field. Fields that it does not know (of
//! a newer server) stay in the bytes and are left out of the JSON.
//!
//! The input is hostile: for any bytes the outcome is a value or an error, and nesting is bounded.

mod check;
mod deserialize;
mod encode;
mod error;
mod in_order;
mod json;
mod message;
mod parse;
mod quantity;
mod reader;
mod run;
mod schema;
mod special;
mod value;
mod view;
mod write;

pub(crate) use self::check::check;
use self::deserialize::ObjectDeserializer;
pub use self::encode::EncodeError;
pub use self::error::InvalidProtobuf;
pub(crate) use self::message::first_two;
pub use self::message::{Envelope, Field, Message};
pub(crate) use self::reader::{BadEncoding, Reader, TRUNCATED, WIRE_TYPE, WireValue};
pub use self::schema::Kind;
use self::schema::TypeMeta;
pub(crate) use self::special::{lossy, time};
pub(crate) use self::value::{Object, Value};
pub(crate) use self::view::{Position, View};
pub(crate) use self::write::{bytes as write_bytes, nested};

/// The media type of Kubernetes' protobuf.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The magic number at the start of an envelope.
pub const MAGIC: &[u8] = b"k8s\0";

/// Returns the JSON of an object in its envelope, byte for byte as the API server writes it.
///
/// # Errors
/// If the bytes are not an object of a built-in kind: the sender is at fault.
///
/// ```
/// use skopos_wire::protobuf;
///
/// let json = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"k":"v"}}"#;
/// let bytes = protobuf::from_json(json.as_bytes())?;
/// assert_eq!(protobuf::to_json(&bytes)?, json.as_bytes());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn to_json(body: &[u8]) -> Result<Vec<u8>, InvalidProtobuf> {
    let mut json = Vec::with_capacity(body.len() * 2);
    let (object, types) = open(body)?;
    json::write(&object, Some(types), &mut json)?;
    Ok(json)
}

/// Decodes an object in its envelope into a type that reads its JSON.
///
/// # Errors
/// If the bytes are not an object of a built-in kind, or do not fit the type.
pub fn decode<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Box<str>> {
    let (object, types) = open(body).map_err(|error| error.to_string())?;
    decode_object(object, Some(types))
}

/// Encodes an object's JSON, which must have `apiVersion` and `kind`, with its envelope.
///
/// # Errors
/// If it is not JSON of a built-in kind, or has members that the kind does not have: they would be lost.
pub fn from_json(json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    encode::with_envelope(json)
}

/// Writes a list up to its first item. `kind` is that of the list, `lengths` are those of the items' messages. After it come
/// the items ([`list_item`]), and [`LIST_TAIL`].
pub fn list_head(
    kind: &Kind,
    resource_version: &str,
    continue_token: Option<&str>,
    remaining: Option<u64>,
    lengths: impl Iterator<Item = usize>,
) -> Vec<u8> {
    write::list_head(kind, resource_version, continue_token.unwrap_or_default(), remaining, lengths)
}

/// Writes an item of a list, from its message.
pub fn list_item(message: &[u8], body: &mut Vec<u8>) {
    write::list_item(message, body);
}

/// The end of a list, behind its items.
pub const LIST_TAIL: &[u8] = write::ENVELOPE_TAIL;

/// Writes a frame of a watch: its length in four bytes, and the event with the object's envelope.
pub fn watch_frame(event_type: &str, envelope: &[u8]) -> Vec<u8> {
    write::watch_frame(event_type, envelope)
}

/// Returns a built-in kind.
pub(crate) fn find(api_version: &str, kind: &str) -> Result<&'static Kind, EncodeError> {
    Kind::find(api_version, kind)
        .ok_or_else(|| EncodeError::UnknownKind { api_version: api_version.into(), kind: kind.into() })
}

/// Wraps a message in its envelope.
pub fn object(kind: &Kind, message: &[u8]) -> Vec<u8> {
    write::envelope(kind.api_version, kind.kind, message)
}

/// Returns the message of a `PartialObjectMetadata`: the metadata of an object's message, byte for byte.
pub fn metadata_only(message: &[u8]) -> Vec<u8> {
    let metadata = crate::object::metadata(message).unwrap_or_default();
    let mut partial = Vec::with_capacity(metadata.len() + 8);
    write_bytes(1, metadata, &mut partial);
    partial
}

/// Writes the JSON of a message that was checked.
pub(crate) fn message_to_json(
    kind: &'static Kind,
    has_types: bool,
    message: &[u8],
) -> Result<Vec<u8>, InvalidProtobuf> {
    let mut json = Vec::with_capacity(message.len() * 2);
    let object = Object::new(kind.message, message);
    json::write(&object, has_types.then(|| kind.types()), &mut json)?;
    Ok(json)
}

/// Encodes the JSON of an object of this kind, without an envelope.
///
/// # Errors
/// If the JSON is not of this kind, or has members that the kind does not have: they would be lost.
pub fn message(kind: &Kind, json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    encode::message(kind.message, json)
}

/// Checks and decodes a message.
pub(crate) fn decode_message<T: serde::de::DeserializeOwned>(
    kind: &'static Kind,
    message: &[u8],
) -> Result<T, Box<str>> {
    check(kind.message, message).map_err(|error| error.to_string())?;
    decode_object(Object::new(kind.message, message), Some(kind.types()))
}

/// Decodes a message that was checked.
pub(crate) fn decode_object<T: serde::de::DeserializeOwned>(
    object: Object<'_>,
    types: Option<TypeMeta<'_>>,
) -> Result<T, Box<str>> {
    T::deserialize(ObjectDeserializer::new(object, types)).map_err(|error| error.to_string().into())
}

/// Opens an envelope, and checks the message in it.
fn open(body: &[u8]) -> Result<(Object<'_>, TypeMeta<'_>), InvalidProtobuf> {
    let unknown = InvalidProtobuf::in_message("runtime.Unknown");
    let envelope = Envelope::read(body).ok_or(unknown("it is not an envelope"))?;
    let kind = Kind::find(envelope.api_version, envelope.kind).ok_or(unknown("its kind is not known"))?;
    check(kind.message, envelope.object)?;
    let types = TypeMeta { api_version: envelope.api_version, kind: envelope.kind };
    Ok((Object::new(kind.message, envelope.object), types))
}
