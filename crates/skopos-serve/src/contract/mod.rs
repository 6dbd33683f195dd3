//! Read API: get, list and watch exactly as kube-apiserver answers them.
//!
//! The names of the rules (L1 to L12 for lists, W1 to W18 for watches) are noted at the code that implements them:
//!
//! | | lists | | watches |
//! |---|---|---|---|
//! | L1 | no version: a consistent read | W1 | no version or 0: starts with the state |
//! | L2 | version 0: any, not paged | W2 | `sendInitialEvents` needs `NotOlderThan` |
//! | L3 | version N: not older, or exact with a limit | W3 | the state as ADDED in key order, then a bookmark |
//! | L4 | refused combinations (422) | W4 | version N: only what is newer |
//! | L5 | a version that is no number | W5 | too old: ERROR 410 in the stream |
//! | L6 | a version to come: 3 s, then 504 | W6 | the window of events |
//! | L7 | continue tokens | W7 | bookmarks |
//! | L8 | compacted: 410 | W8 | the end by `timeoutSeconds` |
//! | L9 | `remainingItemCount`, `items: []` | W9 | crossing a selector |
//! | L10 | one version for all pages | W10 | slow watchers |
//! | L12 | 60 s, streaming, gzip | W11 | order |

mod fields;
mod form;
mod get;
mod list;
mod list_body;
mod list_head;
mod media_range;
mod options;
mod protobuf;
mod request;
mod selection;
mod watch;
mod watch_body;

use std::time::Duration;

pub use self::form::{Form, Purpose};
pub use self::get::get;
pub use self::list::list;
pub use self::protobuf::error;
pub use self::request::{ItemFilter, Request};
pub use self::selection::Selection;
pub use self::watch::watch;

/// Limits and intervals of the read API. The defaults are those of kube-apiserver.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServeOptions {
    /// Interval between the bookmarks of a watch (60 s).
    pub bookmark_interval: Duration,
    /// Time before the deadline of a watch at which it gets its last bookmark (2 s).
    pub bookmark_before_end: Duration,
    /// Minimum lifetime of a watch without `timeoutSeconds` (30 min). Each watch lasts less than twice as long.
    pub min_watch_timeout: Duration,
    /// Maximum lifetime of a watch, whatever it requests (no limit).
    pub max_watch_timeout: Option<Duration>,
    /// Time that a read waits for a future version (3 s).
    pub freshness_wait: Duration,
    /// Timeout of a request that is not a watch (60 s). The caller enforces it, with [`crate::deadline`].
    pub request_timeout: Duration,
    /// True if watches may start with the state (`sendInitialEvents`).
    pub watch_list: bool,
    /// Minimum delay between two events of the same revision (none). For tests of what happens between them.
    pub pause_within_revision: Duration,
    /// Minimum size in bytes of a list that is compressed (128 KiB).
    pub gzip_from: usize,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            bookmark_interval: Duration::from_secs(60),
            bookmark_before_end: Duration::from_secs(2),
            min_watch_timeout: Duration::from_secs(1800),
            max_watch_timeout: None,
            freshness_wait: Duration::from_secs(3),
            request_timeout: Duration::from_secs(60),
            watch_list: true,
            pause_within_revision: Duration::ZERO,
            gzip_from: 128 * 1024,
        }
    }
}

#[cfg(test)]
mod tests;
