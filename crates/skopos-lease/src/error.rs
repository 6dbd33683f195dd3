use skopos_transport::ConfigError;

use crate::end_reason::EndReason;

/// The reason why an election cannot begin. The configuration is at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionError {
    /// The cluster cannot be reached as the configuration says.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An option has no possible value.
    #[error("the Lease's {option} is {value:?}: {reason}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// The requirement.
        reason: &'static str,
    },
}

/// The end of a term: its work was dropped. Another candidate may lead from now on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("term {number} is over: {reason}")]
pub struct TermOver {
    /// The number of the term.
    pub number: u64,
    /// The reason.
    pub reason: EndReason,
}

/// The election has ended: there will be no further term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the election was stopped")]
pub struct ElectionStopped;
