//! State shared by all handles of a cluster.

mod documents;
mod kinds;
mod redirect;
mod requests;
mod stats;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use skopos::ResourceId;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::documents::Documents;
use super::kinds::{Kinds, StopReason};
use super::machine::{Input, Machine};
use super::options::{ClusterOptions, Connector};
use super::persistence::Persistence;
use super::session::{ClusterConnection, Generations};
use super::state::{ClusterState, Condition};
use crate::change_signal::ChangeSignal;
use crate::error::FleetError;
use crate::id::ClusterId;
use crate::incident::Incidents;
use crate::kubeconfig::KubeconfigPaths;
use crate::pause::Paused;
use crate::spec::ClusterSpec;
use crate::spec_error::SpecError;

/// Shared state of one cluster.
pub(crate) struct ClusterInner {
    pub(crate) id: ClusterId,
    /// The time at which the cluster joined.
    pub(crate) began: Instant,
    pub(crate) options: Arc<ClusterOptions>,
    pub(crate) labels: ArcSwap<BTreeMap<String, String>>,
    pub(crate) listed_as: ArcSwap<ListedAs>,
    pub(crate) kinds: Kinds,
    pub(crate) documents: Documents,
    pub(crate) states: watch::Sender<Arc<ClusterState>>,
    /// Wakes the cluster's task.
    pub(crate) wakeup: Arc<Notify>,
    pub(crate) persistence: Option<Arc<dyn Persistence>>,
    /// Set if the cluster replaced another one of the same name, so that the checkpoints under that name belong to the
    /// other.
    pub(crate) is_replacement: bool,
    /// Cancelled when all checkpoints of an earlier run have been restored.
    pub(crate) restored: CancellationToken,
    pub(crate) stop: CancellationToken,
    /// Cancelled when the cluster left the fleet.
    pub(crate) left: CancellationToken,
    pub(crate) tasks: TaskTracker,
    pub(crate) connector: Connector,
    /// Set when a caller reported that the server is up or down: what the cluster's task observed before is outdated.
    pub(crate) externally_notified: AtomicBool,
    generations: Generations,
    connection: ArcSwap<ClusterConnection>,
    /// Serializes replacing, parking and waking the connection.
    connection_lock: Mutex<()>,
    machine: Mutex<Machine>,
    state: ArcSwap<ClusterState>,
    changes: ChangeSignal,
    incidents: Incidents,
    requests: AtomicU64,
    request_failures: AtomicU64,
}

/// Name and kubeconfig of the cluster in its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListedAs {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) kubeconfig: Option<Arc<KubeconfigPaths>>,
}

/// Parameters of [`ClusterInner::new`].
pub(crate) struct ClusterParts {
    pub(crate) id: ClusterId,
    pub(crate) labels: Arc<BTreeMap<String, String>>,
    pub(crate) listed_as: ListedAs,
    pub(crate) spec: Result<ClusterSpec, SpecError>,
    pub(crate) options: Arc<ClusterOptions>,
    pub(crate) connector: Connector,
    pub(crate) persistence: Option<Arc<dyn Persistence>>,
    pub(crate) is_replacement: bool,
    pub(crate) generations: Generations,
    pub(crate) changes: ChangeSignal,
    pub(crate) incidents: Incidents,
    /// Cancelled when the whole fleet shuts down.
    pub(crate) stop: CancellationToken,
}

impl ClusterInner {
    /// Creates the state of a cluster, without its tasks (see `supervisor::start`).
    pub(crate) fn new(parts: ClusterParts) -> Arc<Self> {
        let began = Instant::now();
        let machine = Machine::new(began, parts.options.unreachable_after);
        let state = Arc::new(machine.state().clone());
        let wakeup = Arc::new(Notify::new());
        let persistence = parts.persistence.as_ref().filter(|_| !parts.is_replacement);
        let connection = ClusterConnection::new(
            &parts.generations,
            &parts.id,
            parts.spec,
            &parts.options,
            &parts.connector,
            persistence,
            wakeup.clone(),
        );
        let restored = CancellationToken::new();
        if persistence.is_none() {
            restored.cancel();
        }
        Arc::new(Self {
            generations: parts.generations,
            connection: ArcSwap::new(connection),
            connection_lock: Mutex::new(()),
            id: parts.id,
            began,
            options: parts.options,
            labels: ArcSwap::new(parts.labels),
            listed_as: ArcSwap::from_pointee(parts.listed_as),
            kinds: Kinds::new(),
            documents: Documents::default(),
            states: watch::Sender::new(state.clone()),
            wakeup,
            persistence: parts.persistence,
            is_replacement: parts.is_replacement,
            restored,
            stop: parts.stop,
            left: CancellationToken::new(),
            tasks: TaskTracker::new(),
            connector: parts.connector,
            externally_notified: AtomicBool::new(false),
            machine: Mutex::new(machine),
            state: ArcSwap::new(state),
            changes: parts.changes,
            incidents: parts.incidents,
            requests: AtomicU64::new(0),
            request_failures: AtomicU64::new(0),
        })
    }

    pub(crate) fn state(&self) -> Arc<ClusterState> {
        self.state.load_full()
    }

    pub(crate) fn connection(&self) -> Arc<ClusterConnection> {
        self.connection.load_full()
    }

    pub(crate) fn request_counts(&self) -> (u64, u64) {
        (self.requests.load(Ordering::Relaxed), self.request_failures.load(Ordering::Relaxed))
    }

    /// Applies an input to the machine, and notifies all followers if the state changed.
    pub(crate) fn step(&self, input: Input) -> bool {
        let mut machine = self.machine.lock();
        let changed = machine.step(Instant::now(), input);
        machine.take_incident_step().into_iter().for_each(|step| self.incidents.record(step));
        if changed {
            let state = Arc::new(machine.state().clone());
            tracing::info!(
                cluster = %self.id,
                state = state.condition.as_str(),
                reason = state.reason.as_deref().unwrap_or_default(),
                "cluster changed its state"
            );
            self.publish(state);
            self.changes.notify();
        } else if machine.state().answered_at != self.state.load().answered_at {
            self.publish(Arc::new(machine.state().clone()));
        }
        changed
    }

    /// Publishes a state. The caller holds the machine's lock, so that states are published in order.
    fn publish(&self, state: Arc<ClusterState>) {
        self.state.store(state.clone());
        self.states.send_replace(state);
    }
}

// Pause, resume, removal.
impl ClusterInner {
    pub(crate) fn pause(&self, paused: Paused) {
        if self.step(Input::Paused(paused)) {
            self.externally_notified.store(true, Ordering::Relaxed);
            let guard = self.connection_lock.lock();
            // The cluster may have been resumed meanwhile.
            if let Some(paused) = &self.state().paused {
                self.connection().park(paused.to_string().into());
            }
            drop(guard);
            self.wakeup.notify_one();
        }
    }

    /// Resumes a paused cluster. With `ready`, its server is known to serve.
    pub(crate) fn resume(&self, ready: bool) {
        if self.step(Input::Resumed { ready }) {
            self.wake();
        }
    }

    pub(crate) fn wake(&self) {
        let _guard = self.connection_lock.lock();
        if !matches!(self.state().condition, Condition::Paused | Condition::Removed) {
            self.externally_notified.store(true, Ordering::Relaxed);
            self.connection().wake();
            self.wakeup.notify_one();
        }
    }

    pub(crate) fn set_listed_as(&self, listed_as: ListedAs) {
        if **self.listed_as.load() != listed_as {
            self.listed_as.store(Arc::new(listed_as));
        }
    }

    pub(crate) fn set_labels(&self, labels: &Arc<BTreeMap<String, String>>) {
        if **self.labels.load() != **labels {
            self.labels.store(labels.clone());
            self.changes.notify();
        }
    }

    /// Marks the cluster as having left the fleet. No more requests are sent to it; its data stays readable.
    pub(crate) fn leave(&self, reason: Arc<str>, ended: StopReason) {
        self.left.cancel();
        self.step(Input::Removed(reason));
        self.kinds.end(ended);
    }

    /// Stops everything that runs; data stays readable. Returns `false` if something was left after the limit.
    pub(crate) async fn end(&self, why: StopReason) -> bool {
        self.kinds.end(why);
        self.connection().close(self.options.shutdown_limit).await
    }

    /// Stops lists and watches only.
    pub(crate) async fn freeze(&self, limit: Duration) -> bool {
        match self.connection().existing() {
            Some(session) => session.factory.freeze(limit).await,
            None => true,
        }
    }

    /// Shuts the cluster down, and waits until nothing is left or the limit has passed.
    pub(crate) async fn shutdown(&self, limit: Duration) -> bool {
        self.stop.cancel();
        self.tasks.close();
        timeout(limit, self.tasks.wait()).await.is_ok()
    }
}

// Reasons for errors.
impl ClusterInner {
    fn closed_error(&self) -> Option<FleetError> {
        if self.left.is_cancelled() {
            let since = self.state().since;
            return Some(FleetError::Removed { cluster: self.id.clone(), since });
        }
        self.stop.is_cancelled().then_some(FleetError::Closed)
    }

    /// Returns an error if waiting for the server is pointless.
    fn check_reachable(&self, unreachable: bool) -> Result<(), FleetError> {
        let state = self.state();
        let cluster = self.id.clone();
        match (&state.condition, &state.paused) {
            (Condition::Paused, Some(paused)) => Err(FleetError::Paused { cluster, paused: paused.clone() }),
            (Condition::Unreachable, _) if unreachable => {
                let reason = state.reason.clone().unwrap_or_else(|| "it does not answer".into());
                Err(match &self.connection().spec {
                    Err(_) => FleetError::Config { cluster, reason },
                    Ok(_) => FleetError::Unreachable { cluster, since: state.since, reason },
                })
            }
            _ => Ok(()),
        }
    }

    fn deadline_error(&self, begun: Instant, resource: Option<&ResourceId>) -> FleetError {
        let entry = resource.and_then(|resource| self.kinds.get(resource));
        let kind_state = entry.map(|entry| entry.informer.state().to_string());
        let reason = match kind_state {
            Some(reason) => reason.into(),
            None => self.state().reason.clone().unwrap_or_else(|| "no answer yet".into()),
        };
        FleetError::Deadline { cluster: self.id.clone(), waited: begun.elapsed(), reason }
    }
}
