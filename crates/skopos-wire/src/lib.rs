//! The Kubernetes wire format without trees: from bytes to frames to objects, and no further.
//!
//! ```text
//!  body chunks ─▶ ListSplitter ──▶ RawObject { json, key, uid, rv, labels }
//!                      │   └─ or BrokenItem { key, where it can be known }
//!                      └─ at the end: ListMeta { rv, continue }
//!  body chunks ─▶ FrameSplitter ─▶ WatchEvent: Added | Modified | Deleted | Bookmark | Error(Status)
//!                          └─ or BrokenFrame { key and rv, where they can be known }
//! ```
//!
//! An object stays the JSON that the server sent. The fields that a cache needs (name, namespace, uid, resourceVersion,
//! labels) are scanned in one pass at about network speed; everything else is decoded on demand. This crate does no I/O,
//! reads no clock and keeps only the item in progress, and every size has a cap ([`Limits`]).
//!
//! All input is hostile until scanned: for any bytes the outcome is a value or a typed error, never a panic. The
//! repository's fuzz targets (`fuzz/`) and `tests/properties.rs` check this.

// Compiles the README's code with the documentation tests.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod dictionary;
mod event;
mod frames;
mod json;
mod key;
mod limits;
mod list;
mod nesting;
mod object;
pub mod protobuf;
mod rv;
mod selector;
mod status;
mod token;
pub mod transform;

pub use dictionary::{Dictionary, TrainingError};
pub use event::{BrokenFrame, BrokenReason, INITIAL_EVENTS_END, WatchEvent};
pub use frames::{FrameError, FrameSplitter};
pub use json::SyntaxError;
pub use key::{InvalidKey, ObjectKey};
pub use limits::Limits;
pub use list::{BrokenItem, ListBody, ListError, ListMeta, ListSplitter};
pub use object::{DecodeError, Identity, Labels, MetadataChange, RawObject, ScanError};
pub use rv::{InvalidResourceVersion, ResourceVersion};
pub use selector::{
    FieldRequirement, FieldSelector, FieldSource, LabelOperator, LabelRequirement, LabelSelector,
    LabelSource, ParseError, label_problems,
};
pub use status::{
    FieldError, FieldErrorKind, GroupResource, ListOptionsFault, Status, StatusCause, StatusDetails,
    StatusMeta, StatusReason,
};
pub use token::{ContinueToken, InvalidToken};
