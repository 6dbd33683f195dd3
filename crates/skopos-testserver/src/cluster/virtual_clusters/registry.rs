//! Registry of the virtual clusters and their state.

use std::collections::BTreeMap;
use std::fmt;

use parking_lot::RwLock;
use tokio::sync::watch;

use super::VirtualState;
use super::syncer::{ClusterId, Instance};
use crate::server::{TestServer, TestServerBuilder};

/// Options of the virtual clusters' servers.
pub(super) struct Options {
    pub(super) servers: Servers,
    pub(super) in_memory: bool,
    pub(super) export_addresses: bool,
}

/// Function that returns the options of the API server of a namespace and name.
type Servers = Box<dyn Fn(&str, &str) -> TestServerBuilder + Send + Sync>;

/// Virtual clusters by namespace and name.
#[derive(Debug)]
pub(super) struct InstanceRegistry {
    entries: RwLock<BTreeMap<ClusterId, InstanceEntry>>,
    /// Counter of the changes, for tasks that wait for one.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct InstanceEntry {
    instance: Instance,
    up: bool,
}

impl InstanceRegistry {
    pub(super) fn new() -> Self {
        Self { entries: RwLock::default(), changes: watch::channel(0).0 }
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) fn state(&self, id: &ClusterId) -> VirtualState {
        match self.entries.read().get(id) {
            Some(InstanceEntry { up: true, .. }) => VirtualState::Up,
            Some(_) => VirtualState::Down,
            None => VirtualState::Absent,
        }
    }

    pub(super) fn instance(&self, id: &ClusterId) -> Option<Instance> {
        self.entries.read().get(id).map(|entry| entry.instance.clone())
    }

    pub(super) fn server(&self, id: &ClusterId) -> Option<TestServer> {
        self.entries.read().get(id).map(|entry| entry.instance.server.clone())
    }

    pub(super) fn ids(&self) -> Vec<ClusterId> {
        self.entries.read().keys().cloned().collect()
    }

    pub(super) fn put(&self, id: ClusterId, instance: Instance, up: bool) {
        self.entries.write().insert(id, InstanceEntry { instance, up });
        self.changed();
    }

    pub(super) fn set_running(&self, id: &ClusterId, up: bool) {
        if let Some(entry) = self.entries.write().get_mut(id) {
            entry.up = up;
        }
        self.changed();
    }

    pub(super) fn remove(&self, id: &ClusterId) -> Option<Instance> {
        let removed = self.entries.write().remove(id);
        self.changed();
        removed.map(|entry| entry.instance)
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("in_memory", &self.in_memory)
            .field("export_addresses", &self.export_addresses)
            .finish_non_exhaustive()
    }
}
