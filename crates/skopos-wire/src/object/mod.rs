//! Objects as raw JSON plus what a cache needs to know of them.

mod labels;
mod parts;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::json::{Cursor, RawStr};
use crate::{Limits, ObjectKey, ResourceVersion};

pub use labels::Labels;
pub use parts::{Identity, ScanError};
pub(crate) use parts::{Parts, check_text};

/// A Kubernetes object: the JSON as the server sent it, and the metadata that was scanned from it.
///
/// Cheap to clone. What was scanned is mostly held as positions in the JSON, so that an object costs its JSON and about 200
/// bytes. Anything else is decoded on demand: [`RawObject::decode`] into a type, [`RawObject::field`] for a single field.
///
/// Objects, `PartialObjectMetadata` and items of lists (which lack `kind` and `apiVersion` when the list is typed) are all
/// the same here.
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

/// Fields that cannot be read straight from the JSON because they have escapes. Servers do not write such, but may.
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
    /// Give it a buffer of the object's own size, as [`ListSplitter`](crate::ListSplitter) makes them: a slice of a larger
    /// one keeps all of that alive. [`RawObject::copy_from`] is for slices.
    ///
    /// # Errors
    /// If the bytes are no object with name, uid and resourceVersion, or exceed a limit: the server is at fault.
    pub fn scan(json: Bytes, limits: &Limits) -> Result<Self, ScanError> {
        let inner = {
            let parts = Parts::of_document(&json, limits)?;
            parts.into_inner(0)?
        };
        Ok(Self(Arc::new(Inner { json, ..inner })))
    }

    /// Scans an object and copies it into a buffer of exactly its size.
    ///
    /// # Errors
    /// As [`RawObject::scan`].
    pub fn copy_from(json: &[u8], limits: &Limits) -> Result<Self, ScanError> {
        let inner = Parts::of_document(json, limits)?.into_inner(0)?;
        Ok(Self(Arc::new(Inner { json: Bytes::copy_from_slice(json), ..inner })))
    }

    /// Makes an object of what was scanned at `json`, which starts at `base` of the text that `parts` points into.
    pub(crate) fn from_parts(json: &[u8], parts: Parts<'_>, base: usize) -> Result<Self, ScanError> {
        let inner = parts.into_inner(base)?;
        Ok(Self(Arc::new(Inner { json: Bytes::copy_from_slice(json), ..inner })))
    }

    /// Scans a tree, for tests and for servers that build their objects.
    ///
    /// # Errors
    /// As [`RawObject::scan`]; the caller is at fault.
    pub fn from_value(value: &serde_json::Value, limits: &Limits) -> Result<Self, ScanError> {
        // A Value always serializes, and Display does it without a Result to handle.
        Self::scan(Bytes::from(value.to_string()), limits)
    }

    /// Whose object this is, as far as that can be told, for bytes that [`RawObject::scan`] refused.
    ///
    /// Best effort: a key comes from metadata that also has a uid or a resourceVersion, as only whole objects do (templates
    /// inside of them have neither).
    pub fn identify(json: &[u8]) -> Identity {
        Parts::identify(json)
    }

    /// The JSON, exactly as it came.
    pub fn bytes(&self) -> &Bytes {
        &self.0.json
    }

    /// Namespace and name.
    pub fn key(&self) -> &ObjectKey {
        &self.0.key
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        self.0.key.name()
    }

    /// `metadata.namespace`, or `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        self.0.key.namespace()
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &str {
        self.text(self.0.uid, |unescaped| &unescaped.uid).unwrap_or_default()
    }

    /// `metadata.resourceVersion`.
    pub fn resource_version(&self) -> &ResourceVersion {
        &self.0.resource_version
    }

    /// `metadata.deletionTimestamp`, in RFC 3339, of an object that is being deleted.
    pub fn deletion_timestamp(&self) -> Option<&str> {
        self.text(self.0.deletion_timestamp, |unescaped| &unescaped.deletion_timestamp)
    }

    /// `apiVersion`, which items of typed lists lack.
    pub fn api_version(&self) -> Option<&str> {
        self.text(self.0.api_version, |unescaped| &unescaped.api_version)
    }

    /// `kind`, which items of typed lists lack.
    pub fn kind(&self) -> Option<&str> {
        self.text(self.0.kind, |unescaped| &unescaped.kind)
    }

    /// The labels, in the order of the JSON.
    pub fn labels(&self) -> Labels<'_> {
        match self.0.unescaped.as_ref().and_then(|unescaped| unescaped.labels.as_deref()) {
            Some(pairs) => Labels::of_pairs(pairs),
            None => Labels::of_json(self.slice(self.0.labels)),
        }
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels().find_map(|(own, value)| (own == key).then_some(value))
    }

    /// The value of one annotation. Scans the metadata on each call.
    pub fn annotation(&self, key: &str) -> Option<Cow<'_, str>> {
        lookup_text(self.slice(self.0.metadata), &["annotations", key])
    }

    /// `metadata.generation`. Scans the metadata on each call.
    pub fn generation(&self) -> Option<i64> {
        lookup_text(self.slice(self.0.metadata), &["generation"])?.parse().ok()
    }

    /// The text of the field at a path such as `status.phase`: a string, number or boolean. `None` if there is no such
    /// field, if it is null, an object or an array. Scans the object up to the field on each call.
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

    /// As [`lookup_text`], without reading the metadata on the way, which is the larger part of many objects.
    fn lookup_beside_metadata(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        let (first, rest) = path.split_first()?;
        let metadata = self.0.metadata.range();
        let mut cursor = Cursor::new(&self.0.json, crate::json::DEPTH_CAP);
        if !enter(&mut cursor, first, Some(metadata)) {
            return None;
        }
        lookup_text_at(cursor, rest)
    }

    /// The object as a value of a type, such as a k8s-openapi struct.
    ///
    /// # Errors
    /// If the JSON does not fit the type: the wrong type was asked for, or the server sent something odd.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        serde_json::from_slice(&self.0.json).map_err(|error| DecodeError {
            key: self.0.key.clone(),
            target: std::any::type_name::<T>(),
            message: error.to_string().into(),
        })
    }

    /// The object as a tree. `Null` only for what nests deeper than serde_json goes (128 levels).
    pub fn to_value(&self) -> serde_json::Value {
        serde_json::from_slice(&self.0.json).unwrap_or_default()
    }

    /// About how much memory this object holds, its JSON included.
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
    /// Which object it was.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }
}

impl Span {
    /// The range relative to `base`. An object is at most 4 GiB long, which [`Parts::of_document`] has checked.
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

/// The text of the scalar at `path` of the object `json`, which is known to be valid.
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

/// Goes to the value of the member `key` of the object that is next. Jumps over the value at `known` without reading it.
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
mod tests {
    use super::*;

    fn scan(json: &str) -> Result<RawObject, ScanError> {
        RawObject::copy_from(json.as_bytes(), &Limits::default())
    }

    fn with_metadata(metadata: &str) -> Result<RawObject, ScanError> {
        scan(&format!(r#"{{"metadata":{{{metadata}}}}}"#))
    }

    const ID: &str = r#""name":"a","uid":"u","resourceVersion":"1""#;

    #[test]
    fn finds_what_it_needs_wherever_it_stands() {
        let object = scan(
            r#" { "spec" : {"metadata":{"name":"inner","uid":"x"},"replicas":3,"paused":true,"none":null,"list":[1]},
                "metadata":{"managedFields":[{"name":"no"}],"labels":{"b":"2","a":"1"},"annotations":{"note":"a\nb"},
                "generation":4,"ownerReferences":[{"name":"rs","uid":"y"}],"resourceVersion":"99999999999999999999",
                "uid":"7d1e","namespace":"shop","name":"web-1","deletionTimestamp":"2026-11-20T10:00:00Z"},
                "apiVersion":"v1","kind":"Pod"} "#,
        )
        .unwrap();
        assert_eq!(object.key(), &ObjectKey::namespaced("shop", "web-1"));
        assert_eq!((object.namespace(), object.name(), object.uid()), (Some("shop"), "web-1", "7d1e"));
        assert_eq!(object.resource_version().to_string(), "99999999999999999999");
        assert_eq!(object.labels().collect::<Vec<_>>(), [("b", "2"), ("a", "1")]);
        assert_eq!((object.label("a"), object.label("c")), (Some("1"), None));
        assert_eq!(object.annotation("note").as_deref(), Some("a\nb"));
        assert_eq!(object.generation(), Some(4));
        assert_eq!(object.deletion_timestamp(), Some("2026-11-20T10:00:00Z"));
        assert_eq!((object.api_version(), object.kind()), (Some("v1"), Some("Pod")));
        let field = |path| object.field(path);
        assert_eq!(field("metadata.name").as_deref(), Some("web-1"));
        assert_eq!(field("spec.replicas").as_deref(), Some("3"));
        assert_eq!(field("spec.paused").as_deref(), Some("true"));
        for absent in
            ["spec.none", "spec.list", "spec", "spec.replicas.x", "status.phase", "", ".", "metadata.x"]
        {
            assert_eq!(field(absent), None, "{absent}");
        }
    }

    #[test]
    fn reads_escapes_duplicate_labels_and_nulls() {
        let object = scan(
            r#"{"k\u0069nd":"P\u006fd","apiVersion":null,"metadata":{"n\u0061me":"\u0061","uid":"\u0075","resourceVersion":"\u0031",
                "namespace":"","deletionTimestamp":null,"labels":{"a":"1","\u0061":"2","b":"\""}}}"#,
        )
        .unwrap();
        assert_eq!(object.key(), &ObjectKey::cluster("a"));
        assert_eq!((object.uid(), object.kind(), object.api_version()), ("u", Some("Pod"), None));
        assert_eq!(object.resource_version().as_u64(), Some(1));
        assert_eq!(object.deletion_timestamp(), None);
        assert_eq!(object.labels().collect::<Vec<_>>(), [("a", "2"), ("b", "\"")]);
        let object = with_metadata(&format!(r#"{ID},"labels":{{"a":"1","b":"2","a":"3"}}"#)).unwrap();
        assert_eq!(object.labels().collect::<Vec<_>>(), [("a", "3"), ("b", "2")]);
        assert_eq!(with_metadata(&format!(r#"{ID},"labels":null"#)).unwrap().labels().count(), 0);
    }

    #[test]
    fn refuses_with_a_typed_error() {
        use ScanError::*;
        type Check = fn(&ScanError) -> bool;
        let cases: &[(&str, Check)] = &[
            (r#""uid":"u","resourceVersion":"1""#, |e| matches!(e, Missing { field: "metadata.name" })),
            (r#""name":"","uid":"u","resourceVersion":"1""#, |e| {
                matches!(e, Missing { field: "metadata.name" })
            }),
            (r#""name":"a","resourceVersion":"1""#, |e| matches!(e, Missing { field: "metadata.uid" })),
            (r#""name":"a","uid":"u""#, |e| matches!(e, Missing { field: "metadata.resourceVersion" })),
            (r#""name":"a","uid":"u","resourceVersion":"0x1""#, |e| matches!(e, InvalidResourceVersion(_))),
            (r#""name":"a","uid":"u","resourceVersion":1"#, |e| matches!(e, WrongType { .. })),
            (r#""name":"a/b","uid":"u","resourceVersion":"1""#, |e| matches!(e, InvalidKey(_))),
            (r#""name":"a\u0000b","uid":"u","resourceVersion":"1""#, |e| matches!(e, InvalidKey(_))),
            (r#""name":"..","uid":"u","resourceVersion":"1""#, |e| matches!(e, InvalidKey(_))),
            (r#""name":"a","namespace":"../x","uid":"u","resourceVersion":"1""#, |e| {
                matches!(e, InvalidKey(_))
            }),
            (r#""name":"a","name":"b","uid":"u","resourceVersion":"1""#, |e| matches!(e, Duplicate { .. })),
            (r#""name":"a","n\u0061me":"b","uid":"u","resourceVersion":"1""#, |e| {
                matches!(e, Duplicate { .. })
            }),
            (r#""name":"\ud800","uid":"u","resourceVersion":"1""#, |e| matches!(e, WrongType { .. })),
            (r#""name":"a","uid":"u","resourceVersion":"1","labels":{"a":1}"#, |e| {
                matches!(e, WrongType { .. })
            }),
            (r#""name":"a","uid":"u","resourceVersion":"1","labels":[]"#, |e| matches!(e, WrongType { .. })),
            (r#""name":"a","uid":"u","resourceVersion":"1","x":[1,]"#, |e| matches!(e, Syntax(_))),
        ];
        for (metadata, check) in cases {
            let error = with_metadata(metadata).expect_err(metadata);
            assert!(check(&error), "{metadata}: {error:?}");
        }
        let object = format!(r#"{{"metadata":{{{ID}}}}}"#);
        assert!(matches!(scan(&format!("{object} x")), Err(Syntax(_))));
        assert!(matches!(scan(&object[..object.len() - 1]), Err(Syntax(_))));
        assert!(matches!(scan("{}"), Err(Missing { field: "metadata" })));
        assert!(matches!(scan(r#"{"metadata":[]}"#), Err(WrongType { .. })));
        assert!(matches!(scan(r#"{"metadata":{},"metadata":{}}"#), Err(Duplicate { .. })));
        assert!(matches!(scan(r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[]}"#), Err(Table)));
        let latin1 = [object.as_bytes(), b"\xe9"].concat();
        let at = object.len();
        assert!(
            matches!(RawObject::copy_from(&latin1, &Limits::default()), Err(InvalidUtf8 { offset }) if offset == at)
        );
    }

    #[test]
    fn caps_every_size() {
        use ScanError::*;
        let scan = |json: &str, limits: Limits| RawObject::copy_from(json.as_bytes(), &limits).map(drop);
        let object = |more: &str| format!(r#"{{"metadata":{{{ID}{more}}}}}"#);
        let limits = Limits { max_object_bytes: 10, ..Limits::default() };
        assert!(matches!(scan(&object(""), limits), Err(TooLarge { limit: 10, .. })));
        let limits = Limits { max_name_bytes: 3, ..Limits::default() };
        assert!(scan(&object(""), limits.clone()).is_ok());
        assert!(matches!(scan(&object(r#","namespace":"abcd""#), limits), Err(TooLong { limit: 3, .. })));
        let limits = Limits { max_labels: 1, ..Limits::default() };
        assert!(scan(&object(r#","labels":{"a":""}"#), limits.clone()).is_ok());
        assert!(matches!(
            scan(&object(r#","labels":{"a":"","b":""}"#), limits),
            Err(TooManyLabels { limit: 1 })
        ));
        let deep = object(&format!(r#","x":{}{}"#, "[".repeat(100_000), "]".repeat(100_000)));
        assert!(matches!(scan(&deep, Limits::default()), Err(TooDeep { .. })));
    }

    #[test]
    fn identifies_broken_objects() {
        let whole = r#"{"kind":"X","spec":{"template":{"metadata":{"name":"no","labels":{}}}},"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"5"},"status":{}}"#;
        let expected =
            Identity { key: Some(ObjectKey::namespaced("n", "a")), resource_version: Some(5.into()) };
        assert_eq!(RawObject::identify(whole.as_bytes()), expected);
        // Cut off behind the metadata, and garbage before it.
        assert_eq!(RawObject::identify(&whole.as_bytes()[..whole.len() - 14]), expected);
        let garbage = whole.replace(r#"{"kind":"X""#, r#"{"type":"ADDED","object":{"kind":"\q""#);
        assert_eq!(RawObject::identify(garbage.as_bytes()), expected);
        let latin1 = [&b"{\"a\":\"\xe9\","[..], &whole.as_bytes()[1..]].concat();
        assert_eq!(RawObject::identify(&latin1), expected);
        for nothing in
            ["", "{", "nonsense", r#"{"metadata":{"name":"a"}}"#, r#"{"metadata":{"name":"a/b","uid":"u"}}"#]
        {
            assert_eq!(RawObject::identify(nothing.as_bytes()), Identity::default(), "{nothing}");
        }
    }

    #[test]
    fn costs_its_json_and_little_more() {
        assert_eq!(size_of::<RawObject>(), 8);
        let object = with_metadata(ID).unwrap();
        assert!(size_of::<Inner>() <= 120, "{}", size_of::<Inner>());
        assert!(object.memory_bytes() < object.bytes().len() + 200);
    }

    #[test]
    fn decodes_into_types_and_says_what_does_not_fit() {
        #[derive(serde::Deserialize)]
        struct Typed {
            metadata: std::collections::BTreeMap<String, String>,
        }
        let object = with_metadata(ID).unwrap();
        assert_eq!(object.decode::<Typed>().unwrap().metadata["uid"], "u");
        assert_eq!(object.to_value()["metadata"]["name"], "a");
        let error = object.decode::<Vec<u8>>().unwrap_err();
        assert!(error.to_string().starts_with("a cannot be decoded into alloc::vec::Vec<u8>: "), "{error}");
    }
}
