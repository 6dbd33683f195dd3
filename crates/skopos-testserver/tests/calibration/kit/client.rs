//! HTTP client: one request per connection.

use std::io;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

use super::target::Target;

/// Response whose body is still to be read.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    /// Drives the connection; it ends with the response.
    _connection: JoinSet<()>,
}

/// Sends a request.
pub(crate) async fn send<T: Target>(
    target: &T,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> io::Result<Answer> {
    let stream = target.connect().await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let mut connections = JoinSet::new();
    connections.spawn(async move { drop(connection.await) });
    let mut request = Request::builder().method(method).uri(path).header("host", "calibration");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body)).map_err(io::Error::other)?;
    let (parts, body) = sender.send_request(request).await.map_err(io::Error::other)?.into_parts();
    Ok(Answer { code: parts.status.as_u16(), headers: parts.headers, body, _connection: connections })
}

impl Answer {
    /// Returns the next chunk of the body; `None` is its end.
    pub(crate) async fn chunk(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(io::Error::other(error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Returns the whole body.
    pub(crate) async fn whole(mut self) -> io::Result<Bytes> {
        let mut whole = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.into())
    }

    /// Returns a header as text, empty if it is absent.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}
