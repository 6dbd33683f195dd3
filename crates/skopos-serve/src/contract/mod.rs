//! Reading: get, list and watch exactly as kube-apiserver answers them.
//!
//! The rules' names (L1 to L12 for lists, W1 to W18 for watches) stand beside the code that keeps them:
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
mod options;
mod request;
mod selection;
mod watch;
mod watch_body;

use std::time::Duration;

pub use self::form::{Form, Purpose};
pub use self::get::get;
pub use self::list::list;
pub use self::request::{Permit, Request};
pub use self::selection::Selection;
pub use self::watch::watch;

/// The numbers of the contract. Defaults are those of kube-apiserver.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServeOptions {
    /// How often a watch gets a bookmark (60 s).
    pub bookmark_interval: Duration,
    /// How long before its deadline a watch gets its last bookmark (2 s).
    pub bookmark_before_end: Duration,
    /// A watch without `timeoutSeconds` lasts at least this long, and less than twice as long (30 min).
    pub min_watch_timeout: Duration,
    /// No watch lasts longer, whatever it asks for (no limit).
    pub max_watch_timeout: Option<Duration>,
    /// How long a read waits for a version that is yet to come (3 s).
    pub freshness_wait: Duration,
    /// How long a request that is no watch may take (60 s). Whoever calls keeps it, with [`crate::deadline`].
    pub request_timeout: Duration,
    /// Whether watches may start with the state (`sendInitialEvents`).
    pub watch_list: bool,
    /// How long after an event the next one of the same revision is sent at the earliest (at once). For tests of what may come
    /// between two of them.
    pub pause_within_revision: Duration,
    /// Lists that are smaller are not compressed, in bytes (128 KiB).
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
