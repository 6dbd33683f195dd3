//! Fleets of Kubernetes clusters, isolated from each other: none can hold up another.
//!
//! ```text
//!  kubeconfigs, folders, Secrets, vclusters ──▶ source ──▶ Fleet ──▶ Cluster ─┬─▶ resources in memory (skopos informers)
//!                                                          read without      ├─▶ documents (discovery, OpenAPI)
//!                                                          a lock            └─▶ requests passed through
//! ```

pub mod address;
pub mod checkpoint;
mod cluster;
mod error;
mod fleet;
mod id;
mod keeper;
pub mod kubeconfig;
mod news;
pub mod source;
mod spec;
pub mod vcluster;

pub use address::AddressPolicy;
pub use cluster::{
    Admits, CachedKind, Cluster, ClusterOptions, ClusterState, ClusterStats, Condition, Connector, Document,
    DocumentRequest, Ended, Fate, InformerChoice, KindStats, Paused, PausedBy,
};
pub use error::FleetError;
pub use fleet::{Changes, Fleet, FleetChange, FleetOptions, FleetStats, Members, SourceProblem};
pub use id::{ClusterId, InvalidClusterId};
pub use keeper::{Keeper, KeptStats, Remembered};
pub use source::Source;
pub use spec::{ClusterSpec, Endpoint, SpecError};
