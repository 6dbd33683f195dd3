//! Objects as the server sent them, plus the metadata that a cache needs.

mod compact;
mod content;
mod fields;
mod labels;
mod lookup;
mod metadata_change;
mod parts;
mod protobuf;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
pub use labels::Labels;
pub(crate) use lookup::lookup_text;
pub use metadata_change::MetadataChange;
pub use parts::{Identity, ScanError};
pub(crate) use parts::{Parts, check_read, check_text};
pub(crate) use protobuf::{is_annotated, metadata, open, resource_version};
use serde::de::DeserializeOwned;

use self::content::Content;
use crate::json::{Cursor, RawStr};
use crate::protobuf::{EncodeError, Kind, MAGIC, Object};
use crate::{Limits, ObjectKey, ResourceVersion};

/// A Kubernetes object: its JSON or protobuf as the server sent it, and the metadata scanned from it.
///
/// Cheap to clone. Scanned fields are mostly held as positions in the content, so an object costs its content and about 200
/// bytes. Everything else is decoded on demand: [`RawObject::decode`] into a type, [`RawObject::field`] for a single field.
///
/// Covers full objects, `PartialObjectMetadata` and list items (which lack `kind` and `apiVersion` if the list is typed).
///
/// ```
/// # use skopos_wire::{Limits, RawObject};
/// let json = br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-1","namespace":"shop","uid":"7d1e",
///     "resourceVersion":"41","labels":{"app":"web"}},"spec":{"nodeName":"n1"}}"#;
/// let pod = RawObject::copy_from(json, &Limits::default())?;
/// assert_eq!(pod.key().to_string(), "shop/web-1");
/// assert_eq!(pod.label("app"), Some("web"));
/// assert_eq!(pod.field("spec.nodeName").as_deref(), Some("n1"));
/// # Ok::<(), skopos_wire::ScanError>(())
/// ```
#[derive(Clone)]
pub struct RawObject(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    content: Content,
    /// The kind whose message the content is; `None` for JSON.
    message: Option<&'static Kind>,
    key: ObjectKey,
    resource_version: ResourceVersion,
    uid: Span,
    deletion_timestamp: Span,
    api_version: Span,
    kind: Span,
    metadata: Span,
    labels: Span,
    unescaped: Option<Box<Unescaped>>,
}

/// The form of an object's content.
#[derive(Clone, Copy)]
enum Encoding {
    Json,
    Protobuf {
        kind: &'static Kind,
        /// True if its JSON has `kind` and `apiVersion`, which items of lists lack.
        has_types: bool,
    },
}

/// A range of the content in half the space. Empty if the field is absent.
#[derive(Clone, Copy, Default)]
struct Span {
    start: u32,
    len: u32,
}

/// Fields with escapes, which cannot be read in place. Servers do not write such fields, but may.
#[derive(Clone, Default)]
struct Unescaped {
    uid: Option<Box<str>>,
    deletion_timestamp: Option<Box<str>>,
    api_version: Option<Box<str>>,
    kind: Option<Box<str>>,
    labels: Option<Box<[Pair]>>,
}

/// A label's key and value.
type Pair = (Box<str>, Box<str>);

impl RawObject {
    /// Scans an object in the buffer it came in, and keeps that buffer. Protobuf in its envelope is recognized by its magic
    /// number, and copied.
    ///
    /// Pass a buffer of the object's own size, as [`ListSplitter`](crate::ListSplitter) makes: a slice of a larger one
    /// keeps all of it alive. [`RawObject::copy_from`] is for slices. Surrounding white space, such as the newline that
    /// ends an API server's response, is not part of the object.
    ///
    /// # Errors
    /// If the bytes are not an object with name, uid and resourceVersion, or exceed a limit: the server is at fault.
    pub fn scan(json: Bytes, limits: &Limits) -> Result<Self, ScanError> {
        if json.starts_with(MAGIC) {
            return Self::from_envelope(&json, limits);
        }
        let json = json.slice_ref(json.trim_ascii());
        let inner = {
            let parts = Parts::from_document(&json, limits)?;
            parts.into_inner(0)?
        };
        Ok(Self(Arc::new(Inner { content: Content::Plain(json), ..inner })))
    }

    /// Scans an object and copies it into a buffer of exactly its size.
    ///
    /// # Errors
    /// As [`RawObject::scan`].
    pub fn copy_from(json: &[u8], limits: &Limits) -> Result<Self, ScanError> {
        if json.starts_with(MAGIC) {
            return Self::from_envelope(json, limits);
        }
        let json = json.trim_ascii();
        let inner = Parts::from_document(json, limits)?.into_inner(0)?;
        Ok(Self(Arc::new(Inner { content: Content::Plain(Bytes::copy_from_slice(json)), ..inner })))
    }

    /// Scans the object at the start of `text` and returns it with its length. Returns `None` if the object does not end
    /// there or cannot be parsed: once its end is found some other way, a scan of the whole reports the reason.
    pub(crate) fn at_start_of(text: &[u8], limits: &Limits) -> Option<(Self, usize)> {
        let mut cursor = Cursor::new(text, limits.max_depth);
        let mut parts = Parts::default();
        parts.read(&mut cursor, limits).ok()?;
        let json = check_read(&cursor, limits.max_object_bytes).ok()?;
        Some((Self::from_parts(json, parts, 0).ok()?, json.len()))
    }

    /// Creates an object from the parts scanned at `json`, which starts at `base` in the text that `parts` points into.
    pub(crate) fn from_parts(json: &[u8], parts: Parts<'_>, base: usize) -> Result<Self, ScanError> {
        let inner = parts.into_inner(base)?;
        Ok(Self(Arc::new(Inner { content: Content::Plain(Bytes::copy_from_slice(json)), ..inner })))
    }

    /// Scans a JSON tree, for tests and for servers that build their objects.
    ///
    /// # Errors
    /// As [`RawObject::scan`]; the caller is at fault.
    pub fn from_value(value: &serde_json::Value, limits: &Limits) -> Result<Self, ScanError> {
        // A Value always serializes, and Display does it without a Result to handle.
        Self::scan(Bytes::from(value.to_string()), limits)
    }

    /// Returns the object's identity as far as known, for bytes that [`RawObject::scan`] rejected.
    ///
    /// Best effort: a key is taken only from metadata that also has a uid or a resourceVersion, as only whole objects have
    /// (templates inside them have neither).
    pub fn identify(json: &[u8]) -> Identity {
        match open(json) {
            Ok((_, message)) => Self::identify_message(message),
            Err(_) => Parts::identify(json),
        }
    }

    /// Returns the JSON: exactly as received, or written from protobuf as the API server writes it. The latter costs about
    /// as much as one parse of the JSON.
    pub fn json(&self) -> Bytes {
        match self.0.encoding() {
            Encoding::Json => self.content(),
            Encoding::Protobuf { kind, has_types } => {
                // The content was checked when it was scanned, so there is no error.
                let json = crate::protobuf::message_to_json(kind, has_types, &self.read());
                json.unwrap_or_else(|_| b"{}".to_vec()).into()
            }
        }
    }

    /// Returns the object in protobuf, in its envelope: as received, or encoded from the JSON. `types` are `apiVersion` and
    /// `kind`, for the item of a list.
    ///
    /// # Errors
    /// If the object is not of a built-in kind, or its JSON does not fit its kind.
    pub fn to_protobuf(&self, types: Option<(&str, &str)>) -> Result<Vec<u8>, EncodeError> {
        let (kind, message) = self.to_message(types)?;
        Ok(crate::protobuf::object(kind, &message))
    }

    /// Returns kind and message of the object, as [`RawObject::to_protobuf`] does.
    ///
    /// # Errors
    /// As [`RawObject::to_protobuf`].
    pub fn to_message(&self, types: Option<(&str, &str)>) -> Result<(&'static Kind, Bytes), EncodeError> {
        if let Encoding::Protobuf { kind, .. } = self.0.encoding() {
            return Ok((kind, self.content()));
        }
        let (api_version, kind) = match (self.api_version(), self.kind(), types) {
            (Some(api_version), Some(kind), _) | (_, _, Some((api_version, kind))) => (api_version, kind),
            _ => ("", ""),
        };
        let kind = crate::protobuf::find(api_version, kind)?;
        Ok((kind, crate::protobuf::message(kind, &self.read())?.into()))
    }

    /// Returns the message of an object that is held in protobuf.
    pub fn message(&self) -> Option<Bytes> {
        self.is_protobuf().then(|| self.content())
    }

    /// Returns whether the object is held in protobuf.
    pub fn is_protobuf(&self) -> bool {
        matches!(self.0.encoding(), Encoding::Protobuf { .. })
    }

    /// Returns the bytes to store, from which [`RawObject::scan`] makes the object again: its JSON, or its protobuf in an
    /// envelope.
    pub fn to_stored(&self) -> Bytes {
        match self.0.encoding() {
            Encoding::Json => self.content(),
            Encoding::Protobuf { kind, .. } => crate::protobuf::object(kind, &self.read()).into(),
        }
    }

    /// Returns the JSON, or the message of protobuf without its envelope.
    pub fn content(&self) -> Bytes {
        self.0.content.bytes()
    }

    fn read(&self) -> Cow<'_, [u8]> {
        self.0.content.read()
    }

    /// Returns the length of the content in bytes, also while it is held compressed.
    pub fn content_len(&self) -> usize {
        self.0.content.len()
    }

    /// Returns the buffer that holds the content, compressed or not. The same buffer always holds the same object.
    pub fn buffer(&self) -> &Bytes {
        self.0.content.buffer()
    }

    /// Returns the object without `metadata.managedFields`, in the same form.
    ///
    /// # Errors
    /// If the result cannot be scanned, which happens only if the object could not be either.
    pub fn without_managed_fields(&self, limits: &Limits) -> Result<Self, ScanError> {
        match self.0.encoding() {
            Encoding::Json => Self::scan(crate::transform::drop_managed_fields(&self.read()), limits),
            Encoding::Protobuf { kind, has_types } => {
                let content = self.read();
                let message = protobuf::without_managed_fields(&content);
                let message = message.as_deref().unwrap_or(&content);
                let object = Self::from_message(kind, message, limits)?;
                Ok(if has_types { object.with_types(kind) } else { object })
            }
        }
    }

    /// Returns namespace and name.
    pub fn key(&self) -> &ObjectKey {
        &self.0.key
    }

    /// Returns `metadata.name`.
    pub fn name(&self) -> &str {
        self.0.key.name()
    }

    /// Returns `metadata.namespace`, or `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        self.0.key.namespace()
    }

    /// Returns `metadata.uid`.
    pub fn uid(&self) -> &str {
        self.text(self.0.uid, |unescaped| &unescaped.uid).unwrap_or_default()
    }

    /// Returns `metadata.resourceVersion`.
    pub fn resource_version(&self) -> &ResourceVersion {
        &self.0.resource_version
    }

    /// Returns true if both are certainly the same version with the same content. Version and uid alone do not prove this:
    /// a server that was restored from a backup assigns the same versions again. A leading `kind` and `apiVersion` are
    /// ignored (objects have them in watch events and not in lists); any other difference counts.
    ///
    /// ```
    /// use skopos_wire::{Limits, RawObject};
    ///
    /// let scan = |json: &'static str| RawObject::scan(json.into(), &Limits::default()).unwrap();
    /// let listed = scan(r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"1"},"spec":{}}"#);
    /// let told = scan(r#"{"kind":"Pod","metadata":{"name":"a","uid":"u","resourceVersion":"1"},"spec":{}}"#);
    /// let other = scan(r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"1"},"spec":{"x":1}}"#);
    /// assert!(listed.is_same_content(&told) && !listed.is_same_content(&other));
    /// ```
    pub fn is_same_content(&self, other: &RawObject) -> bool {
        // Comparing the content would suffice, but this is faster.
        if self.resource_version() != other.resource_version() {
            return false;
        }
        match (self.0.encoding(), other.0.encoding()) {
            (Encoding::Json, Encoding::Json) => {
                self.0.content == other.0.content || self.is_with_types(other) || other.is_with_types(self)
            }
            (Encoding::Protobuf { kind, .. }, Encoding::Protobuf { kind: theirs, .. }) => {
                kind == theirs && self.0.content == other.0.content
            }
            (Encoding::Json, Encoding::Protobuf { kind, .. }) => self.is_json_of(kind, other),
            (Encoding::Protobuf { kind, .. }, Encoding::Json) => other.is_json_of(kind, self),
        }
    }

    /// Returns whether this JSON is an object in protobuf. Compared in protobuf, in which servers have one way to write an
    /// object, whatever its JSON leaves out.
    fn is_json_of(&self, kind: &'static Kind, object: &RawObject) -> bool {
        crate::protobuf::message(kind, &self.read()).is_ok_and(|message| message == *object.read())
    }

    /// Returns whether this is `item` plus only the `kind` and `apiVersion` that it lacks, at the beginning.
    fn is_with_types(&self, item: &RawObject) -> bool {
        let member = |key: &str, own: Option<&str>, theirs: Option<&str>| match (own, theirs) {
            (Some(own), None) => key.len() + own.len() + r#""":"","#.len(),
            _ => 0,
        };
        let added = member("kind", self.kind(), item.kind())
            + member("apiVersion", self.api_version(), item.api_version());
        let (own, item) = (self.read(), item.read());
        own.len() == item.len() + added && item.strip_prefix(b"{").is_some_and(|rest| own.ends_with(rest))
    }

    /// Returns `metadata.deletionTimestamp` in RFC 3339, if the object is being deleted.
    pub fn deletion_timestamp(&self) -> Option<&str> {
        self.text(self.0.deletion_timestamp, |unescaped| &unescaped.deletion_timestamp)
    }

    /// Returns `apiVersion`, which items of typed lists lack.
    pub fn api_version(&self) -> Option<&str> {
        match self.0.encoding() {
            Encoding::Json => self.text(self.0.api_version, |unescaped| &unescaped.api_version),
            Encoding::Protobuf { kind, has_types } => has_types.then_some(kind.api_version),
        }
    }

    /// Returns `kind`, which items of typed lists lack.
    pub fn kind(&self) -> Option<&str> {
        match self.0.encoding() {
            Encoding::Json => self.text(self.0.kind, |unescaped| &unescaped.kind),
            Encoding::Protobuf { kind, has_types } => has_types.then_some(kind.kind),
        }
    }

    /// Returns the labels, in the order of the content.
    pub fn labels(&self) -> Labels<'_> {
        let pairs = self.0.unescaped.as_ref().and_then(|unescaped| unescaped.labels.as_deref());
        match (pairs, self.0.encoding()) {
            (Some(pairs), _) => Labels::from_pairs(pairs),
            (None, Encoding::Json) => Labels::from_json(self.slice(self.0.labels)),
            (None, Encoding::Protobuf { .. }) => Labels::from_protobuf(self.slice(self.0.metadata)),
        }
    }

    /// Returns the value of one label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels().find_map(|(own, value)| (own == key).then_some(value))
    }

    /// Decodes the object into a type, such as a k8s-openapi struct. The type reads protobuf as it would read the JSON.
    ///
    /// # Errors
    /// If the object does not fit the type: the caller used the wrong type, or the server sent an unexpected one.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        let failed = |message: Box<str>| DecodeError {
            key: self.0.key.clone(),
            target: std::any::type_name::<T>(),
            message,
        };
        let content = self.read();
        if let Encoding::Protobuf { kind, has_types } = self.0.encoding() {
            let types = has_types.then(|| kind.types());
            return crate::protobuf::decode_object(Object::new(kind.message, &content), types)
                .map_err(failed);
        }
        // As text, so that serde_json need not check the UTF-8 of each string.
        let text = std::str::from_utf8(&content).map_err(|error| failed(error.to_string().into()))?;
        serde_json::from_str(text).map_err(|error| failed(error.to_string().into()))
    }

    /// Returns the object as a tree; `Null` only if it nests deeper than serde_json supports (128 levels).
    pub fn to_value(&self) -> serde_json::Value {
        self.decode().unwrap_or_default()
    }

    /// Returns the approximate memory use of this object, including its content.
    pub fn memory_bytes(&self) -> usize {
        const COUNTS: usize = 2 * size_of::<usize>();
        let key = COUNTS + self.name().len() + 1 + self.namespace().map_or(0, str::len);
        COUNTS + size_of::<Inner>() + key + self.buffer().len()
    }

    /// Returns the message of an object in protobuf, whose content this is.
    fn message_in<'a>(&self, content: &'a [u8]) -> Option<Object<'a>> {
        self.0.message.map(|kind| Object::new(kind.message, content))
    }

    /// Adds `kind` and `apiVersion` to the JSON of an object in protobuf.
    fn with_types(self, kind: &'static Kind) -> Self {
        match Arc::try_unwrap(self.0) {
            Ok(inner) => Inner { kind: HAS_TYPES, message: Some(kind), ..inner }.into(),
            Err(shared) => Self(shared),
        }
    }

    fn slice(&self, span: Span) -> &[u8] {
        self.0.content.head().get(span.range()).unwrap_or_default()
    }

    fn text<'a>(
        &'a self,
        span: Span,
        unescaped: impl FnOnce(&'a Unescaped) -> &'a Option<Box<str>>,
    ) -> Option<&'a str> {
        if let Some(text) = self.0.unescaped.as_deref().and_then(|all| unescaped(all).as_deref()) {
            return Some(text);
        }
        // The whole was checked to be UTF-8 when it was scanned.
        std::str::from_utf8(self.slice(span)).ok().filter(|text| !text.is_empty())
    }
}

/// The `kind` of an object in protobuf whose JSON has `kind` and `apiVersion`; its text is that of its [`Kind`].
const HAS_TYPES: Span = Span { start: 0, len: 1 };

impl Inner {
    fn encoding(&self) -> Encoding {
        match self.message {
            None => Encoding::Json,
            Some(kind) => Encoding::Protobuf { kind, has_types: self.kind.len == HAS_TYPES.len },
        }
    }
}

impl From<Inner> for RawObject {
    fn from(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }
}

impl fmt::Debug for RawObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawObject")
            .field("kind", &self.kind().unwrap_or_default())
            .field("key", self.key())
            .field("uid", &self.uid())
            .field("resource_version", self.resource_version())
            .field("bytes", &self.content_len())
            .finish()
    }
}

/// Equal if the content is the same, byte for byte.
impl PartialEq for RawObject {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.message == other.0.message && self.0.content == other.0.content)
    }
}

impl Eq for RawObject {}

/// An object that does not fit the type it was decoded into.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} cannot be decoded into {target}: {message}")]
pub struct DecodeError {
    key: ObjectKey,
    target: &'static str,
    message: Box<str>,
}

impl DecodeError {
    /// Returns the key of the object.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }
}

impl Span {
    /// Creates the span of a range relative to `base`. An object is at most 4 GiB long, as [`Parts::from_document`] has
    /// checked.
    fn new(range: Range<usize>, base: usize) -> Self {
        let start = u32::try_from(range.start - base).unwrap_or_default();
        Self { start, len: u32::try_from(range.len()).unwrap_or_default() }
    }

    /// Creates the span of a part of `whole`.
    fn new_within(part: &[u8], whole: &[u8]) -> Self {
        let start = part.as_ptr().addr().wrapping_sub(whole.as_ptr().addr());
        if part.is_empty() { Self::default() } else { Self::new(start..start + part.len(), 0) }
    }

    fn range(self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.len as usize
    }
}

fn owned(text: RawStr<'_>) -> Option<Box<str>> {
    text.text().map(|text| text.into_owned().into())
}

#[cfg(test)]
mod tests;
