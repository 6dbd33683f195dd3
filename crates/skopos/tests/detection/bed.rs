//! One run of one fault.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use skopos::{FactoryOptions, Informer, InformerFactory, InformerOptions};
use skopos_testserver::{FaultGuard, RequestRecord, TestServer, TestServerBuilder};
use tokio::time::Instant;

use super::bounds::{Bounds, LISTS_PER_MINUTE, REQUESTS_PER_MINUTE, Whose};
use super::support::*;

/// A fault, and its promised bounds.
pub(crate) struct Case {
    pub(crate) fault: &'static str,
    pub(crate) bounds: Bounds,
    load: Whose,
    /// The duration of the fault.
    pub(crate) hold: Duration,
    /// The event that counts as noticing.
    notice: Notice,
    /// True if the informer starts when the fault is there already.
    late_start: bool,
    server: fn(TestServerBuilder) -> TestServerBuilder,
    options: fn(FactoryOptions) -> FactoryOptions,
    prepare: fn(&World),
    inflict: Box<dyn Fn(&World) -> Harm>,
}

/// The events that count as noticing a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Notice {
    /// The content is no longer live, a trouble or a failure is reported, or the written object has arrived all the same.
    Told,
    /// The transport gave up a request or connection for this reason.
    ConnectionError(&'static str),
    /// The content is correct all the same.
    Recovered,
}

/// A fault that was inflicted.
#[derive(Default)]
pub(crate) struct Harm {
    guards: Vec<FaultGuard>,
    paused: bool,
    compacted: bool,
}

/// The results of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) detected: Option<Duration>,
    pub(crate) recovered: Option<Duration>,
    /// The load in the worst minute.
    pub(crate) worst: Load,
    /// The number of lists from the fault to the recovery.
    pub(crate) lists: u64,
    /// True if a write after the recovery arrived at once.
    pub(crate) follows: bool,
}

/// The requests in a minute.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// All requests, as the transport counts them: also those that vanish on their way.
    pub(crate) requests: u64,
    /// Probes that reached the server.
    pub(crate) probes: u64,
    /// Lists that reached the server, streamed ones included.
    pub(crate) lists: u64,
}

/// The tolerance: this test checks every 20 ms, and a watch that ended in order is opened again within 100 ms.
const SLACK: Duration = Duration::from_millis(120);

/// The time after which a fault counts as never noticed.
const GIVE_UP: Duration = Duration::from_secs(1500);

impl Case {
    /// Creates a fault that lasts for this number of seconds.
    pub(crate) fn lasting(
        fault: &'static str,
        bounds: Bounds,
        seconds: u64,
        inflict: impl Fn(&World) -> Harm + 'static,
    ) -> Self {
        Self {
            fault,
            bounds,
            load: Whose::Informer,
            hold: secs(seconds),
            notice: Notice::Told,
            late_start: false,
            server: |builder| builder,
            options: |options| options,
            prepare: |_| (),
            inflict: Box::new(inflict),
        }
    }

    /// Creates a fault from which the client can recover as soon as it has noticed it.
    pub(crate) fn once(
        fault: &'static str,
        bounds: Bounds,
        inflict: impl Fn(&World) -> Harm + 'static,
    ) -> Self {
        Self::lasting(fault, bounds, 0, inflict)
    }

    pub(crate) fn load(self, load: Whose) -> Self {
        Self { load, ..self }
    }

    pub(crate) fn noticed_as(self, error_kind: &'static str) -> Self {
        Self { notice: Notice::ConnectionError(error_kind), ..self }
    }

    pub(crate) fn noticed_when_recovered(self) -> Self {
        Self { notice: Notice::Recovered, ..self }
    }

    /// Sets what happens before the informer starts.
    pub(crate) fn prepare(self, prepare: fn(&World)) -> Self {
        Self { prepare, ..self }
    }

    pub(crate) fn late_start(self) -> Self {
        Self { late_start: true, ..self }
    }

    pub(crate) fn options(self, options: fn(FactoryOptions) -> FactoryOptions) -> Self {
        Self { options, ..self }
    }

    /// Returns the bounds that do not hold, as text.
    pub(crate) fn missed(&self, measured: &Measured) -> Vec<String> {
        let within = |took: Option<Duration>, bound: Duration| took.is_some_and(|took| took <= bound + SLACK);
        let Measured { detected, recovered, worst, follows, .. } = *measured;
        let little = worst.requests_from(self.load) <= REQUESTS_PER_MINUTE && worst.lists <= LISTS_PER_MINUTE;
        let demands = [
            (within(detected, self.bounds.detect.within), format!("noticed after {detected:?}")),
            (within(recovered, self.bounds.recover.within), format!("recovered after {recovered:?}")),
            (follows, "a write after the recovery did not arrive".to_owned()),
            (little, format!("too many requests in a minute: {worst:?}")),
        ];
        let missed = demands.into_iter().filter(|(holds, _)| !holds);
        missed.map(|(_, what)| format!("{}: {what}", self.fault)).collect()
    }
}

impl Harm {
    pub(crate) fn over() -> Self {
        Self::default()
    }

    pub(crate) fn new(guard: FaultGuard) -> Self {
        Self::over().and(guard)
    }

    pub(crate) fn and(mut self, guard: FaultGuard) -> Self {
        self.guards.push(guard);
        self
    }

    /// Pauses the server until the fault is healed.
    pub(crate) fn paused() -> Self {
        Self { paused: true, ..Self::default() }
    }

    /// Pauses the server, and compacts its history when the fault is healed.
    pub(crate) fn paused_and_compacted() -> Self {
        Self { compacted: true, ..Self::paused() }
    }

    async fn heal(&mut self, server: &TestServer) {
        self.guards.clear();
        if self.compacted {
            server.compact();
        }
        if std::mem::take(&mut self.paused) {
            server.resume().await.expect("the server resumes");
        }
    }
}

impl Measured {
    pub(crate) fn worst(self, other: Self) -> Self {
        let longer = |a: Option<Duration>, b: Option<Duration>| Some(a?.max(b?));
        Self {
            detected: longer(self.detected, other.detected),
            recovered: longer(self.recovered, other.recovered),
            worst: self.worst.max(other.worst),
            lists: self.lists.max(other.lists),
            follows: self.follows && other.follows,
        }
    }
}

impl Load {
    fn requests_from(self, whose: Whose) -> u64 {
        match whose {
            Whose::Informer => self.informers(),
            Whose::DeadCluster => self.requests,
        }
    }

    /// Returns all requests except the probes.
    pub(crate) fn informers(self) -> u64 {
        self.requests.saturating_sub(self.probes)
    }

    fn max(self, other: Self) -> Self {
        Self {
            requests: self.requests.max(other.requests),
            probes: self.probes.max(other.probes),
            lists: self.lists.max(other.lists),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            probes: self.probes.saturating_sub(before.probes),
            lists: self.lists.saturating_sub(before.lists),
        }
    }
}

/// Inflicts the fault on an informer, and measures.
pub(crate) async fn measure(case: &Case, seed: u64) -> Measured {
    let options = FactoryOptions { seed: Some(seed), ..quiet() };
    let world =
        world_with((case.server)(TestServer::builder().clock_seed(seed)), (case.options)(options)).await;
    world.create("a", "before", "1");
    (case.prepare)(&world);
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
    let detected = run.wait(run.begun, Run::is_noticed).await;
    while run.begun.elapsed() < case.hold {
        run.step(secs(1) / 2).await;
    }
    // The recovery's own requests are not part of the fault's load.
    let mut load = None;
    if !case.hold.is_zero() {
        load = Some(run.meter.worst_minute());
        run.world.put("a", "written", "end");
        harm.heal(&run.world.server).await;
    }
    let recovered = run.wait(Instant::now(), Run::is_recovered).await;
    run.meter.0.push(run.sample());
    let meter = std::mem::take(&mut run.meter);
    let worst = load.unwrap_or_else(|| meter.worst_minute());
    let follows = run.follows().await;
    run.world.factory.shutdown(secs(1)).await;
    Measured { detected, recovered, worst, lists: meter.all().lists, follows }
}

struct Run<'a> {
    case: &'a Case,
    world: World,
    maps: Option<Informer<ConfigMap>>,
    begun: Instant,
    /// The count of connection errors when the fault began.
    errors: u64,
    failures: u64,
    meter: Meter,
}

impl<'a> Run<'a> {
    fn new(case: &'a Case, world: World) -> Self {
        let begun = Instant::now();
        Self { case, world, maps: None, begun, errors: 0, failures: 0, meter: Meter::default() }
    }

    /// Lets the informer settle, until a moment between two probes that the seed chooses.
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
        self.errors = self.errors_now();
        self.failures = self.maps.as_ref().map_or(0, |maps| maps.stats().failures);
        self.meter.0.push(self.sample());
    }

    fn maps(&self) -> &Informer<ConfigMap> {
        self.maps.as_ref().expect("the informer was started")
    }

    /// Waits until `reached` holds. Returns how long it took since `from`, or `None` after `GIVE_UP`.
    async fn wait(&mut self, from: Instant, reached: fn(&Self) -> bool) -> Option<Duration> {
        while from.elapsed() < GIVE_UP {
            if reached(self) {
                return Some(from.elapsed());
            }
            let fine = from.elapsed() < secs(100);
            self.step(Duration::from_millis(if fine { 20 } else { 100 })).await;
        }
        None
    }

    async fn step(&mut self, pause: Duration) {
        tokio::time::sleep(pause).await;
        if self.meter.is_due() {
            self.meter.0.push(self.sample());
        }
    }

    fn sample(&self) -> Sample {
        let load = Load {
            requests: self.world.factory.transport().stats().requests,
            probes: self.counted(|record| is_of_the_kind(record) && is_probe(record)),
            lists: self.counted(|record| is_of_the_kind(record) && is_list(record)),
        };
        Sample { at: Instant::now(), load }
    }

    /// Returns the number of such requests that have reached the server.
    fn counted(&self, which: fn(&RequestRecord) -> bool) -> u64 {
        self.world.server.requests().iter().filter(|record| which(record)).count() as u64
    }

    fn is_noticed(&self) -> bool {
        match self.case.notice {
            Notice::ConnectionError(_) => self.errors_now() > self.errors,
            Notice::Recovered => self.is_recovered(),
            Notice::Told => {
                let stats = self.maps().stats();
                let told = stats.last_trouble.is_some_and(|trouble| trouble.began >= self.begun);
                // Content that never synced is not live, and that does not count.
                let stale = !self.case.late_start && !stats.freshness.is_live();
                told || stale || stats.failures > self.failures || self.is_recovered()
            }
        }
    }

    fn errors_now(&self) -> u64 {
        match self.case.notice {
            Notice::ConnectionError(kind) => {
                self.world.factory.transport().stats().errors.get(kind).copied().unwrap_or_default()
            }
            Notice::Told | Notice::Recovered => 0,
        }
    }

    /// Returns whether the content is the server's, and live.
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
        snapshot.len() == objects.len() && snapshot.iter().zip(&objects).all(same)
    }

    /// Returns whether a write arrives at once.
    async fn follows(&mut self) -> bool {
        let revision = self.world.put("a", "written", "after");
        self.maps().wait_for(&revision.into(), secs(2)).await.is_ok()
    }
}

fn is_of_the_kind(record: &RequestRecord) -> bool {
    record.resource.as_deref() == Some("configmaps")
}

fn is_probe(record: &RequestRecord) -> bool {
    record.verb == "list" && record.query_param("limit").as_deref() == Some("1")
}

/// Returns whether the request is a list, including a streamed one.
fn is_list(record: &RequestRecord) -> bool {
    match record.verb {
        "list" => !is_probe(record),
        _ => record.query_param("sendInitialEvents").as_deref() == Some("true"),
    }
}

/// Samples of the load, once a second.
#[derive(Default)]
struct Meter(Vec<Sample>);

#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    /// The load since the beginning.
    load: Load,
}

impl Meter {
    fn is_due(&self) -> bool {
        self.0.last().is_none_or(|last| last.at.elapsed() >= secs(1))
    }

    fn all(&self) -> Load {
        let (first, last) = (self.0.first(), self.0.last());
        first.zip(last).map_or_else(Load::default, |(first, last)| last.load.since(first.load))
    }

    /// Returns the maximum in any minute.
    fn worst_minute(&self) -> Load {
        let minute = |from: &Sample| {
            let inside = self.0.iter().take_while(|to| to.at <= from.at + secs(60));
            inside.last().map_or_else(Load::default, |to| to.load.since(from.load))
        };
        self.0.iter().map(minute).fold(Load::default(), Load::max)
    }
}
