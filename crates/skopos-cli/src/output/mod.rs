//! Printers of changes: as a table, as JSON lines, as names.
mod json;
mod name;
mod state;
mod table;

use std::io::{self, Write};

use bytes::Bytes;
pub(crate) use json::JsonPrinter;
pub(crate) use name::NamePrinter;
pub(crate) use table::{TablePrinter, columns};

/// Kind of a change to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// It is new, or was there when the watch began
    Added,
    /// It changed
    Updated,
    /// It is gone
    Deleted,
}

/// One change of one object, ready to be printed.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// Kind of the change
    pub(crate) verb: Verb,
    /// Its namespace, if it has one
    pub(crate) namespace: Option<String>,
    /// Its name
    pub(crate) name: String,
    /// The object as the server sent it; for a deletion its last known state, which may be missing
    pub(crate) object: Option<Bytes>,
    /// For an update, the object before
    pub(crate) old: Option<Bytes>,
    /// True for a change after a gap: the changes in between are unknown
    pub(crate) gap: bool,
}

/// Notice about the view itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Notice {
    /// The first view is complete and has this many objects of `scope`
    Synced { objects: u64, after: std::time::Duration, scope: String },
    /// The view may be behind the server from here on
    Stale { reason: String },
    /// The view is known to be current again
    Live { after: std::time::Duration, how: String },
    /// Any other message for the user
    Note(String),
}

/// Writes changes and notices in one form.
pub(crate) trait Printer: Send {
    /// Prints one change to standard output.
    fn change(&mut self, out: &mut dyn Write, change: &Change) -> io::Result<()>;

    /// Shows all that was printed so far, because no more changes are waiting.
    fn settle(&mut self, out: &mut dyn Write) -> io::Result<()>;

    /// Prints a notice where it belongs: standard error, or among the lines for programs.
    fn notice(&mut self, out: &mut dyn Write, err: &mut dyn Write, notice: &Notice) -> io::Result<()>;
}
