//! Refused checkpoint files.

use std::time::SystemTime;

use skopos::checkpoint::{CheckpointError, IdentityMismatch};

use super::store::FileName;

/// A refused file: nothing of it is served.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Refusal {
    /// The file.
    pub file: FileName,
    /// The reason.
    pub reason: RefusalReason,
    /// The time.
    pub at: SystemTime,
}

/// Reason why a file was refused.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The file is torn or damaged, or was never what its name says, because of the disk or a foreign writer. It is
    /// moved aside, with `.refused` appended.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// The file is of another cluster, resource or selection, or of a version that cannot be read, because the
    /// configuration or the cluster has changed. It is removed.
    #[error("it is of something else: {0}")]
    Foreign(String),
    /// The file cannot be read: check the disk. It stays in place.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// The clocks of the machine cannot determine its age. It stays in place.
    #[error("its age cannot be told")]
    Ageless,
}

impl RefusalReason {
    /// Returns whether the file stays in place.
    pub(super) fn leaves_it(&self) -> bool {
        matches!(self, Self::Unreadable(_) | Self::Ageless)
    }

    pub(super) fn from_error(error: CheckpointError) -> Self {
        match error {
            CheckpointError::Io(error) => Self::Unreadable(error.to_string()),
            error @ (CheckpointError::Version { .. } | CheckpointError::TooLarge { .. }) => {
                Self::Foreign(error.to_string())
            }
            error => Self::Damaged(error.to_string()),
        }
    }
}

impl From<IdentityMismatch> for RefusalReason {
    fn from(mismatch: IdentityMismatch) -> Self {
        Self::Foreign(mismatch.to_string())
    }
}
