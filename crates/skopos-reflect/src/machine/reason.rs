//! The cause of a reflector's failure: as a sentence for people, and as a value for programs.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use skopos_transport::TransportErrorKind;
use skopos_wire::StatusReason;

/// The cause of a reflector's failure: one sentence for people, and a value for programs. Cheap to clone.
///
/// The sentence is the `Display`, and every API that takes a `str` accepts a reason. It is not for programs: it may
/// change with every release.
///
/// ```
/// use skopos_reflect::{Cause, ReflectorState, Reason};
/// use skopos_transport::{TransportErrorKind, TlsFault};
///
/// fn advice(state: &ReflectorState) -> &'static str {
///     match state.reason.as_ref().map(Reason::cause) {
///         None => "nothing: it works",
///         Some(Cause::Connection(TransportErrorKind::PingTimeout)) => "look for what drops packets on the way",
///         Some(Cause::Connection(TransportErrorKind::Tls(TlsFault::Expired(_)))) => "renew the server's certificate",
///         Some(Cause::Connection(error_kind)) => match error_kind.label() {
///             "dns" | "refused" | "parked" => "is the server there?",
///             _ => "wait: it is tried again",
///         },
///         Some(Cause::Answer { code: 403, .. }) => "ask for the verbs list and watch",
///         Some(_) => "read what the reason says",
///     }
/// }
/// # let _ = advice;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(Arc<Inner>);

#[derive(Debug, PartialEq, Eq)]
struct Inner {
    cause: Cause,
    message: Box<str>,
}

/// The cause of a [`Reason`], for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A connection died, none could be made, or the transport gave up the request. Never [`TransportErrorKind::BackingOff`]: while
    /// the next dial is not due, this is the error of the last one, and
    /// [`ReflectorState::retry_at`](super::ReflectorState::retry_at) is the time of the next.
    Connection(TransportErrorKind),
    /// The server answered with an HTTP status that is no success, or ended a stream with a Status.
    Answer {
        /// The HTTP status.
        code: u16,
        /// The reason in its Status; empty ([`StatusReason::Unknown`]) if it gave none.
        reason: StatusReason,
    },
    /// The connection may be open, but a response, the rest of it or the events of a stream did not come within the
    /// timeouts in [`MachineOptions`](super::MachineOptions).
    Silence,
    /// The response is not what was requested, cannot be decoded, or exceeds the limits.
    Unusable,
    /// Any other cause, described by the sentence only: a stream that the server ended too soon, a list that was requested.
    Other,
}

impl Reason {
    /// Makes a reason from a cause and a sentence.
    pub fn new(cause: Cause, message: impl Into<Box<str>>) -> Self {
        Self(Arc::new(Inner { cause, message: message.into() }))
    }

    /// Returns the cause, for programs.
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }

    /// Returns the error of the connection, if that is the cause.
    pub fn transport_error(&self) -> Option<&TransportErrorKind> {
        match self.cause() {
            Cause::Connection(error_kind) => Some(error_kind),
            _ => None,
        }
    }

    /// Returns the same cause with another sentence.
    pub(crate) fn with_message(&self, message: impl Into<Box<str>>) -> Self {
        Self::new(self.cause().clone(), message)
    }
}

impl Deref for Reason {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// Makes a reason from a sentence alone: [`Cause::Other`].
impl<W: Into<Box<str>>> From<W> for Reason {
    fn from(message: W) -> Self {
        Self::new(Cause::Other, message)
    }
}
