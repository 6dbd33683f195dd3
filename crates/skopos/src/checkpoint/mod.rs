//! Checkpoints: the content of a store in a file, so that a restart resumes the watch instead of listing again, and a
//! cluster that is down can still be read.
//!
//! ```text
//!   Informer::checkpoint ──▶ Checkpoint ──write_to──▶ file ──read_from──▶ Checkpoint ──▶ InformerOptions::restored
//!      a snapshot: free        header: identity, RVs, last proof              checked to the last bit
//! ```
//!
//! # What a restored informer says
//!
//! * Its content can be read at once. [`Freshness`](crate::Freshness) is `Stale` for the reason
//!   [`StaleReason::Restored`](crate::StaleReason) (or for what is wrong with the reflector), with the true age: from when the
//!   content was last proven before it was written, by clocks that can be trusted ([`RestartClock`]); none if they cannot.
//! * The watch resumes at the checkpoint's RV, without a list. If the server no longer has the history from there (410),
//!   everything is listed, and handlers and the journal receive the differences, marked as a gap.
//! * [`Informer::has_synced`](crate::Informer::has_synced) and `wait_synced` stay false until the server has confirmed the
//!   content. As soon as the watch is open, an audit compares the content with a list of metadata (a tenth of a list), for
//!   two informers of a factory at a time. An RV alone would confirm nothing: if the server's data were restored from a
//!   backup meanwhile, it has passed the checkpoint's RV again with other content. If the audit finds that, everything is
//!   listed, and the differences are reported as a gap. A caller that waits for the sync wants to act on the server's
//!   state, and a checkpoint may be of any age; a caller that only reads need not wait.
//!   [`Snapshot::is_synced`](crate::Snapshot::is_synced) tells that there is whole content.
//!
//! # The file
//!
//! A magic number and a version; a header; blocks of about 1 MiB of objects in the order of their keys, each compressed with zstd; an
//! end. Each frame carries the SHA-256 of itself and of all before it, so that no bit can be changed and nothing be taken
//! out, put in or cut off without being noticed. A reader allocates no more than its limits say, whatever the file claims.

mod checkpointer;
pub(crate) mod clock;
pub(crate) mod content;
pub(crate) mod error;
mod file;
mod frames;
pub(crate) mod header;
#[cfg(test)]
mod tests;

pub use checkpointer::Checkpointer;
pub use clock::{RestartClock, WallTime};
pub use content::{Checkpoint, CheckpointLimits, ContentMark, Written};
pub use error::{CheckpointError, IdentityMismatch, NoCheckpoint};
pub use file::{replace_file, replace_file_unsynced};
