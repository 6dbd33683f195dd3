//! Splitting of list bodies into items while they stream in.

mod json;
mod protobuf;

use bytes::Bytes;

use self::json::JsonList;
use self::protobuf::ProtobufList;
use crate::json::SyntaxError;
use crate::protobuf::{self as protobuf_format, EncodeError, InvalidProtobuf, Kind, MAGIC};
use crate::{InvalidResourceVersion, Limits, ObjectKey, RawObject, ResourceVersion, ScanError, Status};

/// Splits the body of a list response into its items, as the chunks of the body arrive.
///
/// It holds only the item in progress and the text outside the items. Each item comes out as soon as its last byte has
/// arrived, in a buffer of exactly its size. An item is either balanced bytes that need not be JSON
/// ([`push`](ListSplitter::push)), or an object ([`push_and_scan`](ListSplitter::push_and_scan)).
///
/// The body may be JSON or protobuf, which begins with a magic number. The items of the latter are messages.
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
    form: Form,
    failed: Option<ListError>,
}

#[derive(Debug)]
enum Form {
    /// Before the first byte.
    Unknown,
    Json(JsonList),
    Protobuf(Box<ProtobufList>),
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
    /// A list in protobuf whose encoding is broken.
    #[error("list: {0}")]
    Protobuf(#[from] InvalidProtobuf),
    /// A list in protobuf of a kind that the table of built-in kinds does not have. The caller is at fault: it has to ask for
    /// JSON.
    #[error("{kind:?} of {api_version:?} is no built-in kind, so its protobuf cannot be read: ask for JSON")]
    UnknownKind {
        /// `apiVersion`.
        api_version: Box<str>,
        /// `kind`.
        kind: Box<str>,
    },
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

impl ListMeta {
    /// Writes the body of a list in protobuf.
    ///
    /// # Errors
    /// If the list's kind is not a built-in one, or an object does not fit it: the caller is at fault.
    pub fn to_protobuf<'a>(
        &self,
        objects: impl Iterator<Item = &'a RawObject>,
    ) -> Result<Vec<u8>, EncodeError> {
        let kind = protobuf_format::find(&self.api_version, &self.kind)?;
        let types = Some((kind.api_version, kind.kind.strip_suffix("List").unwrap_or_default()));
        let items: Vec<Bytes> = objects
            .map(|object| object.to_message(types).map(|(_, message)| message))
            .collect::<Result<_, _>>()?;
        let mut body = protobuf_format::list_head(
            kind,
            &self.resource_version.to_string(),
            self.continue_token.as_deref(),
            self.remaining_item_count,
            items.iter().map(Bytes::len),
        );
        items.iter().for_each(|item| protobuf_format::list_item(item, &mut body));
        body.extend_from_slice(protobuf_format::LIST_TAIL);
        Ok(body)
    }
}

impl ListSplitter {
    /// Creates a splitter for one body.
    pub fn new(limits: Limits) -> Self {
        Self { limits, form: Form::Unknown, failed: None }
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
        let result = self.form(chunk).map_or(Ok(()), |form| match form {
            Form::Unknown => Ok(()),
            Form::Json(list) => list.take(chunk, sink),
            Form::Protobuf(list) => list.take(chunk, sink),
        });
        result.inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Returns the splitter for the form of the body, which its first byte tells.
    fn form(&mut self, chunk: &[u8]) -> Option<&mut Form> {
        if matches!(self.form, Form::Unknown) {
            self.form = if chunk.first()? == &MAGIC[0] {
                Form::Protobuf(Box::new(ProtobufList::new(self.limits.clone())))
            } else {
                Form::Json(JsonList::new(self.limits.clone()))
            };
        }
        Some(&mut self.form)
    }

    /// Returns the number of items that have come out.
    pub fn items(&self) -> usize {
        match &self.form {
            Form::Unknown => 0,
            Form::Json(list) => list.items(),
            Form::Protobuf(list) => list.items(),
        }
    }

    /// Returns the number of bytes held: the item in progress and the text outside the items.
    pub fn held_bytes(&self) -> usize {
        match &self.form {
            Form::Unknown => 0,
            Form::Json(list) => list.held_bytes(),
            Form::Protobuf(list) => list.held_bytes(),
        }
    }

    /// Returns the content of the body, after its last chunk.
    ///
    /// # Errors
    /// If the body has failed before, is incomplete, or is neither a list nor a Status.
    pub fn finish(self) -> Result<ListBody, ListError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        match self.form {
            Form::Unknown => Err(ListError::Truncated { offset: 0, items: 0 }),
            Form::Json(list) => list.finish(),
            Form::Protobuf(list) => list.finish(),
        }
    }
}

/// The receiver of the items.
trait Items {
    /// Takes the item at the start of `text`, if it can be read in a single pass; returns its length.
    fn whole(&mut self, text: &[u8], limits: &Limits) -> Option<usize>;

    /// Takes an item that was delimited first.
    fn split(&mut self, item: Bytes, limits: &Limits);

    /// Takes the message of an item.
    fn message(&mut self, kind: &'static Kind, item: &[u8], limits: &Limits);
}

struct Split<F>(F);

impl<F: FnMut(Bytes)> Items for Split<F> {
    fn whole(&mut self, _: &[u8], _: &Limits) -> Option<usize> {
        None
    }

    fn split(&mut self, item: Bytes, _: &Limits) {
        (self.0)(item);
    }

    fn message(&mut self, _: &'static Kind, item: &[u8], _: &Limits) {
        (self.0)(Bytes::copy_from_slice(item));
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
    fn message(&mut self, kind: &'static Kind, item: &[u8], limits: &Limits) {
        let scanned = RawObject::from_message(kind, item, limits);
        (self.0)(scanned.map_err(|reason| BrokenItem { key: RawObject::identify_message(item).key, reason }));
    }
}

#[cfg(test)]
mod tests;
