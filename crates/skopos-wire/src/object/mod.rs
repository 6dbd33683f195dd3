//! Objects as raw JSON plus the metadata that a cache needs.

mod labels;
mod parts;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
pub use labels::Labels;
pub use parts::{Identity, ScanError};
pub(crate) use parts::{Parts, check_read, check_text};
use serde::de::DeserializeOwned;

use crate::json::{Cursor, RawStr};
use crate::{Limits, ObjectKey, ResourceVersion};

/// A Kubernetes object: the JSON as the server sent it, and the metadata scanned from it.
///
/// Cheap to clone. Scanned fields are mostly held as positions in the JSON, so an object costs its JSON and about 200
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

struct Inner {
    json: Bytes,
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

/// A range of the JSON in half the space. Empty if the field is absent.
#[derive(Clone, Copy, Default)]
struct Span {
    start: u32,
    len: u32,
}

/// Fields with escapes, which cannot be read in place. Servers do not write such fields, but may.
#[derive(Default)]
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
    /// Scans an object in the buffer it came in, and keeps that buffer.
    ///
    /// Pass a buffer of the object's own size, as [`ListSplitter`](crate::ListSplitter) makes: a slice of a larger one
    /// keeps all of it alive. [`RawObject::copy_from`] is for slices. Surrounding white space, such as the newline that
    /// ends an API server's response, is not part of the object.
    ///
    /// # Errors
    /// If the bytes are not an object with name, uid and resourceVersion, or exceed a limit: the server is at fault.
    pub fn scan(json: Bytes, limits: &Limits) -> Result<Self, ScanError> {
        let json = json.slice_ref(json.trim_ascii());
        let inner = {
            let parts = Parts::from_document(&json, limits)?;
            parts.into_inner(0)?
        };
        Ok(Self(Arc::new(Inner { json, ..inner })))
    }

    /// Scans an object and copies it into a buffer of exactly its size.
    ///
    /// # Errors
    /// As [`RawObject::scan`].
    pub fn copy_from(json: &[u8], limits: &Limits) -> Result<Self, ScanError> {
        let json = json.trim_ascii();
        let inner = Parts::from_document(json, limits)?.into_inner(0)?;
        Ok(Self(Arc::new(Inner { json: Bytes::copy_from_slice(json), ..inner })))
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
        Ok(Self(Arc::new(Inner { json: Bytes::copy_from_slice(json), ..inner })))
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
        Parts::identify(json)
    }

    /// Returns the JSON, exactly as received.
    pub fn bytes(&self) -> &Bytes {
        &self.0.json
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
        // The frequent case: both share the same buffer.
        std::ptr::eq(self.bytes().as_ref(), other.bytes().as_ref())
            || self.is_with_types(other)
            || other.is_with_types(self)
    }

    /// Returns whether this is `item` plus only the `kind` and `apiVersion` that it lacks, at the beginning.
    fn is_with_types(&self, item: &RawObject) -> bool {
        let member = |key: &str, own: Option<&str>, theirs: Option<&str>| match (own, theirs) {
            (Some(own), None) => key.len() + own.len() + r#""":"","#.len(),
            _ => 0,
        };
        let added = member("kind", self.kind(), item.kind())
            + member("apiVersion", self.api_version(), item.api_version());
        self.bytes().len() == item.bytes().len() + added
            && item.bytes().strip_prefix(b"{").is_some_and(|rest| self.bytes().ends_with(rest))
    }

    /// Returns `metadata.deletionTimestamp` in RFC 3339, if the object is being deleted.
    pub fn deletion_timestamp(&self) -> Option<&str> {
        self.text(self.0.deletion_timestamp, |unescaped| &unescaped.deletion_timestamp)
    }

    /// Returns `apiVersion`, which items of typed lists lack.
    pub fn api_version(&self) -> Option<&str> {
        self.text(self.0.api_version, |unescaped| &unescaped.api_version)
    }

    /// Returns `kind`, which items of typed lists lack.
    pub fn kind(&self) -> Option<&str> {
        self.text(self.0.kind, |unescaped| &unescaped.kind)
    }

    /// Returns the labels, in the order of the JSON.
    pub fn labels(&self) -> Labels<'_> {
        match self.0.unescaped.as_ref().and_then(|unescaped| unescaped.labels.as_deref()) {
            Some(pairs) => Labels::from_pairs(pairs),
            None => Labels::from_json(self.slice(self.0.labels)),
        }
    }

    /// Returns the value of one label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels().find_map(|(own, value)| (own == key).then_some(value))
    }

    /// Returns the value of one annotation. Scans the metadata on each call.
    pub fn annotation(&self, key: &str) -> Option<Cow<'_, str>> {
        lookup_text(self.slice(self.0.metadata), &["annotations", key])
    }

    /// Returns `metadata.generation`. Scans the metadata on each call.
    pub fn generation(&self) -> Option<i64> {
        lookup_text(self.slice(self.0.metadata), &["generation"])?.parse().ok()
    }

    /// Returns the text of the field at a path such as `status.phase`: a string, number or boolean. Returns `None` if the
    /// field is absent, null, an object or an array. Scans the object up to the field on each call.
    pub fn field(&self, path: &str) -> Option<String> {
        self.field_text(path).map(Cow::into_owned)
    }

    pub(crate) fn field_text(&self, path: &str) -> Option<Cow<'_, str>> {
        match path {
            "metadata.name" => Some(self.name().into()),
            "metadata.namespace" => self.namespace().map(Cow::from),
            _ => match path.strip_prefix("metadata.") {
                Some(rest) => lookup_text(self.slice(self.0.metadata), &split_path(rest)),
                None => self.lookup_beside_metadata(&split_path(path)),
            },
        }
    }

    /// Finds a field as [`lookup_text`] does, and skips the metadata, which is the larger part of many objects.
    fn lookup_beside_metadata(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        let (first, rest) = path.split_first()?;
        let metadata = self.0.metadata.range();
        let mut cursor = Cursor::new(&self.0.json, crate::json::DEPTH_CAP);
        if !enter(&mut cursor, first, Some(metadata)) {
            return None;
        }
        lookup_text_at(cursor, rest)
    }

    /// Decodes the object into a type, such as a k8s-openapi struct.
    ///
    /// # Errors
    /// If the JSON does not fit the type: the caller used the wrong type, or the server sent an unexpected one.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        let failed = |message: String| DecodeError {
            key: self.0.key.clone(),
            target: std::any::type_name::<T>(),
            message: message.into(),
        };
        // As text, so that serde_json need not check the UTF-8 of each string.
        let text = std::str::from_utf8(&self.0.json).map_err(|error| failed(error.to_string()))?;
        serde_json::from_str(text).map_err(|error| failed(error.to_string()))
    }

    /// Returns the object as a tree; `Null` only if it nests deeper than serde_json supports (128 levels).
    pub fn to_value(&self) -> serde_json::Value {
        serde_json::from_slice(&self.0.json).unwrap_or_default()
    }

    /// Returns the approximate memory use of this object, including its JSON.
    pub fn memory_bytes(&self) -> usize {
        const COUNTS: usize = 2 * size_of::<usize>();
        let key = COUNTS + self.name().len() + 1 + self.namespace().map_or(0, str::len);
        COUNTS + size_of::<Inner>() + key + self.0.json.len()
    }

    fn slice(&self, span: Span) -> &[u8] {
        self.0.json.get(span.range()).unwrap_or_default()
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

impl fmt::Debug for RawObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawObject")
            .field("kind", &self.kind().unwrap_or_default())
            .field("key", self.key())
            .field("uid", &self.uid())
            .field("resource_version", self.resource_version())
            .field("bytes", &self.bytes().len())
            .finish()
    }
}

/// Equal if the JSON is the same, byte for byte.
impl PartialEq for RawObject {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.json == other.0.json
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

    fn range(self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.len as usize
    }
}

fn split_path(path: &str) -> Vec<&str> {
    path.split('.').collect()
}

/// Returns the text of the scalar at `path` in the object `json`, which must be valid.
pub(crate) fn lookup_text<'a>(json: &'a [u8], path: &[&str]) -> Option<Cow<'a, str>> {
    lookup_text_at(Cursor::new(json, crate::json::DEPTH_CAP), path)
}

fn lookup_text_at<'a>(mut cursor: Cursor<'a>, path: &[&str]) -> Option<Cow<'a, str>> {
    for segment in path {
        if !enter(&mut cursor, segment, None) {
            return None;
        }
    }
    match cursor.peek()? {
        b'"' => cursor.string().ok()?.text(),
        b'{' | b'[' | b'n' => None,
        _ => {
            let range = cursor.skip_value().ok()?;
            std::str::from_utf8(cursor.slice(range)).ok().map(Cow::from)
        }
    }
}

/// Moves to the value of member `key` of the next object. Skips the value at `known` without reading it.
fn enter(cursor: &mut Cursor<'_>, key: &str, known: Option<Range<usize>>) -> bool {
    if !cursor.eat(b'{') {
        return false;
    }
    loop {
        let Ok(own) = cursor.string() else { return false };
        if !cursor.eat(b':') {
            return false;
        }
        if own.is(key) {
            return true;
        }
        cursor.peek();
        match &known {
            Some(known) if known.start == cursor.position() => cursor.jump(known.end),
            _ if cursor.skip_value().is_err() => return false,
            _ => {}
        }
        if !cursor.eat(b',') {
            return false;
        }
    }
}

fn owned(text: RawStr<'_>) -> Option<Box<str>> {
    text.text().map(|text| text.into_owned().into())
}

#[cfg(test)]
mod tests;
