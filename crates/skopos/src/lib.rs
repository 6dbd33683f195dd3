#![doc = include_str!("../README.md")]
//!
//! ## How it works
//!
//! ```text
//!  API server ══▶ list/watch reflector ──▶ store ─┬─▶ snapshots, reads        each with the RV it belongs to
//!                   (skopos-reflect)              └─▶ queue ─▶ handler        each in its own task
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

mod audit;
pub mod checkpoint;
mod error;
mod factory;
mod freshness;
mod handler;
mod informer;
pub mod journal;
mod read;
mod store;
mod sync;
#[cfg(test)]
mod testing;
#[cfg(test)] // alone: only so does Clippy see that these are tests
#[cfg(shuttle)]
mod threads;
pub mod workqueue;

pub use audit::{AuditReport, Difference, DifferenceKind, NotCompared};
pub use error::{
    AuditError, BuildError, HandlerNotSynced, HandlerStillRuns, LiveError, NotSynced, ReadError,
    ReadOneError, RefusalError, Unsynced, WaitError,
};
pub use factory::connect::ConnectError;
#[cfg(feature = "testserver")]
pub use factory::test_server::test_server_dialer;
pub use factory::{InformerFactory, ShutdownReport};
pub use freshness::sleep::SleepClock;
pub use freshness::{Freshness, StaleReason};
pub use handler::{
    Callbacks, Event, EventCallbacks, EventFlags, EventHandler, HandlerHandle, HandlerOptions, HandlerStats,
    PoisonedEvent, SyncHandler, sync_handler,
};
pub use informer::Informer;
#[cfg(feature = "kube-runtime")]
pub use informer::adapters::KubeStore;
pub use informer::options::{FactoryOptions, InformerOptions};
pub use informer::resource::{ResourceId, Scope};
pub use informer::stats::{AuditStats, FactoryStats, Healed, InformerStats, ReflectorStats, Trouble};
pub use informer::transform::{Transform, TransformFn};
pub use read::{Read, ReadOne, Source};
#[doc(no_inline)]
pub use skopos_reflect::{
    Cause, Condition, Degradation, Encoding, Form, InitialList, InvalidStart, MachineOptions, MachineStats,
    RawWatch, RawWatchBuilder, RawWatchItem, RawWatchState, Reason, ReflectorState, ReplaceCause, Target,
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
pub use store::object::Object;
pub use store::{
    Closed, Digest, DuplicateIndex, Indexer, Objects, Page, Progress, Snapshot, Store, StoreStats,
    UnknownIndex,
};
