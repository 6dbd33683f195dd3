//! Lists in protobuf: an envelope around `metadata = 1` and `items = 2`, each with its length before it.

use super::{Items, ListBody, ListError, ListMeta};
use crate::protobuf::{
    BadEncoding, Field, InvalidProtobuf, Kind, MAGIC, Message, Reader, TRUNCATED, WIRE_TYPE,
};
use crate::{Limits, Status};

/// A splitter of one body in protobuf.
#[derive(Debug)]
pub(super) struct ProtobufList {
    limits: Limits,
    level: Level,
    /// The part of a field that came with earlier chunks.
    held: Vec<u8>,
    /// The kind of the body, and of its items if it is a list.
    kind: Option<(&'static Kind, Option<&'static Kind>)>,
    /// `ListMeta` of a list, or all of a Status.
    content: Option<Vec<u8>>,
    seen_list: bool,
    items: usize,
    offset: usize,
}

/// The message that the next field is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// The magic number is next.
    Magic,
    Envelope,
    /// The list: this many bytes of it are left.
    List(usize),
}

/// A field at the start of some bytes.
struct FieldBytes {
    number: u64,
    /// The length of the tag, and of the length.
    head: usize,
    /// The length of the content.
    length: usize,
}

impl ProtobufList {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            level: Level::Magic,
            held: Vec::new(),
            kind: None,
            content: None,
            seen_list: false,
            items: 0,
            offset: 0,
        }
    }

    pub(super) fn take(&mut self, mut chunk: &[u8], sink: &mut impl Items) -> Result<(), ListError> {
        self.offset = self.offset.saturating_add(chunk.len());
        while !chunk.is_empty() {
            if self.held.is_empty() {
                let (used, missing) = self.step(chunk, sink)?;
                chunk = chunk.get(used..).unwrap_or_default();
                if missing {
                    self.held.extend_from_slice(chunk);
                    return Ok(());
                }
                continue;
            }
            // Byte by byte until the length is known, then up to the end of the field.
            let wanted = self.wanted(&self.held)?.saturating_sub(self.held.len()).max(1);
            let (more, rest) = chunk.split_at(wanted.min(chunk.len()));
            self.held.extend_from_slice(more);
            chunk = rest;
            if more.len() == wanted {
                let held = std::mem::take(&mut self.held);
                let (used, _) = self.step(&held, sink)?;
                self.held = held;
                self.held.drain(..used);
            }
        }
        Ok(())
    }

    pub(super) fn items(&self) -> usize {
        self.items
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.held.len() + self.content.as_ref().map_or(0, Vec::len)
    }

    pub(super) fn finish(self) -> Result<ListBody, ListError> {
        let truncated = ListError::Truncated { offset: self.offset, items: self.items };
        if self.level != Level::Envelope || !self.held.is_empty() {
            return Err(truncated);
        }
        let Some((kind, items)) = self.kind else { return Err(truncated) };
        let content = self.content.unwrap_or_default();
        if items.is_none() {
            return match kind.kind {
                "Status" => Ok(ListBody::Status(Box::new(status(&content)?))),
                other => Err(ListError::NotAList { kind: other.into() }),
            };
        }
        // The list itself is missing if the body was cut behind its kind.
        if !self.seen_list {
            return Err(truncated);
        }
        let meta = Message::read(&content).ok_or(invalid("it is no message"))?;
        let continue_token = meta.text(3).unwrap_or_default();
        Ok(ListBody::List(ListMeta {
            resource_version: meta.text(2).unwrap_or_default().parse()?,
            continue_token: (!continue_token.is_empty()).then(|| continue_token.to_owned()),
            remaining_item_count: meta
                .last(4)
                .and_then(Field::integer)
                .and_then(|count| u64::try_from(count).ok()),
            kind: kind.kind.to_owned(),
            api_version: kind.api_version.to_owned(),
        }))
    }

    /// Handles the field at the start of `bytes`, if it is complete. Returns the bytes used, and whether more are needed.
    fn step(&mut self, bytes: &[u8], sink: &mut impl Items) -> Result<(usize, bool), ListError> {
        if bytes.len() < self.wanted(bytes)? {
            return Ok((0, true));
        }
        if self.level == Level::Magic {
            if !bytes.starts_with(MAGIC) {
                return Err(invalid("it is not an envelope").into());
            }
            self.level = Level::Envelope;
            return Ok((MAGIC.len(), false));
        }
        let Some(field) = field(bytes)? else { return Ok((0, true)) };
        if self.is_list(&field) {
            self.seen_list = true;
            self.level = if field.length == 0 { Level::Envelope } else { Level::List(field.length) };
            return Ok((field.head, false));
        }
        let used = field.head + field.length;
        let content = &bytes[field.head..used];
        match (self.level, field.number) {
            (Level::List(left), number) => {
                let left = left.checked_sub(used).ok_or(invalid("an item is longer than the list"))?;
                self.level = if left == 0 { Level::Envelope } else { Level::List(left) };
                match number {
                    1 => self.content = Some(content.to_vec()),
                    2 => self.item(content, sink)?,
                    _ => {}
                }
            }
            (_, 1) => self.kind = Some(kinds(content)?),
            (_, 2) => self.content = Some(content.to_vec()),
            _ => {}
        }
        Ok((used, false))
    }

    fn item(&mut self, item: &[u8], sink: &mut impl Items) -> Result<(), ListError> {
        if self.items == self.limits.max_list_items {
            return Err(ListError::TooManyItems { limit: self.limits.max_list_items });
        }
        if let Some((_, Some(kind))) = self.kind {
            sink.message(kind, item, &self.limits);
        }
        self.items += 1;
        Ok(())
    }

    /// Returns the number of bytes that `bytes` must have for the next step, as far as they tell.
    fn wanted(&self, bytes: &[u8]) -> Result<usize, ListError> {
        if self.level == Level::Magic {
            return Ok(MAGIC.len());
        }
        let Some(field) = field(bytes)? else { return Ok(bytes.len() + 1) };
        if self.is_list(&field) {
            return Ok(field.head);
        }
        let is_item = matches!((self.level, field.number), (Level::List(_), 2));
        let limit = if is_item { self.limits.max_object_bytes } else { self.limits.max_envelope_bytes };
        match field.length <= limit {
            true => Ok(field.head.saturating_add(field.length)),
            false if is_item => Err(ListError::ItemTooLarge { index: self.items, limit }),
            false => Err(ListError::EnvelopeTooLarge { limit }),
        }
    }

    /// Returns whether the field is the list in the envelope, whose content is read field by field.
    fn is_list(&self, field: &FieldBytes) -> bool {
        self.level == Level::Envelope && field.number == 2 && matches!(self.kind, Some((_, Some(_))))
    }
}

/// Reads the tag and the length at the start of the bytes; `None` if they are incomplete.
fn field(bytes: &[u8]) -> Result<Option<FieldBytes>, ListError> {
    let mut reader = Reader::new(bytes);
    match tag_and_length(&mut reader) {
        Ok((number, length)) => {
            Ok(Some(FieldBytes { number, head: bytes.len() - reader.rest().len(), length }))
        }
        Err(TRUNCATED) => Ok(None),
        Err(problem) => Err(invalid(problem).into()),
    }
}

fn tag_and_length(reader: &mut Reader<'_>) -> Result<(u64, usize), BadEncoding> {
    let tag = reader.varint()?;
    let length = match tag & 7 {
        // The number is part of the head.
        0 => reader.varint().map(|_| 0)?,
        1 => 8,
        // What is longer than memory exceeds every limit.
        2 => usize::try_from(reader.varint()?).unwrap_or(usize::MAX),
        5 => 4,
        _ => return Err(WIRE_TYPE),
    };
    Ok((tag >> 3, length))
}

/// Reads the kind of the body, and finds that of its items.
fn kinds(type_meta: &[u8]) -> Result<(&'static Kind, Option<&'static Kind>), ListError> {
    let types = Message::read(type_meta).ok_or(invalid("its kind is no message"))?;
    let (api_version, kind) = (types.text(1).unwrap_or_default(), types.text(2).unwrap_or_default());
    let unknown = ListError::UnknownKind { api_version: api_version.into(), kind: kind.into() };
    let found = Kind::find(api_version, kind).ok_or(unknown.clone())?;
    match (found.items(), found.item()) {
        (Some(_), None) => Err(unknown),
        (_, item) => Ok((found, item)),
    }
}

fn status(message: &[u8]) -> Result<Status, ListError> {
    let kind = Kind::find("v1", "Status").ok_or(invalid("the table has no Status"))?;
    crate::protobuf::decode_message(kind, message).map_err(ListError::Envelope)
}

fn invalid(problem: &'static str) -> InvalidProtobuf {
    InvalidProtobuf { message: "meta/v1.List", problem }
}
