//! Responses: their body type, and constructors for the few common shapes.

use std::convert::Infallible;
use std::error::Error as StdError;

use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, StatusCode, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde::Serialize;
use skopos_wire::Status;

/// Error of a response body. Only injected faults make a body fail.
pub type BodyError = Box<dyn StdError + Send + Sync>;

/// Response body: a whole text, a streamed list, or a watch.
pub type ResponseBody = UnsyncBoxBody<Bytes, BodyError>;

/// HTTP response.
pub type Response = http::Response<ResponseBody>;

/// Returns `value` as JSON. It ends with a newline, as in the output of Go's JSON encoder.
pub fn json(code: StatusCode, value: &impl Serialize) -> Response {
    let mut body = serde_json::to_vec(value).unwrap_or_default();
    body.push(b'\n');
    bytes(code, "application/json", body.into())
}

/// Returns stored bytes of an object or other encoded JSON, and a newline.
pub fn json_bytes(code: StatusCode, body: &[u8]) -> Response {
    bytes(code, "application/json", [body, b"\n"].concat().into())
}

/// Returns plain text.
pub fn text(code: StatusCode, body: impl Into<String>) -> Response {
    bytes(code, "text/plain; charset=utf-8", Bytes::from(body.into()))
}

/// Returns an error status, with a `Retry-After` header if the status has one.
pub fn status(status: &Status) -> Response {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(code, status);
    if let Some(seconds) = status.retry_after_seconds().filter(|seconds| *seconds > 0) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Returns a whole body of any type.
pub fn bytes(code: StatusCode, content_type: &'static str, body: Bytes) -> Response {
    let mut response = http::Response::new(whole(body));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Returns a body of one chunk.
pub fn whole(body: Bytes) -> ResponseBody {
    Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// Returns a body of chunks that are made while it is sent.
pub fn chunks(chunks: impl Iterator<Item = Bytes> + Send + 'static) -> ResponseBody {
    StreamBody::new(stream::iter(chunks.map(|chunk| Ok(Frame::data(chunk))))).boxed_unsync()
}
