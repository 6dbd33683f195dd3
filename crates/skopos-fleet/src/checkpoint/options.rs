//! How checkpoints are kept.

use std::time::Duration;

use skopos::checkpoint::{CheckpointLimits, WallClock};

use crate::cluster::Admits;

/// How a [`CheckpointKeeper`](super::CheckpointKeeper) keeps.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeeperOptions {
    /// How often what has changed is written. Default 30 s.
    pub every: Duration,
    /// What is written to and accepted of the file of one kind. Default: 1,000,000 objects of 4 GiB of JSON.
    pub limits: CheckpointLimits,
    /// What the documents of one cluster may take, in bytes. Default 64 MiB.
    pub document_bytes: usize,
    /// What all files may take, in bytes. Above it no further kinds are kept. Default 16 GiB.
    pub total_bytes: u64,
    /// The most kinds of one cluster that are started because there are files of them. Default 256.
    pub kinds: usize,
    /// Which kinds may be kept; files of others are removed. Asked whenever something is written. Default: all.
    pub admits: Admits,
    /// How long files stay of clusters that nobody has named since they were written, and since the process began. Default
    /// 24 h.
    pub orphans: Duration,
    /// How long the last writing may take, when the fleet is shut down. Default 5 s.
    pub end: Duration,
    /// The clock by which ages go on over a restart.
    pub clock: WallClock,
}

// === impl KeeperOptions ===

impl Default for KeeperOptions {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(30),
            limits: CheckpointLimits::default(),
            document_bytes: 64 << 20,
            total_bytes: 16 << 30,
            kinds: 256,
            admits: Admits::default(),
            orphans: Duration::from_secs(24 * 3600),
            end: Duration::from_secs(5),
            clock: WallClock::system(),
        }
    }
}
