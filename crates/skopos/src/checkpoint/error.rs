use std::io;

/// A file that is not served: none of it is used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// It cannot be read: the disk, or whoever gives the bytes, is at fault.
    #[error("the checkpoint cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("this is not a checkpoint")]
    NotACheckpoint,
    /// It was written by another version of this library.
    #[error("the checkpoint is of format {found}, and only format {known} can be read")]
    Version {
        /// Its format.
        found: u32,
        /// The one that can be read.
        known: u32,
    },
    /// It ends too early, as when its writer died.
    #[error("the checkpoint is cut off")]
    Truncated,
    /// Bits have changed since it was written.
    #[error("the checkpoint is damaged: the checksum of {what} does not fit")]
    Corrupt {
        /// Where.
        what: &'static str,
    },
    /// It has more than was allowed.
    #[error("the checkpoint has more {what} than {limit}")]
    TooLarge {
        /// Of what.
        what: &'static str,
        /// How much is allowed.
        limit: u64,
    },
    /// Its checksums fit, and it makes no sense: whoever wrote it is at fault.
    #[error("the checkpoint makes no sense: {what}")]
    Malformed {
        /// What.
        what: String,
    },
}

/// The checkpoint is of something else than the informer: the caller is at fault, or the cluster is not the one that it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the checkpoint is of another {what}: of {found}, not of {expected}")]
pub struct Foreign {
    /// What differs: the cluster, the resource, the scope, ...
    pub what: &'static str,
    /// What the informer is of.
    pub expected: String,
    /// What the checkpoint is of.
    pub found: String,
}

/// There is nothing that is worth writing. An older checkpoint keeps its worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoCheckpoint {
    /// There was no complete list yet.
    #[error("nothing was listed yet")]
    NotSynced,
    /// The content is known to differ from the server's (an object that cannot be decoded, an audit that found a difference),
    /// and whoever resumed from it would not know.
    #[error("the content is known to differ from the server's")]
    NotWhole,
}
