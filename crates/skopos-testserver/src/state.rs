//! What all requests of one server share.

use std::sync::Arc;

use parking_lot::Mutex;
use skopos_serve::{Blocks, Registry, ServeOptions};
use tokio::sync::Notify;

use crate::auth::Auth;
use crate::clock::Clock;
use crate::faults::Faults;
use crate::lifecycle::Lifecycle;
use crate::log::RequestLog;
use crate::storage::Storage;

/// What all requests of one server share.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) storage: Storage,
    pub(crate) registry: Registry,
    pub(crate) clock: Clock,
    /// Names, uids and jitter; seeded, so that a run can be repeated.
    pub(crate) rng: Arc<Mutex<fastrand::Rng>>,
    pub(crate) contract: ServeOptions,
    /// Whether requests have to name this machine.
    pub(crate) only_local_hosts: bool,
    /// Of which compressed lists are made.
    pub(crate) blocks: Blocks,
    pub(crate) auth: Auth,
    pub(crate) faults: Faults,
    pub(crate) log: RequestLog,
    /// Told of every write, request and connection, for tests that wait.
    pub(crate) activity: Arc<Notify>,
    /// What is to go in time: deleted pods, namespaces. Built by `Lifecycle::new(workloads_on)`, run by `workloads::run`.
    pub(crate) lifecycle: Lifecycle,
}
