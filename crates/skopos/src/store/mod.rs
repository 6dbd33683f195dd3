//! The store: what the server has, as immutable snapshots that each belong to one RV.
//!
//! ```text
//!   list/watch link ──▶ StoreWriter ── one snapshot per batch ──▶ Store ──▶ Snapshot ──▶ readers, without a lock
//!    (Sink calls)            │                                      ▲
//!                            └── the batch's changes ──▶ handler queues (never waited for)
//! ```
//!
//! | piece | offers |
//! |---|---|
//! | [`Store`] | the reading end: the current [`Snapshot`], `get`, indexers, progress (what RV the content has reached) |
//! | [`Snapshot`] | content of one RV: get, iterate in order, by namespace, page, index, label selector; its digest |
//! | `StoreWriter` | the writing end, a `skopos_reflect::Sink`: turns lists and watch events into changes |
//! | `StoreCore` | what both share: the current snapshot, the handlers' queues, statistics |
//! | `crate::tree` | the persistent map below |
//!
//! Readers never block the writer, and the writer never blocks a reader: the current snapshot is one atomic pointer. What
//! a held snapshot costs is the objects that have changed since.

mod core;
mod digest;
mod index;
mod reader;
mod snapshot;
mod writer;

pub use digest::Digest;
pub(crate) use index::Index;
pub use index::{Indexer, UnknownIndex};
pub use reader::Store;
pub use snapshot::{Objects, Page, Snapshot};

pub(crate) use self::core::StoreCore;
pub use self::core::{Closed, DuplicateIndex, Progress, StoreStats};
pub(crate) use snapshot::{Content, RestoredPart};
pub(crate) use writer::{LinkObserver, StoreWriter};
