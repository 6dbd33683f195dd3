//! Many Kubernetes clusters, each isolated: none can hold up another.

pub mod address;
mod id;
pub mod kubeconfig;
mod spec;

pub use address::AddressPolicy;
pub use id::{ClusterId, InvalidClusterId};
pub use spec::{ClusterSpec, Endpoint};
