//! Fleets of test servers in memory, in virtual time.

mod argo_cd;
mod checkpoints;
mod cluster_profiles;
mod documents;
mod isolation;
mod kinds;
mod life;
mod port_forwards;
mod registry;
mod slow_disks;
mod sources;
mod states;
mod support;
mod vclusters;
