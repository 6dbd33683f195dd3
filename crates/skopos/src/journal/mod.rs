//! The journal: the last changes of a store, to be read again by whoever serves watches from memory.
//!
//! ```text
//!   StoreWriter ──push──▶ ring of the last changes, each with old and new object ──▶ Cursor  Cursor  Cursor …
//!        └── content, with the number of the next change in it ──▶ Snapshot ───────────▲ begins exactly there
//! ```
//!
//! | piece | offers |
//! |---|---|
//! | [`JournalOptions`] | how much is kept; a store keeps no journal, and pays nothing, unless it is asked for one |
//! | [`Journal`] | where one can start: at a snapshot, or after an RV |
//! | [`Cursor`] | reads on from there, and learns when it has fallen out of the window |
//! | [`Change`] | one change, with what a selector's watch has to be told of it |
//! | `ring` | the window: written by one, read without a lock |
//! | `gap` | what a list has changed, as changes with RVs |
//!
//! # What it promises
//!
//! * The snapshot that a cursor began at, and the changes that it has read since, are the content at
//!   [`Batch::reached`]. Changes come in the order in which they were applied, and their RVs never decrease.
//! * Whoever starts after RV `n`, and knows what the server had at `n`, misses nothing.
//! * A list that bridges a time whose changes are unknown (after a 410) enters as the differences that it makes, marked as
//!   a gap; nobody can start inside of it ([`JournalError::Expired`]). Objects that came and went in that time are known
//!   to whoever was told of them by somebody else, and to nobody here: who has an RV of that time must list anew.
//! * When history was broken (a new epoch), or a list contradicts what was told before, every cursor learns it
//!   ([`JournalError::FellOut`]).
//!
//! Changes that share one RV (the keys of an expired lease) may come one by one, and the content can be read between them. RVs do not
//! tell: whoever starts after such an RV may lack what came later at it ([`Change::further`]).

mod change;
mod gap;
mod reader;
mod ring;
#[cfg(test)]
mod tests;

pub use change::{Change, ChangeKind};
pub use reader::{Batch, Cursor, Journal, JournalError, JournalStats};
pub use ring::{JournalOptions, Lost};

pub(crate) use change::Record;
pub(crate) use gap::{Difference, Listed};
pub(crate) use ring::{Mark, Recorder};
