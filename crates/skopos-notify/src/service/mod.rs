//! The running notifier: one loop for each sink, so that no sink delays another.

pub mod control;
mod dry_run;
mod event_feed;
mod event_loop;
mod fitness;
mod gates;
mod handle;
mod identity;
mod metrics;
mod propagation;
mod release;
mod report;
mod sink_loop;
mod warnings;
mod watched;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube_runtime::events::Recorder;
use skopos::{BuildError, FactoryOptions, InformerFactory, MachineOptions, ParseError};
use skopos_reflect::Clock;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use self::dry_run::{DryRun, plan};
use self::event_loop::EventLoop;
pub use self::event_loop::EventSinkOptions;
pub use self::fitness::follow_fitness;
use self::gates::PodGates;
pub use self::handle::{NotifierHandle, SinkHandle};
pub use self::metrics::metrics;
pub use self::release::{Released, orphans, releasable, release};
pub use self::report::{DeadReport, HeldReport, Problem, SinkReport};
use self::sink_loop::SinkLoop;
use self::warnings::Warnings;
use self::watched::Watched;
use crate::desired::{ClaimSource, Desired};
use crate::plan::{PlanOptions, Planner};
use crate::sink::{Fence, Sink};

/// The reporting controller of Events.
const REPORTER: &str = "skopos-notify";

/// A notifier. It keeps its sinks equal to one cluster until it is stopped.
#[must_use = "it does nothing until it runs"]
pub struct Notifier {
    loops: Vec<Loop>,
    handle: NotifierHandle,
}

/// Options of one sink, and its sources.
pub struct SinkOptions {
    /// Its name, for people and metrics.
    pub name: String,
    /// The sink.
    pub sink: Arc<dyn Sink>,
    /// The sources of its names.
    pub sources: Vec<ClaimSource>,
    /// Limits of removals.
    pub plan: PlanOptions,
    /// Interval between two observations of everything. Default 10 s.
    pub observe_every: Duration,
    /// Number of names that are written at the same time. Default 16.
    pub writes: usize,
    /// Folder in which the cluster's identity is remembered, so that a different cluster behind the same address is noticed after
    /// a restart too.
    pub state: Option<PathBuf>,
    /// The term that it works in, with an election.
    pub fence: Option<Fence>,
}

/// A sink of either kind.
pub enum NotifierSink {
    /// A sink that is made equal to the cluster, and read back.
    State(SinkOptions),
    /// A receiver of a message for each change.
    Events(EventSinkOptions),
}

enum Loop {
    State(Box<SinkLoop>),
    Events(Box<EventLoop>),
}

/// Error of making a notifier.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotifierError {
    /// An informer cannot be made.
    #[error("cannot watch the cluster: {0}")]
    Informer(#[from] BuildError),
    /// A selector cannot be read. This is a fault of this crate.
    #[error(transparent)]
    Selector(#[from] ParseError),
}

/// Returns the options of a factory for notifiers.
///
/// Ages are proven every 15 s instead of every 30 s. That includes Services that do not change in a cluster whose revision moves:
/// there a proof checks the stream again, 3 s after the probe instead of 15 s. So the view of a healthy cluster is always younger
/// than 20 s. That is below the 30 s of [`PlanOptions::max_age`], so no removal waits for a proof. It takes 4.5 of the 6 requests
/// a minute that a list/watch has.
pub fn factory_options() -> FactoryOptions {
    let machine = MachineOptions { probe_grace: Duration::from_secs(3), ..MachineOptions::default() };
    FactoryOptions { probe_interval: Duration::from_secs(15), machine, ..FactoryOptions::default() }
}

impl SinkOptions {
    /// Returns the defaults for a sink.
    pub fn new(name: impl Into<String>, sink: Arc<dyn Sink>, sources: Vec<ClaimSource>) -> Self {
        Self {
            name: name.into(),
            sink,
            sources,
            plan: PlanOptions::default(),
            observe_every: Duration::from_secs(10),
            writes: 16,
            state: None,
            fence: None,
        }
    }
}

impl NotifierSink {
    /// Returns the name.
    pub fn name(&self) -> &str {
        match self {
            Self::State(options) => &options.name,
            Self::Events(options) => &options.name,
        }
    }
}

impl From<SinkOptions> for NotifierSink {
    fn from(options: SinkOptions) -> Self {
        Self::State(options)
    }
}

impl From<EventSinkOptions> for NotifierSink {
    fn from(options: EventSinkOptions) -> Self {
        Self::Events(options)
    }
}

impl Notifier {
    /// Makes a notifier. The factory must have [`factory_options`], or prove ages as often.
    ///
    /// It needs the rights `get`, `list` and `watch` for the namespace `kube-system`, for `services` and `endpointslices` of `discovery.k8s.io`
    /// or `pods` where a sink uses them, and for the resources of event sinks. It needs `patch` of `pods/status` where a source
    /// has a readiness gate, and `create` and `patch` of `events` of `events.k8s.io` for Events about names that cannot be had.
    /// Without the right for `kube-system` it does not notice a different cluster behind the same address, and event sinks send
    /// nothing.
    ///
    /// # Errors
    /// When the cluster cannot be watched this way.
    pub fn new<S: Into<NotifierSink>>(
        factory: &InformerFactory,
        sinks: impl IntoIterator<Item = S>,
    ) -> Result<Self, NotifierError> {
        let (clock, propagation) = (Clock::new(), propagation::propagation());
        let mut loops = Vec::new();
        let mut handles = Vec::new();
        for sink in sinks.into_iter().map(Into::into) {
            let (commands, received) = mpsc::channel(16);
            let (reports, seen) = watch::channel(Arc::new(SinkReport::starting(sink.name())));
            handles.push(SinkHandle::new(commands, seen, clock));
            loops.push(match sink {
                NotifierSink::State(options) => Loop::State(Box::new(SinkLoop {
                    watched: Watched::new(factory, &options.sources)?,
                    desired: Desired::new(options.sink.clone(), options.sources.clone()),
                    planner: Planner::new(options.sink.traits(), options.plan.clone()),
                    propagation: propagation.get_or_create(&vec![("sink", options.name.clone())]).clone(),
                    gates: PodGates::new(factory.transport().client("default")),
                    warnings: Warnings::default(),
                    recorder: Recorder::new(factory.transport().client("default"), REPORTER.into()),
                    clock,
                    commands: received,
                    reports,
                    options,
                })),
                NotifierSink::Events(options) => Loop::Events(Box::new(EventLoop {
                    options,
                    factory: factory.clone(),
                    identity: watched::identity(factory)?,
                    clock,
                    commands: received,
                    reports,
                })),
            });
        }
        Ok(Self { loops, handle: NotifierHandle::new(handles, propagation) })
    }

    /// Returns the handle.
    pub fn handle(&self) -> NotifierHandle {
        self.handle.clone()
    }

    /// Runs until `stop`. A write in progress ends with the time limit of its sink.
    pub async fn run(self, stop: CancellationToken) {
        let mut tasks = JoinSet::new();
        for sink in self.loops {
            match sink {
                Loop::State(sink) => tasks.spawn(sink.run(stop.clone())),
                Loop::Events(sink) => tasks.spawn(sink.run(stop.clone())),
            };
        }
        while tasks.join_next().await.is_some() {}
    }
}
