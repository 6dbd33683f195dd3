//! One informer factory, from its start to its shutdown.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use kube::core::ApiResource;
use skopos::{
    FactoryOptions, InformerFactory, InformerOptions, InitialList, Limits, MachineOptions, SleepClock,
    Transport, TransportOptions,
};
use skopos_transport::{ConfigError, WallClock};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::informers::{Ends, options, use_informer};
use super::{Place, Scene};
use crate::cluster::{Cluster, Resource};
use crate::history::{self, CallKind, ClientId, Fact, InformerId, Outcome, Selection};
use crate::plan::{ClientPlan, InformerPlan};

/// A running client.
pub struct Client {
    id: ClientId,
    number: usize,
    place: Place,
    factory: InformerFactory,
    tasks: TaskTracker,
    ends: Ends,
}

/// What makes two informers of a factory one.
type Sameness = (Resource, Selection, bool);

/// T_stop: within what time nothing may be left.
const SHUTDOWN: Duration = Duration::from_secs(1);

const REFUSED: &str = "the plan has an informer that cannot be";

/// Caps that are reached in a moment of real time.
const OBJECT_BYTES: usize = 1 << 20;

impl Client {
    /// Starts a factory, its informers and their users.
    ///
    /// # Errors
    /// When the options make no sense; then the plan does not.
    pub fn start(
        scene: Scene,
        cluster: Arc<Cluster>,
        number: usize,
        plan: &ClientPlan,
        seed: u64,
    ) -> Result<Self, ConfigError> {
        let mut random = fastrand::Rng::with_seed(seed);
        let transport = transport(&scene, &cluster, number, random.u64(..))?;
        let factory = InformerFactory::new(transport, factory_options(&scene, plan, random.u64(..)));
        let id = scene.recorder.client(history::Client {
            name: format!("client-{number}"),
            cluster: cluster.id,
            probe_interval: plan.probe_interval,
            stale_after: FactoryOptions::default().stale_after,
            audit_interval: plan.audit_interval,
        });
        let place =
            Place { scene, cluster, leaving: CancellationToken::new(), stop: CancellationToken::new() };
        let client = Self { id, number, place, factory, tasks: TaskTracker::new(), ends: Ends::default() };
        let mut known = BTreeMap::new();
        for informer in &plan.informers {
            client.inform(informer, &mut known, &mut random);
        }
        Ok(client)
    }

    /// Looks at everything for the last time.
    pub fn look_last(&self) {
        self.ends.look_last();
    }

    /// Shuts the factory down, tries to use it afterwards, and waits for its users.
    pub async fn stop(self) {
        let recorder = self.place.scene.recorder.clone();
        // Some are in the middle of a call when it begins.
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
        let patience = Duration::from_secs(60);
        if tokio::time::timeout(patience, self.tasks.wait()).await.is_err() {
            // Whoever still waits in a call has not returned: the oracle sees the call without an end.
            tracing::warn!(client = self.number, "users are still waiting a minute after the shutdown");
        }
    }

    /// Fault 49.
    async fn use_after_shutdown(&self) {
        let recorder = &self.place.scene.recorder;
        self.place.scene.user_fault(49);
        let call = recorder.called(self.id, None, CallKind::Other("raw"), Duration::ZERO);
        let refused = self.factory.raw(&api_resource(Resource::ConfigMaps), InformerOptions::all()).is_err();
        let outcome = if refused { Outcome::Closed } else { Outcome::Done };
        recorder.record(Fact::Returned { call, outcome });
        let call = recorder.called(self.id, None, CallKind::WaitSynced, Duration::from_secs(5));
        let outcome = match self.factory.wait_synced_within(Duration::from_secs(5)).await {
            Ok(()) => Outcome::Done,
            Err(error) if error.closed => Outcome::Closed,
            Err(_) => Outcome::NotInTime { named: true },
        };
        recorder.record(Fact::Returned { call, outcome });
    }

    fn inform(
        &self,
        plan: &InformerPlan,
        known: &mut BTreeMap<Sameness, InformerId>,
        random: &mut fastrand::Rng,
    ) {
        let recorder = &self.place.scene.recorder;
        let sameness = (plan.resource, plan.selection.clone(), plan.metadata_only);
        let before = known.get(&sameness).copied();
        let id = before.unwrap_or_else(|| {
            recorder.informer(history::Informer {
                name: format!("{} of client-{}: {}", plan.resource.plural(), self.number, plan.selection),
                client: self.id,
                resource: recorder.resource(plan.resource.plural()),
                selection: plan.selection.clone(),
                metadata_only: plan.metadata_only,
            })
        });
        known.insert(sameness, id);
        recorder.record(Fact::InformerStarted { informer: id });
        let setup = Setup {
            place: self.place.clone(),
            client: self.id,
            id,
            first: before.is_none(),
            tasks: self.tasks.clone(),
            ends: self.ends.clone(),
        };
        let resource = api_resource(plan.resource);
        let factory = &self.factory;
        match plan.metadata_only {
            true => {
                let informer = factory
                    .dynamic_metadata(&resource, options(plan))
                    .unwrap_or_else(|error| panic!("{REFUSED}: {error}"));
                use_informer(setup, informer, plan, random);
            }
            false => {
                let informer = factory
                    .raw(&resource, options(plan))
                    .unwrap_or_else(|error| panic!("{REFUSED}: {error}"));
                use_informer(setup, informer, plan, random);
            }
        }
    }
}

/// What the users of an informer need.
pub(super) struct Setup {
    pub(super) place: Place,
    pub(super) client: ClientId,
    pub(super) id: InformerId,
    /// Nobody else looks at this store.
    pub(super) first: bool,
    pub(super) tasks: TaskTracker,
    pub(super) ends: Ends,
}

fn transport(scene: &Scene, cluster: &Cluster, number: usize, seed: u64) -> Result<Transport, ConfigError> {
    let (origin, lead) = (scene.origin, scene.lead.clone());
    let wall = move || {
        let lead = lead.load(Ordering::SeqCst);
        // Long enough after 1970 that no jump back goes beyond it.
        let monotonic =
            SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 31) + Instant::now().duration_since(origin);
        let ahead = Duration::from_nanos(lead.unsigned_abs());
        if lead < 0 { monotonic - ahead } else { monotonic + ahead }
    };
    let options = TransportOptions {
        seed: Some(seed),
        wall_clock: WallClock::Custom(Arc::new(wall)),
        ..TransportOptions::default()
    };
    let config = kube::Config::new(http::Uri::from_static("http://cluster.test"));
    Transport::with_dialer(config, options, cluster.network.dialer(number))
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
        limits: Limits { max_object_bytes: OBJECT_BYTES, max_frame_bytes: OBJECT_BYTES, ..Limits::default() },
        seed: Some(seed),
        sleep_clock: SleepClock::from_fn(move || lead.load(Ordering::SeqCst).into()),
        ..FactoryOptions::default()
    }
}

fn api_resource(resource: Resource) -> ApiResource {
    ApiResource {
        group: String::new(),
        version: "v1".to_owned(),
        api_version: "v1".to_owned(),
        kind: resource.kind().to_owned(),
        plural: resource.plural().to_owned(),
    }
}
