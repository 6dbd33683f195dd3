//! Hostile response bodies. They are generated while they are sent, so they cost only the client memory.

use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use skopos_serve::respond::{self, BodyError, Response};
use skopos_serve::{Block, GzipMember, RequestVerb};

use super::{Fault, RequestAttributes};

/// Returns the response of a hostile server; `None` for other faults.
pub(crate) fn hostile_body(fault: &Fault, attributes: &RequestAttributes) -> Option<Response> {
    let watch = attributes.verb == RequestVerb::Watch;
    let (filler, gzip, cut) = match fault {
        Fault::EndlessLine => (u64::MAX, false, false),
        Fault::GiantObject { bytes } => (*bytes, false, false),
        Fault::GzipBomb { bytes } => (*bytes, true, false),
        Fault::TruncatedGzip => (1 << 20, true, true),
        _ => return None,
    };
    let body = HostileBody {
        opening: Some(if watch { WATCH_OPENING } else { LIST_OPENING }),
        filler,
        closing: Some(if watch { "\"}}}}\n" } else { "\"}}}]}\n" }).filter(|_| !cut),
        gzip: gzip.then(Gzip::begin),
        cut,
    };
    let mut response = respond::bytes(StatusCode::OK, "application/json", Bytes::new());
    *response.body_mut() = body.boxed_unsync();
    if gzip {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Some(response)
}

const WATCH_OPENING: &str = "{\"type\":\"ADDED\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"giant\",\
    \"namespace\":\"default\",\"uid\":\"giant\",\"resourceVersion\":\"1\",\"annotations\":{\"filler\":\"";
const LIST_OPENING: &str = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[\
    {\"metadata\":{\"name\":\"giant\",\"namespace\":\"default\",\"uid\":\"giant\",\"resourceVersion\":\"1\",\
    \"annotations\":{\"filler\":\"";

struct HostileBody {
    opening: Option<&'static str>,
    /// Bytes left inside the object.
    filler: u64,
    closing: Option<&'static str>,
    gzip: Option<Gzip>,
    /// True if the body ends in the middle of the compressed stream.
    cut: bool,
}

/// Gzip stream that has begun.
struct Gzip {
    member: GzipMember,
    /// Bytes not sent yet: the header.
    begun: Vec<u8>,
}

const CHUNK_BYTES: usize = 64 * 1024;
const FRAME_BYTES: usize = 16 * 1024;
static FILLER: [u8; CHUNK_BYTES] = [b'x'; CHUNK_BYTES];
/// Compressed once, so that a bomb costs the sender nothing.
static COMPRESSED_FILLER: LazyLock<Block> = LazyLock::new(|| Block::new(&FILLER));

impl HostileBody {
    fn next(&mut self) -> Option<&'static [u8]> {
        if let Some(opening) = self.opening.take() {
            return Some(opening.as_bytes());
        }
        if self.filler > 0 {
            let size = self.filler.min(CHUNK_BYTES as u64);
            self.filler -= size;
            return Some(&FILLER[..size as usize]);
        }
        self.closing.take().map(str::as_bytes)
    }

    /// Returns the next bytes of the compressed stream, or its last ones.
    fn compressed(&mut self, mut gzip: Gzip) -> Bytes {
        let mut out = std::mem::take(&mut gzip.begun);
        while let Some(chunk) = self.next() {
            match chunk.len() {
                CHUNK_BYTES => gzip.member.block(&COMPRESSED_FILLER, &mut out),
                _ => gzip.member.stored(chunk, &mut out),
            }
            if out.len() >= FRAME_BYTES {
                self.gzip = Some(gzip);
                return out.into();
            }
        }
        if self.cut {
            out.truncate(out.len() / 2);
        } else {
            gzip.member.end(&mut out);
        }
        out.into()
    }
}

impl Gzip {
    fn begin() -> Self {
        let mut begun = Vec::new();
        Self { member: GzipMember::begin(&mut begun), begun }
    }
}

impl Body for HostileBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let data = match self.gzip.take() {
            None => self.next().map(Bytes::from_static),
            Some(gzip) => Some(self.compressed(gzip)),
        };
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }
}
