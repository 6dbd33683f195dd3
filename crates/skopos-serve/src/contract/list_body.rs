//! The body of a LIST, written while it is sent: stored bytes go out as they are, and the whole never exists at once.

use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use jiff::Timestamp;

use super::Form;
use crate::json::quoted;
use crate::respond::{self, BodyError, Response};
use crate::source::Item;

/// What a list says of itself.
#[derive(Debug)]
pub(super) struct ListHead {
    pub(super) revision: u64,
    pub(super) continue_token: Option<String>,
    pub(super) remaining: Option<usize>,
    pub(super) annotations: Vec<(String, String)>,
}

/// The response to a LIST.
pub(super) fn respond_with_list<I: Item>(
    form: Form,
    head: &ListHead,
    items: Vec<I>,
    headers: &HeaderMap,
    now: Timestamp,
) -> Response {
    if let Some(table) = form.list_table(&items, head.metadata_value(), now) {
        return respond::json_bytes(StatusCode::OK, table);
    }
    let (kind, api_version) = form.list_kind();
    let opening = format!(
        "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{},\"items\":[",
        quoted(&kind),
        quoted(&api_version),
        head.metadata_value()
    );
    let size: usize = opening.len() + items.iter().map(|item| item.origin().len()).sum::<usize>();
    let gzip = size > GZIP_FROM && accepts_gzip(headers);
    let body = ListBody {
        opening: Some(opening),
        items: items.into_iter(),
        first: true,
        form,
        gzip: gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast())),
        done: false,
    };
    let mut response = respond::bytes(StatusCode::OK, "application/json", Bytes::new());
    *response.body_mut() = body.boxed_unsync();
    if gzip {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

/// L12: smaller answers are not compressed.
const GZIP_FROM: usize = 128 * 1024;

/// How much is written at a time.
const CHUNK: usize = 64 * 1024;

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepts = |value: &HeaderValue| {
        let clauses = value.to_str().unwrap_or_default().split(',');
        clauses
            .map(|clause| clause.split(';').next().unwrap_or_default().trim())
            .any(|coding| coding == "gzip")
    };
    headers.get_all(header::ACCEPT_ENCODING).iter().any(accepts)
}

// === impl ListHead ===

impl ListHead {
    fn metadata_value(&self) -> serde_json::Value {
        let mut metadata = serde_json::json!({"resourceVersion": self.revision.to_string()});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = token.as_str().into();
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        for (name, value) in &self.annotations {
            metadata["annotations"][name] = value.as_str().into();
        }
        metadata
    }
}

struct ListBody<I> {
    opening: Option<String>,
    items: std::vec::IntoIter<I>,
    first: bool,
    form: Form,
    gzip: Option<GzEncoder<Vec<u8>>>,
    done: bool,
}

// === impl ListBody ===

impl<I: Item> ListBody<I> {
    /// The next piece of JSON, and whether it is the last.
    fn fill(&mut self) -> (Vec<u8>, bool) {
        let mut chunk = Vec::with_capacity(CHUNK + 8 * 1024);
        if let Some(opening) = self.opening.take() {
            chunk.extend_from_slice(opening.as_bytes());
        }
        while chunk.len() < CHUNK {
            let Some(item) = self.items.next() else {
                chunk.extend_from_slice(b"]}\n");
                return (chunk, true);
            };
            if !std::mem::take(&mut self.first) {
                chunk.push(b',');
            }
            self.form.push_list_item(&item, &mut chunk);
        }
        (chunk, false)
    }
}

// Nothing in it is pinned.
impl<I> Unpin for ListBody<I> {}

impl<I: Item> Body for ListBody<I> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        while !self.done {
            let (chunk, last) = self.fill();
            self.done = last;
            let chunk = match &mut self.gzip {
                None => chunk,
                Some(gzip) => {
                    gzip.write_all(&chunk)?;
                    if last {
                        gzip.try_finish()?;
                    }
                    std::mem::take(gzip.get_mut())
                }
            };
            if !chunk.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(chunk.into()))));
            }
        }
        Poll::Ready(None)
    }
}
