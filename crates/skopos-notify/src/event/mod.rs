//! Event sinks: receivers of each state of an object.
//!
//! ```text
//!  events of the informers ─▶ outbox (pure: cluster − ledger) ─▶ deliveries ─▶ webhook
//!                                 ▲        │                                     │
//!                                 │        └─▶ ledger (on disk, before a send)   │
//!                                 └──────────────── outcome ─────────────────────┘
//! ```
//!
//! There is no queue of events. The work is the difference between the cluster and the acknowledged states, so an outage of a day
//! leaves one delivery for each object that differs.

mod breaker;
mod content;
mod delivery;
mod ledger;
mod message;
mod options;
mod outbox;
#[cfg(test)]
mod outbox_properties;
#[cfg(test)]
mod outbox_tests;
mod receiver;
mod source;
mod waiting;
mod webhook;

pub use self::content::{FieldPath, ObjectContent};
pub use self::delivery::{ChangeKind, DeadLetter, Delivery, DeliveryOutcome, EventKey, Recorded};
pub use self::ledger::{
    History, Ledger, LedgerBucket, LedgerChange, LedgerContent, LedgerError, LedgerFolder, LedgerMemory,
    LedgerStore,
};
pub use self::message::MessageFormat;
pub use self::options::{Departure, OutboxOptions};
pub use self::outbox::Outbox;
pub use self::receiver::{EventMessage, EventReceiver};
pub use self::source::{EventSource, ResourceName};
pub use self::webhook::{WebhookError, WebhookOptions, WebhookSink};
