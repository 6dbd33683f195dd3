#![doc = include_str!("../README.md")]
//!
//! ## How it works
//!
//! ```text
//!  API server ══▶ list/watch link ──▶ store ─┬─▶ snapshots, reads        each with the RV it belongs to
//!               (skopos-reflect)             └─▶ queue ─▶ handler        each in its own task
//! ```
//!
//! | item | purpose |
//! |---|---|
//! | [`InformerFactory`], [`FactoryOptions`] | informers of one cluster, which share connections and stores |
//! | [`Informer`], [`InformerOptions`] | one resource: handlers, waits, bounded reads, audits, checkpoints |
//! | [`Store`], [`Snapshot`], [`Object`] | content: lookups at one RV, without waiting |
//! | [`Freshness`] | the age of content, or the reason why it has none |
//! | [`Event`], [`HandlerOptions`], [`HandlerHandle`] | one handler: its changes, its queue, its end |
//! | [`RawWatch`] | changes without a store |
//! | [`workqueue`] | keys for workers, with retries |
//! | [`checkpoint`] | content that survives a restart |
//! | [`journal`] | the last changes, for servers that answer watches |

#[cfg(feature = "kube-runtime")]
mod adapters;
mod assembly;
mod audit;
pub mod checkpoint;
mod condition;
mod context;
mod deadline;
mod error;
mod factory;
mod freshness;
mod handler;
mod informer;
pub mod journal;
mod link;
mod live;
mod maintenance;
mod object;
mod options;
mod panic;
mod prober;
mod quarantine;
mod read;
mod registry;
mod resource;
mod sleep;
mod stats;
mod store;
mod sync;
#[cfg(test)]
mod testing;
#[cfg(test)] // alone: only so does Clippy see that these are tests
#[cfg(shuttle)]
mod threads;
mod transform;
mod tree;
mod watch_list_support;
pub mod workqueue;

#[cfg(feature = "kube-runtime")]
pub use adapters::KubeStore;
pub use audit::{AuditReport, Difference, DifferenceKind, NotCompared};
pub use error::{
    AuditError, BuildError, HandlerNotSynced, HandlerStillRuns, LiveError, NotSynced, ReadError,
    ReadOneError, RefusalError, Unsynced, WaitError,
};
pub use factory::{InformerFactory, ShutdownReport};
pub use freshness::{Freshness, StaleReason};
pub use handler::{
    Callbacks, Event, EventCallbacks, EventFlags, EventHandler, HandlerHandle, HandlerOptions, HandlerStats,
    PoisonedEvent, SyncHandler, sync_handler,
};
pub use informer::Informer;
pub use object::Object;
pub use options::{FactoryOptions, InformerOptions};
pub use read::{Read, ReadOne, Source};
pub use resource::{ResourceId, Scope};
pub use sleep::SleepClock;
pub use stats::{AuditStats, FactoryStats, Healed, InformerStats, LinkStats, Trouble};
pub use store::{
    Closed, Digest, DuplicateIndex, Indexer, Objects, Page, Progress, Snapshot, Store, StoreStats,
    UnknownIndex,
};
pub use transform::{Transform, TransformFn};

#[doc(no_inline)]
pub use skopos_reflect::{
    Cause, Condition, Degradation, Form, InitialList, InvalidStart, LinkState, MachineOptions, MachineStats,
    RawWatch, RawWatchBuilder, RawWatchItem, RawWatchState, Reason, ReplaceCause, Target,
};
#[doc(no_inline)]
pub use skopos_transport::{
    self as transport, ConfigError, Transport, TransportError, TransportOptions, TransportStats,
};
#[doc(no_inline)]
pub use skopos_wire::{
    self as wire, DecodeError, FieldSelector, LabelSelector, Limits, ObjectKey, ParseError, RawObject,
    ResourceVersion, Status,
};
