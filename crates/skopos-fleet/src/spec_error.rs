//! Errors in the entries of sources.

use crate::kubeconfig::KubeconfigError;

/// Reason why a source's entry for a cluster is unusable. Shows none of its secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The kubeconfig yields no cluster.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// There is no kubeconfig at the expected place.
    #[error("there is no kubeconfig in {place}")]
    NoKubeconfig {
        /// The place: a file, or a Secret and its key.
        place: String,
    },
    /// The entry cannot be read.
    #[error("{place} cannot be read: {reason}")]
    Unreadable {
        /// The place.
        place: String,
        /// The reason.
        reason: String,
    },
}
