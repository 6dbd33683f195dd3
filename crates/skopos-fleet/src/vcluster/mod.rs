//! Objects of a host cluster that describe its virtual clusters, as the vcluster CLI, its chart and its syncer write them. Crate
//! `skopos-vcluster` has the operations on them.

pub mod meta;
pub mod names;
mod secret;
mod workload;

pub use self::secret::{ConfigSecret, KubeconfigSecret, SecretError};
pub use self::workload::{Off, Part, Workload, WorkloadKind, paused_date};
