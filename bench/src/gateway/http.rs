//! The client's side: connections over which requests are made one after another (HTTP/1.1) or beside each other (HTTP/2).

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::ConfigExt as _;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::client;

/// Where requests go.
#[derive(Clone)]
pub(crate) struct Target {
    address: SocketAddr,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// What every path begins with.
    prefix: String,
    pub(crate) http2: bool,
    /// Takes in little before the program reads: whoever stops reading is noticed.
    pub(crate) narrow: bool,
}

/// A connection. The task that drives it ends with this.
pub(crate) struct Connection {
    sender: Sender,
    prefix: String,
    _driver: JoinSet<()>,
}

enum Sender {
    Http1(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
}

/// An answer that was read whole.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// As it was sent, compressed or not.
    pub(crate) body: Bytes,
}

/// How long one answer may take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// How much the client lets a server send ahead, on a stream and on a connection.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;
/// The same where little is wanted; HTTP/2's own initial value.
const NARROW: u32 = 65_535;

impl Target {
    /// The server of a kubeconfig.
    pub(crate) async fn of_kubeconfig(path: &Path) -> Result<Self> {
        let config = client::config(path).await?;
        let uri = &config.cluster_url;
        let host = uri.host().context("a server without a host")?.to_owned();
        let port = uri.port_u16().context("a server without a port")?;
        let tls = match uri.scheme_str() {
            Some("https") => {
                let tls = config.rustls_client_config().map_err(|error| anyhow!("{error}"))?;
                Some((TlsConnector::from(Arc::new(tls)), ServerName::try_from(host.clone())?))
            }
            _ => None,
        };
        let address = format!("{host}:{port}").parse().context("a server that is no address")?;
        Ok(Self { address, tls, prefix: String::new(), http2: false, narrow: false })
    }

    /// A server that speaks plain HTTP at `http://ADDRESS`.
    pub(crate) fn plain(url: &str) -> Result<Self> {
        let address = url.strip_prefix("http://").with_context(|| format!("{url} is not plain"))?;
        let address = address.parse()?;
        Ok(Self { address, tls: None, prefix: String::new(), http2: false, narrow: false })
    }

    /// The same; all paths begin so.
    pub(crate) fn below(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    pub(crate) async fn connect(&self) -> Result<Connection> {
        let socket = TcpSocket::new_v4()?;
        if self.narrow {
            socket.set_recv_buffer_size(NARROW)?;
        }
        let stream = socket.connect(self.address).await.context("connecting")?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => self.speak(stream).await,
            Some((connector, name)) => {
                let mut config = (**connector.config()).clone();
                config.alpn_protocols = vec![if self.http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
                let connector = TlsConnector::from(Arc::new(config));
                self.speak(connector.connect(name.clone(), stream).await?).await
            }
        }
    }

    async fn speak(&self, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Connection> {
        let mut driver = JoinSet::new();
        let sender = if self.http2 {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            let (stream, connection) =
                if self.narrow { (NARROW, NARROW) } else { (STREAM_WINDOW, CONNECTION_WINDOW) };
            builder.initial_stream_window_size(stream).initial_connection_window_size(connection);
            let (sender, connection) = builder.handshake(TokioIo::new(io)).await?;
            driver.spawn(async move { drop(connection.await) });
            Sender::Http2(sender)
        } else {
            let (sender, connection) = http1::handshake(TokioIo::new(io)).await?;
            driver.spawn(async move { drop(connection.await) });
            Sender::Http1(sender)
        };
        Ok(Connection { sender, prefix: self.prefix.clone(), _driver: driver })
    }
}

impl Connection {
    /// Sends a GET; the body is on its way.
    pub(crate) async fn begin(
        &mut self,
        path: &str,
        headers: &[(header::HeaderName, &'static str)],
    ) -> Result<Response<Incoming>> {
        let uri = format!("{}{path}", self.prefix);
        let mut request = match &self.sender {
            Sender::Http1(_) => Request::get(uri).header(header::HOST, "localhost"),
            Sender::Http2(_) => Request::get(format!("http://localhost{uri}")),
        };
        if headers.iter().all(|(name, _)| name != header::ACCEPT) {
            request = request.header(header::ACCEPT, "application/json");
        }
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let request = request.body(Empty::new())?;
        let answer = match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Sender::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        Ok(answer)
    }

    /// Sends a GET, and reads its answer.
    pub(crate) async fn get(
        &mut self,
        path: &str,
        headers: &[(header::HeaderName, &'static str)],
    ) -> Result<Answer> {
        let whole = async {
            let (parts, body) = self.begin(path, headers).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok(Answer { status: parts.status, headers: parts.headers, body })
        };
        tokio::time::timeout(TIMEOUT, whole).await.map_err(|_| anyhow!("{path} took too long"))?
    }

    /// Sends a GET, and throws away what comes; says how many bytes that were.
    pub(crate) async fn measure(
        &mut self,
        path: &str,
        headers: &[(header::HeaderName, &'static str)],
    ) -> Result<u64> {
        let whole = async {
            let answer = self.begin(path, headers).await?;
            ensure!(answer.status().is_success(), "{path}: {}", answer.status());
            let mut body = answer.into_body();
            let mut bytes = 0;
            while let Some(frame) = body.frame().await {
                bytes += frame?.data_ref().map_or(0, Bytes::len) as u64;
            }
            Ok(bytes)
        };
        tokio::time::timeout(TIMEOUT, whole).await.map_err(|_| anyhow!("{path} took too long"))?
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}
