//! Pauses of clusters: evidence and start.

use std::fmt;
use std::time::SystemTime;

/// A pause, as the host cluster reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paused {
    /// The evidence of the pause.
    pub by: PausedBy,
    /// Start of the pause, if it is recorded.
    pub since: Option<SystemTime>,
}

/// Evidence of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PausedBy {
    /// The vcluster CLI's annotation (`loft.sh/paused`).
    Annotation,
    /// The platform put it to sleep (`loft.sh/sleep-mode`).
    Sleep,
    /// Scaled to zero without an annotation.
    ScaledDown,
    /// An operator paused it.
    Operator,
}

impl fmt::Display for Paused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.by {
            PausedBy::Annotation => "by the vcluster CLI's annotation",
            PausedBy::Sleep => "put to sleep by its platform",
            PausedBy::ScaledDown => "scaled to zero",
            PausedBy::Operator => "by an operator",
        })?;
        let since = self.since.and_then(|since| jiff::Timestamp::try_from(since).ok());
        match since {
            Some(since) => write!(f, " at {}", since.round(jiff::Unit::Second).unwrap_or(since)),
            None => Ok(()),
        }
    }
}
