//! Scan of an object in protobuf: a check of the whole, and its identity.

use std::borrow::Cow;

use bytes::Bytes;

use super::content::Content;
use super::lookup::lookup_text;
use super::{HAS_TYPES, Identity, Inner, Pair, RawObject, ScanError, Span, Unescaped};
use crate::protobuf::{
    self, Envelope, InvalidProtobuf, Kind, Object, Position, Reader, Value, View, WireValue,
};
use crate::{Limits, ObjectKey};

/// The numbers of the fields of `ObjectMeta`.
pub(super) mod field {
    pub(in crate::object) const NAME: u32 = 1;
    pub(in crate::object) const NAMESPACE: u32 = 3;
    pub(in crate::object) const UID: u32 = 5;
    pub(in crate::object) const RESOURCE_VERSION: u32 = 6;
    pub(in crate::object) const GENERATION: u32 = 7;
    pub(in crate::object) const DELETION_TIMESTAMP: u32 = 9;
    pub(in crate::object) const LABELS: u32 = 11;
    pub(in crate::object) const ANNOTATIONS: u32 = 12;
    pub(in crate::object) const MANAGED_FIELDS: u32 = 17;
}

/// The number of the metadata of every object and list.
pub(super) const METADATA: u32 = 1;

impl RawObject {
    /// Scans an object in its envelope.
    pub(super) fn from_envelope(body: &[u8], limits: &Limits) -> Result<Self, ScanError> {
        let (kind, message) = open(body)?;
        scan(kind, true, message, limits).map(RawObject::from)
    }

    /// Scans the message of an item of a list.
    pub(crate) fn from_message(
        kind: &'static Kind,
        message: &[u8],
        limits: &Limits,
    ) -> Result<Self, ScanError> {
        scan(kind, false, message, limits).map(RawObject::from)
    }

    /// Returns the identity in a message, as far as known.
    pub(crate) fn identify_message(message: &[u8]) -> Identity {
        let metadata = metadata(message).unwrap_or_default();
        let text = |number| text_in(metadata, number).map(|text| protobuf::lossy(text).into_owned());
        let resource_version = text(field::RESOURCE_VERSION).and_then(|text| text.parse().ok());
        if resource_version.is_none() && text(field::UID).is_none_or(|uid| uid.is_empty()) {
            return Identity::default();
        }
        let namespace = text(field::NAMESPACE);
        let key = text(field::NAME).and_then(|name| ObjectKey::checked(namespace.as_deref(), &name).ok());
        Identity { key, resource_version }
    }
}

/// Returns kind and message of an object in its envelope.
pub(crate) fn open(body: &[u8]) -> Result<(&'static Kind, &[u8]), ScanError> {
    let unknown = |problem| InvalidProtobuf { message: "runtime.Unknown", problem };
    let envelope = Envelope::read(body).ok_or(unknown("it is not an envelope"))?;
    let kind = Kind::find(envelope.api_version, envelope.kind).ok_or_else(|| ScanError::UnknownKind {
        api_version: envelope.api_version.into(),
        kind: envelope.kind.into(),
    })?;
    Ok((kind, envelope.object))
}

/// Returns the metadata of a message: of an object, or of a bookmark.
pub(crate) fn metadata(message: &[u8]) -> Option<&[u8]> {
    text_in(message, METADATA)
}

/// Returns the resourceVersion in metadata.
pub(crate) fn resource_version(metadata: &[u8]) -> Option<&str> {
    std::str::from_utf8(text_in(metadata, field::RESOURCE_VERSION)?).ok()
}

/// Returns the value of an annotation in metadata.
pub(super) fn annotation<'a>(metadata: &'a [u8], key: &str) -> Option<Cow<'a, str>> {
    let (_, value) =
        entries(metadata, field::ANNOTATIONS).filter(|(own, _)| *own == key.as_bytes()).last()?;
    Some(protobuf::lossy(value))
}

/// Returns `metadata.generation`.
pub(super) fn generation(metadata: &[u8]) -> Option<i64> {
    let mut reader = Reader::new(metadata);
    let mut generation = None;
    while let Ok(Some((number, value))) = reader.next() {
        if let (field::GENERATION, WireValue::Varint(value)) = (number, value) {
            generation = Some(value.cast_signed());
        }
    }
    // Go's encoder writes it even if it is unset.
    generation.filter(|generation| *generation != 0)
}

/// Returns whether an annotation in metadata is `true`.
pub(crate) fn is_annotated(metadata: &[u8], key: &str) -> bool {
    annotation(metadata, key).is_some_and(|value| value == "true")
}

/// Returns the next label in metadata.
pub(super) fn next_label<'a>(metadata: &mut Reader<'a>) -> Option<(&'a [u8], &'a [u8])> {
    loop {
        if let (field::LABELS, WireValue::Bytes(label)) = metadata.next().ok()?? {
            return Some(entry(label));
        }
    }
}

/// Returns a message without `metadata.managedFields`.
pub(super) fn without_managed_fields(message: &[u8]) -> Option<Bytes> {
    let old = metadata(message)?;
    let mut metadata = Vec::with_capacity(old.len());
    copy_fields(old, &mut metadata, |number| number != field::MANAGED_FIELDS)?;
    let mut bytes = Vec::with_capacity(message.len() - (old.len() - metadata.len()));
    protobuf::write_bytes(METADATA, &metadata, &mut bytes);
    copy_fields(message, &mut bytes, |number| number != METADATA)?;
    Some(Bytes::copy_from_slice(&bytes))
}

/// Returns the text of the scalar at a path.
pub(super) fn lookup<'a>(object: &Object<'a>, path: &[&str]) -> Option<Cow<'a, str>> {
    let (name, rest) = path.split_first()?;
    let view = View::read(object).ok()?;
    let (mut position, mut value) = (Position::default(), Value::Null);
    while let Some(own) = view.next_member(&mut position, &mut value).ok()? {
        if own == *name {
            return text_at(value, rest);
        }
    }
    None
}

fn text_at<'a>(value: Value<'a>, path: &[&str]) -> Option<Cow<'a, str>> {
    match (value, path) {
        (Value::Bool(value), []) => Some(value.to_string().into()),
        (Value::Integer(number), []) => Some(number.to_string().into()),
        (Value::Double(number), []) => Some(number.to_string().into()),
        (Value::Text(text), []) => Some(text),
        (Value::BrokenText(bytes), []) => Some(protobuf::lossy(bytes)),
        (Value::Raw(json), path) => lookup_text(json, path),
        (Value::Object(object), path) => lookup(&object, path),
        (Value::Map(mut entries), [key, rest @ ..]) => {
            let (_, element) = entries.find(|(own, _)| *own == key.as_bytes())?;
            text_at(element.read().ok()?, rest)
        }
        _ => None,
    }
}

fn scan(kind: &'static Kind, has_types: bool, message: &[u8], limits: &Limits) -> Result<Inner, ScanError> {
    let limit = limits.max_object_bytes.min(u32::MAX as usize);
    if message.len() > limit {
        return Err(ScanError::TooLarge { bytes: message.len(), limit });
    }
    protobuf::check(kind.message, message)?;
    let mut all = byte_fields(message).filter(|(number, _)| *number == METADATA);
    let (_, metadata) = all.next().ok_or(ScanError::Missing { field: "metadata" })?;
    if all.next().is_some() {
        return Err(ScanError::Duplicate { field: "metadata" });
    }
    let mut found = Found::default();
    found.read(metadata, limits)?;
    let name = text(found.name, "metadata.name")?.ok_or(ScanError::Missing { field: "metadata.name" })?;
    text(found.uid, "metadata.uid")?.ok_or(ScanError::Missing { field: "metadata.uid" })?;
    let resource_version = text(found.resource_version, "metadata.resourceVersion")?
        .ok_or(ScanError::Missing { field: "metadata.resourceVersion" })?
        .parse()?;
    let namespace = text(found.namespace, "metadata.namespace")?;
    let span = |part: &[u8]| Span::new_within(part, message);
    Ok(Inner {
        key: ObjectKey::checked(namespace, name)?,
        resource_version,
        uid: span(found.uid.unwrap_or_default()),
        deletion_timestamp: Span::default(),
        api_version: Span::default(),
        kind: if has_types { HAS_TYPES } else { Span::default() },
        metadata: span(metadata),
        labels: Span::default(),
        unescaped: found.unescaped()?,
        message: Some(kind),
        content: Content::Plain(Bytes::copy_from_slice(message)),
    })
}

/// Returns the fields of a message that have a length, up to the first defect.
fn byte_fields(message: &[u8]) -> impl Iterator<Item = (u32, &[u8])> + Clone {
    let mut reader = Reader::new(message);
    std::iter::from_fn(move || {
        loop {
            match reader.next().ok()?? {
                (number, WireValue::Bytes(bytes)) => return Some((number, bytes)),
                _ => continue,
            }
        }
    })
}

/// Returns the content of a field; the last one wins.
pub(super) fn text_in(message: &[u8], number: u32) -> Option<&[u8]> {
    byte_fields(message).filter(|(own, _)| *own == number).last().map(|(_, bytes)| bytes)
}

pub(super) fn entries(message: &[u8], number: u32) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    byte_fields(message).filter(move |(own, _)| *own == number).map(|(_, bytes)| entry(bytes))
}

/// Returns key and value of an entry of a map of strings.
fn entry(entry: &[u8]) -> (&[u8], &[u8]) {
    let [key, value] = protobuf::first_two(entry).unwrap_or_default();
    (key.unwrap_or_default(), value.unwrap_or_default())
}

/// Copies the fields whose number is wanted, byte for byte.
pub(super) fn copy_fields(message: &[u8], copy: &mut Vec<u8>, is_wanted: impl Fn(u32) -> bool) -> Option<()> {
    let mut reader = Reader::new(message);
    loop {
        let before = reader.rest();
        let Some((number, _)) = reader.next().ok()? else { return Some(()) };
        if is_wanted(number) {
            copy.extend_from_slice(before.get(..before.len() - reader.rest().len())?);
        }
    }
}

/// Returns a text, if it is there and not empty.
fn text<'a>(bytes: Option<&'a [u8]>, field: &'static str) -> Result<Option<&'a str>, ScanError> {
    let text = std::str::from_utf8(bytes.unwrap_or_default())
        .map_err(|_| ScanError::WrongType { field, expected: "text" })?;
    Ok((!text.is_empty()).then_some(text))
}

/// The fields of the metadata that matter.
#[derive(Default)]
struct Found<'a> {
    name: Option<&'a [u8]>,
    namespace: Option<&'a [u8]>,
    uid: Option<&'a [u8]>,
    resource_version: Option<&'a [u8]>,
    deletion_timestamp: Option<&'a [u8]>,
    labels: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> Found<'a> {
    fn read(&mut self, metadata: &'a [u8], limits: &Limits) -> Result<(), ScanError> {
        for (number, value) in byte_fields(metadata) {
            let (slot, field) = match number {
                field::NAME => (&mut self.name, "metadata.name"),
                field::NAMESPACE => (&mut self.namespace, "metadata.namespace"),
                field::UID => (&mut self.uid, "metadata.uid"),
                field::RESOURCE_VERSION => (&mut self.resource_version, "metadata.resourceVersion"),
                field::DELETION_TIMESTAMP => (&mut self.deletion_timestamp, "metadata.deletionTimestamp"),
                field::LABELS if self.labels.len() == limits.max_labels => {
                    return Err(ScanError::TooManyLabels { limit: limits.max_labels });
                }
                field::LABELS => {
                    self.labels.push(entry(value));
                    continue;
                }
                _ => continue,
            };
            if value.len() > limits.max_name_bytes {
                return Err(ScanError::TooLong { field, limit: limits.max_name_bytes });
            }
            if slot.replace(value).is_some() {
                return Err(ScanError::Duplicate { field });
            }
        }
        Ok(())
    }

    /// Returns what cannot be read in place.
    fn unescaped(&self) -> Result<Option<Box<Unescaped>>, ScanError> {
        let deletion_timestamp = match self.deletion_timestamp {
            Some(time) => protobuf::time(time)
                .map_err(|problem| InvalidProtobuf { message: "meta/v1.ObjectMeta", problem })?,
            None => None,
        };
        let labels = (!self.labels_are_plain()).then(|| self.last_labels());
        if deletion_timestamp.is_none() && labels.is_none() {
            return Ok(None);
        }
        Ok(Some(Box::new(Unescaped {
            deletion_timestamp: deletion_timestamp.map(Into::into),
            labels,
            ..Unescaped::default()
        })))
    }

    /// Returns whether every label is text, and no key is there twice.
    fn labels_are_plain(&self) -> bool {
        // Servers write them sorted.
        let distinct = self.labels.is_sorted_by(|(a, _), (b, _)| a < b);
        let is_text = |bytes| std::str::from_utf8(bytes).is_ok();
        distinct && self.labels.iter().all(|(key, value)| is_text(key) && is_text(value))
    }

    /// Returns the labels, of each key the last one.
    fn last_labels(&self) -> Box<[Pair]> {
        let text = |bytes| Box::<str>::from(protobuf::lossy(bytes));
        let pairs: std::collections::BTreeMap<_, _> =
            self.labels.iter().map(|(key, value)| (text(key), text(value))).collect();
        pairs.into_iter().collect()
    }
}
