//! Where the demo plays: a test server with its world and its faults, and informers that watch it.
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::ApiResource;
use skopos::{
    FactoryOptions, Freshness, Informer, InformerFactory, InformerOptions, InformerStats, MachineOptions,
    RawObject, Transform,
};
use skopos_testserver::{Connections, Damage, Direction, Fault, FaultGuard, How, Lag, Match, TestServer};
use tokio::time::Instant;

use super::FaultName;
use super::model::{Health, KindSample, Sample, ServerSample, Trouble};
use crate::connect::Cluster;
use crate::error::CliError;
use crate::reason;
use crate::testserver::start_error;
use crate::world::{Pace, World};

/// What the stage looks like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StageOptions {
    /// Serve HTTPS
    pub(crate) tls: bool,
    /// Pods to start with
    pub(crate) pods: u32,
    /// Changes per second
    pub(crate) churn: u32,
}

/// The server, its world and the informers.
pub(crate) struct Stage {
    server: TestServer,
    world: World,
    pace: Pace,
    changed_at: Instant,
    factory: InformerFactory,
    informers: Vec<Informer<RawObject>>,
    paused: bool,
    broken: Vec<Broken>,
    /// Where a rollback leads to: a resourceVersion of a moment ago.
    checkpoints: Checkpoints,
}

/// Something that is broken, until when, and what mends it.
struct Broken {
    fault: FaultName,
    until: Option<Instant>,
    _guards: Vec<FaultGuard>,
}

/// What was done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deed {
    /// For the log, and for whoever asked
    pub(crate) text: &'static str,
    /// The fault that was under way is over by it
    pub(crate) over: bool,
}

/// How long the guards of faults without an end of their own are kept, so that they do not pile up.
const KEEP: Duration = Duration::from_secs(120);
/// How long the informers, and then the server, may take to end.
const SHUTDOWN: Duration = Duration::from_millis(250);

impl Stage {
    /// Sets it up: the server runs and the informers have begun when this returns.
    pub(crate) async fn set(options: StageOptions) -> Result<Self, CliError> {
        let server =
            TestServer::builder().tls(options.tls).workloads(true).start().await.map_err(start_error)?;
        let world = World::of_cluster(&server, options.pods)?;
        let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).map_err(CliError::new)?;
        let options_of_kube = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options_of_kube).await;
        let cluster = Cluster::new(config.map_err(CliError::new)?)?;
        let factory = InformerFactory::new(cluster.transport, factory_options());
        let informers = kinds().map(|kind| {
            let options = InformerOptions::all().transform(Transform::DropManagedFields);
            factory.raw(&kind, options).map_err(CliError::new)
        });
        let informers = informers.into_iter().collect::<Result<_, _>>()?;
        Ok(Self {
            checkpoints: Checkpoints::new(&server),
            server,
            world,
            pace: Pace::new(options.churn),
            changed_at: Instant::now(),
            factory,
            informers,
            paused: false,
            broken: Vec::new(),
        })
    }

    /// The server's address.
    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// For kubectl.
    pub(crate) fn kubeconfig(&self) -> String {
        self.server.kubeconfig()
    }

    /// What is known now, with times counted from `origin`.
    pub(crate) fn sample(&self, origin: Instant) -> Sample {
        Sample {
            at: origin.elapsed(),
            kinds: self.informers.iter().map(|informer| kind_sample(&informer.stats(), origin)).collect(),
            server: ServerSample {
                connections: self.server.connections(),
                rv: self.server.resource_version().to_string(),
                paused: self.paused,
                broken: self.broken_line(),
            },
        }
    }

    /// Does what is due: the world's changes, and the end of faults. Returns what to write down about those.
    pub(crate) async fn due(&mut self) -> Vec<&'static str> {
        let passed = self.changed_at.elapsed();
        self.changed_at = Instant::now();
        for _ in 0..self.pace.due(passed) {
            self.world.change(&self.server);
        }
        self.checkpoints.note(&self.server);
        let now = Instant::now();
        let due = |broken: &mut Broken| broken.until.is_some_and(|until| until <= now);
        let mended: Vec<Broken> = self.broken.extract_if(.., due).collect();
        let mut told = Vec::new();
        for broken in mended {
            told.extend(self.mend(&broken).await);
        }
        told
    }

    /// Inflicts a fault, or undoes one where its name says so.
    pub(crate) async fn inflict(&mut self, fault: FaultName) -> Result<Deed, String> {
        let faults = self.server.faults().clone();
        let mut guards = Vec::new();
        let mut until = Some(Instant::now() + fault.lasts().unwrap_or(KEEP));
        match fault {
            FaultName::Heal => return self.heal().await,
            FaultName::Pause if self.paused => return self.heal().await,
            _ if self.paused => return Err("the server is paused: p resumes it".into()),
            FaultName::BlackHole => guards.push(faults.black_hole(Connections::Existing, Direction::Both)),
            FaultName::Reset => drop(faults.kill_connections(How::Rst)),
            FaultName::Close => drop(faults.kill_connections(How::Fin)),
            FaultName::Stall => {
                for connection in faults.connections() {
                    guards.push(faults.inject(Fault::Stall).on(Match::watch().connection(connection)));
                }
            }
            FaultName::Pause => {
                self.server.pause().await;
                self.paused = true;
                until = None;
            }
            FaultName::Restart | FaultName::Compact => {
                self.server.pause_with(How::Rst).await;
                self.paused = true;
            }
            FaultName::Lag => {
                let at = self.server.resource_version();
                guards.push(faults.inject(Fault::Lag(Lag::Frozen { at })).everywhere());
                faults.kill_connections(How::Fin);
            }
            FaultName::Rollback => {
                let version = self.checkpoints.oldest();
                self.server.roll_back(version).map_err(|error| error.to_string())?;
                self.checkpoints = Checkpoints::new(&self.server);
            }
            FaultName::Undecodable => {
                let damage = Fault::Undecodable(Damage::Labels);
                guards.push(faults.inject(damage).on(Match::watch().resource("pods")).times(1));
            }
            FaultName::Unavailable => {
                guards.push(faults.inject(Fault::status(503, 1)).everywhere());
                faults.kill_connections(How::Fin);
            }
        }
        if self.paused || !guards.is_empty() {
            self.broken.retain(|broken| broken.fault != fault);
            self.broken.push(Broken { fault, until, _guards: guards });
        }
        Ok(Deed { text: fault.tale(), over: false })
    }

    /// What is not synced and why, in one line.
    pub(crate) fn missing(&self) -> String {
        let missing = self.informers.iter().filter(|informer| !informer.has_synced());
        missing
            .map(|informer| format!("{}: {}", informer.resource(), informer.state()))
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// Ends everything.
    pub(crate) async fn strike_down(&mut self) {
        self.broken.clear();
        self.factory.shutdown(SHUTDOWN).await;
        // The process ends anyway; a client that holds on to its connection must not hold it up.
        let _ = tokio::time::timeout(SHUTDOWN, self.server.stop()).await;
    }

    async fn heal(&mut self) -> Result<Deed, String> {
        let text = if self.paused { "the server listens again" } else { "whatever was broken is mended" };
        self.broken.clear();
        self.resume().await?;
        Ok(Deed { text, over: true })
    }

    /// Ends one fault whose time is over; what there is to say about it.
    async fn mend(&mut self, broken: &Broken) -> Option<&'static str> {
        match broken.fault {
            FaultName::Compact => {
                self.server.compact();
                self.resume().await.ok().map(|()| "the server is back, without its history")
            }
            FaultName::Restart => self.resume().await.ok().map(|()| "the server is back on the same port"),
            FaultName::Unavailable => Some("the server answers again"),
            FaultName::Lag => Some("the server has caught up"),
            _ => None,
        }
    }

    async fn resume(&mut self) -> Result<(), String> {
        if self.paused {
            self.server.resume().await.map_err(|error| error.to_string())?;
            self.paused = false;
        }
        Ok(())
    }

    /// What is broken at the moment, for the head of the screen.
    fn broken_line(&self) -> Option<String> {
        let now = Instant::now();
        let labels: Vec<_> = self
            .broken
            .iter()
            .filter(|broken| broken.fault.is_shown())
            .map(|broken| match (broken.fault, broken.until) {
                (FaultName::Pause, _) | (_, None) => broken.fault.condition().to_owned(),
                (fault, Some(until)) if fault.lasts().is_some() => {
                    format!(
                        "{} ({}s left)",
                        fault.condition(),
                        until.saturating_duration_since(now).as_secs() + 1
                    )
                }
                (fault, _) => fault.condition().to_owned(),
            })
            .collect();
        (!labels.is_empty()).then(|| labels.join(", "))
    }
}

/// ResourceVersions of the last seconds: a rollback leads to the oldest.
#[derive(Debug)]
struct Checkpoints {
    noted: std::collections::VecDeque<(Instant, u64)>,
}

impl Checkpoints {
    const REACH: Duration = Duration::from_secs(5);

    fn new(server: &TestServer) -> Self {
        Self { noted: [(Instant::now(), server.resource_version())].into() }
    }

    fn note(&mut self, server: &TestServer) {
        self.noted.push_back((Instant::now(), server.resource_version()));
        while self.noted.len() > 1 && self.noted[1].0.elapsed() >= Self::REACH {
            self.noted.pop_front();
        }
    }

    fn oldest(&self) -> u64 {
        self.noted.front().map_or(0, |(_, version)| *version)
    }
}

fn kinds() -> [ApiResource; 5] {
    [
        ApiResource::erase::<Pod>(&()),
        ApiResource::erase::<Deployment>(&()),
        ApiResource::erase::<ConfigMap>(&()),
        ApiResource::erase::<Lease>(&()),
        ApiResource::erase::<Node>(&()),
    ]
}

/// The defaults, but for an audience that does not want to wait: ages are proven every 5 s instead of 30 s, and a watch
/// that falls silent is suspected accordingly sooner.
fn factory_options() -> FactoryOptions {
    let machine = MachineOptions { probe_grace: Duration::from_secs(3), ..MachineOptions::default() };
    let mut options = FactoryOptions::default();
    (options.probe_interval, options.machine) = (Duration::from_secs(5), machine);
    options
}

fn kind_sample(stats: &InformerStats, origin: Instant) -> KindSample {
    let since = |at: Instant| at.saturating_duration_since(origin);
    KindSample {
        kind: stats.resource.plural.clone(),
        objects: stats.objects as u64,
        rv: stats.resource_version.to_string(),
        events: stats.events,
        health: health(&stats.freshness),
        trouble: stats.last_trouble.as_ref().map(|trouble| Trouble {
            at: since(trouble.began),
            what: reason::plain(&trouble.reason),
            healed: trouble.healed.as_ref().map(|(at, how)| (since(*at), how.to_string())),
        }),
    }
}

fn health(freshness: &Freshness) -> Health {
    match freshness {
        Freshness::Live { age } => Health::Live { age: *age },
        Freshness::Stale { age, reason, .. } => Health::Stale { reason: reason::of_stale(reason), age: *age },
        Freshness::NeverSynced { reason, .. } => Health::Syncing { reason: reason::of_stale(reason) },
        Freshness::Stopped { .. } => Health::Stopped,
    }
}
