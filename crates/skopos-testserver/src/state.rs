//! State that all requests of one server share.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use skopos_serve::{Blocks, Registry, ServeOptions};
use tokio::sync::Notify;

use crate::auth::Auth;
use crate::clock::ServerClock;
use crate::faults::Faults;
use crate::lifecycle::Lifecycle;
use crate::log::RequestLog;
use crate::pod_ports::PodPorts;
use crate::storage::Storage;

/// State that all requests of one server share.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) storage: Storage,
    pub(crate) registry: Registry,
    pub(crate) clock: ServerClock,
    /// Source of names, UIDs and jitter; seeded, so that a run is reproducible.
    pub(crate) rng: Arc<Mutex<fastrand::Rng>>,
    pub(crate) contract: ServeOptions,
    /// True if requests must name this machine as host.
    pub(crate) only_local_hosts: bool,
    /// Blocks of compressed lists.
    pub(crate) blocks: Blocks,
    pub(crate) auth: Auth,
    pub(crate) faults: Faults,
    pub(crate) log: RequestLog,
    /// Notified of every write, request and connection, for tests that wait.
    pub(crate) activity: Arc<Notify>,
    /// Scheduled removals: deleted pods, namespaces. Built by `Lifecycle::new(workloads_on)`, run by `workloads::run`.
    pub(crate) lifecycle: Lifecycle,
    /// The ports of pods.
    pub(crate) pod_ports: RwLock<PodPorts>,
}
