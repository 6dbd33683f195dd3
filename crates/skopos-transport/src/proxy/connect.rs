//! HTTP's CONNECT (RFC 9110, 9.3.6).

use std::future::poll_fn;
use std::io::Cursor;
use std::pin::pin;

use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt;

use super::fault::{ProxyFault, from_error_kind};
use crate::conn_state::connection_error;
use crate::dialer::Io;

/// Maximum size of a response's head, in bytes. Nothing else of the response is read.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Asks the proxy at the other end of `stream` to connect to the server, and returns the stream to the server.
pub(super) async fn connect<S: Io>(
    stream: S,
    server: &Authority,
    authorization: Option<&HeaderValue>,
) -> Result<Box<dyn Io>, ProxyFault> {
    let failed = |error: hyper::Error| from_error_kind(connection_error(&error));
    let mut builder = http1::Builder::new();
    // Some proxies predate the rule that header names are case-insensitive.
    builder.max_buf_size(MAX_HEAD_BYTES).title_case_headers(true);
    let (mut sender, mut connection) = builder.handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let answer = {
        let mut asking = pin!(sender.send_request(request(server, authorization)));
        tokio::select! {
            biased;
            answer = &mut asking => answer,
            // The response that it has brought can still be taken.
            _ = poll_fn(|cx| connection.poll_without_shutdown(cx)) => asking.await,
        }
    };
    let status = answer.map_err(failed)?.status();
    match (status, authorization) {
        (status, _) if status.is_success() => {}
        (StatusCode::PROXY_AUTHENTICATION_REQUIRED, None) => return Err(ProxyFault::NoCredentials),
        (StatusCode::PROXY_AUTHENTICATION_REQUIRED, Some(_)) => return Err(ProxyFault::WrongCredentials),
        (status, _) => return Err(ProxyFault::Status(status.as_u16())),
    }
    let parts = connection.into_parts();
    let stream = parts.io.into_inner();
    if parts.read_buf.is_empty() {
        return Ok(Box::new(stream));
    }
    // The server spoke first, and its bytes came together with the proxy's.
    let (reader, writer) = tokio::io::split(stream);
    Ok(Box::new(tokio::io::join(Cursor::new(parts.read_buf).chain(reader), writer)))
}

fn request(server: &Authority, authorization: Option<&HeaderValue>) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.method_mut() = http::Method::CONNECT;
    *request.uri_mut() = Uri::from(server.clone());
    if let Ok(host) = HeaderValue::from_str(server.as_str()) {
        request.headers_mut().insert(header::HOST, host);
    }
    if let Some(authorization) = authorization {
        request.headers_mut().insert(header::PROXY_AUTHORIZATION, authorization.clone());
    }
    request
}
