//! Client of a gateway.
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde_json::Value;
use skopos::transport::{
    RequestOptions, TlsFault, TransportBody, TransportError, TransportErrorKind, TransportOptions,
};
use skopos::{Status, Transport};
use skopos_gateway::Report;

use crate::args::GatewayArgs;
use crate::error::{CliError, chain};

/// Time limit of a gateway's answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Maximum size of an answer, in bytes: a thousand clusters need far less.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// Connection to one gateway.
#[derive(Debug, Clone)]
pub struct Gateway {
    transport: Transport,
    url: String,
}

/// Response of a gateway.
#[derive(Debug)]
pub struct Answer {
    /// Its status code.
    pub code: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its whole body.
    pub body: Bytes,
}

impl Gateway {
    /// Makes a client for the gateway that the flags select. Nothing is sent yet.
    pub fn new(args: &GatewayArgs) -> Result<Self, CliError> {
        let mut config = Self::config(&args.server)?;
        if let Some(path) = &args.certificate_authority {
            config.root_cert_file = Some(path.clone());
        }
        let shown = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        config.auth_info.token_file = shown(&args.token_file);
        config.auth_info.client_certificate = shown(&args.client_certificate);
        config.auth_info.client_key = shown(&args.client_key);
        Self::with(config, args.server.clone())
    }

    /// Makes a client for a gateway on this machine, without credentials.
    pub fn at(url: &str) -> Result<Self, CliError> {
        Self::with(Self::config(url)?, url.to_owned())
    }

    fn config(url: &str) -> Result<kube::Config, CliError> {
        let with_scheme = url.starts_with("http://") || url.starts_with("https://");
        let parsed = url.parse::<http::Uri>().ok().filter(|url| with_scheme && url.host().is_some());
        parsed.map(kube::Config::new).ok_or_else(|| {
            let host = url.rsplit_once("://").map_or(url, |(_, host)| host);
            let host = if host.parse::<http::uri::Authority>().is_ok() { host } else { "127.0.0.1:8001" };
            CliError::Usage(format!("--server {url}: write http://{host}"))
        })
    }

    fn with(config: kube::Config, url: String) -> Result<Self, CliError> {
        let transport = Transport::from_config(config, TransportOptions::default());
        Ok(Self { transport: transport.map_err(|error| CliError::new(chain(&error)))?, url })
    }

    /// Returns the state of the gateway and its clusters.
    pub async fn report(&self) -> Result<Report, CliError> {
        let answer = self.ask(Method::GET, "/api/v1/status", None).await?.good()?;
        serde_json::from_slice(&answer.body).map_err(|_| {
            let why =
                format!("{} answered, but is not a Skopos gateway (its status is not JSON of one)", self.url);
            CliError::new(why).hint("name another with --server")
        })
    }

    /// Sends a request and reads the whole response, whatever its status code. The body is a merge patch or empty.
    pub async fn ask(&self, method: Method, path: &str, patch: Option<Value>) -> Result<Answer, CliError> {
        let options = RequestOptions { deadline: Some(LIMIT), ..RequestOptions::default() };
        let mut request = http::Request::builder().method(method).uri(path).extension(options);
        if patch.is_some() {
            request = request.header(http::header::CONTENT_TYPE, "application/merge-patch+json");
        }
        let body = patch.map_or_else(Body::empty, |patch| Body::from(patch.to_string().into_bytes()));
        let request = request.body(body).map_err(|error| self.failed(&error))?;
        let answer = self.transport.send(request).await.map_err(|error| self.refused(&error))?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, MOST_BYTES).collect().await.map_err(|error| self.failed(&error))?;
        Ok(Answer { code: parts.status, headers: parts.headers, body: body.to_bytes() })
    }

    /// Opens a watch. The returned body streams its lines.
    pub async fn watch(&self, path: &str) -> Result<TransportBody, CliError> {
        let request = http::Request::get(path).body(Body::empty()).map_err(|error| self.failed(&error))?;
        let answer = self.transport.send(request).await.map_err(|error| self.refused(&error))?;
        match answer.status() {
            StatusCode::OK => Ok(answer.into_body()),
            code => Err(CliError::new(format!("the gateway answers {code} to a watch"))),
        }
    }

    /// Closes its connections.
    pub async fn close(&self, limit: Duration) {
        self.transport.shutdown(limit).await;
    }

    fn refused(&self, error: &TransportError) -> CliError {
        let root = error.kind().root();
        match root {
            TransportErrorKind::Tls(TlsFault::Untrusted(why)) => {
                CliError::new(format!("the certificate of the gateway at {} is not trusted: {why}", self.url))
                    .hint("give the gateway's CA with --certificate-authority FILE")
            }
            error_kind => match closed_without_answer(&self.url, error_kind) {
                Some(why) => CliError::new(format!("{}: {why}", self.url)),
                None => self.failed(error),
            },
        }
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> CliError {
        CliError::new(format!("the gateway at {} does not answer: {error}", self.url))
            .hint("is `skopos serve` running there? name another with --server")
    }
}

impl Answer {
    /// Returns the response if its status code is a success.
    pub fn good(self) -> Result<Self, CliError> {
        if self.code.is_success() {
            return Ok(self);
        }
        let said = Status::from_slice(&self.body).map(|status| status.message);
        Err(CliError::new(said.unwrap_or_else(|| format!("the gateway answers {}", self.code))))
    }

    /// Parses the body as JSON.
    pub fn json(&self) -> Result<Value, CliError> {
        serde_json::from_slice(&self.body).map_err(CliError::new)
    }

    /// Returns a header's value, if it is there and is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Returns the hint for a server that closed an `http://` connection without an answer, as a TLS server does.
pub fn closed_without_answer(url: &str, error_kind: &TransportErrorKind) -> Option<&'static str> {
    let closed = matches!(
        error_kind,
        TransportErrorKind::GoAway { .. }
            | TransportErrorKind::Eof
            | TransportErrorKind::Reset(_)
            | TransportErrorKind::Protocol(_)
    );
    (closed && url.starts_with("http://"))
        .then_some("the server closed the connection without an answer: does it expect https://?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_url_without_scheme_suggests_url() {
        for (url, told) in [
            ("127.0.0.1:8001", "--server 127.0.0.1:8001: write http://127.0.0.1:8001"),
            ("gateway", "--server gateway: write http://gateway"),
            ("ftp://gateway:1", "--server ftp://gateway:1: write http://gateway:1"),
            ("http://", "--server http://: write http://127.0.0.1:8001"),
            ("a b", "--server a b: write http://127.0.0.1:8001"),
        ] {
            let error = Gateway::config(url).map(|_| ()).unwrap_err();
            assert_eq!(error.line().unwrap(), format!("error: {told}"));
        }
    }

    /// Answers every connection with the same bytes, and closes it.
    async fn report_of(answer: &'static [u8]) -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = async {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut request = [0; 4096];
                let _ = socket.read(&mut request).await;
                let _ = socket.write_all(answer).await;
            }
        };
        let gateway = Gateway::at(&url).unwrap();
        let error = tokio::select! {
            report = gateway.report() => report.unwrap_err(),
            () = serving => unreachable!("it serves until the test ends"),
        };
        error.line().unwrap().replace(&url, "URL")
    }

    #[tokio::test]
    async fn foreign_server_is_not_reported_as_silent() {
        let other = report_of(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>").await;
        assert!(other.starts_with("error: URL answered, but is not a Skopos gateway"), "{other}");
        let closed = report_of(b"").await;
        assert_eq!(
            closed,
            "error: URL: the server closed the connection without an answer: does it expect https://?"
        );
    }
}
