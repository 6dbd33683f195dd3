//! Kubernetes informers that know their own age.
//!
//! ```text
//!  API server ══▶ list/watch link ──▶ store ─┬─▶ snapshots, reads        each with the RV it belongs to
//!               (skopos-reflect)             └─▶ queue ─▶ handler        each in its own task
//! ```

mod handler;
mod object;
mod store;
#[cfg(test)]
mod testing;

pub use handler::{
    Callbacks, Event, EventCallbacks, EventFlags, EventHandler, HandlerHandle, HandlerOptions, HandlerStats,
    PoisonedEvent, SyncHandler, sync_handler,
};
pub use object::Object;
pub use store::{
    Closed, Digest, DuplicateIndex, Indexer, Objects, Page, Progress, Snapshot, Store, StoreStats,
    UnknownIndex,
};
