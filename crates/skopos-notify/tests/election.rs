//! Notifiers that share a Lease, under virtual time.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use skopos_lease::{Election, LeaseOptions};
use skopos_notify::service::control::NotifierPhase;
use skopos_notify::service::{Notifier, NotifierSink, follow_fitness};
use skopos_notify::sink::memory::MemorySink;
use skopos_notify::sink::{Fence, Observed, Sink, SinkError, SinkStep, SinkTraits, StepOutcome};
use skopos_notify::{EntryName, EntryValue};
use support::{Cluster, endpoints, factory_to, secs, sink};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Connection of one process to a sink that several can reach.
#[derive(Clone)]
struct Way {
    to: MemorySink,
    is_cut: Arc<AtomicBool>,
}

impl Way {
    fn new(to: &MemorySink) -> Self {
        Self { to: to.clone(), is_cut: Arc::default() }
    }

    fn set_cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
    }
}

#[async_trait]
impl Sink for Way {
    fn traits(&self) -> SinkTraits {
        self.to.traits()
    }

    fn name(&self, text: &str) -> Result<EntryName, String> {
        self.to.name(text)
    }

    fn value(&self, text: &str) -> Result<EntryValue, String> {
        self.to.value(text)
    }

    async fn observe(&self) -> Result<Observed, SinkError> {
        match self.is_cut.load(Ordering::SeqCst) {
            true => Err(SinkError::Unreachable("no route".into())),
            false => self.to.observe().await,
        }
    }

    async fn apply(&self, step: &SinkStep, fence: Option<&Fence>) -> StepOutcome {
        match self.is_cut.load(Ordering::SeqCst) {
            true => StepOutcome::Unreachable("no route".into()),
            false => self.to.apply(step, fence).await,
        }
    }
}

/// A process that works while it has the Lease.
struct Process {
    phase: watch::Receiver<NotifierPhase>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Process {
    fn start(cluster: &Cluster, name: &str, way: &Way) -> Self {
        let factory = factory_to(&cluster.server, &cluster.down);
        let mut options = LeaseOptions::new("default", "notify");
        (options.identity, options.acquire_on_create) = (name.to_owned(), true);
        let election = Election::with_transport(factory.transport().clone(), options).expect("an election");
        let (phase, seen) = watch::channel(NotifierPhase::Standby);
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        let options = {
            let way = way.clone();
            move || sink("zone", way.clone(), endpoints("{service}", false))
        };
        let (able, watched) = (election.candidate(), [NotifierSink::from(options())]);
        let following = seen.clone();
        tasks.spawn(async move { follow_fitness(following, &watched, |is_fit| able.set_fit(is_fit)).await });
        let mut candidate = election.candidate();
        let ended = stop.clone();
        tasks.spawn(async move {
            while let Ok(term) = candidate.term().await {
                let notifier = Notifier::new(&factory, vec![options()]).expect("a notifier");
                phase.send_replace(NotifierPhase::Working(notifier.handle()));
                let _ = term.run(notifier.run(ended.clone())).await;
                phase.send_replace(NotifierPhase::Standby);
            }
        });
        tasks.spawn(election.run(stop.clone()));
        Self { phase: seen, stop, tasks }
    }

    fn works(&self) -> bool {
        matches!(*self.phase.borrow(), NotifierPhase::Working(_))
    }

    async fn stop(mut self) {
        self.stop.cancel();
        self.tasks.shutdown().await;
    }
}

async fn until(limit: Duration, what: impl Fn() -> bool) -> Duration {
    let begun = Instant::now();
    let waiting = async {
        while !what() {
            sleep(secs(1) / 10).await;
        }
    };
    assert!(timeout(limit, waiting).await.is_ok(), "not within {limit:?}");
    begun.elapsed()
}

// Case 29.
#[tokio::test(start_paused = true)]
async fn leader_that_cannot_reach_sink_yields_lease() {
    let (cluster, zone) = (Cluster::new().await, MemorySink::zone());
    let ways = [Way::new(&zone), Way::new(&zone)];
    cluster.put("web", &[("10.0.0.1", "ready")]);
    let first = Process::start(&cluster, "first", &ways[0]);
    until(secs(60), || zone.serving("web").len() == 1).await;
    let second = Process::start(&cluster, "second", &ways[1]);
    sleep(secs(30)).await;
    assert!(first.works() && !second.works());

    ways[0].set_cut(true);
    cluster.put("web", &[("10.0.0.1", "ready"), ("10.0.0.2", "ready")]);
    let took = until(secs(120), || zone.serving("web").len() == 2).await;
    assert!((secs(60)..secs(90)).contains(&took), "{took:?}");
    assert!(second.works() && !first.works());

    // Neither can reach it: they do not keep taking the Lease from each other.
    ways[1].set_cut(true);
    let mut changes = 0;
    let mut leader = second.works();
    for _ in 0..1_800 {
        sleep(secs(1)).await;
        if first.works() != second.works() && leader != second.works() {
            leader = second.works();
            changes += 1;
        }
    }
    assert!(changes <= 8, "{changes} changes of the leader in half an hour");
    // One can reach it again, whichever leads.
    ways[0].set_cut(false);
    cluster.put("web", &[("10.0.0.1", "ready"), ("10.0.0.2", "ready"), ("10.0.0.3", "ready")]);
    until(secs(700), || zone.serving("web").len() == 3).await;
    first.stop().await;
    second.stop().await;
    cluster.end().await;
}
