//! The Kubernetes list/watch protocol: a pure state machine, the driver that runs it over a connection, and a raw watch
//! that survives lost connections.
//!
//! ```text
//!                     what happened, and when                       RawObjects, changes, RVs, proofs of age
//!   Transport ──▶ driver ───────────────────▶ Machine ───────────────────────────────────────▶ Sink (a store)
//!       ▲            │ ◀───────────────────────  │
//!       └─ requests ─┘        what to do          └─ no I/O, no clock, no tokio: the same inputs, the same outcome
//! ```

// Compiles the README's code with the documentation tests.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod driver;
mod encoding;
mod machine;
mod probe;
mod raw_watch;
mod sink;
mod target;
mod time;
mod wrong_kind;

pub use driver::{Driver, DriverHandle, DriverOptions};
pub use encoding::{Encoding, Negotiation};
pub use machine::{
    Action, BrokenItem, Cause, Condition, Content, Degradation, Failure, GetRequest, InitialList, Input,
    ListRequest, Machine, MachineOptions, MachineStats, Reason, ReflectorState, RequestId, Resume, Trouble,
    WatchRequest, WatchStart, exponential_delay,
};
pub use probe::{ProbeError, probe};
pub use raw_watch::{InvalidStart, RawWatch, RawWatchBuilder, RawWatchItem, RawWatchState};
pub use sink::{Change, Commit, ReplaceCause, Sink};
pub use target::{Form, Target};
pub use time::{Clock, Time};
pub use wrong_kind::WrongKind;
