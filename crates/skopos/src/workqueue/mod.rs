//! A queue of keys for workers, as in client-go: a key that is being worked on is held by one worker only, a key that is
//! added meanwhile is worked on again, and a key that is added many times waits once.
//!
//! ```text
//!   add ────────────────▶ waiting, in order ──get──▶ Item, in one worker's hands ──done────▶ forgotten
//!   add_after ─▶ delayed ──────▲    ▲                  │ added meanwhile │     │
//!                   ▲               └──────────────────┴─────────────────┘     │
//!                   └───────────── retry, or dropped: later and later ─────────┘
//! ```
//!
//! Differences from client-go:
//!
//! | | client-go | here |
//! |---|---|---|
//! | the end of work on a key | `Done`, to be called once by hand | an [`Item`] that ends exactly once, however the worker ends |
//! | a worker that panics, is cancelled, or returns early | the key is done, and lost unless it is added again | the key is tried again, with its rate limit |
//! | priorities | a number for each key (controller-runtime); a high one starves a low one | two [lines](Priority); neither starves |
//! | size | without a bound | at most [`capacity`](WorkQueueOptions::capacity) keys; [`WorkQueue::add_within`] waits for room |
//! | failures of a key | stored until `Forget` | stored while the key is in the queue; [`Item::done`] resets them |
//! | draining | waits without a limit | has a limit, and reports what was left |
//! | delayed keys | a separate goroutine | no task: the waiting workers keep the time |
//!
//! Objects are not stored in it: a worker takes a key and reads the newest version from the store, so that ten changes in a
//! row are worked on once.
//!
//! ```
//! use std::time::Duration;
//! use skopos::workqueue::{WorkQueue, WorkQueueOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), skopos::workqueue::AddError> {
//! let queue = WorkQueue::new(WorkQueueOptions::named("services"));
//! queue.add("default/web")?;
//! queue.add("default/web")?;
//! queue.add("default/db")?;
//!
//! let web = queue.get().await.unwrap();
//! assert_eq!(*web, "default/web");
//! assert_eq!(queue.len(), 1, "it was added twice and waits no more");
//!
//! // It changes while it is worked on: it comes again, but only once this is done.
//! queue.add("default/web")?;
//! web.done();
//!
//! let db = queue.get().await.unwrap();
//! assert_eq!(*db, "default/db");
//! db.retry();
//! assert_eq!(queue.num_requeues(&"default/db"), 1);
//!
//! queue.shut_down();
//! while let Some(item) = queue.get().await {
//!     item.done();
//! }
//! # Ok(())
//! # }
//! ```

mod core;
mod feed;
mod item;
mod limit;
mod lines;
mod options;
mod queue;
mod stats;

pub use item::Item;
pub use limit::RateLimit;
pub use lines::Priority;
pub use options::WorkQueueOptions;
pub use queue::{NotDrained, WorkQueue};
pub use stats::{Durations, WorkQueueStats};

pub use self::core::AddError;

#[cfg(test)]
mod tests;
