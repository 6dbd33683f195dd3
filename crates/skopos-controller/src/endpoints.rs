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

/// The endpoints of a manager.
pub(crate) struct Endpoints {
    registry: Registry,
    handles: Vec<ControllerHandle>,
}

/// Connections beyond these wait in the system's backlog: probes and scrapes are few.
const MAX_CONNECTIONS: usize = 64;

/// The longest that the headers of a request may take.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

impl Endpoints {
    pub(crate) fn new(registry: Registry, handles: Vec<ControllerHandle>) -> Self {
        Self { registry, handles }
    }

    /// Serves until it is dropped.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let endpoints = Arc::new(self);
        let mut connections = JoinSet::new();
        loop {
            let room = connections.len() < MAX_CONNECTIONS;
            tokio::select! {
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = listener.accept(), if room => {
                    let Ok((stream, _)) = accepted else {
                        // Descriptors are used up: another attempt at once would fail, too.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    };
                    let endpoints = endpoints.clone();
                    connections.spawn(async move {
                        let answer = service_fn(move |request: Request<Incoming>| {
                            let answer = endpoints.answer(request.method(), request.uri().path());
                            async move { Ok::<_, Infallible>(answer) }
                        });
                        let mut http = hyper::server::conn::http1::Builder::new();
                        http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
                        // A client that breaks off is no fault of ours.
                        let _ = http.serve_connection(TokioIo::new(stream), answer).await;
                    });
                }
            }
        }
    }

    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let (code, body) = match (method, path) {
            (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, "ok\n".to_owned()),
            (&Method::GET | &Method::HEAD, "/readyz") => self.readiness(),
            (&Method::GET | &Method::HEAD, "/metrics") => self.metrics(),
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

    /// A controller that stands by is ready: it could lead at once.
    fn readiness(&self) -> (StatusCode, String) {
        let statuses: Vec<_> =
            self.handles.iter().map(|handle| (handle.stats().name, handle.status())).collect();
        let ready = |status: &ControllerStatus| {
            matches!(status, ControllerStatus::Working | ControllerStatus::Standby)
        };
        let code = match statuses.iter().all(|(_, status)| ready(status)) {
            true => StatusCode::OK,
            false => StatusCode::SERVICE_UNAVAILABLE,
        };
        (code, statuses.iter().map(|(name, status)| format!("{name}: {status}\n")).collect())
    }

    fn metrics(&self) -> (StatusCode, String) {
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => (StatusCode::OK, text),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written\n".to_owned()),
        }
    }
}
