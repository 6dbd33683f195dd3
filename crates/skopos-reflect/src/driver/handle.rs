use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use skopos_wire::ResourceVersion;
use tokio::sync::Notify;

use crate::{Input, Machine, MachineStats, ReflectorState, Time};

/// A handle that observes and controls a running [`Driver`](crate::Driver). Cheap to clone; no call waits.
#[derive(Clone, Debug)]
pub struct DriverHandle {
    shared: Arc<DriverShared>,
}

/// State shared by the driver and its handles.
#[derive(Debug)]
pub(super) struct DriverShared {
    commands: Mutex<Commands>,
    /// Signals that there may be commands.
    changed: Notify,
    snapshot: Mutex<Snapshot>,
}

/// Pending commands for the driver. Later ones replace earlier ones, so it cannot grow.
#[derive(Debug, Default)]
struct Commands {
    probe: Option<(Time, ResourceVersion)>,
    /// The times at which a list was sent and compared, and its RV.
    compared: Option<(Time, Time, ResourceVersion)>,
    /// The RV of a list that shows more.
    differs: Option<ResourceVersion>,
    relist: bool,
    retry: bool,
    suspended: Option<Duration>,
}

/// A snapshot of the machine after its last step.
#[derive(Clone, Debug)]
struct Snapshot {
    state: ReflectorState,
    stats: MachineStats,
    resource_version: Option<ResourceVersion>,
}

impl DriverHandle {
    pub(super) fn new(shared: Arc<DriverShared>) -> Self {
        DriverHandle { shared }
    }

    /// Reports that a consistent read sent at `sent_at` found the collection at this RV ([`Input::Probed`]).
    pub fn probed(&self, sent_at: Time, resource_version: ResourceVersion) {
        self.update(|commands| {
            if commands.probe.as_ref().is_none_or(|(last, _)| *last <= sent_at) {
                commands.probe = Some((sent_at, resource_version));
            }
        });
    }

    /// Reports that the content was compared at `compared_at` with a consistent list that was sent at `sent_at`, and
    /// that both are the same ([`Input::Compared`]).
    pub fn compared(&self, sent_at: Time, compared_at: Time, resource_version: ResourceVersion) {
        self.update(|commands| {
            if commands.compared.as_ref().is_none_or(|(last, ..)| *last <= sent_at) {
                commands.compared = Some((sent_at, compared_at, resource_version));
            }
        });
    }

    /// Reports that a consistent list of this RV shows changes that the content lacks ([`Input::Differs`]).
    pub fn differs(&self, resource_version: ResourceVersion) {
        self.update(|commands| commands.differs = Some(resource_version));
    }

    /// Reads everything again ([`Input::Relist`]).
    pub fn relist(&self) {
        self.update(|commands| commands.relist = true);
    }

    /// Reports that the server seems to be reachable again ([`Input::RetryNow`]).
    pub fn retry_now(&self) {
        self.update(|commands| commands.retry = true);
    }

    /// Reports that the process was suspended ([`Input::Suspended`]).
    pub fn suspended(&self, by: Duration) {
        self.update(|commands| commands.suspended = Some(commands.suspended.unwrap_or_default().max(by)));
    }

    /// Returns the reflector state.
    pub fn state(&self) -> ReflectorState {
        self.shared.snapshot.lock().state.clone()
    }

    /// Returns the counters of the machine.
    pub fn stats(&self) -> MachineStats {
        self.shared.snapshot.lock().stats
    }

    /// Returns the RV of the sink's content; `None` before the first list.
    pub fn resource_version(&self) -> Option<ResourceVersion> {
        self.shared.snapshot.lock().resource_version.clone()
    }

    fn update(&self, change: impl FnOnce(&mut Commands)) {
        change(&mut self.shared.commands.lock());
        self.shared.changed.notify_one();
    }
}

impl DriverShared {
    pub(super) fn new(machine: &Machine) -> Self {
        DriverShared {
            commands: Mutex::default(),
            changed: Notify::new(),
            snapshot: Mutex::new(Snapshot::new(machine)),
        }
    }

    /// Waits for the next command. Cancel safe.
    pub(super) async fn commands(&self) -> Input {
        loop {
            if let Some(input) = self.commands.lock().take() {
                return input;
            }
            self.changed.notified().await;
        }
    }

    pub(super) fn publish(&self, machine: &Machine) {
        let mut snapshot = self.snapshot.lock();
        snapshot.stats = *machine.stats();
        if snapshot.state != *machine.state() {
            snapshot.state = machine.state().clone();
        }
        if snapshot.resource_version.as_ref() != machine.resource_version() {
            snapshot.resource_version = machine.resource_version().cloned();
        }
    }
}

impl Snapshot {
    fn new(machine: &Machine) -> Self {
        Snapshot {
            state: machine.state().clone(),
            stats: *machine.stats(),
            resource_version: machine.resource_version().cloned(),
        }
    }
}

impl Commands {
    fn take(&mut self) -> Option<Input> {
        if let Some(by) = self.suspended.take() {
            return Some(Input::Suspended { by });
        }
        if let Some((sent_at, resource_version)) = self.probe.take() {
            return Some(Input::Probed { sent_at, resource_version });
        }
        // Before `Compared`, which may revoke it.
        if let Some(resource_version) = self.differs.take() {
            return Some(Input::Differs { resource_version });
        }
        if let Some((sent_at, compared_at, resource_version)) = self.compared.take() {
            return Some(Input::Compared { sent_at, compared_at, resource_version });
        }
        if std::mem::take(&mut self.relist) {
            return Some(Input::Relist);
        }
        std::mem::take(&mut self.retry).then_some(Input::RetryNow)
    }
}
