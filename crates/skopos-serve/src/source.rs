//! What is served: versioned content, and the events that lead from one version to the next.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use skopos_wire::{ContinueToken, FieldSource, LabelSource, Status};
use thiserror::Error;

use crate::gzip::Blocks;
use crate::json::with_revision;
use crate::table::LeadingColumn;
use crate::window::{EventType, Window};

/// The objects of one resource, as one request sees them. Cheap to clone; may be made for the request.
///
/// Revisions are the numbers of resourceVersions. A source whose versions do not fit into 64 bits cannot be served.
pub trait Source: Clone + Send + Sync + 'static {
    /// One version of one object.
    type Item: Item + Clone;
    /// The state at one revision.
    type Contents: Contents<Item = Self::Item>;

    /// The state that a request wants. Everything but [`Wanted::Any`] may wait, for `patience` at most.
    ///
    /// # Errors
    /// When the state is yet to come, no longer there, or cannot be had at all.
    fn read(
        &self,
        wanted: Wanted,
        patience: Duration,
    ) -> impl Future<Output = Result<Self::Contents, ReadError>> + Send;

    /// A list of this state has pages to come: [`Wanted::Exactly`] its revision has to find it, for some minutes if that can be.
    /// Nothing is to be done for a source that has old states anyway.
    fn remember(&self, contents: &Self::Contents) {
        let _ = contents;
    }

    /// The events of the resource, and who watches them.
    fn window(&self) -> &Arc<Window<Self::Item>>;

    /// A revision at or before which no event is still to come: what bookmarks say.
    fn progress(&self) -> u64 {
        self.window().reached()
    }

    /// The newest revision that the request may see, if it sees less than there is.
    fn horizon(&self) -> Option<u64> {
        None
    }

    /// What time it is, for ages in tables.
    fn now(&self) -> jiff::Timestamp;

    /// A number from 0 to 1, by which a watch without `timeoutSeconds` lasts longer than the least.
    fn jitter(&self) -> f64 {
        fastrand::f64()
    }

    /// Columns that stand before all others in tables; each item has a cell for each.
    fn columns(&self) -> &[LeadingColumn] {
        &[]
    }

    /// Where blocks of objects are kept, of which compressed lists are made. Without, lists are not compressed.
    fn blocks(&self) -> Option<&Blocks> {
        None
    }

    /// What a list says of itself beside its revision, as annotations.
    fn list_annotations(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Whether pages say how many objects are left (L9).
    fn counts(&self) -> bool {
        true
    }

    /// A continue token as the client gets it.
    fn seal(&self, token: ContinueToken) -> String {
        token.encode()
    }

    /// A continue token as a client gives it back.
    ///
    /// # Errors
    /// 400 if it is none (L7).
    fn open(&self, token: &str) -> Result<ContinueToken, Status> {
        ContinueToken::decode(token)
            .map_err(|error| Status::bad_request(format!("invalid continue token: {error}")))
    }
}

/// One version of one object. Sources give it behind a pointer: it is cloned for each list and event.
pub trait Item: LabelSource + FieldSource + Send + Sync + 'static {
    /// `metadata.namespace`; `None` for a cluster-scoped object.
    fn namespace(&self) -> Option<&str>;

    /// `metadata.name`.
    fn name(&self) -> &str;

    /// `metadata.resourceVersion`.
    fn revision(&self) -> u64;

    /// The object as JSON. It need not have `kind` and `apiVersion`, as items of typed lists have not: they are added or
    /// left out as the answer wants it, which costs least if they stand first.
    fn json(&self) -> Bytes;

    /// The object as JSON, with another resourceVersion: as the event that takes it away shows it.
    fn json_at(&self, revision: u64) -> Bytes {
        match revision == self.revision() {
            true => self.json(),
            false => with_revision(&self.json(), revision),
        }
    }

    /// The buffer that the JSON is, or is made of: with the same buffer and the same revision, the JSON is the same as long as
    /// the source is.
    fn origin(&self) -> Bytes {
        self.json()
    }

    /// Where it stands in lists of one namespace, or (with `None`) of all: lists are in the order of these texts, or in any
    /// other order that [`Contents::page`] keeps to. Tokens carry them, so none of the parts between slashes may be empty,
    /// `.` or `..`.
    fn key(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(_) => self.name().to_owned(),
            None => object_key(self.namespace(), self.name()),
        }
    }

    /// The cells of the source's [leading columns](Source::columns).
    fn cells(&self) -> Vec<Value> {
        Vec::new()
    }

    /// A watch frame that begins with [`EventType::frame_head`] and has the object as it is now, if there is one ready.
    fn frame(&self, kind: EventType) -> Option<Bytes> {
        let _ = kind;
        None
    }
}

impl<T: Item> Item for Arc<T> {
    fn namespace(&self) -> Option<&str> {
        (**self).namespace()
    }

    fn name(&self) -> &str {
        (**self).name()
    }

    fn revision(&self) -> u64 {
        (**self).revision()
    }

    fn json(&self) -> Bytes {
        (**self).json()
    }

    fn json_at(&self, revision: u64) -> Bytes {
        (**self).json_at(revision)
    }

    fn origin(&self) -> Bytes {
        (**self).origin()
    }

    fn key(&self, namespace: Option<&str>) -> String {
        (**self).key(namespace)
    }

    fn cells(&self) -> Vec<Value> {
        (**self).cells()
    }

    fn frame(&self, kind: EventType) -> Option<Bytes> {
        (**self).frame(kind)
    }
}

/// `NAMESPACE/NAME` or `NAME`.
#[must_use]
pub fn object_key(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

/// The state of a resource at one revision: it does not change.
pub trait Contents: Send + Sync + 'static {
    /// One version of one object.
    type Item: Item;

    /// The revision. No object has a newer one.
    fn revision(&self) -> u64;

    /// One object.
    ///
    /// # Errors
    /// When the revision was compacted meanwhile; a snapshot never is.
    fn get(&self, namespace: Option<&str>, name: &str) -> Result<Option<Self::Item>, Compacted>;

    /// Up to `max` objects of a namespace, or of all, in their order, from the first whose [key](Item::key) is not less
    /// than `from`. A NUL at the end of `from` means: behind this key.
    ///
    /// # Errors
    /// When the revision was compacted meanwhile; a snapshot never is.
    fn page(
        &self,
        namespace: Option<&str>,
        from: Option<&str>,
        max: usize,
    ) -> Result<Vec<Self::Item>, Compacted>;

    /// How many objects there are from `from` on.
    ///
    /// # Errors
    /// When the revision was compacted meanwhile; a snapshot never is.
    fn count(&self, namespace: Option<&str>, from: Option<&str>) -> Result<usize, Compacted>;
}

/// Which state a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The newest there is (L1).
    Newest,
    /// Any (L2): never waits.
    Any,
    /// Any that is at least so new (L3).
    NotOlderThan(u64),
    /// This one and no other: exact lists (L3), and all pages of a list but the first (L10).
    Exactly(u64),
}

/// Why there is no such state.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ReadError {
    /// It is yet to come, and did not in time. The caller may ask again.
    #[error("revision {requested} is yet to come, the newest is {current}")]
    Ahead {
        /// What was asked for.
        requested: u64,
        /// What there is.
        current: u64,
    },
    /// It is no longer there. The caller has to begin anew.
    #[error(transparent)]
    Compacted(#[from] Compacted),
    /// What the source has to say.
    #[error("{}", .0.message)]
    Failed(Box<Status>),
}

/// A revision that is no longer there. The caller has to begin anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("revision {requested} is compacted, the oldest is {oldest}")]
pub struct Compacted {
    /// What was asked for.
    pub requested: u64,
    /// The oldest there is.
    pub oldest: u64,
}

// === impl ReadError ===

impl From<Status> for ReadError {
    fn from(status: Status) -> Self {
        Self::Failed(Box::new(status))
    }
}

impl ReadError {
    /// The answer; `compacted` says how a list or a watch tells that its revision is gone.
    pub(crate) fn into_status(self, compacted: impl FnOnce(Compacted) -> Status) -> Status {
        match self {
            // L6
            Self::Ahead { requested, current } => Status::too_large_resource_version(requested, current, 1),
            Self::Compacted(error) => compacted(error),
            Self::Failed(status) => *status,
        }
    }
}
