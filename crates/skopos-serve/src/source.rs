//! Sources: versioned content, and the events that lead from one version to the next.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use skopos_wire::{ContinueToken, Status};
use thiserror::Error;

use crate::gzip::Blocks;
use crate::item::Item;
use crate::table::LeadingColumn;
use crate::window::Window;

/// Objects of one resource, as visible to one request. Cheap to clone; may be created per request.
///
/// Revisions are numeric resourceVersions. A source whose versions do not fit into 64 bits cannot be served.
pub trait Source: Clone + Send + Sync + 'static {
    /// One version of one object.
    type Item: Item + Clone;
    /// State at one revision.
    type Contents: Contents<Item = Self::Item>;

    /// Returns the state that a request wants. Everything but [`VersionRequirement::Any`] may wait, for `timeout` at most.
    ///
    /// # Errors
    /// When the revision is in the future, is compacted, or cannot be read at all.
    fn read(
        &self,
        wanted: VersionRequirement,
        timeout: Duration,
    ) -> impl Future<Output = Result<Self::Contents, ReadError>> + Send;

    /// Retains a state because a list has more pages: [`VersionRequirement::Exactly`] its revision must find it, for some minutes if
    /// possible. A source that keeps old states anyway need not implement it.
    fn remember(&self, contents: &Self::Contents) {
        let _ = contents;
    }

    /// Returns the events of the resource and its watchers.
    fn window(&self) -> &Arc<Window<Self::Item>>;

    /// Returns a revision at or before which no event is still to come. Bookmarks carry it.
    fn progress(&self) -> u64 {
        self.window().reached()
    }

    /// Returns the newest revision that the request may see, if its view lags behind the content.
    fn horizon(&self) -> Option<u64> {
        None
    }

    /// Returns the current time, for ages in tables.
    fn now(&self) -> jiff::Timestamp;

    /// Returns a number from 0 to 1 that extends the lifetime of a watch without `timeoutSeconds` beyond the minimum.
    fn jitter(&self) -> f64 {
        fastrand::f64()
    }

    /// Returns columns that precede all others in tables; each item has a cell for each.
    fn columns(&self) -> &[LeadingColumn] {
        &[]
    }

    /// Returns the cache of compressed blocks. Without it, lists are not compressed.
    fn blocks(&self) -> Option<&Blocks> {
        None
    }

    /// Returns annotations of a list's metadata.
    fn list_annotations(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Returns whether pages include the number of remaining objects (L9).
    fn counts(&self) -> bool {
        true
    }

    /// Encodes a continue token for the client.
    fn seal(&self, token: ContinueToken) -> String {
        token.encode()
    }

    /// Decodes a continue token from a client.
    ///
    /// # Errors
    /// 400 if the token is invalid (L7).
    fn open(&self, token: &str) -> Result<ContinueToken, Status> {
        ContinueToken::decode(token)
            .map_err(|error| Status::bad_request(format!("invalid continue token: {error}")))
    }
}

/// Immutable state of a resource at one revision.
pub trait Contents: Send + Sync + 'static {
    /// One version of one object.
    type Item: Item;

    /// Returns the revision. No object has a newer one.
    fn revision(&self) -> u64;

    /// Returns one object.
    ///
    /// # Errors
    /// When the revision was compacted meanwhile; a snapshot never is.
    fn get(&self, namespace: Option<&str>, name: &str) -> Result<Option<Self::Item>, Compacted>;

    /// Returns up to `max` objects of a namespace, or of all, in order. The first is the first whose [key](Item::key) is not less
    /// than `from`. A NUL at the end of `from` means: after this key.
    ///
    /// # Errors
    /// When the revision was compacted meanwhile; a snapshot never is.
    fn page(
        &self,
        namespace: Option<&str>,
        from: Option<&str>,
        max: usize,
    ) -> Result<Vec<Self::Item>, Compacted>;

    /// Returns the number of objects from `from` on.
    ///
    /// # Errors
    /// When the revision was compacted meanwhile; a snapshot never is.
    fn count(&self, namespace: Option<&str>, from: Option<&str>) -> Result<usize, Compacted>;
}

/// State that a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionRequirement {
    /// The newest state (L1).
    Newest,
    /// Any state (L2): never waits.
    Any,
    /// Any state at least as new as this revision (L3).
    NotOlderThan(u64),
    /// Exactly this revision: exact lists (L3), and all pages of a list but the first (L10).
    Exactly(u64),
}

/// Reason why a state cannot be read.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ReadError {
    /// The revision is in the future and did not arrive in time. The caller may retry.
    #[error("revision {requested} is yet to come, the newest is {current}")]
    Ahead {
        /// Requested revision.
        requested: u64,
        /// Current revision.
        current: u64,
    },
    /// The revision is compacted. The caller has to relist.
    #[error(transparent)]
    Compacted(#[from] Compacted),
    /// The source's own error.
    #[error("{}", .0.message)]
    Failed(Box<Status>),
}

/// A compacted revision. The caller has to relist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("revision {requested} is compacted, the oldest is {oldest}")]
pub struct Compacted {
    /// Requested revision.
    pub requested: u64,
    /// Oldest available revision.
    pub oldest: u64,
}

impl From<Status> for ReadError {
    fn from(status: Status) -> Self {
        Self::Failed(Box::new(status))
    }
}

impl ReadError {
    /// Returns the error status; `compacted` makes the one of a compacted revision, which differs between list and watch.
    pub(crate) fn into_status(self, compacted: impl FnOnce(Compacted) -> Status) -> Status {
        match self {
            // L6
            Self::Ahead { requested, current } => Status::too_large_resource_version(requested, current, 1),
            Self::Compacted(error) => compacted(error),
            Self::Failed(status) => *status,
        }
    }
}
