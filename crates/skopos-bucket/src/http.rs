//! The HTTP client of `object_store`, over the project's own transport. It detects dead connections, has deadlines for
//! headers, progress and body, and uses one TLS library.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use parking_lot::Mutex;
use skopos_transport::{
    ClassDeadlines, Deadlines, Fault, RequestClass, RequestOptions, Transport, TransportBody, TransportError,
    TransportErrorKind, TransportOptions, read_certificates,
};

use crate::BucketLimits;
use crate::location::{Endpoint, origin};

/// A factory of HTTP clients.
#[derive(Debug)]
pub(crate) struct Connector {
    shared: Arc<ConnectorInner>,
}

struct ConnectorInner {
    /// The only CAs trusted at the endpoint.
    ca: Option<(String, Vec<Vec<u8>>)>,
    options: TransportOptions,
    deadline: Duration,
    /// The maximum size of an answer, in bytes.
    max_bytes: u64,
    /// Transports by scheme, host and port: of the bucket and of the services for credentials.
    transports: Mutex<HashMap<String, Transport>>,
}

/// An HTTP client. Clients differ only in whether plain HTTP is allowed.
#[derive(Debug)]
struct Client {
    shared: Arc<ConnectorInner>,
    clear: bool,
}

/// The allowance for an answer beyond the object, in bytes.
const MAX_RESPONSE_OVERHEAD: u64 = 16 << 20;

/// The maximum number of bytes read of an error response.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// The maximum length of an error code.
const MAX_CODE_LEN: usize = 64;

impl Connector {
    pub(crate) fn new(
        ca: Option<&Path>,
        endpoint: Option<&Endpoint>,
        limits: &BucketLimits,
    ) -> Result<Self, String> {
        let ca = ca.map(read_certificates).transpose()?;
        let ca = ca.map(|ca| (endpoint.map(Endpoint::url).unwrap_or_default(), ca));
        let deadlines = |headers| Deadlines {
            headers: Some(headers),
            progress: Some(limits.answer),
            body: Some(limits.request),
        };
        let options = TransportOptions {
            connect_timeout: limits.answer,
            // S3 clients speak HTTP/1.1.
            http1_only: true,
            max_connections_http1: 32,
            deadlines: ClassDeadlines {
                read: deadlines(limits.answer),
                // The headers come after the whole body is written.
                write: deadlines(limits.request),
                ..ClassDeadlines::default()
            },
            ..TransportOptions::default()
        };
        let (deadline, max_bytes) = (limits.request, limits.bytes + MAX_RESPONSE_OVERHEAD);
        Ok(Self {
            shared: Arc::new(ConnectorInner {
                ca,
                options,
                deadline,
                max_bytes,
                transports: Mutex::default(),
            }),
        })
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let clear = options.get_config_value(&ClientConfigKey::AllowHttp).as_deref() == Some("true");
        Ok(HttpClient::new(Client { shared: self.shared.clone(), clear }))
    }
}

#[async_trait::async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if !self.clear && request.uri().scheme() != Some(&http::uri::Scheme::HTTPS) {
            return Err(failed(HttpErrorKind::Unknown, "it is not asked for without TLS"));
        }
        let transport = self.shared.transport(request.uri()).await?;
        let (parts, body) = request.into_parts();
        let class = match parts.method {
            Method::GET | Method::HEAD => RequestClass::Read,
            _ => RequestClass::Write,
        };
        let options = RequestOptions {
            class: Some(class),
            deadline: Some(self.shared.deadline),
            ..RequestOptions::default()
        };
        let mut request = Request::new(Body::from(body.collect().await?.to_bytes()));
        (*request.method_mut(), *request.uri_mut()) = (parts.method, parts.uri);
        *request.headers_mut() = parts.headers;
        request.extensions_mut().insert(options);
        let answer = transport.send(request).await.map_err(|error| http_error(&error))?;
        match answer.status().is_success() {
            true => {
                let (parts, body) = answer.into_parts();
                let body = BoundedBody { body: Mutex::new(body), left: self.shared.max_bytes };
                Ok(Response::from_parts(parts, HttpResponseBody::new(body)))
            }
            false => Ok(in_short(answer).await),
        }
    }
}

/// Reduces an error response to its code. The rest may contain anything, even the signature of the request.
async fn in_short(answer: Response<TransportBody>) -> HttpResponse {
    let (parts, body) = answer.into_parts();
    let said = Limited::new(body, MAX_ERROR_BYTES).collect().await;
    let said = said.map_or_else(|_| Bytes::new(), |said| said.to_bytes());
    let code = error_code(&String::from_utf8_lossy(&said)).unwrap_or_default().to_owned();
    let mut short = Response::new(HttpResponseBody::from(code));
    *short.status_mut() = parts.status;
    short
}

/// Returns the word between `<Code>` and `</Code>`, if it is one.
fn error_code(said: &str) -> Option<&str> {
    let (code, _) = said.split_once("<Code>")?.1.split_once("</Code>")?;
    let is_word = code.len() <= MAX_CODE_LEN && code.bytes().all(|byte| byte.is_ascii_alphabetic());
    is_word.then_some(code)
}

impl ConnectorInner {
    /// Returns the transport for the origin of `uri`.
    async fn transport(self: &Arc<Self>, uri: &Uri) -> Result<Transport, HttpError> {
        let origin = origin(uri);
        if let Some(known) = self.transports.lock().get(&origin) {
            return Ok(known.clone());
        }
        let own = self.clone();
        // Reading the CAs of the system blocks, because they are files.
        let made = tokio::task::spawn_blocking(move || {
            let url = origin.parse::<Uri>().map_err(|error| error.to_string())?;
            let mut config = kube::Config::new(url);
            config.root_cert =
                own.ca.as_ref().filter(|(of, _)| of.is_empty() || *of == origin).map(|(_, ca)| ca.clone());
            let transport = Transport::from_config(config, own.options.clone());
            let transport = transport.map_err(|error| error.to_string())?;
            Ok::<_, String>(own.transports.lock().entry(origin).or_insert(transport).clone())
        });
        let made = made.await.unwrap_or_else(|error| Err(error.to_string()));
        made.map_err(|problem| failed(HttpErrorKind::Unknown, &problem))
    }
}

impl fmt::Debug for ConnectorInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// The body of an answer, with a limit on its size.
struct BoundedBody {
    /// A mutex only to make the body `Sync`; it has one reader.
    body: Mutex<TransportBody>,
    left: u64,
}

impl http_body::Body for BoundedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let frame = ready!(Pin::new(self.body.get_mut()).poll_frame(cx));
        let bytes = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len) as u64,
            _ => 0,
        };
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => return Poll::Ready(Some(Err(failed(HttpErrorKind::Decode, "the answer does not end")))),
        }
        Poll::Ready(frame.map(|frame| frame.map_err(|error| http_error(&error))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.lock().size_hint()
    }
}

/// Maps a transport error for `object_store`, which retries errors that may be transient.
fn http_error(error: &TransportError) -> HttpError {
    let kind = match (error.kind(), error.fault()) {
        (
            TransportErrorKind::HeadersDeadline { .. }
            | TransportErrorKind::ProgressDeadline { .. }
            | TransportErrorKind::BodyDeadline { .. }
            | TransportErrorKind::CallerDeadline { .. },
            _,
        ) => HttpErrorKind::Timeout,
        (TransportErrorKind::Redirected { .. }, _) => {
            return failed(HttpErrorKind::Unknown, "it leads elsewhere: is the region right?");
        }
        (_, Fault::Caller) => HttpErrorKind::Unknown,
        (_, Fault::Network) => HttpErrorKind::Connect,
        _ => HttpErrorKind::Interrupted,
    };
    // Without the time of the next attempt, which differs each time.
    failed(kind, &error.kind().root().to_string())
}

fn failed(kind: HttpErrorKind, problem: &str) -> HttpError {
    HttpError::new(kind, std::io::Error::other(problem.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_only_code_of_error() {
        let said = "<Error><Code>AccessDenied</Code><Message>secret</Message></Error>";
        assert_eq!(error_code(said), Some("AccessDenied"));
        for none in ["", "<Code>", "<Code>a b</Code>", "<Code>/etc</Code>", "secret"] {
            assert_eq!(error_code(none), None, "{none}");
        }
        assert_eq!(error_code(&format!("<Code>{}</Code>", "a".repeat(65))), None);
    }
}
