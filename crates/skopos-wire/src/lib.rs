//! The Kubernetes wire format without trees: from bytes to frames to objects, and not one step further.
//!
//! ```text
//!  body chunks ─▶ ListSplitter ──▶ RawObject { json, key, uid, rv, labels }
//!                      │   └─ or BrokenItem { key, where it can be known }
//!                      └─ at the end: ListMeta { rv, continue }
//!  body chunks ─▶ FrameSplitter ─▶ WatchEvent: Added | Modified | Deleted | Bookmark | Error(Status)
//!                          └─ or BrokenFrame { key and rv, where they can be known }
//! ```
//!
//! An object stays the JSON that the server sent. What a cache needs of it (name, namespace, uid, resourceVersion, labels)
//! is scanned in one pass at about the speed at which bytes arrive; everything else is decoded when somebody asks.
//! Nothing here does I/O, reads a clock or keeps more than the item in progress, and every size has a cap ([`Limits`]).
//!
//! The input is hostile until scanned: whatever the bytes are, the outcome is a value or a typed error, never a panic.
//! The fuzz targets of the repository (`fuzz/`) and `tests/properties.rs` hold it to that.

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

pub use event::{BrokenFrame, BrokenReason, INITIAL_EVENTS_END, WatchEvent};
pub use frames::{FrameError, FrameSplitter};
pub use json::SyntaxError;
pub use key::{InvalidKey, ObjectKey};
pub use limits::Limits;
pub use list::{BrokenItem, ListBody, ListError, ListMeta, ListSplitter};
pub use object::{DecodeError, Identity, Labels, RawObject, ScanError};
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
