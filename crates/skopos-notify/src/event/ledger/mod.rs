//! The ledger: the states that the receiver of an event sink has acknowledged.

mod bucket;
#[cfg(test)]
mod bucket_tests;
mod changes;
mod folder;
mod head;
mod memory;
mod row;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use skopos::ResourceVersion;

pub use self::bucket::LedgerBucket;
#[cfg(test)]
pub(super) use self::changes::LedgerChanges;
pub use self::folder::LedgerFolder;
pub use self::memory::LedgerMemory;
use super::delivery::{DeadLetter, EventKey, Recorded};

/// A place of ledgers, one for each sink.
#[async_trait]
pub trait LedgerStore: Send + Sync {
    /// Opens the ledger of a sink for one process, and reads it. If there is none, it is made.
    ///
    /// # Errors
    /// When another process uses it, or it cannot be read.
    async fn open(&self, sink: &str) -> Result<(Arc<dyn Ledger>, LedgerContent), LedgerError>;

    /// Reads the ledger of a sink that no process uses, and makes none.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    async fn read(&self, sink: &str) -> Result<LedgerContent, LedgerError>;
}

/// An open ledger.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Writes changes, all or none. They are durable when it returns.
    ///
    /// # Errors
    /// When it cannot be written, or another process has opened it. It is then unchanged, or has all changes.
    async fn write(&self, changes: Arc<Vec<LedgerChange>>) -> Result<(), LedgerError>;
}

/// Content of a ledger.
#[derive(Debug, Default)]
pub struct LedgerContent {
    /// True if there was no ledger, so that everything is reported as new.
    pub is_new: bool,
    /// The cluster that the ledger is about.
    pub cluster: Option<Arc<str>>,
    /// The epoch that was reported.
    pub history: History,
    /// The states that the receiver has acknowledged.
    pub recorded: Vec<(EventKey, Recorded)>,
    /// Messages that the receiver rejected for good.
    pub dead: Vec<(EventKey, DeadLetter)>,
    /// Reason for which the receiver wants no more messages.
    pub disabled: Option<String>,
}

/// An epoch of a cluster's history, in which versions are comparable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Its number; it rises.
    pub epoch: u64,
    /// The highest version of each resource that was seen in it.
    pub versions: BTreeMap<Arc<str>, u64>,
}

/// A change of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerChange {
    /// The state that was acknowledged; `None` removes it.
    Recorded(EventKey, Option<Recorded>),
    /// A message that the receiver rejected for good; `None` removes it.
    Dead(EventKey, Option<DeadLetter>),
    /// Everything beside objects.
    Meta {
        /// Reason for which the receiver wants no more messages.
        disabled: Option<String>,
        /// The cluster that the ledger is about.
        cluster: Option<Arc<str>>,
        /// The epoch.
        history: History,
    },
}

/// A ledger that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// Another process has it.
    #[error("the ledger {0} is in use: another notifier runs with this folder")]
    InUse(PathBuf),
    /// Another process has opened it since.
    #[error("the ledger of {0} was taken over: another notifier works now")]
    TakenOver(String),
    /// It is not as it was written. It is put aside when it is opened again.
    #[error("the ledger of {0} is damaged: {1}")]
    Damaged(String, String),
    /// Its bucket cannot be used.
    #[error("the ledger of {sink} cannot be used: {problem}; check state.bucket")]
    Bucket {
        /// The sink.
        sink: String,
        /// The error.
        problem: String,
    },
    /// It cannot be read or written.
    #[error("the ledger {path} cannot be used: {problem}; check the disk of state.folder")]
    Storage {
        /// The file.
        path: PathBuf,
        /// The error.
        problem: String,
    },
}

impl LedgerError {
    /// Returns whether the ledger has to be opened again, because a further write cannot succeed.
    pub fn ends_ledger(&self) -> bool {
        matches!(self, Self::TakenOver(_) | Self::Damaged(..))
    }
}

impl History {
    /// Notes the version of a complete view of a resource. Returns true if this begins a new epoch.
    pub fn saw(&mut self, resource: &Arc<str>, version: &ResourceVersion) -> bool {
        let Some(version) = version.as_u64().filter(|version| *version > 0) else { return false };
        let known = self.versions.insert(resource.clone(), version);
        if known.is_none_or(|known| known <= version) {
            return false;
        }
        // Versions of other resources went back too, or will.
        self.versions.retain(|of, _| of == resource);
        self.epoch += 1;
        true
    }
}
