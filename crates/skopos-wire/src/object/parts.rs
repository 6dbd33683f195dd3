//! Single-pass scan of an object: its identity, and the positions of the other fields.

use std::ops::Range;

use bytes::Bytes;

use super::content::Content;
use super::{Inner, Pair, Span, Unescaped, owned};
use crate::json::{Cursor, RawStr, SyntaxError, TOO_DEEP};
use crate::key::InvalidKey;
use crate::protobuf::InvalidProtobuf;
use crate::{InvalidResourceVersion, Limits, ObjectKey, ResourceVersion};

/// The fields found so far. After an error it holds the fields before the error.
#[derive(Default)]
pub(crate) struct Parts<'a> {
    api_version: Option<RawStr<'a>>,
    kind: Option<RawStr<'a>>,
    metadata: Option<Range<usize>>,
    name: Option<RawStr<'a>>,
    namespace: Option<RawStr<'a>>,
    uid: Option<RawStr<'a>>,
    resource_version: Option<RawStr<'a>>,
    deletion_timestamp: Option<RawStr<'a>>,
    labels: Option<Range<usize>>,
    labels_as_pairs: Option<Vec<Pair>>,
    annotations: Option<Range<usize>>,
    /// Skips labels of any type, because in custom resources they come before the name.
    identity_only: bool,
}

/// The identity of an object, as far as known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Namespace and name.
    pub key: Option<ObjectKey>,
    /// The version of the object.
    pub resource_version: Option<ResourceVersion>,
}

/// Bytes that are not an object. The server, or an intermediary, is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// An object longer than [`Limits::max_object_bytes`].
    #[error("object of {bytes} bytes exceeds the limit of {limit} bytes")]
    TooLarge {
        /// The object's length in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// Text in another encoding, or binary data.
    #[error("object is not UTF-8 from byte {offset} on")]
    InvalidUtf8 {
        /// The position of the first byte that is not UTF-8.
        offset: usize,
    },
    /// A text that is not a JSON object.
    #[error(transparent)]
    Syntax(SyntaxError),
    /// An object that nests deeper than [`Limits::max_depth`].
    #[error("object nests too deep at byte {offset}")]
    TooDeep {
        /// The position where it got too deep.
        offset: usize,
    },
    /// A required field that is missing or empty.
    #[error("object has no {field}")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A duplicate field, for which parsers could disagree on the value.
    #[error("object has {field} twice")]
    Duplicate {
        /// The field.
        field: &'static str,
    },
    /// A field of the wrong type.
    #[error("object's {field} is not {expected}")]
    WrongType {
        /// The field.
        field: &'static str,
        /// The expected type.
        expected: &'static str,
    },
    /// A field longer than [`Limits::max_name_bytes`].
    #[error("object's {field} exceeds the limit of {limit} bytes")]
    TooLong {
        /// The field.
        field: &'static str,
        /// The limit in bytes.
        limit: usize,
    },
    /// More labels than [`Limits::max_labels`].
    #[error("object has more labels than the limit of {limit}")]
    TooManyLabels {
        /// The limit.
        limit: usize,
    },
    /// A name or namespace that no object can have.
    #[error("object's {0}")]
    InvalidKey(#[from] InvalidKey),
    /// A resourceVersion that is not a decimal integer.
    #[error("object's {0}")]
    InvalidResourceVersion(#[from] InvalidResourceVersion),
    /// Protobuf whose encoding is broken.
    #[error("object: {0}")]
    Protobuf(#[from] InvalidProtobuf),
    /// Protobuf of a kind that the table of built-in kinds does not have. The caller is at fault: it has to ask for JSON.
    #[error("{kind:?} of {api_version:?} is no built-in kind, so its protobuf cannot be read: ask for JSON")]
    UnknownKind {
        /// `apiVersion`.
        api_version: Box<str>,
        /// `kind`.
        kind: Box<str>,
    },
    /// A `meta.k8s.io` Table. The caller is at fault: it requested a table where it needs objects.
    #[error("got a Table instead of an object: ask for application/json without as=Table")]
    Table,
}

impl From<SyntaxError> for ScanError {
    fn from(error: SyntaxError) -> Self {
        if error.expected == TOO_DEEP { Self::TooDeep { offset: error.offset } } else { Self::Syntax(error) }
    }
}

impl<'a> Parts<'a> {
    /// Scans a text that is one object from start to end.
    pub(crate) fn from_document(json: &'a [u8], limits: &Limits) -> Result<Self, ScanError> {
        check_text(json, limits.max_object_bytes)?;
        let mut cursor = Cursor::new(json, limits.max_depth);
        let mut parts = Self::default();
        parts.read(&mut cursor, limits)?;
        cursor.end()?;
        Ok(parts)
    }

    /// Scans the next object.
    pub(crate) fn read(&mut self, cursor: &mut Cursor<'a>, limits: &Limits) -> Result<(), ScanError> {
        cursor.members(|cursor, key| {
            if key.is("metadata") {
                if self.metadata.is_some() {
                    return Err(ScanError::Duplicate { field: "metadata" });
                }
                if cursor.peek() != Some(b'{') {
                    return wrong_type_unless_null(cursor, "metadata", "an object");
                }
                let start = cursor.position();
                self.metadata = Some(start..start);
                self.read_metadata(cursor, limits)?;
                self.metadata = Some(start..cursor.position());
                Ok(())
            } else if key.is("kind") {
                read_text(cursor, &mut self.kind, "kind", limits)
            } else if key.is("apiVersion") {
                read_text(cursor, &mut self.api_version, "apiVersion", limits)
            } else {
                cursor.skip_value()?;
                Ok(())
            }
        })
    }

    fn read_metadata(&mut self, cursor: &mut Cursor<'a>, limits: &Limits) -> Result<(), ScanError> {
        cursor.members(|cursor, key| {
            let (slot, field) = match key.plain() {
                Some(b"name") => (&mut self.name, "metadata.name"),
                Some(b"namespace") => (&mut self.namespace, "metadata.namespace"),
                Some(b"uid") => (&mut self.uid, "metadata.uid"),
                Some(b"resourceVersion") => (&mut self.resource_version, "metadata.resourceVersion"),
                Some(b"deletionTimestamp") => (&mut self.deletion_timestamp, "metadata.deletionTimestamp"),
                Some(b"labels") => return self.read_labels(cursor, limits),
                Some(b"annotations") => {
                    self.annotations = Some(cursor.skip_value()?);
                    return Ok(());
                }
                Some(_) => {
                    cursor.skip_value()?;
                    return Ok(());
                }
                None => return self.read_escaped_member(cursor, key, limits),
            };
            read_text(cursor, slot, field, limits)
        })
    }

    /// Reads a member of the metadata whose key has escapes.
    #[cold]
    fn read_escaped_member(
        &mut self,
        cursor: &mut Cursor<'a>,
        key: RawStr<'a>,
        limits: &Limits,
    ) -> Result<(), ScanError> {
        let (slot, field) = match key.text().unwrap_or_default().as_ref() {
            "name" => (&mut self.name, "metadata.name"),
            "namespace" => (&mut self.namespace, "metadata.namespace"),
            "uid" => (&mut self.uid, "metadata.uid"),
            "resourceVersion" => (&mut self.resource_version, "metadata.resourceVersion"),
            "deletionTimestamp" => (&mut self.deletion_timestamp, "metadata.deletionTimestamp"),
            "labels" => return self.read_labels(cursor, limits),
            _ => {
                cursor.skip_value()?;
                return Ok(());
            }
        };
        read_text(cursor, slot, field, limits)
    }

    fn read_labels(&mut self, cursor: &mut Cursor<'a>, limits: &Limits) -> Result<(), ScanError> {
        const FIELD: &str = "metadata.labels";
        if self.identity_only {
            cursor.skip_value()?;
            return Ok(());
        }
        if cursor.peek() != Some(b'{') {
            return wrong_type_unless_null(cursor, FIELD, "an object");
        }
        if self.labels.is_some() {
            return Err(ScanError::Duplicate { field: FIELD });
        }
        let start = cursor.position();
        let mut pairs = Vec::new();
        cursor.members(|cursor, key| {
            if pairs.len() == limits.max_labels {
                return Err(ScanError::TooManyLabels { limit: limits.max_labels });
            }
            if cursor.peek() != Some(b'"') {
                return Err(ScanError::WrongType { field: FIELD, expected: "a map of strings" });
            }
            pairs.push((key, cursor.string()?));
            Ok(())
        })?;
        self.labels = Some(start..cursor.position());
        if !readable_in_place(&pairs) {
            self.labels_as_pairs = Some(unescape_pairs(&pairs)?);
        }
        Ok(())
    }

    /// Returns the range of the annotations' JSON.
    pub(crate) fn annotations(&self) -> Option<Range<usize>> {
        self.annotations.clone()
    }

    /// Returns `metadata.resourceVersion`, the only field that a bookmark has.
    pub(crate) fn resource_version(&self) -> Result<ResourceVersion, ScanError> {
        let text = required(self.resource_version, "metadata.resourceVersion")?;
        Ok(text.parse()?)
    }

    /// Converts the parts to an object with positions relative to `base`. The caller fills in the JSON.
    pub(super) fn into_inner(self, base: usize) -> Result<Inner, ScanError> {
        let is = |text: Option<RawStr<'_>>, wanted: &str| text.is_some_and(|text| text.is(wanted));
        if is(self.kind, "Table")
            && (is(self.api_version, "meta.k8s.io/v1") || is(self.api_version, "meta.k8s.io/v1beta1"))
        {
            return Err(ScanError::Table);
        }
        if self.metadata.is_none() {
            return Err(ScanError::Missing { field: "metadata" });
        }
        let name = required(self.name, "metadata.name")?;
        required(self.uid, "metadata.uid")?;
        let resource_version = self.resource_version()?;
        let namespace = match self.namespace {
            Some(text) => Some(
                text.text().ok_or(ScanError::WrongType { field: "metadata.namespace", expected: "text" })?,
            ),
            None => None,
        };
        // A text with escapes is not read from its position: the unescaped text is held beside the JSON.
        let span = |text: Option<RawStr<'_>>| {
            text.map_or(Span::default(), |text| Span::new(text.start()..text.start() + text.len(), base))
        };
        Ok(Inner {
            content: Content::Plain(Bytes::new()),
            message: None,
            key: ObjectKey::checked(namespace.as_deref(), &name)?,
            resource_version,
            uid: span(self.uid),
            deletion_timestamp: span(self.deletion_timestamp),
            api_version: span(self.api_version),
            kind: span(self.kind),
            metadata: self.metadata.clone().map_or(Span::default(), |range| Span::new(range, base)),
            labels: self.labels.clone().map_or(Span::default(), |range| Span::new(range, base)),
            unescaped: self.unescaped(),
        })
    }

    fn unescaped(self) -> Option<Box<Unescaped>> {
        let escaped = |text: Option<RawStr<'_>>| text.filter(RawStr::is_escaped).and_then(owned);
        let any = [self.uid, self.deletion_timestamp, self.api_version, self.kind]
            .iter()
            .flatten()
            .any(RawStr::is_escaped);
        if !any && self.labels_as_pairs.is_none() {
            return None;
        }
        Some(Box::new(Unescaped {
            uid: escaped(self.uid),
            deletion_timestamp: escaped(self.deletion_timestamp),
            api_version: escaped(self.api_version),
            kind: escaped(self.kind),
            labels: self.labels_as_pairs.map(Vec::into_boxed_slice),
        }))
    }

    /// Identifies an object; see [`RawObject::identify`](super::RawObject::identify).
    pub(crate) fn identify(json: &[u8]) -> Identity {
        let limits = Limits::default();
        let mut parts = Parts { identity_only: true, ..Parts::default() };
        // An error stops the scan; the fields before it stay.
        let _ = parts.read(&mut Cursor::new(json, limits.max_depth), &limits);
        if let Some(identity) = parts.identity() {
            return identity;
        }
        // Broken before the metadata, or wrapped in something: search for metadata anywhere.
        for at in memchr::memmem::find_iter(json, METADATA_KEY).take(MAX_GUESSES) {
            let mut parts = Parts { identity_only: true, ..Parts::default() };
            let rest = &json[at + METADATA_KEY.len()..];
            let mut cursor = Cursor::new(&rest[..rest.len().min(MAX_GUESS_BYTES)], limits.max_depth);
            if cursor.eat(b':') {
                let _ = parts.read_metadata(&mut cursor, &limits);
            }
            if let Some(identity) = parts.identity() {
                return identity;
            }
        }
        Identity::default()
    }

    fn identity(&self) -> Option<Identity> {
        let text = |text: Option<RawStr<'a>>| text.and_then(|text| text.text());
        let resource_version = text(self.resource_version).and_then(|text| text.parse().ok());
        if resource_version.is_none() && self.uid.is_none() {
            return None;
        }
        let name = text(self.name)?;
        let key = ObjectKey::checked(text(self.namespace).as_deref(), &name).ok()?;
        Some(Identity { key: Some(key), resource_version })
    }
}

const METADATA_KEY: &[u8] = br#""metadata""#;
/// Positions that [`Parts::identify`] tries: enough for an object with a few templates in it.
const MAX_GUESSES: usize = 64;
/// Bytes read from each position: metadata with the most annotations (256 KiB) and more. Together they bound the work.
const MAX_GUESS_BYTES: usize = 512 << 10;

/// Checks that the text that the cursor has scanned is neither too long nor invalid UTF-8.
pub(crate) fn check_read<'a>(cursor: &Cursor<'a>, limit: usize) -> Result<&'a [u8], ScanError> {
    let json = cursor.slice(0..cursor.position());
    if cursor.is_ascii() {
        check_len(json, limit)?
    } else {
        check_text(json, limit)?
    }
    Ok(json)
}

/// Checks that the text is neither too long nor invalid UTF-8.
pub(crate) fn check_text(json: &[u8], limit: usize) -> Result<(), ScanError> {
    check_len(json, limit)?;
    match std::str::from_utf8(json) {
        Ok(_) => Ok(()),
        Err(error) => Err(ScanError::InvalidUtf8 { offset: error.valid_up_to() }),
    }
}

fn check_len(json: &[u8], limit: usize) -> Result<(), ScanError> {
    // Positions are held in 32 bits.
    let limit = limit.min(u32::MAX as usize);
    if json.len() > limit {
        return Err(ScanError::TooLarge { bytes: json.len(), limit });
    }
    Ok(())
}

fn read_text<'a>(
    cursor: &mut Cursor<'a>,
    slot: &mut Option<RawStr<'a>>,
    field: &'static str,
    limits: &Limits,
) -> Result<(), ScanError> {
    if cursor.peek() != Some(b'"') {
        return wrong_type_unless_null(cursor, field, "a string");
    }
    let text = cursor.string()?;
    if slot.is_some() {
        return Err(ScanError::Duplicate { field });
    }
    if text.len() > limits.max_name_bytes {
        return Err(ScanError::TooLong { field, limit: limits.max_name_bytes });
    }
    if text.is_escaped() && text.text().is_none() {
        return Err(ScanError::WrongType { field, expected: "valid text" });
    }
    *slot = Some(text);
    Ok(())
}

/// Skips a value and fails unless it is null, which means absent everywhere in Kubernetes.
fn wrong_type_unless_null(
    cursor: &mut Cursor<'_>,
    field: &'static str,
    expected: &'static str,
) -> Result<(), ScanError> {
    let is_null = cursor.peek() == Some(b'n');
    cursor.skip_value()?;
    if is_null { Ok(()) } else { Err(ScanError::WrongType { field, expected }) }
}

fn required<'a>(
    text: Option<RawStr<'a>>,
    field: &'static str,
) -> Result<std::borrow::Cow<'a, str>, ScanError> {
    text.and_then(|text| text.text()).filter(|text| !text.is_empty()).ok_or(ScanError::Missing { field })
}

/// Returns whether labels can be read in place: no escapes, and no duplicate key.
fn readable_in_place(pairs: &[(RawStr<'_>, RawStr<'_>)]) -> bool {
    const MAX_PAIRS: usize = 32;
    let plain = pairs.iter().all(|(key, value)| key.plain().is_some() && value.plain().is_some());
    let distinct = || {
        pairs
            .iter()
            .enumerate()
            .all(|(i, (key, _))| pairs[..i].iter().all(|(other, _)| other.plain() != key.plain()))
    };
    plain && pairs.len() <= MAX_PAIRS && distinct()
}

/// Returns the labels with their escapes decoded. The last of duplicate keys wins, as in Go.
#[cold]
fn unescape_pairs(pairs: &[(RawStr<'_>, RawStr<'_>)]) -> Result<Vec<Pair>, ScanError> {
    let mut labels = std::collections::BTreeMap::new();
    for (key, value) in pairs {
        let (Some(key), Some(value)) = (owned(*key), owned(*value)) else {
            return Err(ScanError::WrongType { field: "metadata.labels", expected: "valid text" });
        };
        labels.insert(key, value);
    }
    Ok(labels.into_iter().collect())
}
