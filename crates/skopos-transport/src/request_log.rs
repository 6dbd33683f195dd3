//! A line of the log for each request: method, server, path, and what came back after what time.

use http::{Request, StatusCode, Uri};
use kube::client::Body;
use tokio::time::Instant;
use tracing::Level;

use crate::error::TransportError;

/// A request whose outcome will be logged. One that its caller drops before is not.
pub(crate) struct RequestLog {
    server: String,
    method: http::Method,
    path: String,
    begun: Instant,
}

impl RequestLog {
    /// Begins the line of a request, if anything reads it: at the level `debug`, which is `-vv` of the command line.
    pub(crate) fn begin(server: &Uri, request: &Request<Body>) -> Option<Self> {
        tracing::enabled!(Level::DEBUG).then(|| Self {
            server: server.authority().map(ToString::to_string).unwrap_or_default(),
            method: request.method().clone(),
            path: loggable(request.uri()),
            begun: Instant::now(),
        })
    }

    /// Writes the line.
    pub(crate) fn end(&self, outcome: Result<StatusCode, &TransportError>) {
        let Self { server, method, path, begun } = self;
        let took = begun.elapsed();
        match outcome {
            Ok(status) => {
                let status = status.as_u16();
                tracing::debug!(%server, %method, %path, status, ?took, "request");
            }
            Err(error) => tracing::debug!(%server, %method, %path, ?took, %error, "request failed"),
        }
    }
}

/// Returns path and query, except where the query is of a user's making, and may hold secrets: commands of `exec`, and
/// requests to pods and services through a proxy.
fn loggable(uri: &Uri) -> String {
    let is_foreign = |segment| matches!(segment, "exec" | "attach" | "proxy");
    match uri.query() {
        Some(query) if !uri.path().split('/').any(is_foreign) => format!("{}?{query}", uri.path()),
        _ => uri.path().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_query_without_that_of_users() {
        let logged = |uri: &str| loggable(&uri.parse().expect("it is a URI"));
        assert_eq!(logged("/api/v1/pods?limit=500"), "/api/v1/pods?limit=500");
        assert_eq!(logged("/api/v1/pods"), "/api/v1/pods");
        let exec = "/api/v1/namespaces/a/pods/b/exec";
        assert_eq!(logged(&format!("{exec}?command=passwd&command=secret")), exec);
        let proxy = "/api/v1/namespaces/a/services/b/proxy/login";
        assert_eq!(logged(&format!("{proxy}?token=secret")), proxy);
    }
}
