//! Stage of the demo: a host cluster with virtual clusters, in which things happen and break, and the gateway in front.
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::json;
use skopos::MachineOptions;
use skopos_console::error::CliError;
use skopos_console::gateway::{Answer, Gateway};
use skopos_console::reason;
use skopos_fleet::source::VclusterDial;
use skopos_fleet::{Cluster, ClusterStats, Endpoint, Fleet, PausedBy};
use skopos_gateway::config::{
    Authorization, Cache, CidrList, Clusters, Config, HostCluster, Kind, Limits, Listen, LoopbackTrust, Span,
    VclusterSource,
};
use skopos_gateway::{Daemon, DaemonError, Drained, Embedding, ListenError};
use skopos_testserver::{
    CloseMode, Connections, Damage, Direction, Fault, FaultGuard, Lag, Match, SampleError, TestServer,
    VirtualClusters, VirtualState,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::FaultName;
use crate::commands::{Scene, kubeconfig};
use crate::control::DemoDir;
use crate::life::Life;
use crate::sample::{ClusterSample, Sample, Trouble};

/// Options of the stage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StageOptions {
    /// Virtual clusters
    pub(crate) clusters: u32,
    /// Changes per second in them
    pub(crate) churn: u32,
    /// True if the number of pods changes
    pub(crate) scales: bool,
    /// The gateway's port; `None`: the usual one, or any
    pub(crate) port: Option<u16>,
}

/// The running parts of the demo.
pub(crate) struct Stage {
    pub(crate) virtuals: VirtualClusters,
    pub(crate) fleet: Fleet,
    pub(crate) gateway: Gateway,
    pub(crate) scene: Scene,
    daemon: JoinSet<Drained>,
    stop: CancellationToken,
    life: Life,
    lived_at: Instant,
    broken: Vec<Broken>,
    /// Path of the last operation that the gateway was asked for, by cluster
    operations: BTreeMap<String, String>,
    /// Target of a rollback of each cluster: a resourceVersion of a moment ago
    revisions: BTreeMap<String, Revisions>,
}

/// Fault in force, with its end and the guards whose drop mends it.
struct Broken {
    cluster: String,
    fault: FaultName,
    until: Option<Instant>,
    /// True if the cluster's API server does not listen
    away: bool,
    _guards: Vec<FaultGuard>,
}

/// Result of a request for a fault.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deed {
    /// Text for the log and the requester
    pub(crate) text: &'static str,
    /// True if it ended what was under way
    pub(crate) over: bool,
}

/// The host's name in the fleet.
pub(crate) const HOST: &str = "host";

/// Names of virtual clusters; further ones are numbered.
const NAMES: [&str; 8] = ["berlin", "lima", "oslo", "tokyo", "quito", "cairo", "delhi", "perth"];

/// Default port of a gateway.
const USUAL_PORT: u16 = 8001;

/// Resources cached from the start.
const KINDS: [(&str, &str); 8] = [
    ("", "namespaces"),
    ("", "nodes"),
    ("", "pods"),
    ("", "services"),
    ("", "configmaps"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
];

/// Maximum time that the guards of faults without their own end are kept, so that they do not pile up.
const KEEP: Duration = Duration::from_secs(120);

/// Time limit of each step of the shutdown.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// Returns the namespace of a virtual cluster.
pub(crate) fn namespace(name: &str) -> String {
    format!("vcluster-{name}")
}

/// Returns the name of a virtual cluster in the fleet.
pub(crate) fn id(name: &str) -> String {
    format!("{name}.{}", namespace(name))
}

impl Stage {
    /// Sets up the stage. Everything runs when this returns.
    pub(crate) async fn set(options: StageOptions, dir: &DemoDir) -> Result<Self, CliError> {
        let names: Vec<String> = (0..options.clusters as usize).map(name).collect();
        let virtuals = VirtualClusters::sample(names.iter().cloned()).await.map_err(|error| match error {
            SampleError::Start(error) => skopos_console::error::start_error(error),
            error => CliError::new(error),
        })?;
        let daemon = match gateway(options.port, &virtuals, dir).await {
            Ok(daemon) => daemon,
            Err(error) => {
                virtuals.stop().await;
                return Err(error);
            }
        };
        let (url, fleet, stop) = (daemon.url(), daemon.fleet().clone(), CancellationToken::new());
        let mut running = JoinSet::new();
        running.spawn(daemon.run(stop.clone()));
        let contexts: Vec<_> = std::iter::once((HOST.to_owned(), HOST.to_owned()))
            .chain(names.iter().map(|name| (name.clone(), id(name))))
            .collect();
        let path = dir.write("kubeconfig", &kubeconfig(&url, &contexts))?;
        Ok(Self {
            gateway: Gateway::at(&url)?,
            scene: Scene { url, kubeconfig: path.display().to_string(), names },
            virtuals,
            fleet,
            daemon: running,
            stop,
            life: Life::new(options.churn, options.scales),
            lived_at: Instant::now(),
            broken: Vec::new(),
            operations: BTreeMap::new(),
            revisions: BTreeMap::new(),
        })
    }

    /// Returns the state now, with times counted from `origin`.
    pub(crate) fn sample(&self, origin: Instant) -> Sample {
        let members = self.fleet.members();
        Sample {
            at: origin.elapsed(),
            // The virtual clusters and their host.
            expected: self.scene.names.len() + 1,
            clusters: members.values().map(|cluster| self.cluster_sample(cluster, origin)).collect(),
        }
    }

    /// Makes the changes that are due in the clusters, and ends the faults that are over. Returns what to log about the
    /// latter, by cluster.
    pub(crate) async fn due(&mut self) -> Vec<(String, &'static str)> {
        let passed = self.lived_at.elapsed();
        self.lived_at = Instant::now();
        self.life.go_on(&self.virtuals, passed);
        for broken in self.broken.iter().filter(|broken| broken.fault.needs_changes()) {
            if let Ok(server) = self.server(&broken.cluster) {
                // Further changes make the fault show; one failed change does no harm.
                let _ = touch(&server);
            }
        }
        for (namespace, name) in self.virtuals.names() {
            if let Some(server) = self.virtuals.server(&namespace, &name) {
                self.revisions.entry(id(&name)).or_default().note(&server);
            }
        }
        let now = Instant::now();
        let due = |broken: &mut Broken| broken.until.is_some_and(|until| until <= now);
        let mended: Vec<Broken> = self.broken.extract_if(.., due).collect();
        let mut told = Vec::new();
        for broken in mended {
            told.extend(self.mend(&broken).await.map(|text| (broken.cluster, text)));
        }
        told
    }

    /// Returns the cluster with this name in the fleet or as a virtual cluster; without a name, the first virtual one.
    pub(crate) fn meant(&self, named: Option<&str>) -> Result<String, String> {
        let first = || self.scene.names.first().map(|name| id(name)).unwrap_or_default();
        let Some(named) = named else { return Ok(first()) };
        let members = self.fleet.members();
        let is_meant = |known: &str| known == named || known.split('.').next() == Some(named);
        let mut found = members.keys().map(ToString::to_string).filter(|known| is_meant(known));
        found.next().ok_or_else(|| {
            let all: Vec<String> = members.keys().map(ToString::to_string).collect();
            format!("there is no cluster {named:?}: there are {}", all.join(", "))
        })
    }

    /// Inflicts a fault on a cluster, or undoes it where its name says so.
    pub(crate) async fn inflict(&mut self, fault: FaultName, cluster: &str) -> Result<Deed, String> {
        if fault == FaultName::Pause {
            return self.pause_or_resume(cluster).await;
        }
        let server = self.server(cluster)?;
        if fault == FaultName::Heal {
            return self.heal(cluster).await;
        }
        if !self.is_up(cluster) {
            return Err(format!("{cluster} is paused: p resumes it"));
        }
        if self.broken.iter().any(|broken| broken.cluster == cluster && broken.away) {
            return Err(format!("{cluster} is away: h brings it back"));
        }
        if fault.needs_changes() {
            // Without changes an older view is the newest one, and a lost history is not missed.
            touch(&server)?;
        }
        let faults = server.faults().clone();
        let (mut guards, mut away) = (Vec::new(), false);
        match fault {
            FaultName::BlackHole => guards.push(faults.black_hole(Connections::Existing, Direction::Both)),
            FaultName::Reset => drop(faults.kill_connections(CloseMode::Rst)),
            FaultName::Close => drop(faults.kill_connections(CloseMode::Fin)),
            FaultName::Stall => {
                for connection in faults.connections() {
                    guards.push(faults.inject(Fault::Stall).on(Match::watch().connection(connection)));
                }
            }
            FaultName::Restart | FaultName::Compact => {
                server.pause_with(CloseMode::Rst).await;
                away = true;
            }
            FaultName::Lag => {
                let at = server.resource_version();
                guards.push(faults.inject(Fault::Lag(Lag::Frozen { at })).everywhere());
                faults.kill_connections(CloseMode::Fin);
            }
            FaultName::Rollback => {
                let revision = self.revisions.entry(cluster.to_owned()).or_default().oldest(&server);
                server.roll_back(revision).map_err(|error| error.to_string())?;
                self.revisions.remove(cluster);
            }
            FaultName::Undecodable => {
                let damage = Fault::Undecodable(Damage::Labels);
                guards.push(faults.inject(damage).on(Match::watch()).times(1));
            }
            FaultName::Unavailable => {
                guards.push(faults.inject(Fault::status(503, 1)).everywhere());
                faults.kill_connections(CloseMode::Fin);
            }
            FaultName::Pause | FaultName::Heal => {}
        }
        if away || !guards.is_empty() {
            self.broken.retain(|broken| broken.cluster != cluster || broken.fault != fault);
            let until = Some(Instant::now() + fault.lasts().unwrap_or(KEEP));
            self.broken.push(Broken { cluster: cluster.into(), fault, until, away, _guards: guards });
        }
        Ok(Deed { text: fault.tale(), over: false })
    }

    /// Ends everything.
    pub(crate) async fn strike_down(&mut self) {
        self.broken.clear();
        self.gateway.close(SHUTDOWN).await;
        self.stop.cancel();
        // The process ends anyway: a client that holds on to a connection must not delay it.
        let _ = timeout(3 * SHUTDOWN, self.daemon.join_next()).await;
        let _ = timeout(SHUTDOWN, self.virtuals.stop()).await;
        let _ = timeout(SHUTDOWN, self.virtuals.host().stop()).await;
    }

    /// Asks the gateway to pause or resume, as any client would.
    async fn pause_or_resume(&mut self, cluster: &str) -> Result<Deed, String> {
        let (name, namespace) = split(cluster)?;
        self.broken.retain(|broken| broken.cluster != cluster);
        if let Some(before) = self.operations.remove(cluster) {
            // The gateway refuses an operation until the other is done.
            let _ = self.gateway.ask(Method::GET, &format!("{before}?wait=5s"), None).await;
        }
        let paused = self.fleet.get(cluster).and_then(|cluster| cluster.state().paused.clone());
        let (text, method, path, patch) = match paused.as_ref().map(|paused| paused.by) {
            // A cluster that was scaled to zero has no pause operation that could be ended.
            Some(PausedBy::ScaledDown) => (
                "it is scaled up again",
                Method::PATCH,
                format!("/clusters/{HOST}/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}"),
                Some(json!({"spec": {"replicas": 1}})),
            ),
            Some(_) => (
                "the gateway is asked to resume it",
                Method::POST,
                format!("/virtualclusters/{namespace}/{name}/resume"),
                None,
            ),
            None => (
                FaultName::Pause.tale(),
                Method::POST,
                format!("/virtualclusters/{namespace}/{name}/pause"),
                None,
            ),
        };
        let asked = self.gateway.ask(method, &path, patch).await.and_then(Answer::good);
        let answer = asked.map_err(|error| error.line().unwrap_or_default())?;
        if let Some(operation) = answer.header("location") {
            self.operations.insert(cluster.to_owned(), operation.to_owned());
        }
        Ok(Deed { text, over: paused.is_some() })
    }

    async fn heal(&mut self, cluster: &str) -> Result<Deed, String> {
        let of_it = |broken: &mut Broken| broken.cluster == cluster;
        let mended: Vec<Broken> = self.broken.extract_if(.., of_it).collect();
        for broken in &mended {
            let _ = self.mend(broken).await;
        }
        Ok(Deed { text: "whatever was broken is mended", over: true })
    }

    /// Ends one fault whose time is over, and returns what to log about it.
    async fn mend(&self, broken: &Broken) -> Option<&'static str> {
        let server = self.server(&broken.cluster).ok()?;
        if broken.away {
            if broken.fault == FaultName::Compact {
                server.compact();
            }
            // A server that was paused meanwhile comes back when it is resumed.
            if self.is_up(&broken.cluster) {
                server.resume().await.ok()?;
            }
        }
        match broken.fault {
            FaultName::Compact => Some("the server is back, without its history"),
            FaultName::Restart => Some("the server is back on the same port"),
            FaultName::Unavailable => Some("the server answers again"),
            FaultName::Lag => Some("the server has caught up"),
            _ => None,
        }
    }

    fn server(&self, cluster: &str) -> Result<TestServer, String> {
        if cluster == HOST {
            return Ok(self.virtuals.host().clone());
        }
        let (name, namespace) = split(cluster)?;
        self.virtuals.server(namespace, name).ok_or_else(|| format!("{cluster} has no API server"))
    }

    fn is_up(&self, cluster: &str) -> bool {
        cluster == HOST
            || split(cluster)
                .is_ok_and(|(name, namespace)| self.virtuals.state(namespace, name) == VirtualState::Up)
    }

    fn cluster_sample(&self, cluster: &Cluster, origin: Instant) -> ClusterSample {
        let ClusterStats { id, state, kinds, .. } = cluster.stats();
        let since = |at: Instant| at.saturating_duration_since(origin);
        let troubles = kinds.iter().filter_map(|kind| kind.informer.last_trouble.as_ref());
        ClusterSample {
            broken: self.broken_line(id.as_str()),
            name: id.to_string(),
            condition: state.condition,
            since: since(state.since),
            reason: state.reason.as_deref().map(str::to_owned),
            synced: !kinds.is_empty() && kinds.iter().all(|kind| kind.informer.freshness.age().is_some()),
            objects: kinds.iter().map(|kind| kind.informer.objects as u64).sum(),
            age: kinds.iter().filter_map(|kind| kind.informer.freshness.age()).max(),
            events: kinds.iter().map(|kind| kind.informer.events).sum(),
            troubles: troubles
                .map(|trouble| Trouble {
                    at: since(trouble.began),
                    what: reason::plain(&trouble.reason),
                    healed: trouble.healed.as_ref().map(|(at, how)| (since(*at), how.to_string())),
                })
                .collect(),
        }
    }

    /// Returns the faults in force on a cluster.
    fn broken_line(&self, cluster: &str) -> Option<String> {
        let now = Instant::now();
        let shown = |broken: &&Broken| broken.cluster == cluster && broken.fault.is_shown();
        let tell = |broken: &Broken| match (broken.fault.lasts(), broken.until) {
            (Some(_), Some(until)) => {
                let left = until.saturating_duration_since(now).as_secs() + 1;
                format!("{} ({left}s left)", broken.fault.condition())
            }
            _ => broken.fault.condition().to_owned(),
        };
        let lines: Vec<String> = self.broken.iter().filter(shown).map(tell).collect();
        (!lines.is_empty()).then(|| lines.join(", "))
    }
}

/// ResourceVersions of the last seconds. A rollback leads to the oldest.
#[derive(Debug, Default)]
struct Revisions {
    noted: VecDeque<(Instant, u64)>,
}

impl Revisions {
    const REACH: Duration = Duration::from_secs(5);

    fn note(&mut self, server: &TestServer) {
        self.noted.push_back((Instant::now(), server.resource_version()));
        while self.noted.len() > 1 && self.noted[1].0.elapsed() >= Self::REACH {
            self.noted.pop_front();
        }
    }

    fn oldest(&self, server: &TestServer) -> u64 {
        self.noted.front().map_or_else(|| server.resource_version(), |(_, revision)| *revision)
    }
}

fn name(number: usize) -> String {
    NAMES.get(number).map_or_else(|| format!("city-{}", number + 1), |name| (*name).to_owned())
}

/// Changes an object in a cluster, also in a quiet one.
fn touch(server: &TestServer) -> Result<(), String> {
    let name = "skopos-demo";
    let changed = match server.get("configmaps", Some("default"), name) {
        Ok(mut map) => {
            map["data"]["revision"] = json!(server.resource_version().to_string());
            server.update(map)
        }
        Err(_) => server.create(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default"}, "data": {"revision": "0"}})),
    };
    changed.map(drop).map_err(|error| error.to_string())
}

/// Splits an ID into the name and namespace of a virtual cluster.
fn split(cluster: &str) -> Result<(&str, &str), String> {
    cluster.split_once('.').ok_or_else(|| {
        format!("{cluster} is a real cluster and cannot be paused; choose a virtual one with ↑↓")
    })
}

/// Starts the gateway in front of the host and its virtual clusters.
async fn gateway(port: Option<u16>, virtuals: &VirtualClusters, dir: &DemoDir) -> Result<Daemon, CliError> {
    let host = virtuals.host().kubeconfig().replace("skopos-test", HOST);
    let host = dir.write("host.kubeconfig", &host)?;
    let start = |port| embedded(config(port, host.clone()), virtuals.clone());
    let started = match (start(port.unwrap_or(USUAL_PORT)).await, port) {
        (Err(error), None) if is_taken(&error) => start(0).await,
        (other, _) => other,
    };
    started.map_err(|error| match port {
        Some(port) if is_taken(&error) => CliError::new(format!("port {port} is in use"))
            .hint("choose another with --port, or leave --port out to get a free one"),
        _ => CliError::new(error),
    })
}

async fn embedded(config: Config, virtuals: VirtualClusters) -> Result<Daemon, DaemonError> {
    let mut embedding = Embedding::from_config(&config);
    // The audience does not want to wait: ages are proven every 5 s instead of 30 s, and a silent watch is suspected
    // accordingly sooner.
    embedding.fleet.cluster.factory.probe_interval = Duration::from_secs(5);
    embedding.fleet.cluster.factory.machine =
        MachineOptions { probe_grace: Duration::from_secs(3), ..MachineOptions::default() };
    let dial = move |name: &str, namespace: &str| {
        let service = format!("{name}.{namespace}");
        let url = format!("https://{}", virtuals.address(&service)?).parse().ok()?;
        Some(Endpoint { url, tls_server_name: Some(service) })
    };
    embedding.dial = VclusterDial::Custom(Arc::new(dial));
    Daemon::embedded(config, embedding).await
}

fn config(port: u16, host: PathBuf) -> Config {
    let kind = |(group, resource): (&str, &str)| Kind {
        group: group.to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
    };
    let limits = Limits { drain: Span(Duration::from_millis(300)), ..Limits::default() };
    let host = HostCluster { kubeconfig: Some(host), ..HostCluster::default() };
    Config {
        listen: Listen {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            limits,
            ..Listen::default()
        },
        authorization: Authorization { loopback: LoopbackTrust::Trusted, ..Authorization::default() },
        clusters: Clusters {
            vclusters: vec![VclusterSource { host, ..VclusterSource::default() }],
            addresses: CidrList { allow: vec!["127.0.0.0/8".into()], deny: Vec::new() },
            ..Clusters::default()
        },
        cache: Cache { kinds: KINDS.map(kind).into(), ..Cache::default() },
        ..Config::default()
    }
}

fn is_taken(error: &DaemonError) -> bool {
    matches!(error, DaemonError::Listen(ListenError::Bind { error, .. })
        if error.kind() == io::ErrorKind::AddrInUse)
}
