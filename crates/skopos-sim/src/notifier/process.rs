//! One process with a notifier: a candidate for the Lease that works in its terms.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;
use skopos::{FactoryOptions, InformerFactory, SleepClock, Transport, TransportOptions, checkpoint};
use skopos_lease::{BootClock, Election, LeaseOptions};
use skopos_notify::desired::{ClaimSource, EndpointSource, Template};
use skopos_notify::event::{EventSource, ResourceName};
use skopos_notify::service::control::NotifierPhase;
use skopos_notify::service::{
    EventSinkOptions, Notifier, NotifierHandle, NotifierSink, SinkOptions, factory_options, follow_fitness,
};
use skopos_transport::WallClock;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::way::Way;
use crate::cluster::{Cluster, SELECTED, SYSTEM, owner_of};
use crate::history::{AtOutside, Fact, ProcessId, Recorder};
use crate::plan::ProcessPlan;
use crate::users::{Scene, limits, times};

/// A running process.
pub(super) struct Process {
    factory: InformerFactory,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

/// Configuration of a process.
pub(super) struct Setup {
    pub(super) scene: Scene,
    pub(super) cluster: Arc<Cluster>,
    pub(super) way: Way,
    pub(super) lease: Duration,
    pub(super) plan: ProcessPlan,
    pub(super) phase: watch::Sender<NotifierPhase>,
    pub(super) seed: u64,
}

/// Interval between two recorded reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(30);
/// Time limit of a shutdown.
const END: Duration = Duration::from_secs(10);

/// Guard that records the end of the work, also where the work is dropped.
struct Working {
    recorder: Recorder,
    process: ProcessId,
    term: u64,
}

impl Process {
    /// Starts the process.
    ///
    /// # Errors
    /// When the options are invalid; then so is the plan.
    pub(super) fn start(setup: Setup) -> anyhow::Result<Self> {
        let mut random = fastrand::Rng::with_seed(setup.seed);
        let connect = |seed| transport(&setup, seed);
        let factory = InformerFactory::new(connect(random.u64(..))?, options(&setup.scene, random.u64(..)));
        let election = Election::with_transport(connect(random.u64(..))?, lease(&setup, random.u64(..)))?;
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        let sinks = sinks(&setup.way)?;
        let (able, seen) = (election.candidate(), setup.phase.subscribe());
        tasks.spawn(async move { follow_fitness(seen, &sinks, |is_fit| able.set_fit(is_fit)).await });
        let mut candidate = election.candidate();
        let (informers, ended) = (factory.clone(), stop.clone());
        tasks.spawn(async move {
            while let Ok(term) = candidate.term().await {
                let way = Way { term: term.number(), ..setup.way.clone() };
                let Ok(sinks) = sinks_of(&way) else { return };
                let Ok(notifier) = Notifier::new(&informers, sinks) else { return };
                setup.phase.send_replace(NotifierPhase::Working(notifier.handle()));
                let handle = notifier.handle();
                let work = async {
                    let _working = Working::begin(&way);
                    tokio::select! {
                        () = notifier.run(ended.clone()) => {}
                        () = report(&way, &handle) => {}
                    }
                };
                // The end of a term is no fault of this process.
                let _ = term.run(work).await;
                setup.phase.send_replace(NotifierPhase::Standby);
            }
        });
        tasks.spawn(election.run(stop.clone()));
        Ok(Self { factory, stop, tasks })
    }

    /// Ends the process cleanly, or like a killed process.
    pub(super) async fn end(mut self, killed: bool) {
        if killed {
            self.tasks.shutdown().await;
        } else {
            self.stop.cancel();
            let last = async {
                // The follower never ends on its own.
                while self.tasks.len() > 1 && self.tasks.join_next().await.is_some() {}
            };
            // The election gives up a release without an answer.
            let _ = tokio::time::timeout(6 * END, last).await;
            self.tasks.shutdown().await;
        }
        self.factory.shutdown(END).await;
    }
}

impl Working {
    fn begin(way: &Way) -> Self {
        let working = Self { recorder: way.recorder.clone(), process: way.process, term: way.term };
        let (process, term) = (way.process, way.term);
        way.recorder.record(Fact::Outside(AtOutside::Began { process, term }));
        working
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let Self { process, term, .. } = *self;
        self.recorder.record(Fact::Outside(AtOutside::Ended { process, term }));
    }
}

/// Records the notifier's reports at intervals.
async fn report(way: &Way, handle: &NotifierHandle) {
    loop {
        tokio::time::sleep(REPORT_INTERVAL).await;
        for report in handle.reports() {
            let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            way.recorder.record(Fact::Outside(AtOutside::Reported {
                process: way.process,
                pending: count(report.pending),
                wanted: count(report.wanted),
                outside: count(report.outside),
            }));
        }
    }
}

fn sinks(way: &Way) -> anyhow::Result<Vec<NotifierSink>> {
    sinks_of(way).context("the sinks")
}

fn sinks_of(way: &Way) -> Result<Vec<NotifierSink>, skopos_notify::desired::TemplateError> {
    let source = EndpointSource {
        headless: None,
        labels: BTreeMap::from([(SELECTED.to_owned(), "*".to_owned())]),
        name: Template::parse("{service}.{namespace}", &["service", "namespace"])?,
        ports: false,
    };
    let mut options = SinkOptions::new("zone", Arc::new(way.clone()), vec![ClaimSource::Endpoints(source)]);
    // This would need an approval by a person; the planner's own tests give some.
    options.plan.fraction = 1.0;
    Ok(vec![options.into(), receiver_of(way).into()])
}

fn receiver_of(way: &Way) -> EventSinkOptions {
    let services =
        ResourceName { group: String::new(), version: "v1".to_owned(), plural: "services".to_owned() };
    let labels = BTreeMap::from([(SELECTED.to_owned(), "*".to_owned())]);
    let source = EventSource { labels, ..EventSource::all(services) };
    let (receiver, ledgers) = (Arc::new(way.clone()), Arc::new(way.ledgers.clone()));
    let mut options = EventSinkOptions::new("receiver", receiver, vec![source], ledgers);
    (options.term, options.seed) = (Some(way.term), Some(u64::from(way.process.0) << 32 | way.term));
    options
}

fn transport(setup: &Setup, seed: u64) -> anyhow::Result<Transport> {
    let wall = times(&setup.scene);
    let options = TransportOptions {
        seed: Some(seed),
        wall_clock: Some(WallClock::from_fn(move || wall().wall())),
        // Longer than any run takes.
        reset_memory: Duration::from_secs(24 * 3600),
        ..TransportOptions::default()
    };
    let config = kube::Config::new(http::Uri::from_static("http://cluster.test"));
    let dialer = setup.cluster.network.dialer(owner_of(setup.way.process));
    Ok(Transport::with_dialer(config, options, dialer)?)
}

fn options(scene: &Scene, seed: u64) -> FactoryOptions {
    let lead = scene.lead.clone();
    FactoryOptions {
        limits: limits(),
        seed: Some(seed),
        sleep_clock: SleepClock::from_fn(move || lead.load(Ordering::SeqCst).into()),
        restart_clock: checkpoint::RestartClock::from_fn(times(scene)),
        ..factory_options()
    }
}

fn lease(setup: &Setup, seed: u64) -> LeaseOptions {
    let mut options = LeaseOptions::new(SYSTEM, "skopos-notify");
    options.identity = format!("process-{}", setup.way.process.index());
    (options.duration, options.seed) = (setup.lease, Some(seed));
    let slept = setup.scene.slept.clone();
    options.clock = BootClock::from_fn(move || Duration::from_nanos(slept.load(Ordering::SeqCst)));
    let (wall, ahead) = (times(&setup.scene), setup.plan.ahead);
    options.wall_clock = WallClock::from_fn(move || {
        let seconds = Duration::from_secs(ahead.unsigned_abs());
        if ahead < 0 { wall().wall() - seconds } else { wall().wall() + seconds }
    });
    options
}
