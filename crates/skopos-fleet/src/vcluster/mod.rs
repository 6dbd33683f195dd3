//! Virtual clusters in a host cluster, compatible with the vcluster CLI and chart: discovery and operations.
//!
//! ```text
//!  Workload, PodState, ConfigSecret ──▶ VirtualCluster, Status      as `vcluster list` shows it     ┐ no I/O,
//!  Workload ──▶ patches of pause and resume; Situation ──▶ Removal  the steps of an operation       ┘ no clock
//!                     ▲
//!  Host ── list, find, create, pause, resume, delete, kubeconfig ──▶ the host's API server, helm
//!                     └──▶ Progress: a Step at a time
//! ```

mod cluster;
mod create;
mod delete;
mod error;
mod export;
mod helm;
mod host;
mod manifests;
mod meta;
pub mod names;
mod pause;
mod progress;
mod removal;
mod secret;
mod session;
mod status;
mod workload;

pub use self::cluster::VirtualCluster;
pub use self::create::{CreateOptions, Source};
pub use self::delete::DeleteOptions;
pub use self::error::{Error, Fault};
pub use self::export::{ExportedKubeconfig, KubeconfigOptions};
pub use self::helm::{Chart, Helm};
pub use self::host::{Host, HostOptions};
pub use self::manifests::Manifests;
pub use self::pause::{PauseOptions, ResumeOptions};
pub use self::progress::{Progress, Silent, Step};
pub use self::removal::{Refusal, Removal, RemovalOptions, Situation};
pub use self::secret::{ConfigSecret, KubeconfigSecret, SecretError};
pub use self::status::{PodState, Status};
pub use self::workload::{Off, Part, Workload, WorkloadKind, paused_date};
