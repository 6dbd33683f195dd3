//! Errors, which state who is at fault.

use std::error::Error;
use std::fmt;

/// A controller that cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// The informer factory of one of the informers was shut down before: the caller is at fault.
    #[error(
        "controller {controller}: the informer factory of {resource} was shut down: make the controller before that"
    )]
    Closed {
        /// The controller's name.
        controller: String,
        /// The resource of the informer.
        resource: String,
    },
}

/// A reconciliation that failed. Any error becomes one that is retried, by `?`.
///
/// It does not implement [`Error`] itself, as that would exclude the conversion.
#[derive(Debug)]
pub struct ReconcileError {
    source: Box<dyn Error + Send + Sync>,
    terminal: bool,
}

impl ReconcileError {
    /// Makes an error after which the key is retried, with its rate limit.
    pub fn retry(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: source.into(), terminal: false }
    }

    /// Makes an error that a retry cannot fix: the key is reconciled again only when one of its objects changes.
    pub fn terminal(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: source.into(), terminal: true }
    }

    /// Returns whether a retry cannot fix it.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for ReconcileError {
    fn from(error: E) -> Self {
        Self::retry(error)
    }
}

impl fmt::Display for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}
