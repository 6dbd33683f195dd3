//! Notifiers of a simulated cluster: the real ones, in virtual time, with an election over the simulated network, and a model of
//! the outside.
//!
//! ```text
//!  Services, slices ──▶ informers ──▶ Notifier ── Sent, Notified ──▶ Way ── messages ──▶ Zone ◀── Edited, Trouble
//!        │                  ▲   in a term of  Lease             (each process its own)      │
//!        │               Network (its faults)                                       Applied, Received
//!        └── Service, Slice ─────────────────▶ history ◀────────────────────────────────┘
//! ```

mod process;
mod way;
mod zone;

use std::sync::Arc;
use std::time::Duration;

use skopos_notify::event::LedgerMemory;
use skopos_notify::service::control::NotifierPhase;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::process::{Process, Setup};
use self::way::{Way, name_of};
use self::zone::Zone;
use crate::cluster::{Cluster, service_key};
use crate::history::{self, Trouble};
use crate::plan::{EditPlan, NotifierPlan, ServiceBurst, TroublePlan};
use crate::users::Scene;

/// The notifiers of a run, with their cluster and outside.
pub struct Notified {
    scene: Scene,
    cluster: Arc<Cluster>,
    zone: Zone,
    phases: Vec<watch::Sender<NotifierPhase>>,
    under_way: TaskTracker,
    ledgers: LedgerMemory,
}

impl Notified {
    /// Prepares the outside.
    pub fn new(scene: &Scene, cluster: &Arc<Cluster>, plan: &NotifierPlan) -> Self {
        Self {
            scene: scene.clone(),
            cluster: cluster.clone(),
            zone: Zone::new(scene.recorder.clone()),
            phases: plan.processes.iter().map(|_| watch::Sender::default()).collect(),
            under_way: TaskTracker::new(),
            ledgers: LedgerMemory::default(),
        }
    }

    /// Writes the initial Services.
    pub fn write_first(&self, plan: &NotifierPlan) {
        for burst in plan.services.iter().filter(|burst| burst.at.is_zero()) {
            burst.writes.iter().for_each(|write| self.cluster.write_service(write));
        }
    }

    /// Starts the plan: changes of Services and of the outside until the end of the plan, and the processes until `ending`.
    pub fn begin(
        &self,
        plan: &NotifierPlan,
        length: Duration,
        seed: u64,
        ending: &CancellationToken,
        events: &mut JoinSet<()>,
        processes: &mut JoinSet<()>,
    ) {
        for burst in plan.services.iter().filter(|burst| !burst.at.is_zero()) {
            events.spawn(write(self.scene.clone(), self.cluster.clone(), burst.clone()));
        }
        for edit in &plan.edits {
            events.spawn(change(self.scene.clone(), self.zone.clone(), edit.clone()));
        }
        for trouble in &plan.troubles {
            let phases = self.phases.clone();
            events.spawn(strike(self.scene.clone(), self.zone.clone(), phases, trouble.clone(), length));
        }
        let mut random = fastrand::Rng::with_seed(seed);
        for (number, process) in plan.processes.iter().enumerate() {
            let id = self
                .scene
                .recorder
                .process(history::Process { name: format!("process-{number}"), cluster: self.cluster.id });
            let way = Way {
                zone: self.zone.clone(),
                recorder: self.scene.recorder.clone(),
                process: id,
                term: 0,
                latency: plan.latency,
                under_way: self.under_way.clone(),
                ledgers: self.ledgers.clone(),
            };
            let setup = Setup {
                scene: self.scene.clone(),
                cluster: self.cluster.clone(),
                way,
                lease: plan.lease,
                plan: process.clone(),
                phase: self.phases[number].clone(),
                seed: random.u64(..),
            };
            processes.spawn(live(setup, length, ending.clone()));
        }
    }

    /// Waits for the remaining tasks.
    pub async fn stop(self) {
        self.under_way.close();
        self.under_way.wait().await;
    }
}

async fn live(setup: Setup, length: Duration, ending: CancellationToken) {
    let (scene, plan) = (setup.scene.clone(), setup.plan.clone());
    scene.until(plan.starts).await;
    let process = Process::start(setup).unwrap_or_else(|error| panic!("a process does not start: {error:#}"));
    match plan.stops.filter(|stops| *stops < length) {
        Some(stops) => {
            scene.until(stops).await;
            process.end(plan.killed).await;
        }
        None => {
            ending.cancelled().await;
            process.end(false).await;
        }
    }
}

async fn write(scene: Scene, cluster: Arc<Cluster>, burst: ServiceBurst) {
    scene.until(burst.at).await;
    burst.writes.iter().for_each(|write| cluster.write_service(write));
}

async fn change(scene: Scene, zone: Zone, plan: EditPlan) {
    scene.until(plan.at).await;
    let key = service_key(plan.service);
    zone.edit(&name_of(&key), scene.recorder.key(&key), plan.what);
}

async fn strike(
    scene: Scene,
    zone: Zone,
    phases: Vec<watch::Sender<NotifierPhase>>,
    plan: TroublePlan,
    length: Duration,
) {
    scene.until(plan.at).await;
    zone.begin(plan.what);
    scene.until((plan.at + plan.lasts).min(length)).await;
    zone.end(plan.what);
    if plan.what == Trouble::Refuses {
        // The person who restored the permission triggers a retry.
        for phase in &phases {
            let phase = phase.borrow().clone();
            if let NotifierPhase::Working(handle) = phase {
                handle.retry().await;
            }
        }
    }
}
