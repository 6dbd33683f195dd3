//! Settings of the listener, and limits of clients.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skopos_config::{ByteSize, Span};

/// The listener of the gateway.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Listen {
    /// Address and port; port 0 takes a free one. Other addresses than loopback need `tls` and a way to authenticate.
    #[schemars(with = "String")]
    pub address: SocketAddr,
    /// Certificate and key. Without it the gateway speaks plain HTTP, on loopback only.
    pub tls: Option<Tls>,
    /// Time after the stop signal during which the gateway still accepts connections and answers, while `/readyz` fails. Load
    /// balancers need it to send clients elsewhere. Default 5s, and 0s on loopback.
    pub shutdown_delay: Option<Span>,
    /// Limits of clients.
    pub limits: Limits,
}

/// The gateway's certificate; both files are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tls {
    /// PEM file with the certificate and its chain.
    #[schemars(with = "String")]
    pub certificate: PathBuf,
    /// PEM file with the private key.
    #[schemars(with = "String")]
    pub key: PathBuf,
}

/// Limits of clients.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// Maximum number of connections, reduced if the process may not have enough open files. Beyond it idle connections are
    /// closed, those of unauthenticated callers first, and further ones wait in the backlog of the system.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub connections: u32,
    /// Connections that have not sent a complete request yet. Beyond it the oldest one is closed.
    #[schemars(range(min = 1, max = 100_000))]
    pub half_open: u32,
    /// Connections from one address (one /64 network with IPv6) without an authenticated caller. Beyond it the oldest one is
    /// closed.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub unauthenticated_per_address: u32,
    /// Deadline for a TLS handshake, and then for the first request.
    pub handshake: Span,
    /// Deadline for the headers of a further request, and maximum idle time of a connection.
    pub idle: Span,
    /// Maximum size of the headers of a request.
    pub header_bytes: ByteSize,
    /// Maximum size of the body of a request.
    pub body_bytes: ByteSize,
    /// Concurrent requests on one HTTP/2 connection.
    #[schemars(range(min = 1, max = 10_000))]
    pub streams: u32,
    /// Requests that a client may abandon on one HTTP/2 connection within ten seconds, before it is closed. A watch that has
    /// sent everything it has may be ended at any time.
    #[schemars(range(min = 1, max = 100_000))]
    pub resets: u32,
    /// Time that a client may leave an answer unread before its connection is closed.
    pub stalled: Span,
    /// Concurrent watches of one caller.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub watches_per_user: u32,
    /// Time for answers in progress when the gateway stops.
    pub drain: Span,
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 8001)),
            tls: None,
            shutdown_delay: None,
            limits: Limits::default(),
        }
    }
}

impl Listen {
    /// Returns how long to accept connections after the stop signal.
    pub fn shutdown_delay(&self) -> Duration {
        match self.shutdown_delay {
            Some(delay) => delay.0,
            None if self.address.ip().is_loopback() => Duration::ZERO,
            None => SHUTDOWN_DELAY,
        }
    }
}

/// The time that kube-proxy and load balancers usually need to learn that a pod is not ready.
const SHUTDOWN_DELAY: Duration = Duration::from_secs(5);

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            half_open: 512,
            unauthenticated_per_address: 512,
            handshake: Span::seconds(10),
            idle: Span::seconds(90),
            header_bytes: ByteSize(64 * 1024),
            // The limit of kube-apiserver.
            body_bytes: ByteSize::mebibytes(3),
            streams: 250,
            resets: 200,
            stalled: Span::seconds(60),
            watches_per_user: 1000,
            drain: Span::seconds(10),
        }
    }
}
