//! Fleets of Kubernetes clusters, isolated from each other: none can hold up another.
//!
//! ```text
//!  kubeconfigs, folders, Secrets, vclusters ──▶ source ──▶ Fleet ──▶ Cluster ─┬─▶ resources in memory (skopos informers)
//!                                                          read without      ├─▶ documents (discovery, OpenAPI)
//!                                                          a lock            └─▶ requests passed through
//! ```

// Compiles the README's code with the documentation tests.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

pub mod address;
mod change_signal;
pub mod checkpoint;
mod cluster;
mod error;
mod fleet;
mod id;
mod incident;
pub mod kubeconfig;
mod pause;
mod port_forward;
pub mod source;
mod spec;
mod spec_error;
pub mod vcluster;

pub use address::AddressPolicy;
pub use cluster::{
    CachedKind, CheckpointStats, Cluster, ClusterOptions, ClusterState, ClusterStats, Condition, Connector,
    Document, DocumentRequest, InformerConfig, KindFilter, KindStats, Persistence, RestoredState, StopReason,
    StopWatcher,
};
pub use error::FleetError;
pub use fleet::{Changes, Fleet, FleetChange, FleetOptions, FleetStats, Keeper, Members, SourceProblem};
pub use id::{ClusterId, InvalidClusterId};
pub use incident::{DurationStats, IncidentStats};
pub use pause::{Paused, PausedBy};
pub use port_forward::{PortForward, PortForwardError};
pub use source::Source;
pub use spec::{ClusterSpec, Endpoint};
pub use spec_error::SpecError;
