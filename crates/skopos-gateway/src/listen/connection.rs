//! One connection, from its first byte to its end.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, Version, header};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use skopos_wire::Status;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::activity::{ConnectionActivity, WatchedBody};
use super::framing::Inspected;
use super::reaper::{ConnectionReaper, Registration};
use super::tls::TlsReloader;
use super::{Handler, Peer};
use crate::request::browser;
use crate::response::{self, Response};
use crate::upgrade::Switched;

/// The state shared by all connections.
pub(super) struct ConnectionContext<H> {
    pub(super) handler: H,
    pub(super) reaper: Arc<ConnectionReaper>,
    pub(super) tls: Option<Arc<TlsReloader>>,
    pub(super) tasks: TaskTracker,
    /// Cancelled when answers should end.
    pub(super) draining: CancellationToken,
    /// Cancelled when everything ends now.
    pub(super) cut: CancellationToken,
}

impl<H: Handler> ConnectionContext<H> {
    /// Serves a connection in a task of its own.
    pub(super) fn serve(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        address: SocketAddr,
    ) {
        let close = self.cut.child_token();
        let registration = self.reaper.register(address.into(), close.clone());
        let tasks = self.tasks.clone();
        tasks.spawn(async move {
            // The streams run as separate tasks and end with the connection.
            let _streams = close.clone().drop_guard();
            close.run_until_cancelled(self.run(stream, address, &registration)).await;
            drop(registration);
        });
    }

    async fn run(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        address: SocketAddr,
        registration: &Registration,
    ) {
        let Some(tls) = &self.tls else {
            return self.http(stream, address, None, registration).await;
        };
        let settings = tls.current();
        // The reaper closes connections whose handshake takes too long.
        match TlsAcceptor::from(settings.config.clone()).accept(stream).await {
            Ok(stream) => {
                let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
                let chain: Vec<_> = certificates.iter().map(|own| own.clone().into_owned()).collect();
                let certificate = chain.first().cloned();
                registration.activity.set_chain(chain);
                // From here on a change of the CAs closes the connection; an earlier change is checked now.
                let now = tls.current();
                if !now.has_clients_of(&settings) && !registration.activity.is_accepted_by(&now) {
                    return tracing::debug!(%address, "the CA of a client certificate was replaced");
                }
                self.http(stream, address, certificate, registration).await;
            }
            Err(error) => tracing::debug!(%error, %address, "TLS handshake failed"),
        }
    }

    async fn http(
        &self,
        io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        address: SocketAddr,
        certificate: Option<CertificateDer<'static>>,
        registration: &Registration,
    ) {
        let peer = Peer::new(address, self.tls.is_some(), self.draining.clone());
        let record = registration.activity.record.clone();
        let peer = Arc::new(Peer { certificate, record, ..peer });
        let (handler, activity, reaper) =
            (self.handler.clone(), registration.activity.clone(), self.reaper.clone());
        let switched = Arc::new(Mutex::new(None));
        let switches = switched.clone();
        let service = service_fn(move |request| {
            answer(handler.clone(), peer.clone(), activity.clone(), reaper.clone(), switches.clone(), request)
        });
        let builder = self.builder(&registration.activity);
        let io = Inspected::new(io, registration.activity.clone());
        let serving = builder.serve_connection_with_upgrades(TokioIo::new(io), service);
        tokio::pin!(serving);
        let retired = async {
            tokio::select! {
                () = self.draining.cancelled() => {}
                () = registration.activity.retire.cancelled() => {}
            }
        };
        let ended = tokio::select! {
            biased;
            () = retired => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
            ended = &mut serving => ended,
        };
        if let Err(error) = ended {
            tracing::debug!(%error, %address, "connection failed");
            return;
        }
        let stream = switched.lock().take().and_then(|switched: Switched| switched.take());
        if let Some(stream) = stream {
            // The connection is neither idle nor without a request.
            let _busy = registration.activity.begin(Version::HTTP_11);
            stream.await;
        }
    }

    fn builder(&self, activity: &ConnectionActivity) -> auto::Builder<Streams> {
        let limits = self.reaper.limits();
        let headers = usize::try_from(limits.header_bytes.0).unwrap_or(usize::MAX);
        let streams = Streams { tasks: self.tasks.clone(), open: activity.close.clone() };
        let mut builder = auto::Builder::new(streams);
        builder
            .http1()
            .timer(TokioTimer::new())
            // This timer also runs between requests, so it is the idle time.
            .header_read_timeout(limits.idle.0)
            .max_buf_size(headers.max(8 * 1024));
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(u32::try_from(limits.header_bytes.0).unwrap_or(u32::MAX))
            .keep_alive_interval(limits.idle.0 / 3)
            .keep_alive_timeout(limits.handshake.0);
        builder
    }
}

async fn answer<H: Handler>(
    handler: H,
    peer: Arc<Peer>,
    activity: Arc<ConnectionActivity>,
    reaper: Arc<ConnectionReaper>,
    switched: Arc<Mutex<Option<Switched>>>,
    request: http::Request<Incoming>,
) -> Result<http::Response<WatchedBody>, Infallible> {
    let in_flight = activity.begin(request.version());
    reaper.request_received(&activity);
    let is_head = request.method() == Method::HEAD;
    if activity.is_ambiguous() {
        return Ok(in_flight.watch(ambiguous()));
    }
    let mut response = handler.handle(peer, request).await;
    reaper.request_answered(&activity);
    if let Some(stream) = response.extensions_mut().remove::<Switched>() {
        *switched.lock() = Some(stream);
    }
    if is_head || has_no_content(response.status()) {
        remove_body(&mut response, is_head);
    }
    Ok(in_flight.watch(response))
}

/// Refuses a request with two lengths. Nothing follows it on its connection.
fn ambiguous() -> Response {
    let why = "a request has a Content-Length or a Transfer-Encoding, and not both";
    let mut refused = response::status(&Status::bad_request(why));
    refused.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    browser::protect(&mut refused);
    refused
}

/// Returns whether an answer of this status never has a body (RFC 9110, section 6.4.1).
fn has_no_content(status: StatusCode) -> bool {
    status.is_informational() || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED
}

/// Removes a body that must not be sent. The answer to a HEAD still states the length of the body if it is known: HTTP/2
/// clients take DATA after such an answer for a broken stream.
fn remove_body(response: &mut Response, is_head: bool) {
    let body = std::mem::replace(response.body_mut(), response::whole(Bytes::new()));
    let length = body.size_hint().exact().filter(|_| is_head && !body.is_end_stream());
    if let Some(length) = length {
        response.headers_mut().entry(header::CONTENT_LENGTH).or_insert(HeaderValue::from(length));
    }
}

/// An executor of the streams of an HTTP/2 connection.
#[derive(Clone, Debug)]
struct Streams {
    tasks: TaskTracker,
    open: CancellationToken,
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        let open = self.open.clone();
        self.tasks.spawn(async move {
            open.run_until_cancelled(stream).await;
        });
    }
}
