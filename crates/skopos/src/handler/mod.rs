//! Handlers: code that is called for each change, each in its own task, behind its own bounded queue.
//!
//! ```text
//!                 ┌─▶ queue ─▶ task ─▶ your handler        may be slow: its queue coalesces, and says so
//!   StoreWriter ──┼─▶ queue ─▶ task ─▶ another one         may panic: caught, retried, recorded
//!    never waits  └─▶ queue ─▶ task ─▶ …                   may come late: gets what is there, then what follows
//! ```
//!
//! What each handler may rely on is said at [`Event`], what it costs when it is slow in `queue`.
//!
//! | piece | offers |
//! |---|---|
//! | [`EventHandler`] | what you implement; closures that take an [`Event`] and return a future are handlers already |
//! | [`sync_handler`], [`Callbacks`] | handlers without `async`: from a plain closure, or from `on_add`, `on_update`, `on_delete` |
//! | [`HandlerOptions`] | queue capacity, retries after panics, resync period |
//! | [`HandlerHandle`] | has it seen the first list, how does it fare, remove it |
//! | `add` | puts all that together for one store |

mod callbacks;
mod event;
mod handle;
mod options;
mod queue;
mod runner;

pub use callbacks::{Callbacks, EventCallbacks, EventHandler, SyncHandler, sync_handler};
pub use event::{Event, EventFlags};
pub use handle::{HandlerHandle, HandlerStats, PoisonedEvent};
pub use options::HandlerOptions;

pub(crate) use handle::add;
pub(crate) use queue::Queue;
#[cfg(test)]
pub(crate) use queue::{Taken, Walk};

#[cfg(test)]
mod tests;
