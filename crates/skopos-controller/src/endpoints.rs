//! `/healthz`, `/readyz` and `/metrics`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::handle::{ControllerHandle, ControllerStatus};

/// The responses of `/readyz` and `/metrics`.
pub trait Probes: Send + Sync {
    /// Returns whether the process is ready, with lines about the state of its parts.
    fn readiness(&self) -> (bool, String);

    /// Returns the metrics as OpenMetrics text; `None` if they cannot be written.
    fn metrics(&self) -> Option<String>;
}

/// The probes of a manager.
pub(crate) struct Endpoints {
    registry: Registry,
    handles: Vec<ControllerHandle>,
}

/// The maximum number of connections. Others wait in the system's backlog: probes and scrapes are few.
const MAX_CONNECTIONS: usize = 64;

/// The timeout of a request's headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves `/healthz`, `/readyz` and `/metrics` until it is dropped.
pub async fn serve(listener: TcpListener, probes: Arc<dyn Probes>) {
    let mut connections = JoinSet::new();
    loop {
        let room = connections.len() < MAX_CONNECTIONS;
        tokio::select! {
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if room => {
                let Ok((stream, _)) = accepted else {
                    // File descriptors are used up: another attempt at once would fail, too.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let probes = probes.clone();
                connections.spawn(async move {
                    let answer = service_fn(move |request: Request<Incoming>| {
                        let answer = answer(&*probes, request.method(), request.uri().path());
                        async move { Ok::<_, Infallible>(answer) }
                    });
                    let mut http = hyper::server::conn::http1::Builder::new();
                    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
                    // A client that disconnects is no fault of ours.
                    let _ = http.serve_connection(TokioIo::new(stream), answer).await;
                });
            }
        }
    }
}

fn answer(probes: &dyn Probes, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let (code, body) = match (method, path) {
        (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, "ok\n".to_owned()),
        (&Method::GET | &Method::HEAD, "/readyz") => match probes.readiness() {
            (true, lines) => (StatusCode::OK, lines),
            (false, lines) => (StatusCode::SERVICE_UNAVAILABLE, lines),
        },
        (&Method::GET | &Method::HEAD, "/metrics") => match probes.metrics() {
            Some(text) => (StatusCode::OK, text),
            None => (StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written\n".to_owned()),
        },
        (&Method::GET | &Method::HEAD, _) => {
            (StatusCode::NOT_FOUND, "there are /healthz, /readyz and /metrics\n".to_owned())
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned()),
    };
    let content_type = match path {
        "/metrics" => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        _ => "text/plain; charset=utf-8",
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}

impl Endpoints {
    pub(crate) fn new(registry: Registry, handles: Vec<ControllerHandle>) -> Self {
        Self { registry, handles }
    }
}

impl Probes for Endpoints {
    /// Returns the readiness. A controller on standby is ready: it could lead at once.
    fn readiness(&self) -> (bool, String) {
        let statuses: Vec<_> =
            self.handles.iter().map(|handle| (handle.stats().name, handle.status())).collect();
        let ready = |status: &ControllerStatus| {
            matches!(status, ControllerStatus::Working | ControllerStatus::Standby)
        };
        let lines = statuses.iter().map(|(name, status)| format!("{name}: {status}\n")).collect();
        (statuses.iter().all(|(_, status)| ready(status)), lines)
    }

    fn metrics(&self) -> Option<String> {
        let mut text = String::new();
        encode(&mut text, &self.registry).ok().map(|()| text)
    }
}
