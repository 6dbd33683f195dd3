//! Handlers: code that is called for each change, each in its own task, behind its own bounded queue.
//!
//! ```text
//!                 ┌─▶ queue ─▶ task ─▶ your handler        may be slow: its queue coalesces, and flags it
//!   StoreWriter ──┼─▶ queue ─▶ task ─▶ another one         may panic: caught, retried, recorded
//!    never waits  └─▶ queue ─▶ task ─▶ …                   may come late: gets the content, then the changes
//! ```
//!
//! [`Event`] documents the guarantees for each handler, `queue` the cost of a slow one.
//!
//! | piece | offers |
//! |---|---|
//! | [`EventHandler`] | the trait to implement; closures that take an [`Event`] and return a future implement it already |
//! | [`sync_handler`], [`Callbacks`] | handlers without `async`: from a plain closure, or from `on_add`, `on_update`, `on_delete` |
//! | [`HandlerOptions`] | queue capacity, retries after panics, resync period |
//! | [`HandlerHandle`] | whether the handler has seen the first list, its statistics, its removal |
//! | `add` | connects all of that to one store |

mod callbacks;
mod event;
mod handle;
mod options;
pub(crate) mod panic;
mod queue;
mod runner;

pub use callbacks::{Callbacks, EventCallbacks, EventHandler, SyncHandler, sync_handler};
pub use event::{Event, EventFlags};
pub(crate) use handle::add;
pub use handle::{HandlerHandle, HandlerStats, PoisonedEvent};
pub use options::HandlerOptions;
pub(crate) use queue::EventQueue;
#[cfg(test)]
pub(crate) use queue::{DifferenceWalk, QueueItem};

#[cfg(test)]
mod tests;
