//! One run of one fault.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use skopos::{FactoryOptions, Informer, InformerFactory, InformerOptions};
use skopos_testserver::{FaultGuard, TestServer, TestServerBuilder};
use tokio::time::Instant;

use super::bounds::{Bounds, LISTS_PER_MINUTE, Load, REQUESTS_PER_MINUTE};
use super::support::*;

/// A fault, and what is promised about it.
pub(crate) struct Case {
    pub(crate) fault: &'static str,
    pub(crate) bounds: Bounds,
    pub(crate) load: Load,
    /// How long the fault lasts.
    pub(crate) hold: Duration,
    /// Why the bounds are not demanded, if they do not hold.
    pub(crate) not_met: Option<&'static str>,
    /// What counts as noticed.
    notice: Notice,
    /// Whether the informer starts when the fault is there already.
    late_start: bool,
    server: fn(TestServerBuilder) -> TestServerBuilder,
    options: fn(FactoryOptions) -> FactoryOptions,
    inflict: fn(&World) -> Harm,
}

/// When a fault counts as noticed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Notice {
    /// The content is not called live any more, a trouble or a failure is told, or what was written has arrived all the same.
    Told,
    /// The transport gave up a request or connection for this reason.
    Death(&'static str),
}

/// A fault that was inflicted.
#[derive(Default)]
pub(crate) struct Harm {
    guards: Vec<FaultGuard>,
    paused: bool,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) detected: Option<Duration>,
    pub(crate) recovered: Option<Duration>,
    /// In the worst minute.
    pub(crate) requests: u64,
    pub(crate) probes: u64,
    pub(crate) lists_per_minute: u64,
    /// From the fault to the recovery.
    pub(crate) lists: u64,
    /// A write after the recovery arrived at once.
    pub(crate) follows: bool,
}

/// Nothing takes longer than this, or it is not noticed at all.
const GIVE_UP: Duration = Duration::from_secs(1500);

// === impl Case ===

impl Case {
    /// A fault that lasts for so many seconds.
    pub(crate) fn lasting(
        fault: &'static str,
        bounds: Bounds,
        seconds: u64,
        inflict: fn(&World) -> Harm,
    ) -> Self {
        Self {
            fault,
            bounds,
            load: Load::Informer,
            hold: secs(seconds),
            not_met: None,
            notice: Notice::Told,
            late_start: false,
            server: |builder| builder,
            options: |options| options,
            inflict,
        }
    }

    /// A fault from which the client can recover as soon as it has noticed it.
    pub(crate) fn once(fault: &'static str, bounds: Bounds, inflict: fn(&World) -> Harm) -> Self {
        Self::lasting(fault, bounds, 0, inflict)
    }

    pub(crate) fn load(self, load: Load) -> Self {
        Self { load, ..self }
    }

    pub(crate) fn noticed_as(self, death: &'static str) -> Self {
        Self { notice: Notice::Death(death), ..self }
    }

    pub(crate) fn late_start(self) -> Self {
        Self { late_start: true, ..self }
    }

    pub(crate) fn server(self, server: fn(TestServerBuilder) -> TestServerBuilder) -> Self {
        Self { server, ..self }
    }

    pub(crate) fn options(self, options: fn(FactoryOptions) -> FactoryOptions) -> Self {
        Self { options, ..self }
    }

    pub(crate) fn not_met(self, why: &'static str) -> Self {
        Self { not_met: Some(why), ..self }
    }

    /// The bounds that do not hold, in words.
    pub(crate) fn missed(&self, measured: &Measured) -> Vec<String> {
        let mut missed = Vec::new();
        let mut demand = |holds: bool, what: String| {
            if !holds && self.not_met.is_none() {
                missed.push(format!("{}: {what}", self.fault));
            }
        };
        let within = |took: Option<Duration>, bound: Duration| took.is_some_and(|took| took <= bound);
        let (detect, recover) = (self.bounds.detect, self.bounds.recover);
        demand(within(measured.detected, detect.within), format!("noticed after {:?}", measured.detected));
        demand(
            within(measured.recovered, recover.within),
            format!("recovered after {:?}", measured.recovered),
        );
        let requests = match self.load {
            Load::Informer => measured.requests - measured.probes,
            Load::DeadCluster => measured.requests,
        };
        demand(requests <= REQUESTS_PER_MINUTE, format!("{requests} requests in a minute"));
        let lists = measured.lists_per_minute;
        demand(lists <= LISTS_PER_MINUTE, format!("{lists} lists in a minute"));
        demand(measured.follows, "a write after the recovery did not arrive".to_owned());
        missed
    }
}

// === impl Harm ===

impl Harm {
    pub(crate) fn over() -> Self {
        Self::default()
    }

    pub(crate) fn of(guard: FaultGuard) -> Self {
        Self::over().and(guard)
    }

    pub(crate) fn and(mut self, guard: FaultGuard) -> Self {
        self.guards.push(guard);
        self
    }

    /// The server is paused until the fault is healed.
    pub(crate) fn paused() -> Self {
        Self { paused: true, ..Self::default() }
    }

    async fn heal(&mut self, server: &TestServer) {
        self.guards.clear();
        if std::mem::take(&mut self.paused) {
            server.resume().await.expect("the server resumes");
        }
    }
}

// === impl Measured ===

impl Measured {
    pub(crate) fn worst(self, other: Self) -> Self {
        let longer = |a: Option<Duration>, b: Option<Duration>| Some(a?.max(b?));
        Self {
            detected: longer(self.detected, other.detected),
            recovered: longer(self.recovered, other.recovered),
            requests: self.requests.max(other.requests),
            probes: self.probes.max(other.probes),
            lists_per_minute: self.lists_per_minute.max(other.lists_per_minute),
            lists: self.lists.max(other.lists),
            follows: self.follows && other.follows,
        }
    }
}

// === one run ===

/// Inflicts the fault on an informer, and measures.
pub(crate) async fn measure(case: &Case, seed: u64) -> Measured {
    let options = FactoryOptions { seed: Some(seed), ..quiet() };
    let world =
        world_with((case.server)(TestServer::builder().clock_seed(seed)), (case.options)(options)).await;
    world.create("a", "before", "1");
    let mut run = Run::new(case, world);
    if !case.late_start {
        run.settle(seed).await;
    }
    run.begin();
    let mut harm = (case.inflict)(&run.world);
    if harm.paused {
        run.world.server.pause().await;
    }
    run.start();
    run.world.put("a", "written", "start");
    let detected = run.wait(Run::is_noticed).await;
    while run.begun.elapsed() < case.hold {
        run.step().await;
    }
    if !case.hold.is_zero() {
        run.world.put("a", "written", "end");
        harm.heal(&run.world.server).await;
    }
    let recovered = run.wait(Run::is_recovered).await;
    let lists = run.lists(run.begun);
    let meter = std::mem::take(&mut run.meter);
    let follows = run.follows().await;
    run.world.factory.shutdown(secs(1)).await;
    Measured {
        detected,
        recovered,
        requests: meter.worst_minute(|sample| sample.requests),
        probes: meter.worst_minute(|sample| sample.probes),
        lists_per_minute: meter.worst_minute(|sample| sample.lists),
        lists,
        follows,
    }
}

struct Run<'a> {
    case: &'a Case,
    world: World,
    maps: Option<Informer<ConfigMap>>,
    begun: Instant,
    /// What was counted when the fault began.
    deaths: u64,
    failures: u64,
    meter: Meter,
}

impl<'a> Run<'a> {
    fn new(case: &'a Case, world: World) -> Self {
        let begun = Instant::now();
        Self { case, world, maps: None, begun, deaths: 0, failures: 0, meter: Meter::default() }
    }

    /// Brings the informer to rest, at a moment between two probes that the seed chooses.
    async fn settle(&mut self, seed: u64) {
        self.start();
        self.maps().wait_synced(secs(5)).await.expect("synced");
        self.world.server.wait_for(|server| server.open_watches() == 1).await.expect("a watch");
        tokio::time::sleep(Duration::from_millis(20_000 + seed * 7_300 % 30_000)).await;
        assert!(self.maps().freshness().is_live(), "{}", self.maps().freshness());
    }

    fn start(&mut self) {
        let factory: &InformerFactory = &self.world.factory;
        self.maps.get_or_insert_with(|| factory.informer(InformerOptions::all()).expect("an informer"));
    }

    fn begin(&mut self) {
        self.begun = Instant::now();
        self.deaths = self.deaths_now();
        self.failures = self.maps.as_ref().map_or(0, |maps| maps.stats().failures);
        self.world.server.clear_requests();
    }

    fn maps(&self) -> &Informer<ConfigMap> {
        self.maps.as_ref().expect("the informer was started")
    }

    /// Waits; says how long since this was called, `None` if in vain.
    async fn wait(&mut self, reached: fn(&Self) -> bool) -> Option<Duration> {
        let from = Instant::now();
        while from.elapsed() < GIVE_UP {
            if reached(self) {
                return Some(from.elapsed());
            }
            self.step().await;
        }
        None
    }

    async fn step(&mut self) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if self.meter.is_due() {
            let sample = Sample {
                at: Instant::now(),
                requests: self.world.factory.transport().stats().requests,
                probes: self.world.factory.stats().probes,
                lists: self.lists(self.begun),
            };
            self.meter.0.push(sample);
        }
    }

    fn is_noticed(&self) -> bool {
        match self.case.notice {
            Notice::Death(_) => self.deaths_now() > self.deaths,
            Notice::Told => {
                let stats = self.maps().stats();
                let told = stats.last_trouble.is_some_and(|trouble| trouble.began >= self.begun);
                told || stats.failures > self.failures || !stats.freshness.is_live() || self.is_recovered()
            }
        }
    }

    fn deaths_now(&self) -> u64 {
        match self.case.notice {
            Notice::Death(kind) => {
                self.world.factory.transport().stats().deaths.get(kind).copied().unwrap_or_default()
            }
            Notice::Told => 0,
        }
    }

    /// The content is the server's, and called live.
    fn is_recovered(&self) -> bool {
        let maps = self.maps();
        if !maps.freshness().is_live() {
            return false;
        }
        let (objects, _) = self.world.server.list("configmaps", None).expect("config maps");
        let snapshot = maps.snapshot();
        let same = |(ours, theirs): (skopos::Object<ConfigMap>, &serde_json::Value)| {
            ours.name() == theirs["metadata"]["name"] && *ours.resource_version() == revision(theirs).into()
        };
        snapshot.len() == objects.len() && snapshot.iter().map(|o| o.clone()).zip(&objects).all(same)
    }

    /// Lists of this informer that have reached the server, streamed ones included.
    fn lists(&self, _since: Instant) -> u64 {
        let requests = self.world.server.requests();
        let is_list = |record: &&skopos_testserver::RequestRecord| {
            record.resource.as_deref() == Some("configmaps")
                && match record.verb {
                    "list" => record.query_param("limit").as_deref() != Some("1"),
                    _ => record.query_param("sendInitialEvents").as_deref() == Some("true"),
                }
        };
        requests.iter().filter(is_list).count() as u64
    }

    /// Whether a write arrives at once.
    async fn follows(&mut self) -> bool {
        let revision = self.world.put("a", "written", "after");
        self.maps().wait_for(&revision.into(), secs(2)).await.is_ok()
    }
}

/// Figures, once a second.
#[derive(Default)]
struct Meter(Vec<Sample>);

#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    requests: u64,
    probes: u64,
    lists: u64,
}

impl Meter {
    fn is_due(&self) -> bool {
        self.0.last().is_none_or(|last| last.at.elapsed() >= secs(1))
    }

    fn worst_minute(&self, figure: fn(&Sample) -> u64) -> u64 {
        let window = |from: &Sample| {
            let inside = self.0.iter().take_while(|to| to.at <= from.at + secs(60));
            inside.last().map_or(0, |to| figure(to).saturating_sub(figure(from)))
        };
        self.0.iter().map(window).max().unwrap_or_default()
    }
}
