//! Requests, parsed once: routing, authorization and forwarding use the same values. An ambiguous request is refused.
//!
//! ```text
//!  bytes ──▶ authority, path, query, headers ──▶ target ──▶ authorization, route
//!            (browser, via, body: checks before any answer)
//! ```

pub(crate) mod authority;
pub(crate) mod body;
pub(crate) mod browser;
#[cfg(test)]
mod browser_tests;
pub mod headers;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod target;
pub(crate) mod via;
pub(crate) mod watch_path;
