//! A simulated cluster: one true state, several servers behind one name, the network to them, and a record of requests.

mod moments;
mod objects;
mod requests;
mod services;
mod visits;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use skopos_testserver::{CloseMode, Fault, FaultGuard, Lag, Match, StartError, TestServer};
use tokio_util::task::TaskTracker;

pub use self::moments::{Moment, Moments};
pub use self::objects::{NAMES, Resource, Write, WriteKind};
use self::requests::Requests;
pub use self::services::{
    ENDPOINTS, SELECTED, SERVICES, SYSTEM, ServiceChange, ServiceWrite, address, service_key,
};
pub use self::visits::VISITED;
use crate::history::{self, ClusterId, Fact, ProcessId, Recorder};
use crate::net::Network;
use crate::plan::ClusterPlan;

/// A cluster.
pub struct Cluster {
    /// Its number in the history.
    pub id: ClusterId,
    /// All its servers. They share one storage, as real ones share etcd.
    pub server: TestServer,
    /// The network to them.
    pub network: Network,
    /// Points at which faults may strike.
    pub moments: Arc<Moments>,
    recorder: Recorder,
    /// The oldest revision of the history.
    oldest: u64,
    /// Time after several changes at one RV at which the first of them was sent and the next was not; `None`: there is no such
    /// time.
    halfway: Option<Duration>,
    tasks: TaskTracker,
    requests: Arc<Requests>,
    lags: Arc<Mutex<Lags>>,
}

/// Servers that lag behind the others.
#[derive(Default)]
struct Lags {
    active: Vec<ActiveLag>,
    last: u64,
}

struct ActiveLag {
    number: u64,
    site: Option<usize>,
    lag: Lag,
    /// One guard for each connection to that server.
    guards: Vec<FaultGuard>,
}

/// The owner of the gateway's connections.
pub const GATEWAY: usize = usize::MAX;

/// The owner of the connections of the first process with a notifier. Those of the other processes follow.
const PROCESSES: usize = usize::MAX / 2;

/// Returns the owner of the connections of a process with a notifier.
pub fn owner_of(process: ProcessId) -> usize {
    PROCESSES + process.index()
}

/// Users of a cluster beside the clients of a plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guests {
    /// True if there is a gateway, whose writes are recorded too.
    pub gateway: bool,
    /// True if there are notifiers: changes of its Services are recorded too.
    pub notifiers: bool,
}

/// The namespaces of all objects.
pub const NAMESPACES: [&str; 3] = ["a", "b", "c"];

impl Cluster {
    /// Starts the servers, empty but for the namespaces.
    ///
    /// # Errors
    /// When a server does not start. This cannot fail for external reasons.
    pub fn start(
        plan: &ClusterPlan,
        name: String,
        seed: u64,
        recorder: &Recorder,
        guests: Guests,
    ) -> Result<Arc<Self>, StartError> {
        let id = recorder.cluster(history::Cluster { name, bookmark_interval: plan.bookmark_interval });
        let moments = Arc::<Moments>::default();
        let requests = Arc::new(Requests::new(id, recorder.clone(), moments.clone()));
        let observer = requests.clone();
        let mut builder = TestServer::builder()
            .http2_only()
            .clock_seed(seed)
            .start_time(jiff::Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_hours(24 * 365 * 50))
            .bookmark_interval(plan.bookmark_interval)
            .pause_within_revision(plan.pause_within_revision)
            .watch_list(plan.watch_list)
            .event_window(plan.event_window, 1000)
            .compaction_interval(plan.compaction_interval)
            .max_concurrent_streams(plan.max_streams)
            .on_request(move |record| observer.take(record));
        if guests.gateway || guests.notifiers {
            let notes = recorder.clone();
            builder = builder.on_write(move |record| {
                visits::committed(&notes, id, record);
                services::committed(&notes, id, record);
            });
        }
        for namespace in NAMESPACES {
            builder = builder.object(
                serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            );
        }
        let server = builder.start_in_memory()?;
        let network = Network::new(server.clone(), plan.servers, plan.latency, seed);
        let lags = Arc::<Mutex<Lags>>::default();
        let (late, faults) = (lags.clone(), server.faults().clone());
        let of_guests = requests.clone();
        network.on_connect(move |owner, number, site| {
            of_guests.connected(owner, number);
            for lag in late.lock().active.iter_mut().filter(|lag| lag.concerns(site)) {
                lag.guards.extend(strike(&faults, number, lag.lag));
            }
        });
        let notes = recorder.clone();
        network.on_failure(move |client| {
            // The dials of guests are checked by their own tests.
            if client >= PROCESSES {
                return;
            }
            notes.record(Fact::DialFailed { cluster: id, client: u16::try_from(client).unwrap_or(u16::MAX) });
        });
        let (recorder, pause) = (recorder.clone(), plan.pause_within_revision);
        // The notifiers' objects must survive a rollback, because nothing would create the namespaces again.
        let oldest = if guests.notifiers { server.resource_version() } else { 1 };
        let tasks = TaskTracker::new();
        let halfway = (!pause.is_zero()).then(|| plan.latency + pause / 2);
        Ok(Arc::new(Self { id, server, network, moments, recorder, oldest, halfway, tasks, requests, lags }))
    }

    /// Forgets all history.
    pub fn compact(&self) {
        self.server.compact();
        self.recorder.record(Fact::Compacted { cluster: self.id, rv: self.server.resource_version() });
    }

    /// Goes back by this many revisions, like a restored etcd; false if that is not possible.
    pub fn roll_back(&self, by: u64) -> bool {
        let rv = self.server.resource_version().saturating_sub(by).max(self.oldest);
        let rolled = self.server.roll_back(rv).is_ok();
        if rolled {
            self.recorder.record(Fact::RolledBack { cluster: self.id, rv });
        }
        rolled
    }

    /// Stops one server with its connections, until [`Cluster::site_up`].
    pub fn site_down(&self, site: usize, how: CloseMode) {
        self.network.refuse(site, true);
        let wires = self.network.wires();
        let here = |number: u64| wires.iter().any(|wire| wire.number() == number && wire.site() == site);
        let faults = self.server.faults();
        for connection in faults.connections().into_iter().filter(|connection| here(connection.get())) {
            faults.kill_connection(connection, how);
        }
    }

    /// Starts it again.
    pub fn site_up(&self, site: usize) {
        self.network.refuse(site, false);
    }

    /// Makes one server (or all) lag from now on; the number ends the lag.
    pub fn lag(&self, site: Option<usize>, lag: Lag) -> u64 {
        let mut active = ActiveLag { number: 0, site, lag, guards: Vec::new() };
        for wire in self.network.wires() {
            if active.concerns(wire.site()) {
                active.guards.extend(strike(self.server.faults(), wire.number(), lag));
            }
        }
        let mut lags = self.lags.lock();
        lags.last += 1;
        active.number = lags.last;
        lags.active.push(active);
        lags.last
    }

    /// Ends a lag: all its servers are up to date again.
    pub fn end_lag(&self, number: u64) {
        let ended: Vec<_> = self.lags.lock().active.extract_if(.., |lag| lag.number == number).collect();
        drop(ended);
    }

    /// Returns the connections with an open watch, by their numbers.
    pub fn watched_connections(&self) -> BTreeMap<u64, usize> {
        self.requests.watched()
    }

    /// Returns the number of requests so far.
    pub fn requests_so_far(&self) -> u64 {
        self.requests.count()
    }

    /// Stops the network and the servers, and waits for each at most `within`.
    pub async fn stop(&self, within: Duration) {
        self.network.clear();
        self.tasks.close();
        // The caller counts what is left.
        let _ = tokio::time::timeout(within, self.server.stop()).await;
        let _ = tokio::time::timeout(within, self.tasks.wait()).await;
    }
}

impl ActiveLag {
    fn concerns(&self, site: usize) -> bool {
        self.site.is_none_or(|lagging| lagging == site)
    }
}

/// Makes one connection lag, if it is still open.
fn strike(faults: &skopos_testserver::Faults, number: u64, lag: Lag) -> Option<FaultGuard> {
    let connection = faults.connections().into_iter().find(|connection| connection.get() == number)?;
    Some(faults.inject(Fault::Lag(lag)).on(Match::any().connection(connection)))
}
