//! The journal: the last changes of a store, for servers that answer watches from memory.
//!
//! ```text
//!   StoreWriter ──push──▶ ring of the last changes, each with old and new object ──▶ Cursor  Cursor  Cursor …
//!        └── content, with the number of the next change in it ──▶ Snapshot ───────────▲ begins exactly there
//! ```
//!
//! | piece | offers |
//! |---|---|
//! | [`JournalOptions`] | the size of the journal; a store keeps no journal, and pays nothing, unless one is requested |
//! | [`Journal`] | start positions: at a snapshot, or after an RV |
//! | [`Cursor`] | reads on from there, and reports when it has fallen out of the window |
//! | [`Change`] | one change, and the event that it is for a watch with a selector |
//! | `ring` | the window: one writer, lock-free readers |
//! | `gap` | a list's changes, with RVs |
//!
//! # Guarantees
//!
//! * The snapshot at which a cursor began, together with the changes that it has read since, is the content at
//!   [`Batch::reached`]. Changes come in the order in which they were applied, and their RVs never decrease.
//! * A reader that starts after RV `n`, and knows the server's state at `n`, misses nothing.
//! * A list that bridges a time whose changes are unknown (after a 410) enters as the differences that it makes, marked as
//!   a gap; no reader can start inside of it ([`JournalError::Expired`]). Objects that came and went in that time are not
//!   in the journal, but other servers may have reported them: a client with an RV from that time must list again.
//! * If history was broken (a new epoch), or a list contradicts earlier changes, every cursor gets
//!   [`JournalError::FellOut`].
//!
//! Changes that share one RV (the keys of an expired lease) may come one by one, and the content can be read between them.
//! RVs do not tell: a reader that starts after such an RV may lack later changes at it ([`Change::further`]).

mod change;
mod gap;
mod reader;
mod ring;
#[cfg(test)]
mod tests;

pub(crate) use change::ChangeRecord;
pub use change::{Change, ChangeKind};
pub(crate) use gap::{ListDifference, ListReplacement};
pub use reader::{Batch, Cursor, Journal, JournalError, JournalStats};
pub use ring::{JournalOptions, Lost};
pub(crate) use ring::{JournalPosition, JournalRecorder};
