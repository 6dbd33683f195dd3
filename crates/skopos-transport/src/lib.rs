//! HTTP connections to a Kubernetes API server that notice their own death.
//!
//! ```text
//!  kube::Config ──▶ Transport ── credentials ── pool ─┬─ watches ── HTTP/2, PING every 10 s, also when idle
//!                      │                              └─ lists, reads, writes ── HTTP/2, likewise
//!                      │                                   ▲
//!            tower::Service, kube::Client         Dialer: DNS, TCP, a proxy, TLS (or a pipe in memory)
//! ```
//!
//! What it promises:
//!
//! * A connection that has silently died is found within 15 s, also when nothing is asked of it. HTTP/1.1 has no PING; there
//!   TCP keep-alive probes do the same.
//! * No request waits without a bound: for a connection, for headers, for bytes of a body that should flow.
//! * No request queues behind the stream limit of a server: another connection is dialed.
//! * A dead cluster meets one dial a second, after a minute one every 5 seconds, however many requests want to go there.
//! * A request for another protocol ([`Transport::upgrade`]) has a connection of its own, which never serves another one.
//! * The reason of a death is a [`Death`], the same one for every request and body that was on the connection.
//!
//! [`Transport`] is the way in. [`Transport::client`] gives a [`kube::Client`] on these connections.

mod backoff;
mod body;
mod certificate;
mod class;
mod connection;
mod credentials;
mod dialer;
mod errand;
mod error;
mod guard;
mod hub;
pub mod kubeconfig;
mod options;
mod patience;
mod ping;
mod plugin;
mod pool;
mod proxy;
mod stats;
mod tcp;
mod tls;
mod token_file;
mod transport;
mod trust;
mod upgrade;
mod vitals;

pub use self::{
    body::TransportBody,
    class::{ConnectionId, RequestClass, RequestOptions},
    dialer::{DialAttempt, Dialed, Dialer, Io, Protocol, dialer_fn},
    error::{ConfigError, Death, Fault, TlsFault, TransportError},
    guard::AddressGuard,
    kubeconfig::{
        Kubeconfig, KubeconfigError, KubeconfigPaths, KubeconfigReadError, config_from_kubeconfig,
        infer_config,
    },
    options::{BackoffOptions, ClassDeadlines, Deadlines, TransportOptions, WallClock},
    proxy::{ProxyFault, proxy_from_environment},
    stats::{ConnectionStats, CredentialTrouble, Down, LastDeath, TransportStats},
    transport::Transport,
    upgrade::{Tunnel, Upgrade},
};
