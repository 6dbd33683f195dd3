//! The same controller in every cluster of a fleet.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use skopos::InformerFactory;
use skopos_fleet::{Cluster, ClusterId, Fleet, FleetChange};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::handle::{ControllerHandle, ControllerStatus};
use crate::service::ControllerService;

/// A separate controller in every cluster of a fleet, while the cluster is in it.
///
/// Each has its own queue, workers and view. So a slow, paused or unreachable cluster delays no other, and a key of one is
/// never taken for one of another.
///
/// ```no_run
/// # async fn f(fleet: skopos_fleet::Fleet, stop: tokio_util::sync::CancellationToken) {
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use skopos::InformerOptions;
/// use skopos_controller::{Context, Controller, ControllerOptions, FleetController, Outcome, ReconcileError};
///
/// let everywhere = FleetController::new(fleet, |cluster, informers| {
///     let maps = informers.informer::<ConfigMap>(InformerOptions::all())?;
///     let name = cluster.id().to_string();
///     Ok(Controller::new(maps, ControllerOptions::named("maps")).reconcile(move |context: Context<ConfigMap>| {
///         println!("{name}: {}", context.key());
///         std::future::ready(Ok::<_, ReconcileError>(Outcome::Done))
///     }))
/// });
/// everywhere.run(stop).await;
/// # }
/// ```
#[must_use = "it does nothing until it runs"]
pub struct FleetController<K> {
    fleet: Fleet,
    build: Arc<Build<K>>,
    members: FleetHandle,
}

/// A function that makes the controller of one cluster, from informers of it.
type Build<K> = dyn Fn(&Cluster, &InformerFactory) -> Result<ControllerService<K>, Box<dyn Error + Send + Sync>>
    + Send
    + Sync;

/// The handle of a controller in many clusters. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct FleetHandle {
    members: Arc<Mutex<BTreeMap<ClusterId, (Cluster, Member)>>>,
}

/// The state of the controller in one cluster.
#[derive(Clone, Debug)]
pub enum Member {
    /// The controller runs there.
    Runs(ControllerHandle),
    /// The controller does not run, for this reason. It is started again when the cluster changes, and every five seconds.
    Waits(String),
}

/// The maximum time to make the connections of a cluster.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The delay of the next attempt in a cluster, if the cluster does not change before.
const RETRY_DELAY: Duration = Duration::from_secs(5);

impl<K: 'static> FleetController<K> {
    /// Makes a controller for the clusters of a fleet. `build` is called for each new cluster, and again when its connection
    /// is replaced. Its controller must use the informers that it is given.
    pub fn new<F>(fleet: Fleet, build: F) -> Self
    where
        F: Fn(&Cluster, &InformerFactory) -> Result<ControllerService<K>, Box<dyn Error + Send + Sync>>,
        F: Send + Sync + 'static,
    {
        Self { fleet, build: Arc::new(build), members: FleetHandle::default() }
    }

    /// Returns a handle.
    pub fn handle(&self) -> FleetHandle {
        self.members.clone()
    }

    /// Runs until `stop`, or until the fleet ends. Each cluster's controller ends in its own bounded time.
    pub async fn run(self, stop: CancellationToken) {
        let mut changes = self.fleet.changes();
        let mut stops: BTreeMap<ClusterId, CancellationToken> = BTreeMap::new();
        let mut tasks = JoinSet::new();
        loop {
            let change = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
                change = changes.next() => change,
            };
            match change {
                None => break,
                Some(FleetChange::Added(cluster)) => {
                    let token = stop.child_token();
                    stops.insert(cluster.id().clone(), token.clone());
                    let (build, members) = (self.build.clone(), self.members.clone());
                    tasks.spawn(follow(cluster, build, members, token));
                }
                // It left: nothing is written there any more.
                Some(FleetChange::Removed(cluster)) => {
                    if let Some(stop) = stops.remove(cluster.id()) {
                        stop.cancel();
                    }
                }
                Some(_) => {}
            }
        }
        stops.values().for_each(CancellationToken::cancel);
        while tasks.join_next().await.is_some() {}
    }
}

/// Runs the controller of one cluster until `stop`.
async fn follow<K: 'static>(
    cluster: Cluster,
    build: Arc<Build<K>>,
    members: FleetHandle,
    stop: CancellationToken,
) {
    let mut states = cluster.states();
    while !stop.is_cancelled() {
        let generation = cluster.generation();
        let ended = stop.child_token();
        match start(&cluster, &*build).await {
            Ok(service) => {
                members.set(&cluster, Member::Runs(service.handle()));
                let watched = async {
                    until_connection_is_replaced(&cluster, generation).await;
                    ended.cancel();
                    std::future::pending().await
                };
                let why = tokio::select! {
                    run = service.run(ended.clone()) => run.err().map(|error| error.to_string()),
                    () = watched => None,
                };
                members.set(&cluster, Member::Waits(why.unwrap_or_else(|| "it is begun again".to_owned())));
            }
            Err(why) => {
                tracing::warn!(cluster = %cluster.id(), why, "the controller does not run in this cluster yet");
                members.set(&cluster, Member::Waits(why));
            }
        }
        tokio::select! {
            () = stop.cancelled() => {}
            _ = timeout(RETRY_DELAY, states.changed()) => {}
        }
    }
    members.remove(&cluster);
}

async fn start<K>(cluster: &Cluster, build: &Build<K>) -> Result<ControllerService<K>, String> {
    let informers = cluster.informers(CONNECT_TIMEOUT).await.map_err(|error| error.to_string())?;
    build(cluster, &informers).map_err(|error| error.to_string())
}

/// Waits until the connection is replaced: the old informers are then closed.
async fn until_connection_is_replaced(cluster: &Cluster, generation: u64) {
    while cluster.generation() == generation {
        sleep(Duration::from_secs(1)).await;
    }
}

impl FleetHandle {
    /// Returns the controller's state in each cluster of the fleet.
    pub fn members(&self) -> BTreeMap<ClusterId, Member> {
        self.members.lock().iter().map(|(id, (_, member))| (id.clone(), member.clone())).collect()
    }

    /// Returns the statuses of the clusters in which it runs.
    pub fn statuses(&self) -> BTreeMap<ClusterId, ControllerStatus> {
        let members = self.members();
        let status = |(id, member)| match member {
            Member::Runs(handle) => Some((id, handle.status())),
            Member::Waits(_) => None,
        };
        members.into_iter().filter_map(status).collect()
    }

    fn set(&self, cluster: &Cluster, member: Member) {
        self.members.lock().insert(cluster.id().clone(), (cluster.clone(), member));
    }

    /// Removes a cluster, unless another has joined under its name.
    fn remove(&self, cluster: &Cluster) {
        let mut members = self.members.lock();
        if members.get(cluster.id()).is_some_and(|(known, _)| known == cluster) {
            members.remove(cluster.id());
        }
    }
}
