//! The store: the server's content, as immutable snapshots at one RV each.
//!
//! ```text
//!   list/watch reflector ──▶ StoreWriter ── one snapshot per batch ──▶ Store ──▶ Snapshot ──▶ readers, without a lock
//!         (Sink calls)            │                                      ▲
//!                                 └── the batch's changes ──▶ handler queues (the writer never waits)
//! ```
//!
//! | piece | offers |
//! |---|---|
//! | [`Store`] | the reader: the current [`Snapshot`], `get`, indexers, progress (the RV that the content has reached) |
//! | [`Snapshot`] | content at one RV: get, iterate in order, by namespace, page, index, label selector; its digest |
//! | `StoreWriter` | the writer, a `skopos_reflect::Sink`: turns lists and watch events into changes |
//! | `StoreCore` | the state that both share: the current snapshot, the handlers' queues, statistics |
//! | `crate::store::tree` | the persistent map below |
//!
//! Readers never block the writer, and the writer never blocks a reader: the current snapshot is one atomic pointer. The
//! cost of a held snapshot is the objects that have changed since.

mod core;
mod digest;
mod index;
pub(crate) mod object;
mod reader;
mod snapshot;
pub(crate) mod tree;
mod writer;

pub use digest::Digest;
pub(crate) use index::StoreIndex;
pub use index::{Indexer, UnknownIndex};
pub use reader::Store;
pub use snapshot::{Objects, Page, Snapshot};
pub(crate) use snapshot::{RestoredPart, StoreContent};
pub(crate) use writer::{ReflectorObserver, StoreWriter};

pub(crate) use self::core::StoreCore;
pub use self::core::{Closed, DuplicateIndex, Progress, StoreStats};
