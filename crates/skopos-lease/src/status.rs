use crate::end_reason::EndReason;

/// The status of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Nothing is known about the Lease yet.
    Starting,
    /// Another candidate leads, or is about to.
    Standby {
        /// The holder of the Lease.
        holder: Option<String>,
    },
    /// No candidate has led for two durations.
    NoLeader,
    /// This candidate leads.
    Leader {
        /// The number of its term. It rises with each term of any candidate, unless the Lease is deleted or restored from a
        /// backup (`leaseTransitions`).
        number: u64,
    },
    /// A term of this candidate has ended, and its work is about to.
    Ending {
        /// The number of the term.
        number: u64,
        /// The reason.
        reason: EndReason,
    },
    /// The election has ended.
    Stopped,
}
