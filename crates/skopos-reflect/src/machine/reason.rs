//! Why a link is in trouble: in words for people, and as a value for programs.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use skopos_transport::Death;
use skopos_wire::StatusReason;

/// What went wrong with a link: one sentence for people, and what a program can match on. Cheap to clone.
///
/// The sentence is the `Display`, and whatever takes a `str` takes a reason. It is not for programs: it may change with
/// every release.
///
/// ```
/// use skopos_reflect::{Cause, LinkState, Reason};
/// use skopos_transport::{Death, TlsFault};
///
/// fn advice(state: &LinkState) -> &'static str {
///     match state.reason.as_ref().map(Reason::cause) {
///         None => "nothing: it works",
///         Some(Cause::Connection(Death::PingTimeout)) => "look for what drops packets on the way",
///         Some(Cause::Connection(Death::Tls(TlsFault::Expired(_)))) => "renew the server's certificate",
///         Some(Cause::Connection(death)) => match death.kind() {
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
    words: Box<str>,
}

/// What a [`Reason`] is, for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A connection died, none could be made, or the transport gave up the request. Never [`Death::BackingOff`]: while the
    /// next dial is not due, this is what the last one died of, and [`LinkState::retry_at`](super::LinkState::retry_at) says
    /// when it is.
    Connection(Death),
    /// The server answered with an HTTP status that is no success, or ended a stream with one.
    Answer {
        /// The HTTP status.
        code: u16,
        /// The reason in its Status; empty ([`StatusReason::Unknown`]) if it gave none.
        reason: StatusReason,
    },
    /// The connection may stand, but an answer, the rest of it or the events of a stream did not come in the time that
    /// [`MachineOptions`](super::MachineOptions) gives them.
    Silence,
    /// What came is not what was asked for, cannot be decoded, or is more than is accepted.
    Unusable,
    /// Anything else, which only the words tell: a stream that the server ended too soon, a list that somebody asked for.
    Other,
}

// === impl Reason ===

impl Reason {
    /// This, in these words.
    pub fn new(cause: Cause, words: impl Into<Box<str>>) -> Self {
        Self(Arc::new(Inner { cause, words: words.into() }))
    }

    /// What it is, for programs.
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }

    /// What the connection died of, if it did.
    pub fn death(&self) -> Option<&Death> {
        match self.cause() {
            Cause::Connection(death) => Some(death),
            _ => None,
        }
    }

    /// The same in other words.
    pub(crate) fn in_words(&self, words: impl Into<Box<str>>) -> Self {
        Self::new(self.cause().clone(), words)
    }
}

impl Deref for Reason {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.words
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// Words alone: [`Cause::Other`].
impl<W: Into<Box<str>>> From<W> for Reason {
    fn from(words: W) -> Self {
        Self::new(Cause::Other, words)
    }
}
