//! Server side of the list/watch contract: get, list and watch as kube-apiserver answers them, over any versioned content.
//!
//! ```text
//!                     ┌───────────────────────── Source ─────────────────────────┐
//!  Request ──▶ get ──▶│ read(wanted) ──▶ Contents: the state at one revision     │──▶ Form ──▶ Response
//!              list   │                                                          │    JSON, metadata only,
//!              watch ▶│ window() ─────▶ Window: the events since, their frames,  │    or a table
//!                     │                  and who watches                         │
//!                     └──────────────────────────────────────────────────────────┘
//! ```
//!
//! The test server is a [`Source`] over its versioned storage. The gateway has one over the store of a cluster and one over the
//! stores of many. The valid parameters, the order and text of the errors, and the form of pages, events and table rows are
//! implemented here, once.
//!
//! This crate has no sockets, no tasks and no lock across an await. Times follow tokio's clock.

#![allow(
    clippy::result_large_err,
    reason = "a Status is what the API answers; it is made once for a request that failed"
)]

mod contract;
pub mod deadline;
pub mod discovery;
mod event_type;
mod gzip;
mod item;
mod json;
mod memory_budget;
mod pretty;
mod request;
pub mod resources;
pub mod respond;
mod source;
pub mod table;
#[cfg(test)]
mod testing;
mod window;

pub use contract::{Form, ItemFilter, Purpose, Request, Selection, ServeOptions, error, get, list, watch};
pub use event_type::EventType;
pub use gzip::{Block, BlockCache, BlockStats, Blocks, GzipMember};
pub use item::{Item, object_key};
pub use json::with_resource_version;
pub use memory_budget::{MemoryBudget, Reservation};
pub use request::{Query, RequestInfo, RequestTarget, RequestVerb};
pub use resources::{PrinterColumn, Registry, ResourceType, ScalePaths, Subresource, Verb};
pub use respond::{BodyError, Response, ResponseBody};
pub use source::{Compacted, Contents, ReadError, Source, VersionRequirement};
pub use table::LeadingColumn;
pub use window::{Cursor, Event, Subscription, Window, WindowOptions, WindowStats};
