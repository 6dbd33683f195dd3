//! Splitting of list bodies into items while they stream in.

use bytes::Bytes;
use serde::Deserialize;

use crate::json::SyntaxError;
use crate::nesting::{Nesting, join};
use crate::{InvalidResourceVersion, Limits, ObjectKey, RawObject, ResourceVersion, ScanError, Status};

/// Splits the body of a list response into its items, as the chunks of the body arrive.
///
/// It holds only the item in progress and the text outside the items. Each item comes out as soon as its last byte has
/// arrived, in a buffer of exactly its size. An item is either balanced bytes that need not be JSON
/// ([`push`](ListSplitter::push)), or an object ([`push_and_scan`](ListSplitter::push_and_scan)).
///
/// The list's metadata may come before or after the items, so it is known only at the end.
///
/// ```
/// # use skopos_wire::{Limits, ListBody, ListSplitter};
/// let body = br#"{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"a":1},{"b":[]}]}"#;
/// let mut splitter = ListSplitter::new(Limits::default());
/// let mut items = Vec::new();
/// for chunk in body.chunks(10) {
///     splitter.push(chunk, &mut |item| items.push(item))?;
/// }
/// let ListBody::List(meta) = splitter.finish()? else { unreachable!() };
/// assert_eq!(items, [&br#"{"a":1}"#[..], br#"{"b":[]}"#]);
/// assert_eq!(meta.resource_version.to_string(), "7");
/// # Ok::<(), skopos_wire::ListError>(())
/// ```
#[derive(Debug)]
pub struct ListSplitter {
    limits: Limits,
    state: State,
    /// The body without its items: `{"kind":"PodList","metadata":{...},"items":[]}`.
    envelope: Vec<u8>,
    /// The range in the envelope of the top-level key in progress, or of the last one.
    key: std::ops::Range<usize>,
    /// The part of an item that came with earlier chunks.
    partial: Vec<u8>,
    nesting: Nesting,
    /// Set if the value in progress is a number or a literal.
    scalar: bool,
    items: usize,
    seen_items: bool,
    /// Bytes seen in earlier chunks.
    offset: usize,
    failed: Option<ListError>,
}

/// The content of a list response.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ListBody {
    /// A list, whose items have all come out.
    List(ListMeta),
    /// A Status: the server, or an intermediary, refused the request.
    Status(Box<Status>),
}

/// The metadata of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListMeta {
    /// The version of the state that the list shows.
    pub resource_version: ResourceVersion,
    /// The continue token of the next page, if there is one.
    pub continue_token: Option<String>,
    /// Items after this page, if the server reports their number.
    pub remaining_item_count: Option<u64>,
    /// The kind, such as `PodList`. Empty if the server sent none.
    pub kind: String,
    /// The API version, such as `v1`. Empty if the server sent none.
    pub api_version: String,
}

/// A body that is not a list. The server, or an intermediary, is at fault unless a variant says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// A body that is not a JSON object. The offset counts from the start of the body.
    #[error("list: {0}")]
    Syntax(#[from] SyntaxError),
    /// A body that ends too early.
    #[error("list ends after {offset} bytes and {items} items, before it is complete")]
    Truncated {
        /// Bytes received.
        offset: usize,
        /// Complete items received.
        items: usize,
    },
    /// An item longer than [`Limits::max_object_bytes`].
    #[error("item {index} of the list exceeds the limit of {limit} bytes")]
    ItemTooLarge {
        /// The index of the item, from 0.
        index: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// An item or envelope that nests deeper than [`Limits::max_depth`].
    #[error("list nests too deep at byte {offset}")]
    TooDeep {
        /// The position where it got too deep.
        offset: usize,
    },
    /// More items than [`Limits::max_list_items`].
    #[error("list has more items than the limit of {limit}")]
    TooManyItems {
        /// The limit.
        limit: usize,
    },
    /// More text outside the items than [`Limits::max_envelope_bytes`].
    #[error("list has more than {limit} bytes outside of its items")]
    EnvelopeTooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// A duplicate of a member that may occur once.
    #[error("list has {0} twice")]
    Duplicate(&'static str),
    /// Members outside the items that are not those of a list.
    #[error("list's envelope: {0}")]
    Envelope(Box<str>),
    /// A list without `items`.
    #[error("{kind:?} is no list: it has no items")]
    NotAList {
        /// The kind that the body claims.
        kind: Box<str>,
    },
    /// A list whose version is missing or invalid.
    #[error("list's {0}")]
    InvalidResourceVersion(#[from] InvalidResourceVersion),
    /// A `meta.k8s.io` Table. The caller is at fault: it requested a table where it needs objects.
    #[error("got a Table instead of a list: ask for application/json without as=Table")]
    Table,
}

/// A list item that is not an object. The server, or an intermediary, is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("broken item ({object}): {reason}", object = .key.as_ref().map_or_else(|| "unknown object".to_owned(), ToString::to_string))]
pub struct BrokenItem {
    /// The object's key, if known.
    pub key: Option<ObjectKey>,
    /// The reason.
    pub reason: ScanError,
}

/// The position of the next byte within the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the body's opening brace.
    Start,
    /// Before a key, or before the closing brace if there was no key yet.
    Key { first: bool },
    /// Inside a key.
    InKey,
    /// After a key.
    Colon,
    /// Before the value of a key.
    Value,
    /// Inside a value that belongs to the envelope.
    InValue,
    /// After a value of the body.
    AfterValue,
    /// Before an item, or before the closing bracket if there was no item yet.
    Item { first: bool },
    /// Inside an item.
    InItem,
    /// After an item.
    AfterItem,
    /// After the body.
    End,
}

impl ListSplitter {
    /// Creates a splitter for one body.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: State::Start,
            envelope: Vec::new(),
            key: 0..0,
            partial: Vec::new(),
            nesting: Nesting::default(),
            scalar: false,
            items: 0,
            seen_items: false,
            offset: 0,
            failed: None,
        }
    }

    /// Consumes the next chunk of the body and passes the items that it completes to `sink`, in order.
    ///
    /// # Errors
    /// If the body is not a list or exceeds a limit. Every later call returns the same error.
    pub fn push(&mut self, chunk: &[u8], sink: &mut impl FnMut(Bytes)) -> Result<(), ListError> {
        self.take(chunk, &mut Split(sink))
    }

    /// Consumes a chunk as [`ListSplitter::push`] does, and scans the items. Faster than scanning the items of `push`: a
    /// single pass finds an item's end and its content, unless it spans chunks.
    ///
    /// # Errors
    /// As [`ListSplitter::push`]. An item that is not an object is not an error of the list: it goes to `sink`.
    pub fn push_and_scan(
        &mut self,
        chunk: &[u8],
        sink: &mut impl FnMut(Result<RawObject, BrokenItem>),
    ) -> Result<(), ListError> {
        self.take(chunk, &mut Scan(sink))
    }

    fn take(&mut self, chunk: &[u8], sink: &mut impl Items) -> Result<(), ListError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.split(chunk, sink);
        self.offset = self.offset.saturating_add(chunk.len());
        result.inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Returns the number of items that have come out.
    pub fn items(&self) -> usize {
        self.items
    }

    /// Returns the number of bytes held: the item in progress and the text outside the items.
    pub fn held_bytes(&self) -> usize {
        self.envelope.len() + self.partial.len()
    }

    /// Returns the content of the body, after its last chunk.
    ///
    /// # Errors
    /// If the body has failed before, is incomplete, or is neither a list nor a Status.
    pub fn finish(self) -> Result<ListBody, ListError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.state != State::End {
            return Err(ListError::Truncated { offset: self.offset, items: self.items });
        }
        let invalid = |error: serde_json::Error| ListError::Envelope(error.to_string().into());
        let envelope: Envelope = serde_json::from_slice(&self.envelope).map_err(invalid)?;
        let kind = envelope.kind.unwrap_or_default();
        if kind == "Status" {
            let status = serde_json::from_slice(&self.envelope).map_err(invalid)?;
            return Ok(ListBody::Status(Box::new(status)));
        }
        if !self.seen_items {
            return Err(ListError::NotAList { kind: kind.into() });
        }
        let metadata = envelope.metadata.unwrap_or_default();
        Ok(ListBody::List(ListMeta {
            resource_version: metadata.resource_version.unwrap_or_default().parse()?,
            continue_token: metadata.continue_token.filter(|token| !token.is_empty()),
            remaining_item_count: metadata.remaining_item_count.and_then(|n| u64::try_from(n).ok()),
            kind,
            api_version: envelope.api_version.unwrap_or_default(),
        }))
    }

    fn split(&mut self, chunk: &[u8], sink: &mut impl Items) -> Result<(), ListError> {
        let mut pos = 0;
        while pos < chunk.len() {
            match self.state {
                State::InItem => pos = self.item(chunk, pos, sink)?,
                State::InValue | State::InKey => pos = self.value(chunk, pos)?,
                _ if matches!(chunk[pos], b' ' | b'\n' | b'\r' | b'\t') => pos += 1,
                _ => {
                    if self.step(chunk[pos], self.offset + pos)? {
                        pos += 1;
                    }
                }
            }
        }
        Ok(())
    }

    /// Handles one byte between values; returns whether the byte is consumed.
    fn step(&mut self, byte: u8, offset: usize) -> Result<bool, ListError> {
        let error = |expected| Err(SyntaxError { offset, expected }.into());
        self.state = match (self.state, byte) {
            (State::Start, b'{') => State::Key { first: true },
            (State::Start, _) => return error("an object"),
            (State::Key { .. }, b'"') => {
                self.hold(&[byte])?;
                self.key = self.envelope.len()..self.envelope.len();
                self.nesting = Nesting::in_string();
                self.state = State::InKey;
                return Ok(true);
            }
            (State::Key { first: true }, b'}') => State::End,
            (State::Key { .. }, _) => return error("a key"),
            (State::Colon, b':') => State::Value,
            (State::Colon, _) => return error("':'"),
            (State::Value, b'[') if self.is_key("items") => {
                if std::mem::replace(&mut self.seen_items, true) {
                    return Err(ListError::Duplicate("items"));
                }
                self.hold(b"[]")?;
                self.state = State::Item { first: true };
                return Ok(true);
            }
            (State::Value, b'n') if self.is_key("items") => {
                // An empty list may be null. The envelope's parser checks that it is "null".
                if std::mem::replace(&mut self.seen_items, true) {
                    return Err(ListError::Duplicate("items"));
                }
                self.begin_value(byte)
            }
            (State::Value, _) if self.is_key("items") => return error("an array of items"),
            (State::Value, _) if self.is_key("rows") || self.is_key("columnDefinitions") => {
                return Err(ListError::Table);
            }
            (State::Value, b',' | b'}' | b']' | b':') => return error("a value"),
            (State::Value, _) => self.begin_value(byte),
            (State::AfterValue, b',') => State::Key { first: false },
            (State::AfterValue, b'}') => State::End,
            (State::AfterValue, _) => return error("',' or '}'"),
            (State::Item { .. }, b'{') => {
                if self.items == self.limits.max_list_items {
                    return Err(ListError::TooManyItems { limit: self.limits.max_list_items });
                }
                self.nesting = Nesting::default();
                self.state = State::InItem;
                return Ok(false);
            }
            (State::Item { first: true }, b']') => State::AfterValue,
            (State::Item { .. }, _) => return error("an item that is an object"),
            (State::AfterItem, b',') => State::Item { first: false },
            (State::AfterItem, b']') => State::AfterValue,
            (State::AfterItem, _) => return error("',' or ']'"),
            (State::End, _) => return error("the end"),
            (State::InKey | State::InValue | State::InItem, _) => return Ok(false),
        };
        match (self.state, byte) {
            // The value's first byte is part of the value.
            (State::InValue, _) => Ok(false),
            // Separators and ends of items are not part of the envelope.
            (State::Item { .. }, _) | (_, b']') => Ok(true),
            _ => self.hold(&[byte]).map(|()| true),
        }
    }

    fn begin_value(&mut self, first: u8) -> State {
        self.nesting = Nesting::default();
        self.scalar = !matches!(first, b'{' | b'[' | b'"');
        State::InValue
    }

    /// Continues a key or a value of the envelope.
    fn value(&mut self, chunk: &[u8], pos: usize) -> Result<usize, ListError> {
        let rest = &chunk[pos..];
        let (len, done) = if self.scalar && self.state == State::InValue {
            // A number or literal extends to the next byte that cannot be part of one.
            match rest.iter().position(|b| matches!(b, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t')) {
                Some(end) => (end, true),
                None => (rest.len(), false),
            }
        } else {
            self.nesting.advance(rest, self.max_depth()).map_err(|at| self.too_deep(pos + at))?
        };
        self.hold(&rest[..len])?;
        if done {
            self.state = match self.state {
                State::InKey => {
                    self.key.end = self.envelope.len() - 1;
                    State::Colon
                }
                _ => State::AfterValue,
            };
        }
        Ok(pos + len)
    }

    /// Continues an item.
    fn item(&mut self, chunk: &[u8], pos: usize, sink: &mut impl Items) -> Result<usize, ListError> {
        let rest = &chunk[pos..];
        if self.nesting.depth == 0
            && let Some(len) = sink.whole(rest, &self.limits)
        {
            self.items += 1;
            self.state = State::AfterItem;
            return Ok(pos + len);
        }
        let (len, done) =
            self.nesting.advance(rest, self.max_depth()).map_err(|at| self.too_deep(pos + at))?;
        if self.partial.len() + len > self.limits.max_object_bytes {
            return Err(ListError::ItemTooLarge { index: self.items, limit: self.limits.max_object_bytes });
        }
        if !done {
            self.partial.extend_from_slice(&rest[..len]);
            return Ok(pos + len);
        }
        sink.split(join(&mut self.partial, &rest[..len]), &self.limits);
        self.items += 1;
        self.state = State::AfterItem;
        Ok(pos + len)
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<(), ListError> {
        if self.envelope.len() + bytes.len() > self.limits.max_envelope_bytes {
            return Err(ListError::EnvelopeTooLarge { limit: self.limits.max_envelope_bytes });
        }
        self.envelope.extend_from_slice(bytes);
        Ok(())
    }

    fn is_key(&self, key: &str) -> bool {
        let own = self.envelope.get(self.key.clone()).unwrap_or_default();
        if memchr::memchr(b'\\', own).is_none() {
            return own == key.as_bytes();
        }
        let quoted = [b"\"", own, b"\""].concat();
        serde_json::from_slice::<String>(&quoted).is_ok_and(|own| own == key)
    }

    fn max_depth(&self) -> usize {
        self.limits.max_depth.min(crate::json::DEPTH_CAP)
    }

    fn too_deep(&self, pos: usize) -> ListError {
        ListError::TooDeep { offset: self.offset + pos }
    }
}

/// The receiver of the items.
trait Items {
    /// Takes the item at the start of `text`, if it can be read in a single pass; returns its length.
    fn whole(&mut self, text: &[u8], limits: &Limits) -> Option<usize>;

    /// Takes an item that was delimited first.
    fn split(&mut self, item: Bytes, limits: &Limits);
}

struct Split<F>(F);

impl<F: FnMut(Bytes)> Items for Split<F> {
    fn whole(&mut self, _: &[u8], _: &Limits) -> Option<usize> {
        None
    }

    fn split(&mut self, item: Bytes, _: &Limits) {
        (self.0)(item);
    }
}

struct Scan<F>(F);

impl<F: FnMut(Result<RawObject, BrokenItem>)> Items for Scan<F> {
    fn whole(&mut self, text: &[u8], limits: &Limits) -> Option<usize> {
        let (object, len) = RawObject::at_start_of(text, limits)?;
        (self.0)(Ok(object));
        Some(len)
    }

    fn split(&mut self, item: Bytes, limits: &Limits) {
        let scanned = RawObject::scan(item.clone(), limits);
        (self.0)(scanned.map_err(|reason| BrokenItem { key: RawObject::identify(&item).key, reason }));
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    metadata: Option<Metadata>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    resource_version: Option<String>,
    #[serde(rename = "continue", default)]
    continue_token: Option<String>,
    #[serde(default)]
    remaining_item_count: Option<i64>,
}

#[cfg(test)]
mod tests;
