//! Responses: their body type and common forms.

pub(crate) mod media_type;
pub(crate) mod paged;
pub(crate) mod reasons;
pub(crate) mod terminating_body;

use std::convert::Infallible;
use std::error::Error as StdError;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use skopos_wire::Status;

/// An error while a body is sent.
pub(crate) type BodyError = Box<dyn StdError + Send + Sync>;

/// A body: a whole text, a streamed list, a watch, or a member's body.
pub(crate) type ResponseBody = UnsyncBoxBody<Bytes, BodyError>;

/// A response.
pub(crate) type Response = http::Response<ResponseBody>;

/// Makes the response of a failure in the API server's form, with `Retry-After` if the status has it.
pub(crate) fn status(status: &Status) -> Response {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = serde_json::to_vec(status).unwrap_or_default();
    let mut response = bytes(code, "application/json", body.into());
    if let Some(seconds) = status.retry_after_seconds().filter(|seconds| *seconds > 0) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Makes a response with plain text.
pub(crate) fn text(code: StatusCode, body: impl Into<String>) -> Response {
    bytes(code, "text/plain; charset=utf-8", Bytes::from(body.into()))
}

/// Makes a response with a whole body of any type.
pub(crate) fn bytes(code: StatusCode, content_type: &'static str, body: Bytes) -> Response {
    let mut response = http::Response::new(whole(body));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Makes a body of one piece.
pub(crate) fn whole(body: Bytes) -> ResponseBody {
    Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync()
}
