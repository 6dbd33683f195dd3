//! The body of a LIST, written while it is sent: stored bytes go out as they are, and the whole never exists at once.

use std::collections::VecDeque;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;

use super::Form;
use super::form::{partial, quoted};
use crate::resources::ResourceType;
use crate::serve::respond::{self, BodyError, Response};
use crate::storage::Stored;

/// What a list says of itself.
#[derive(Debug)]
pub(super) struct ListHead {
    pub(super) revision: u64,
    pub(super) continue_token: Option<String>,
    pub(super) remaining: Option<usize>,
}

/// The response to a LIST.
pub(super) fn respond_with_list(
    resource: &ResourceType,
    form: Form,
    head: &ListHead,
    items: Vec<Arc<Stored>>,
    headers: &HeaderMap,
) -> Response {
    if let Form::Table(writer) = &form {
        let rows = items.iter().map(|object| writer.row(&object.to_value())).collect();
        let table = writer.table(head.metadata_value(), rows, true).to_string();
        return respond::json_bytes(StatusCode::OK, table.into());
    }
    let partial = matches!(form, Form::Partial);
    let (kind, api_version) = match partial {
        true => ("PartialObjectMetadataList", "meta.k8s.io/v1".to_owned()),
        false => (resource.list_kind.as_str(), resource.api_version()),
    };
    let opening = format!(
        "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{},\"items\":[",
        quoted(kind),
        quoted(&api_version),
        head.metadata_value()
    );
    let size: usize = opening.len() + items.iter().map(|o| o.json_slice().len()).sum::<usize>();
    let gzip = size > GZIP_FROM && accepts_gzip(headers);
    let body = ListBody {
        opening: Some(opening),
        items: items.into(),
        first: true,
        form,
        // Items of typed lists carry no kind and apiVersion of their own.
        bare: !resource.custom && !partial,
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
        metadata
    }
}

struct ListBody {
    opening: Option<String>,
    items: VecDeque<Arc<Stored>>,
    first: bool,
    form: Form,
    bare: bool,
    gzip: Option<GzEncoder<Vec<u8>>>,
    done: bool,
}

// === impl ListBody ===

impl ListBody {
    /// The next piece of JSON, and whether it is the last.
    fn fill(&mut self) -> (Vec<u8>, bool) {
        let mut chunk = Vec::with_capacity(CHUNK + 8 * 1024);
        if let Some(opening) = self.opening.take() {
            chunk.extend_from_slice(opening.as_bytes());
        }
        while chunk.len() < CHUNK {
            let Some(object) = self.items.pop_front() else {
                chunk.extend_from_slice(b"]}\n");
                return (chunk, true);
            };
            if !std::mem::take(&mut self.first) {
                chunk.push(b',');
            }
            match &self.form {
                Form::Partial => chunk.extend_from_slice(&partial(&object)),
                _ if self.bare => {
                    chunk.push(b'{');
                    chunk.extend_from_slice(object.rest());
                }
                form => chunk.extend_from_slice(&form.object(&object)),
            }
        }
        (chunk, false)
    }
}

impl Body for ListBody {
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
