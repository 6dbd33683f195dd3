//! Simulation of the cluster behind the API server: its controllers and nodes, virtual clusters in it, and many pods. The server itself
//! works without any of it.

pub(crate) mod generate;
pub(crate) mod virtual_clusters;
pub(crate) mod workloads;
