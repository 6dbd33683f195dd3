//! Body of a LIST, written while it is sent: stored bytes are sent unchanged, and the whole text never exists at once.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use jiff::Timestamp;

use super::Form;
use super::list_head::ListHead;
use crate::gzip::{BlockKey, BlockPart, Blocks, GzipMember};
use crate::item::Item;
use crate::respond::{self, Response};

/// Unwritten rest of a list's text.
pub(super) struct ListBody<I> {
    prefix: Option<String>,
    items: std::vec::IntoIter<I>,
    first: bool,
    form: Form,
    now: Timestamp,
    output: Output,
}

enum Output {
    /// With the cache of texts that were made from another form, if any.
    Plain(Option<Blocks>),
    Gzip(Gzip),
    /// Everything is written.
    Done,
}

struct Gzip {
    /// `None` before the first chunk.
    member: Option<GzipMember>,
    blocks: Blocks,
}

/// Destination of a list's text.
pub(super) trait ListSink {
    /// Writes text of this list alone.
    fn text(&mut self, text: &[u8]);

    /// Writes a part of an object by calling `write`. The part is the same for all lists of the source.
    fn part(&mut self, item: &impl Item, part: BlockPart, write: impl FnOnce(&mut Vec<u8>));

    /// Returns the work done for the current chunk, in bytes.
    fn chunk_bytes(&self) -> usize;
}

/// Approximate size of a chunk, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;

pub(super) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepts = |value: &HeaderValue| {
        let clauses = value.to_str().unwrap_or_default().split(',');
        clauses
            .map(|clause| clause.split(';').next().unwrap_or_default().trim())
            .any(|coding| coding == "gzip")
    };
    headers.get_all(header::ACCEPT_ENCODING).iter().any(accepts)
}

impl<I: Item> ListBody<I> {
    pub(super) fn new(form: Form, head: &ListHead, items: Vec<I>, now: Timestamp) -> Self {
        let prefix = Some(form.list_prefix(&head.metadata_json()));
        Self { prefix, items: items.into_iter(), first: true, form, now, output: Output::Plain(None) }
    }

    /// Returns the response. Its parts come from `blocks`, if given. With `gzip_from` the text is compressed if it has at least
    /// that many bytes.
    pub(super) fn respond(mut self, blocks: Option<&Blocks>, gzip_from: Option<usize>) -> Response {
        let mut response = respond::bytes(StatusCode::OK, "application/json", Bytes::new());
        self.output = Output::Plain(blocks.cloned());
        if let (Some(blocks), Some(bytes)) = (blocks, gzip_from)
            && self.is_at_least(bytes)
        {
            self.output = Output::Gzip(Gzip { member: None, blocks: blocks.clone() });
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        *response.body_mut() = respond::chunks(std::iter::from_fn(move || self.next_chunk()));
        response
    }

    /// Returns whether the text has about `bytes` bytes or more.
    fn is_at_least(&self, bytes: usize) -> bool {
        let mut size = self.prefix.as_ref().map_or(0, String::len);
        self.items.as_slice().iter().any(|item| {
            size += item.origin().len();
            size > bytes
        }) || size > bytes
    }

    /// Returns the next chunk.
    fn next_chunk(&mut self) -> Option<Bytes> {
        let mut out = Vec::with_capacity(CHUNK_BYTES + 8 * 1024);
        match std::mem::replace(&mut self.output, Output::Done) {
            Output::Done => return None,
            Output::Plain(blocks) => {
                let mut sink = PlainSink { blocks, out };
                let ended = self.write(&mut sink);
                out = sink.out;
                if !ended {
                    self.output = Output::Plain(sink.blocks);
                }
            }
            Output::Gzip(Gzip { member, blocks }) => {
                let member = member.unwrap_or_else(|| GzipMember::begin(&mut out));
                let mut sink = GzipSink { member, blocks, out, text: Vec::new(), compressed: 0 };
                let ended = self.write(&mut sink);
                let (member, blocks);
                (member, blocks, out) = sink.finish();
                match ended {
                    true => member.end(&mut out),
                    false => self.output = Output::Gzip(Gzip { member: Some(member), blocks }),
                }
            }
        }
        Some(out.into())
    }

    /// Writes a chunk; returns whether it was the last.
    fn write(&mut self, out: &mut impl ListSink) -> bool {
        if let Some(prefix) = self.prefix.take() {
            out.text(prefix.as_bytes());
        }
        while out.chunk_bytes() < CHUNK_BYTES {
            let Some(item) = self.items.next() else {
                out.text(b"]}\n");
                return true;
            };
            if !std::mem::take(&mut self.first) {
                out.text(b",");
            }
            self.form.write_item(&item, self.now, out);
        }
        false
    }
}

/// Plain output, with cached texts of objects in another form.
struct PlainSink {
    blocks: Option<Blocks>,
    out: Vec<u8>,
}

impl ListSink for PlainSink {
    fn text(&mut self, text: &[u8]) {
        self.out.extend_from_slice(text);
    }

    fn part(&mut self, item: &impl Item, part: BlockPart, write: impl FnOnce(&mut Vec<u8>)) {
        match self.blocks.as_ref().filter(|_| item.is_transcoded()) {
            Some(blocks) => {
                let key = BlockKey { origin: item.origin(), revision: item.revision(), part };
                self.out.extend_from_slice(&blocks.get_or_write(key, write));
            }
            None => write(&mut self.out),
        }
    }

    fn chunk_bytes(&self) -> usize {
        self.out.len()
    }
}

/// Gzip output that stores plain text between compressed blocks.
struct GzipSink {
    member: GzipMember,
    blocks: Blocks,
    out: Vec<u8>,
    /// Text not stored yet; consecutive texts share one stored block.
    text: Vec<u8>,
    /// Bytes that had to be compressed.
    compressed: usize,
}

impl GzipSink {
    fn store(&mut self) {
        if !self.text.is_empty() {
            self.member.stored(&self.text, &mut self.out);
            self.text.clear();
        }
    }

    fn finish(mut self) -> (GzipMember, Blocks, Vec<u8>) {
        self.store();
        (self.member, self.blocks, self.out)
    }
}

impl ListSink for GzipSink {
    fn text(&mut self, text: &[u8]) {
        self.text.extend_from_slice(text);
    }

    fn part(&mut self, item: &impl Item, part: BlockPart, write: impl FnOnce(&mut Vec<u8>)) {
        self.store();
        let compressed = &mut self.compressed;
        let key = BlockKey { origin: item.origin(), revision: item.revision(), part };
        let block = self.blocks.get_or_compress(key, |text| {
            write(text);
            *compressed += text.len();
        });
        self.member.block(&block, &mut self.out);
    }

    fn chunk_bytes(&self) -> usize {
        self.out.len() + self.text.len() + self.compressed
    }
}
