//! Options of checkpoints.

use std::time::Duration;

use skopos::checkpoint::{CheckpointLimits, RestartClock};

use crate::cluster::KindFilter;

/// Options of a [`CheckpointKeeper`](super::CheckpointKeeper).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeeperOptions {
    /// Interval of writing changes. Default 30 s.
    pub every: Duration,
    /// Limits on the file of one resource, for writing and reading. Default: 1,000,000 objects and 4 GiB of JSON.
    pub limits: CheckpointLimits,
    /// Limit on the documents of one cluster, in bytes. Default 64 MiB.
    pub document_bytes: usize,
    /// Limit on all files, in bytes. Above it no further resources are stored. Default 16 GiB.
    pub total_bytes: u64,
    /// Limit on the resources of one cluster that are started because they have files. Default 256.
    pub kinds: usize,
    /// Filter of the resources that may be stored; files of others are removed. Called at each write. Default: all.
    pub admits: KindFilter,
    /// Time after which files of unlisted clusters are removed, counted from their last write and from the start of the
    /// process. Default 24 h.
    pub orphans: Duration,
    /// Limit on the final write when the fleet is shut down. Default 5 s.
    pub end: Duration,
    /// The clock by which ages continue over a restart.
    pub clock: RestartClock,
}

impl Default for KeeperOptions {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(30),
            limits: CheckpointLimits::default(),
            document_bytes: 64 << 20,
            total_bytes: 16 << 30,
            kinds: 256,
            admits: KindFilter::default(),
            orphans: Duration::from_secs(24 * 3600),
            end: Duration::from_secs(5),
            clock: RestartClock::system(),
        }
    }
}
