//! What keeps a proxy from being a way to the server.

use std::{io, sync::Arc};

use crate::error::{Death, Fault};

/// Why a proxy did not lead to the server. Nothing of what it sent is in it but a number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyFault {
    /// The proxy cannot be reached, or the connection to it ended in between.
    #[error("{0}")]
    Connection(Arc<Death>),
    /// It closed the connection instead of an answer.
    #[error("it closed the connection without an answer")]
    Closed,
    /// It wants to know who asks, and its URL does not say.
    #[error("it asks for user and password: put them before its host (USER:PASSWORD@)")]
    NoCredentials,
    /// It does not accept user and password of its URL.
    #[error("it does not accept the user and password in its URL")]
    WrongCredentials,
    /// An HTTP proxy does not connect to the server.
    #[error("it does not connect to the server (status {0})")]
    Status(u16),
    /// A SOCKS5 proxy does not connect to the server.
    #[error("it does not connect to the server ({})", said(*.0))]
    Reply(u8),
    /// What it answers is neither yes nor no.
    #[error("its answer cannot be understood: {0}")]
    Garbled(Arc<str>),
}

impl ProxyFault {
    /// Who is at fault.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Connection(death) => death.fault(),
            // It says of itself or of the server that they are not well.
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

/// What a number of RFC 1928, 6 means.
fn said(reply: u8) -> String {
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

/// What an error of the connection to a proxy means.
pub(super) fn of_socket(error: &io::Error) -> ProxyFault {
    of_death(Death::of_socket(error))
}

pub(super) fn of_death(death: Death) -> ProxyFault {
    match death {
        Death::Eof => ProxyFault::Closed,
        Death::Protocol(reason) | Death::TooLarge(reason) => ProxyFault::Garbled(reason),
        death => ProxyFault::Connection(Arc::new(death)),
    }
}
