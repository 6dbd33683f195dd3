//! Virtual clusters in a host cluster, compatible with the vcluster CLI and chart: discovery and operations.
//!
//! ```text
//!  Workload, PodState, ConfigSecret ──▶ VirtualCluster, Status      as `vcluster list` shows it     ┐ no I/O,
//!  Workload ──▶ patches of pause and resume; Situation ──▶ Removal  the steps of an operation       ┘ no clock
//!                     ▲
//!  Host ── list, find, create, pause, resume, delete, kubeconfig ──▶ the host's API server, helm
//!                     └──▶ Progress: a Step at a time
//! ```
//!
//! `skopos_fleet::vcluster` has the objects of the host that a fleet's source reads, too: `Workload`, the Secrets and the names.

mod cluster;
mod create;
mod delete;
mod error;
mod export;
mod helm;
mod host;
mod manifests;
mod pause;
mod progress;
mod removal;
mod session;
mod status;

pub use cluster::VirtualCluster;
pub use create::{CreateOptions, Source};
pub use delete::DeleteOptions;
pub use error::{Error, Fault};
pub use export::{ExportedKubeconfig, KubeconfigOptions};
pub use helm::{Chart, Helm};
pub use host::{Host, HostOptions};
pub use manifests::Manifests;
pub use pause::{PauseOptions, ResumeOptions};
pub use progress::{Progress, Silent, Step};
pub use removal::{Refusal, Removal, RemovalOptions, Situation};
#[doc(no_inline)]
pub use skopos_fleet::vcluster::{
    ConfigSecret, KubeconfigSecret, Off, Part, SecretError, Workload, WorkloadKind, names, paused_date,
};
pub use status::{PodState, Status};
