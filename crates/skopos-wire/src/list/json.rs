//! Lists in JSON.

use serde::Deserialize;

use super::{Items, ListBody, ListError, ListMeta};
use crate::Limits;
use crate::json::SyntaxError;
use crate::nesting::{Nesting, join};

/// A splitter of one body in JSON.
#[derive(Debug)]
pub(super) struct JsonList {
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

impl JsonList {
    pub(super) fn new(limits: Limits) -> Self {
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
        }
    }

    pub(super) fn take(&mut self, chunk: &[u8], sink: &mut impl Items) -> Result<(), ListError> {
        let result = self.split(chunk, sink);
        self.offset = self.offset.saturating_add(chunk.len());
        result
    }

    pub(super) fn items(&self) -> usize {
        self.items
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.envelope.len() + self.partial.len()
    }

    pub(super) fn finish(self) -> Result<ListBody, ListError> {
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
