//! HTTP connections to a Kubernetes API server that detect their own failure.
//!
//! ```text
//!  kube::Config ──▶ Transport ── credentials ── pool ─┬─ watches ── HTTP/2, PING every 10 s, also when idle
//!                      │                              └─ lists, reads, writes ── HTTP/2, likewise
//!                      │                                   ▲
//!            tower::Service, kube::Client         Dialer: DNS, TCP, a proxy, TLS (or a pipe in memory)
//! ```
//!
//! Guarantees:
//!
//! * A silently dead connection is detected within 15 s, also without requests. HTTP/1.1 has no PING; there TCP keep-alive
//!   probes do the same.
//! * No request waits without a bound: for a connection, for headers, for bytes of a body that should flow.
//! * No request queues behind the stream limit of a server: another connection is dialed.
//! * A dead cluster sees one dial a second, after a minute one every 5 seconds, for any number of requests.
//! * A request for another protocol ([`Transport::upgrade`]) has its own connection, which never serves another request.
//! * The reason of a failure is a [`TransportErrorKind`], the same one for every request and body on the connection.
//!
//! [`Transport`] is the entry point. [`Transport::client`] returns a [`kube::Client`] on these connections.

// Compiles the README's code with the documentation tests.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod address_filter;
mod backoff;
mod body;
mod certificate;
mod class;
mod conn_state;
mod connection;
mod credentials;
mod dialer;
mod error;
mod hub;
pub mod kubeconfig;
mod lag;
mod options;
mod owner;
mod pem;
mod ping;
mod plugin;
mod pool;
mod proxy;
mod request_log;
mod single_flight;
mod stats;
mod tcp;
mod tls;
mod token_file;
mod transport;
mod trust;
mod upgrade;
mod via;
mod wall_clock;

pub use self::address_filter::AddressFilter;
pub use self::body::TransportBody;
pub use self::class::{ConnectionId, RequestClass, RequestOptions};
pub use self::dialer::{DialAttempt, Dialed, Dialer, Io, Protocol, dialer_fn};
pub use self::error::{ConfigError, Fault, TlsFault, TransportError, TransportErrorKind};
pub use self::kubeconfig::{
    Kubeconfig, KubeconfigError, KubeconfigPaths, KubeconfigReadError, config_from_kubeconfig, infer_config,
};
pub use self::options::{BackoffOptions, ClassDeadlines, Deadlines, TransportOptions};
pub use self::pem::read_certificates;
pub use self::proxy::{ProxyFault, proxy_from_environment};
pub use self::stats::{ConnectionStats, CredentialProblem, LastError, Outage, TransportStats};
pub use self::transport::Transport;
pub use self::upgrade::{Tunnel, Upgrade};
pub use self::via::Via;
pub use self::wall_clock::WallClock;
