//! One informer factory, from its start to its shutdown.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use skopos::checkpoint::{self, WallTime};
use skopos::{
    Encoding, FactoryOptions, InformerFactory, InformerOptions, InitialList, Limits, MachineOptions,
    SleepClock, Transport, TransportOptions,
};
use skopos_transport::{ConfigError, WallClock};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::informers::Ends;
use super::informing::{Informing, Sameness, api_resource, sameness};
use super::watchers::Watching;
use super::{Place, Scene};
use crate::cluster::{Cluster, Resource};
use crate::history::{self, CallKind, ClientId, Fact, InformerId, Outcome};
use crate::plan::{ClientPlan, InformerPlan, WatcherPlan};

/// A running client.
pub struct Client {
    id: ClientId,
    number: usize,
    place: Place,
    transport: Transport,
    factory: InformerFactory,
    tasks: TaskTracker,
    ends: Ends,
}

/// T_stop: time limit after which nothing may be left.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// Limits that are reached within a moment of real time.
pub(crate) fn limits() -> Limits {
    const OBJECT_BYTES: usize = 1 << 20;
    Limits { max_object_bytes: OBJECT_BYTES, max_frame_bytes: OBJECT_BYTES, ..Limits::default() }
}

impl Client {
    /// Starts a factory, its informers and their users.
    ///
    /// # Errors
    /// When the options are invalid; then so is the plan.
    pub fn start(
        scene: Scene,
        cluster: Arc<Cluster>,
        number: usize,
        plan: &ClientPlan,
        seed: u64,
    ) -> Result<Self, ConfigError> {
        let mut random = fastrand::Rng::with_seed(seed);
        let transport = transport(&scene, &cluster, number, random.u64(..))?;
        let factory = InformerFactory::new(transport.clone(), factory_options(&scene, plan, random.u64(..)));
        let id = scene.recorder.client(history::Client {
            name: format!("client-{number}"),
            cluster: cluster.id,
            probe_interval: plan.probe_interval,
            stale_after: FactoryOptions::default().stale_after,
            audit_interval: plan.audit_interval,
        });
        let place =
            Place { scene, cluster, leaving: CancellationToken::new(), stop: CancellationToken::new() };
        let (tasks, ends) = (TaskTracker::new(), Ends::default());
        let client = Self { id, number, place, transport, factory, tasks, ends };
        let mut known = BTreeMap::new();
        for informer in &plan.informers {
            client.inform(plan, informer, &mut known, &mut random);
        }
        for watcher in &plan.watchers {
            client.watch(plan, watcher, random.fork());
        }
        Ok(client)
    }

    /// Takes the last look at everything.
    pub fn look_last(&self) {
        self.ends.look_last();
    }

    /// Shuts the factory down, tries to use it afterwards, and waits for its users.
    pub async fn stop(self) {
        let Scene { recorder, shelf, .. } = self.place.scene.clone();
        shelf.keep(self.number, self.ends.keepers());
        // Some users are in the middle of a call when it begins.
        self.place.leaving.cancel();
        tokio::time::sleep(Duration::from_millis(1)).await;
        let call = recorder.called(self.id, None, CallKind::Shutdown, SHUTDOWN);
        let report = self.factory.shutdown(SHUTDOWN).await;
        recorder.record(Fact::Returned {
            call,
            outcome: if report.complete { Outcome::Done } else { Outcome::NotInTime { named: true } },
        });
        self.ends.closed();
        let mine = |wire: &Arc<crate::net::Wire>| wire.owner() == self.number;
        let connections = self.place.cluster.network.wires().iter().filter(|wire| mine(wire)).count();
        recorder.record(Fact::Shutdown {
            client: self.id,
            tasks: u32::try_from(report.tasks_left).unwrap_or(u32::MAX),
            connections: u32::try_from(connections).unwrap_or(u32::MAX),
        });
        self.use_after_shutdown().await;
        self.ends.drain_queues().await;
        self.place.stop.cancel();
        self.tasks.close();
        let limit = Duration::from_secs(60);
        if tokio::time::timeout(limit, self.tasks.wait()).await.is_err() {
            // Users that still wait in a call have not returned: the oracle sees the call without an end.
            tracing::warn!(client = self.number, "users are still waiting a minute after the shutdown");
        }
    }

    /// Uses the factory after its shutdown (fault 49).
    async fn use_after_shutdown(&self) {
        let recorder = &self.place.scene.recorder;
        self.place.scene.user_fault(49);
        let call = recorder.called(self.id, None, CallKind::Other("raw"), Duration::ZERO);
        let refused = self.factory.raw(&api_resource(Resource::ConfigMaps), InformerOptions::all()).is_err();
        let outcome = if refused { Outcome::Closed } else { Outcome::Done };
        recorder.record(Fact::Returned { call, outcome });
        let call = recorder.called(self.id, None, CallKind::WaitSynced, Duration::from_secs(5));
        let outcome = match self.factory.wait_synced(Duration::from_secs(5)).await {
            Ok(()) => Outcome::Done,
            Err(error) if error.closed => Outcome::Closed,
            Err(_) => Outcome::NotInTime { named: true },
        };
        recorder.record(Fact::Returned { call, outcome });
    }

    fn watch(&self, plan: &ClientPlan, watcher: &WatcherPlan, random: fastrand::Rng) {
        let watching = Watching {
            place: self.place.clone(),
            client: self.id,
            number: self.number,
            transport: self.transport.clone(),
            limits: limits(),
            probe_interval: plan.probe_interval,
            plan: watcher.clone(),
        };
        self.tasks.spawn(watching.run(random));
    }

    fn inform(
        &self,
        plan: &ClientPlan,
        informer: &InformerPlan,
        known: &mut BTreeMap<Sameness, InformerId>,
        random: &mut fastrand::Rng,
    ) {
        let same = sameness(informer);
        let alone = plan.informers.iter().filter(|other| sameness(other) == same).count() == 1;
        let informing = Informing {
            place: self.place.clone(),
            client: self.id,
            number: self.number,
            restores: plan.restores,
            factory: self.factory.clone(),
            tasks: self.tasks.clone(),
            ends: self.ends.clone(),
            plan: informer.clone(),
        };
        let before = known.get(&same).copied();
        let id = before.unwrap_or_else(|| informing.cast());
        known.insert(same, id);
        match informer.again.filter(|_| alone) {
            Some(again) => informing.come_and_go(id, again, random),
            None => informing.start(id, before.is_none(), random),
        }
    }
}

fn transport(scene: &Scene, cluster: &Cluster, number: usize, seed: u64) -> Result<Transport, ConfigError> {
    let wall = {
        let now = times(scene);
        move || now().wall()
    };
    let options = TransportOptions {
        seed: Some(seed),
        wall_clock: Some(WallClock::from_fn(wall)),
        // Longer than any run takes.
        reset_memory: Duration::from_secs(24 * 3600),
        ..TransportOptions::default()
    };
    let config = kube::Config::new(http::Uri::from_static("http://cluster.test"));
    Transport::with_dialer(config, options, cluster.network.dialer(number))
}

/// Returns the machine's clocks: the wall clock, and its uptime awake and in total.
pub(crate) fn times(scene: &Scene) -> impl Fn() -> WallTime + Send + Sync + 'static {
    let (origin, lead, slept) = (scene.origin, scene.lead.clone(), scene.slept.clone());
    move || {
        let lead = lead.load(Ordering::SeqCst);
        let awake = Instant::now().duration_since(origin);
        // Long enough after 1970 that no backward jump passes it.
        let monotonic = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 31) + awake;
        let ahead = Duration::from_nanos(lead.unsigned_abs());
        let wall = if lead < 0 { monotonic - ahead } else { monotonic + ahead };
        let up = awake + Duration::from_nanos(slept.load(Ordering::SeqCst));
        WallTime::new(wall, Some(("simulated".to_owned(), up)))
    }
}

fn factory_options(scene: &Scene, plan: &ClientPlan, seed: u64) -> FactoryOptions {
    let lead = scene.lead.clone();
    FactoryOptions {
        probe_interval: plan.probe_interval,
        audit_interval: plan.audit_interval,
        machine: MachineOptions {
            initial: if plan.streamed { InitialList::Streamed } else { InitialList::Paged },
            page_size: plan.page_size,
            ..MachineOptions::default()
        },
        encoding: if seed.is_multiple_of(2) { Encoding::Protobuf } else { Encoding::Json },
        limits: limits(),
        seed: Some(seed),
        sleep_clock: SleepClock::from_fn(move || lead.load(Ordering::SeqCst).into()),
        restart_clock: checkpoint::RestartClock::from_fn(times(scene)),
        ..FactoryOptions::default()
    }
}
