//! Failures of a proxy.

use std::io;
use std::sync::Arc;

use crate::error::{Fault, TransportErrorKind};

/// The reason why a proxy did not connect to the server. It contains no data from the proxy except a number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyFault {
    /// A proxy that cannot be reached, or whose connection ended during the handshake.
    #[error("{0}")]
    Connection(Arc<TransportErrorKind>),
    /// A connection that the proxy closed without a response.
    #[error("it closed the connection without an answer")]
    Closed,
    /// A proxy that requires user and password, while its URL has none.
    #[error("it asks for user and password: put them before its host (USER:PASSWORD@)")]
    NoCredentials,
    /// A user and password in the URL that the proxy rejects.
    #[error("it does not accept the user and password in its URL")]
    WrongCredentials,
    /// An HTTP proxy that refuses to connect to the server.
    #[error("it does not connect to the server (status {0})")]
    Status(u16),
    /// A SOCKS5 proxy that refuses to connect to the server.
    #[error("it does not connect to the server ({})", reply_meaning(*.0))]
    Reply(u8),
    /// A response that is neither acceptance nor refusal.
    #[error("its answer cannot be understood: {0}")]
    Garbled(Arc<str>),
}

impl ProxyFault {
    /// Returns the party at fault.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Connection(error_kind) => error_kind.fault(),
            // The proxy reports a failure of its own or of the server.
            Self::Closed | Self::Status(408 | 429 | 500..) | Self::Reply(1 | 3..=6) => Fault::Network,
            Self::NoCredentials | Self::WrongCredentials | Self::Status(_) | Self::Reply(_) => Fault::Caller,
            Self::Garbled(_) => Fault::Server,
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Connection(_) => "proxy_connection",
            Self::Closed => "proxy_closed",
            Self::NoCredentials | Self::WrongCredentials => "proxy_credentials",
            Self::Status(_) | Self::Reply(_) => "proxy_refused",
            Self::Garbled(_) => "proxy_garbled",
        }
    }
}

/// Returns the meaning of a reply code of RFC 1928, 6.
fn reply_meaning(reply: u8) -> String {
    match reply {
        1 => "general failure",
        2 => "not allowed by its rules",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "TTL expired",
        7 => "it knows no CONNECT",
        8 => "it does not know this kind of address",
        other => return format!("reply {other}"),
    }
    .to_owned()
}

/// Converts an error of the connection to a proxy.
pub(super) fn from_socket_error(error: &io::Error) -> ProxyFault {
    from_error_kind(TransportErrorKind::from_socket_error(error))
}

pub(super) fn from_error_kind(error_kind: TransportErrorKind) -> ProxyFault {
    match error_kind {
        TransportErrorKind::Eof => ProxyFault::Closed,
        TransportErrorKind::Protocol(reason) | TransportErrorKind::TooLarge(reason) => {
            ProxyFault::Garbled(reason)
        }
        error_kind => ProxyFault::Connection(Arc::new(error_kind)),
    }
}
