//! The HTTP daemon over a fleet of clusters. It answers kubectl's reads from memory, with their age, whatever state the
//! clusters are in.
//!
//! ```text
//!  TCP, TLS ─▶ limits ─▶ headers, path ─▶ identity ─▶ decision ─▶ route ─┬─▶ /clusters/NAME/...  memory or member (clusters)
//!                                                                        ├─▶ /fleet/...          all clusters as one (merged)
//!                                                                        ├─▶ /virtualclusters    made, paused, deleted (lifecycle)
//!  (listen)              (headers, path)   (auth)     (authz)            └─▶ /healthz, /metrics, ...   (state)
//! ```

#![allow(
    clippy::result_large_err,
    reason = "a Status is what the API answers; it is made once for a request that failed"
)]

pub mod ask;
mod audit;
pub mod auth;
mod authority;
pub mod authz;
pub mod body;
mod browser;
#[cfg(test)]
mod browser_tests;
mod bucket;
mod catalog;
mod clock;
pub mod clusters;
pub mod config;
mod consistency;
mod daemon;
mod fair;
pub mod fleet;
pub mod gateway;
pub mod headers;
#[cfg(test)]
mod hostile_tests;
pub mod lifecycle;
pub mod listen;
mod log_limit;
mod media_type;
pub mod merged;
mod paged;
pub mod path;
mod pem;
pub mod per_user_limit;
pub mod query;
mod reasons;
pub mod response;
pub mod route;
#[cfg(test)]
mod scale_tests;
#[cfg(test)]
mod secrecy_tests;
mod services;
pub mod state;
pub mod target;
mod terminating_body;
#[cfg(test)]
mod testing;
mod ttl_cache;
#[cfg(test)]
mod unchanged_clients;
pub mod upgrade;
pub mod via;
mod watch_path;

pub use clock::Clock;
pub use daemon::{Daemon, DaemonError, Embedding};
pub use gateway::{Gateway, GatewayBuilder};
pub use route::{Call, Route};
pub use services::{FleetAsk, Services};
