//! Serving: from connections to responses.
//!
//! ```text
//!  TcpListener ─┐
//!               ├─▶ FaultyIo ─▶ (TLS) ─▶ hyper: HTTP/1.1, HTTP/2 or h2c ─▶ service ─▶ router
//!  in memory ───┘
//! ```

mod connection;
mod host;
mod memory;
mod open_connection;
mod port_forward;
pub(crate) mod router;
mod service;
mod tls;

pub(crate) use self::connection::{DEFAULT_MAX_STREAMS, HttpServer, Protocols, listen, reserve};
pub use self::memory::MemoryStream;
pub(crate) use self::tls::{Credential, IdentityPlan, ServerIdentity, TlsError, Validity};
