//! Files that are not used.

use std::time::SystemTime;

use skopos::checkpoint::{CheckpointError, Foreign};

use super::store::FileName;

/// A file that was refused: nothing of it is served.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Refusal {
    /// Which.
    pub file: FileName,
    /// Why.
    pub reason: RefusalReason,
    /// When.
    pub at: SystemTime,
}

/// Why a file is refused.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RefusalReason {
    /// It is torn or damaged, or was never what its name says: the disk, or whoever wrote to it, is at fault. It is moved aside,
    /// with `.refused` behind its name.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// It is of another cluster, kind or selection, or of a version that cannot be read: the configuration or the cluster has
    /// changed. It is removed.
    #[error("it is of something else: {0}")]
    Foreign(String),
    /// It cannot be read: see to the disk. It is left where it is.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// The clocks of the machine cannot tell how old it is. It is left where it is.
    #[error("its age cannot be told")]
    Ageless,
}

// === impl RefusalReason ===

impl RefusalReason {
    /// Whether the file stays where it is.
    pub(super) fn leaves_it(&self) -> bool {
        matches!(self, Self::Unreadable(_) | Self::Ageless)
    }

    pub(super) fn of(error: CheckpointError) -> Self {
        match error {
            CheckpointError::Io(error) => Self::Unreadable(error.to_string()),
            error @ (CheckpointError::Version { .. } | CheckpointError::TooLarge { .. }) => {
                Self::Foreign(error.to_string())
            }
            error => Self::Damaged(error.to_string()),
        }
    }
}

impl From<Foreign> for RefusalReason {
    fn from(foreign: Foreign) -> Self {
        Self::Foreign(foreign.to_string())
    }
}
