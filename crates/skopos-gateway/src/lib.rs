//! The HTTP daemon over a fleet of clusters. It answers kubectl's reads from memory, with their age, whatever state the
//! clusters are in.
//!
//! ```text
//!  TCP, TLS ─▶ limits ─▶ headers, path ─▶ identity ─▶ decision ─▶ route ─┬─▶ /clusters/NAME/...  memory or member (clusters)
//!                                                                        ├─▶ /fleet/...          all clusters as one (merged)
//!                                                                        ├─▶ /virtualclusters    made, paused, deleted (lifecycle)
//!  (listen)              (request)         (auth)     (authz)            └─▶ /healthz, /metrics, ...   (state)
//! ```

#![allow(
    clippy::result_large_err,
    reason = "a Status is what the API answers; it is made once for a request that failed"
)]

mod auth;
mod authz;
mod catalog;
mod clusters;
pub mod config;
mod consistency;
mod daemon;
mod gateway;
mod lifecycle;
mod limits;
mod listen;
mod merged;
mod request;
mod reread;
mod response;
mod state;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod ttl_cache;
mod upgrade;

pub use auth::{Authenticator, Identity, Impersonation};
pub use authz::Attributes;
pub use clusters::Clusters;
pub use daemon::{Daemon, DaemonError, Embedding};
pub use gateway::route::{Call, Route};
pub use gateway::services::{FleetAsk, Services};
pub use gateway::{Gateway, GatewayBuilder};
pub use listen::{Drained, ListenError, Peer};
pub use merged::{ContinueKeys, ContinueKeysError, KindsOptions, Merged};
pub use request::body::LimitedBody;
pub use request::headers;
pub use request::path::Path;
pub use request::query::Query;
pub use request::target::{ResourceTarget, Target};
pub use request::via::{InstanceId, VIA};
pub use state::status::{ClusterReport, KindReport, Report};
