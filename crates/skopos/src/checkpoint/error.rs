use std::io;

/// An error in reading a checkpoint file: none of the file is used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The file cannot be read: the disk, or the source of the bytes, is at fault.
    #[error("the checkpoint cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The file is something else.
    #[error("this is not a checkpoint")]
    NotACheckpoint,
    /// The file was written by another version of this library.
    #[error("the checkpoint is of format {found}, and only format {known} can be read")]
    Version {
        /// The file's format.
        found: u32,
        /// The format that can be read.
        known: u32,
    },
    /// The file ends too early, for example because its writer crashed.
    #[error("the checkpoint is cut off")]
    Truncated,
    /// Bits of the file have changed since it was written.
    #[error("the checkpoint is damaged: the checksum of {what} does not fit")]
    Corrupt {
        /// The damaged part.
        what: &'static str,
    },
    /// The file has more than the limit allows.
    #[error("the checkpoint has more {what} than {limit}")]
    TooLarge {
        /// The unit of the limit.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The checksums fit, but the content is invalid: its writer is at fault.
    #[error("the checkpoint makes no sense: {what}")]
    Malformed {
        /// The invalid part.
        what: String,
    },
}

/// A checkpoint with another identity than the informer's: the caller is at fault, or the cluster was replaced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the checkpoint is of another {what}: of {found}, not of {expected}")]
pub struct IdentityMismatch {
    /// The part of the identity that differs: the cluster, the resource, the scope, ...
    pub what: &'static str,
    /// The informer's value.
    pub expected: String,
    /// The checkpoint's value.
    pub found: String,
}

/// There is nothing worth writing. An older checkpoint keeps its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoCheckpoint {
    /// There was no complete list yet.
    #[error("nothing was listed yet")]
    NotSynced,
    /// The content is known to differ from the server's (an object that cannot be decoded, an audit that found a
    /// difference). An informer that resumed from it would not know.
    #[error("the content is known to differ from the server's")]
    NotWhole,
}
