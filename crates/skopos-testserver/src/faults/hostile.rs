//! Bodies that no well-meaning server sends. They are made while they are sent, so that only the client suffers.

use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderValue, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use skopos_serve::RequestVerb;
use skopos_serve::respond::{self, BodyError, Response};

use super::{Fault, RequestFacts};

/// The answer of a hostile server; `None` if the fault is not of that sort.
pub(crate) fn hostile_body(fault: &Fault, facts: &RequestFacts) -> Option<Response> {
    let watch = facts.verb == RequestVerb::Watch;
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
        gzip: gzip.then(|| GzEncoder::new(Vec::new(), Compression::best())),
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
    /// How many more bytes lie inside the object.
    filler: u64,
    closing: Option<&'static str>,
    gzip: Option<GzEncoder<Vec<u8>>>,
    /// Ends without the rest of the compressed stream.
    cut: bool,
}

const CHUNK: usize = 64 * 1024;
static FILLER: [u8; CHUNK] = [b'x'; CHUNK];

impl HostileBody {
    fn next(&mut self) -> Option<&'static [u8]> {
        if let Some(opening) = self.opening.take() {
            return Some(opening.as_bytes());
        }
        if self.filler > 0 {
            let size = self.filler.min(CHUNK as u64);
            self.filler -= size;
            return Some(&FILLER[..size as usize]);
        }
        self.closing.take().map(str::as_bytes)
    }
}

impl Body for HostileBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            let next = self.next();
            let cut = self.cut;
            let Some(gzip) = &mut self.gzip else {
                return Poll::Ready(next.map(|piece| Ok(Frame::data(Bytes::from_static(piece)))));
            };
            match next {
                Some(piece) => gzip.write_all(piece)?,
                None if cut => {
                    // What is there is flushed up to the middle, the rest never comes.
                    gzip.flush()?;
                    let out = std::mem::take(gzip.get_mut());
                    self.gzip = None;
                    let half = out.len() / 2;
                    return Poll::Ready(Some(Ok(Frame::data(Bytes::from(out).slice(..half)))));
                }
                None => {
                    gzip.try_finish()?;
                    let out = std::mem::take(gzip.get_mut());
                    self.gzip = None;
                    return Poll::Ready(Some(Ok(Frame::data(out.into()))));
                }
            }
            let out = gzip.get_mut();
            if out.len() >= 16 * 1024 {
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(out).into()))));
            }
        }
    }
}
