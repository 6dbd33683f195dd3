//! Proofs of the content's age: consistent reads of one object's metadata, one at a time per resource, for all informers of
//! the resource.
//!
//! ```text
//!  informers of pods ──subscribe──▶ Prober(pods) ──LIST limit=1, every 24 to 30 s, or when a read asks──▶ API server
//!         ▲                              │
//!         └────── Probe { sent_at, resource_version } ──┘
//! ```
//!
//! The resource version of any consistent list is that of the whole storage, so namespace, name and version of the probe do
//! not matter. They are those of a subscriber all the same: other objects may not be readable, or served.

mod rotation;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use skopos_reflect::Target;
use skopos_wire::ResourceVersion;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::rotation::{Candidate, Candidates, ProbeKey, TargetRotation};
use crate::error::LiveError;
use crate::sync::Mutex;

/// The result of a probe: at some moment after `sent_at` the newest revision was `resource_version`.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) sent_at: Instant,
    pub(crate) resource_version: ResourceVersion,
}

/// The last probe, successful or not.
#[derive(Clone, Debug)]
pub(crate) struct ProbeOutcome {
    /// The number of the probe, from 1, in the order in which probes begin. It orders two moments that a clock cannot
    /// distinguish.
    number: u64,
    pub(crate) sent_at: Instant,
    pub(crate) result: Result<ResourceVersion, LiveError>,
}

/// The function that sends a probe for the target, and returns its answer within the deadline.
pub(crate) type ProbeFn = Arc<dyn Fn(Target) -> ProbeFuture + Send + Sync>;
pub(crate) type ProbeFuture = Pin<Box<dyn Future<Output = Result<ResourceVersion, LiveError>> + Send>>;

/// A callback for successful probes. Must not block.
pub(crate) type ProbeListener = Arc<dyn Fn(&Probe) + Send + Sync>;

/// A callback that returns whether the list/watch of a subscriber's target is open, by the target's index. Must not block.
pub(crate) type IsWatching = Arc<dyn Fn(usize) -> bool + Send + Sync>;

/// The time after a successful probe in which a request needs no new one, so that many reflectors that recover at once share it.
const MIN_PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// The delays before a failed probe is retried: at first twice the former, at last the latter. A server in trouble is not
/// burdened.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// The number of targets that are asked one after the other while the server refuses them.
const MAX_TARGETS_PER_PROBE: usize = 3;

/// The times of a prober.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeTimes {
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
}

/// The prober of one resource. Its task ends when it is dropped.
pub(crate) struct Prober {
    core: Arc<ProberCore>,
    _stop: DropGuard,
}

struct ProberCore {
    times: ProbeTimes,
    send: ProbeFn,
    subscribers: Mutex<BTreeMap<u64, Subscriber>>,
    next_id: AtomicU64,
    /// The demand of waiting callers that is not satisfied yet.
    wanted: Mutex<Option<Demand>>,
    demand: Notify,
    last: watch::Sender<Option<ProbeOutcome>>,
    /// The number of the probe that began last.
    begun: AtomicU64,
    sent: AtomicU64,
    failed: AtomicU64,
}

/// The probe that callers wait for.
#[derive(Clone, Copy, Debug)]
struct Demand {
    /// Satisfied by a probe that began after the one of this number, whatever its result.
    after: u64,
    /// Or by a successful probe, sent at or after this time.
    or_proof: Option<Instant>,
}

struct Subscriber {
    targets: Vec<Target>,
    is_watching: IsWatching,
    listener: ProbeListener,
}

/// A subscription, which ends when it is dropped. The last one of a prober ends its task.
pub(crate) struct Subscription {
    prober: Arc<Prober>,
    id: u64,
}

impl Prober {
    /// Starts a prober in a task that `tasks` tracks and `stop` ends.
    pub(crate) fn start(
        times: ProbeTimes,
        send: ProbeFn,
        tasks: &TaskTracker,
        stop: &CancellationToken,
        mut random: fastrand::Rng,
    ) -> Arc<Self> {
        let core = Arc::new(ProberCore::new(times, send));
        let stop = stop.child_token();
        let (running, until) = (core.clone(), stop.clone());
        tasks.spawn(async move {
            until.run_until_cancelled(running.probe_forever(&mut random)).await;
        });
        Arc::new(Self { core, _stop: stop.drop_guard() })
    }

    /// Calls `listener` for every later successful probe, whichever of the subscribers' targets it was for.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        targets: impl IntoIterator<Item = Target>,
        is_watching: IsWatching,
        listener: ProbeListener,
    ) -> Subscription {
        let id = self.core.next_id.fetch_add(1, Ordering::Relaxed);
        let targets = targets.into_iter().collect();
        self.core.subscribers.lock().insert(id, Subscriber { targets, is_watching, listener });
        Subscription { prober: self.clone(), id }
    }

    /// Requests a probe that is sent after this call, and waits for it. A successful one that was sent after `since` does
    /// as well. All concurrent callers share one. The caller must set a timeout.
    pub(crate) async fn probe_after(&self, since: Instant) -> ProbeOutcome {
        let mut last = self.core.last.subscribe();
        let after = self.core.begun.load(Ordering::SeqCst);
        let demand = Demand { after, or_proof: Some(since + Duration::from_nanos(1)) };
        self.core.add_demand(demand);
        let met =
            |outcome: &Option<ProbeOutcome>| outcome.as_ref().is_some_and(|o| demand.is_satisfied_by(o));
        match last.wait_for(met).await.map(|outcome| outcome.clone()) {
            Ok(Some(outcome)) => outcome,
            // The sender is in `self`, and the predicate demands an outcome: neither can happen.
            _ => std::future::pending().await,
        }
    }

    /// Requests a probe now, unless one has just succeeded, and does not wait for it.
    pub(crate) fn request_probe(&self) {
        let now = Instant::now();
        let after = self.core.begun.load(Ordering::SeqCst);
        self.core
            .add_demand(Demand { after, or_proof: Some(now.checked_sub(MIN_PROBE_INTERVAL).unwrap_or(now)) });
    }

    /// Returns the number of probes that were sent, and of those that failed.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.core.sent.load(Ordering::Relaxed), self.core.failed.load(Ordering::Relaxed))
    }
}

impl ProberCore {
    fn new(times: ProbeTimes, send: ProbeFn) -> Self {
        Self {
            times,
            send,
            subscribers: Mutex::default(),
            next_id: AtomicU64::new(0),
            wanted: Mutex::new(None),
            demand: Notify::new(),
            last: watch::channel(None).0,
            begun: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    fn add_demand(&self, demand: Demand) {
        {
            let mut wanted = self.wanted.lock();
            let open = wanted.filter(|wanted| !self.is_satisfied(*wanted));
            *wanted = Some(open.map_or(demand, |open| open.and(demand)));
        }
        self.demand.notify_one();
    }

    async fn probe_forever(&self, random: &mut fastrand::Rng) {
        // A first list has just proven the age; many resources that start at once must not probe at once.
        let mut next = after(self.times.interval.mul_f64(0.5 + random.f64() / 2.0));
        let mut rotation = TargetRotation::default();
        let mut after_failure = RETRY_DELAYS.0;
        loop {
            if !self.is_wanted() {
                tokio::select! {
                    biased;
                    () = sleep_until(next) => {}
                    () = self.demand.notified() => {
                        if !self.is_wanted() {
                            continue;
                        }
                    }
                }
            }
            self.probe(&mut rotation).await;
            let failed = self.last.borrow().as_ref().is_some_and(|outcome| outcome.result.is_err());
            after_failure = if failed { (after_failure * 2).min(RETRY_DELAYS.1) } else { RETRY_DELAYS.0 };
            let interval = if failed { self.times.interval.min(after_failure) } else { self.times.interval };
            next = after(interval.mul_f64(0.8 + random.f64() / 5.0));
        }
    }

    fn is_wanted(&self) -> bool {
        self.wanted.lock().is_some_and(|wanted| !self.is_satisfied(wanted))
    }

    fn is_satisfied(&self, demand: Demand) -> bool {
        self.last.borrow().as_ref().is_some_and(|last| demand.is_satisfied_by(last))
    }

    async fn probe(&self, rotation: &mut TargetRotation) {
        let mut candidates = self.candidates();
        if candidates.is_empty() {
            *self.wanted.lock() = None;
        }
        rotation.prune(&candidates);
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let mut outcome = None;
        for _ in 0..MAX_TARGETS_PER_PROBE {
            let Some((key, target)) = rotation.take(&mut candidates) else { break };
            let sent_at = Instant::now();
            self.sent.fetch_add(1, Ordering::Relaxed);
            let waited = self.times.timeout.saturating_add(Duration::from_secs(1));
            let result =
                timeout(waited, (self.send)(target)).await.unwrap_or(Err(LiveError::Deadline { waited }));
            let refused = result.as_ref().is_err_and(LiveError::is_refused_by_target);
            // A single target may fail (the conversion of its version, a limit of its namespace), so another is asked next;
            // but a server in trouble is not asked three times as often.
            match result.is_ok() {
                true => rotation.answered(key),
                false => rotation.failed(key),
            }
            outcome = Some(ProbeOutcome { number, sent_at, result });
            if !refused {
                break;
            }
        }
        let Some(outcome) = outcome else { return };
        match &outcome.result {
            Ok(resource_version) => {
                self.notify(&Probe { sent_at: outcome.sent_at, resource_version: resource_version.clone() });
            }
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(%error, "probe failed");
            }
        }
        self.last.send_replace(Some(outcome));
    }

    /// Returns one target for each scope, name and version of the subscribers.
    fn candidates(&self) -> Candidates {
        let mut candidates = Candidates::new();
        for subscriber in self.subscribers.lock().values() {
            for (index, target) in subscriber.targets.iter().enumerate() {
                let new = || Candidate { target: target.clone(), is_watching: false };
                let candidate = candidates.entry(ProbeKey::new(target)).or_insert_with(new);
                candidate.is_watching = candidate.is_watching || (subscriber.is_watching)(index);
            }
        }
        candidates
    }

    fn notify(&self, probe: &Probe) {
        // Not under the lock: a listener may be dropped, and with it a subscription.
        let listeners: Vec<ProbeListener> =
            self.subscribers.lock().values().map(|s| s.listener.clone()).collect();
        for listener in listeners {
            listener(probe);
        }
    }
}

/// Returns the instant after `wait`, at most a year from now.
fn after(wait: Duration) -> Instant {
    const MAX_WAIT: Duration = Duration::from_secs(60 * 60 * 24 * 365);
    Instant::now() + wait.min(MAX_WAIT)
}

impl Demand {
    /// Returns the demand that satisfies both.
    fn and(self, other: Self) -> Self {
        let or_proof = self.or_proof.zip(other.or_proof).map(|(one, another)| one.max(another));
        Self { after: self.after.max(other.after), or_proof }
    }

    fn is_satisfied_by(self, outcome: &ProbeOutcome) -> bool {
        let proves = || self.or_proof.is_some_and(|since| outcome.result.is_ok() && outcome.sent_at >= since);
        outcome.number > self.after || proves()
    }
}

impl Subscription {
    pub(crate) fn prober(&self) -> &Arc<Prober> {
        &self.prober
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.prober.core.subscribers.lock().remove(&self.id);
    }
}

impl fmt::Debug for Prober {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prober").field("last", &*self.core.last.borrow()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::RefusalError;

    const TIMES: ProbeTimes =
        ProbeTimes { interval: Duration::from_secs(30), timeout: Duration::from_secs(10) };

    fn target(namespace: Option<&str>) -> Target {
        let pods = Target::new("", "v1", "pods");
        match namespace {
            Some(namespace) => pods.in_namespace(namespace),
            None => pods,
        }
    }

    struct ProberFixture {
        prober: Arc<Prober>,
        tasks: TaskTracker,
    }

    impl ProberFixture {
        /// Subscribes with a list/watch that is open or not, and with a listener that does nothing.
        fn subscribe(&self, target: Target, is_watching: bool) -> Subscription {
            self.prober.subscribe([target], Arc::new(move |_| is_watching), Arc::new(|_| {}))
        }
    }

    fn start(send: ProbeFn) -> ProberFixture {
        let tasks = TaskTracker::new();
        let random = fastrand::Rng::with_seed(1);
        let prober = Prober::start(TIMES, send, &tasks, &CancellationToken::new(), random);
        ProberFixture { prober, tasks }
    }

    fn answering(rv: u64, after: Duration) -> ProbeFn {
        Arc::new(move |_| {
            Box::pin(async move {
                tokio::time::sleep(after).await;
                Ok(rv.into())
            })
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_informers_share_one_probe() {
        let running = start(answering(7, Duration::from_millis(5)));
        let told = Arc::new(AtomicU64::new(0));
        let subscriptions: Vec<_> = (0..1000)
            .map(|_| {
                let told = told.clone();
                let listener: ProbeListener = Arc::new(move |probe| {
                    assert_eq!(probe.resource_version, 7.into());
                    told.fetch_add(1, Ordering::Relaxed);
                });
                running.prober.subscribe([target(None)], Arc::new(|_| true), listener)
            })
            .collect();
        let mut outcomes = running.prober.core.last.subscribe();
        outcomes.changed().await.unwrap();
        assert_eq!(told.load(Ordering::Relaxed), 1000);
        assert_eq!(running.prober.counts(), (1, 0));
        let ProberFixture { prober, tasks } = running;
        drop(prober);
        assert_eq!(tasks.len(), 1);
        drop(subscriptions);
        tasks.close();
        tasks.wait().await;
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_share_probe_sent_after_request() {
        let running = start(answering(7, Duration::from_millis(100)));
        let _subscription = running.subscribe(target(None), false);
        let begun = Instant::now();
        let waits = (0..50).map(|_| running.prober.probe_after(Instant::now()));
        futures::future::join_all(waits).await;
        assert_eq!(running.prober.counts(), (1, 0));
        assert_eq!(begun.elapsed(), Duration::from_millis(100));
        // While a probe is in flight that was sent too early, another follows it.
        let early = running.prober.probe_after(Instant::now());
        tokio::pin!(early);
        assert!(timeout(Duration::from_millis(50), &mut early).await.is_err());
        let late_from = Instant::now();
        let late = running.prober.probe_after(Instant::now()).await;
        assert!(late.sent_at >= late_from);
        assert_eq!(running.prober.counts(), (3, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn probe_sent_at_same_instant_is_not_reused() {
        let running = start(answering(7, Duration::ZERO));
        let _subscription = running.subscribe(target(None), false);
        // The clock does not advance between the two calls.
        let (first, begun) = (running.prober.probe_after(Instant::now()).await, Instant::now());
        let second = running.prober.probe_after(Instant::now()).await;
        assert_eq!((first.sent_at, second.sent_at), (begun, begun));
        assert_eq!((first.number, second.number), (1, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn recovered_reflector_is_probed_despite_failure() {
        let up = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let is_up = up.clone();
        let running = start(Arc::new(move |_| {
            let up = is_up.load(Ordering::Relaxed);
            let answer = if up { Ok(7.into()) } else { Err(LiveError::Malformed("down".to_owned())) };
            Box::pin(std::future::ready(answer))
        }));
        let _subscription = running.subscribe(target(None), false);
        assert!(running.prober.probe_after(Instant::now()).await.result.is_err());
        tokio::time::advance(Duration::from_millis(500)).await;
        up.store(true, Ordering::Relaxed);
        let mut outcomes = running.prober.core.last.subscribe();
        let begun = Instant::now();
        running.prober.request_probe();
        outcomes.changed().await.unwrap();
        assert!(outcomes.borrow().as_ref().is_some_and(|outcome| outcome.result.is_ok()));
        assert!(begun.elapsed() < Duration::from_millis(10));
        // A probe that has just succeeded is enough for all the other reflectors that are back.
        running.prober.request_probe();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(running.prober.counts(), (2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn forbidden_namespace_yields_to_another() {
        let send: ProbeFn = Arc::new(|target| {
            Box::pin(async move {
                match target.namespace.as_deref() {
                    Some("b") => Ok(7.into()),
                    _ => Err(LiveError::Refused(RefusalError::new(403, None))),
                }
            })
        });
        let running = start(send);
        let _a = running.subscribe(target(Some("a")), false);
        let _b = running.subscribe(target(Some("b")), false);
        assert!(running.prober.probe_after(Instant::now()).await.result.is_ok());
        assert_eq!(running.prober.counts(), (2, 0));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(running.prober.probe_after(Instant::now()).await.result.is_ok());
        assert_eq!(running.prober.counts(), (3, 0), "what worked is asked first");
    }

    #[tokio::test(start_paused = true)]
    async fn unserved_version_yields_to_another() {
        for code in [401, 404, 406, 429, 500] {
            let send: ProbeFn = Arc::new(move |target| {
                Box::pin(async move {
                    match &*target.version {
                        "v1" => Ok(7.into()),
                        _ => Err(LiveError::Refused(RefusalError::new(code, None))),
                    }
                })
            });
            let running = start(send);
            let of = |version| Target::new("example.org", version, "widgets");
            let _old = running.subscribe(of("v1"), false);
            let _older = running.subscribe(of("v0"), false);
            let first = running.prober.probe_after(Instant::now()).await;
            // A server that fails is not asked again sooner than usual.
            let at_once = matches!(code, 404 | 406);
            assert_eq!(first.result.is_ok(), at_once, "{code}");
            assert_eq!(running.prober.counts().0, if at_once { 2 } else { 1 });
            tokio::time::sleep(Duration::from_secs(3)).await;
            let last = running.prober.core.last.borrow().clone();
            assert!(last.is_some_and(|outcome| outcome.result.is_ok()), "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn forbidden_name_yields_to_another() {
        let send: ProbeFn = Arc::new(|target| {
            Box::pin(async move {
                match target.name().as_deref() {
                    Some("mine") => Ok(7.into()),
                    _ => Err(LiveError::Refused(RefusalError::new(403, None))),
                }
            })
        });
        let running = start(send);
        let of =
            |fields: &str| target(Some("a")).with_fields(&skopos_wire::FieldSelector::parse(fields).unwrap());
        let _all = running.subscribe(of(""), false);
        let _mine = running.subscribe(of("metadata.name=mine"), false);
        assert!(running.prober.probe_after(Instant::now()).await.result.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn many_forbidden_targets_do_not_delay_allowed_one() {
        let send: ProbeFn = Arc::new(|target| {
            Box::pin(async move {
                match target.namespace.as_deref() {
                    Some("z") => Ok(7.into()),
                    _ => Err(LiveError::Refused(RefusalError::new(403, None))),
                }
            })
        });
        let running = start(send);
        let subscribe = |namespace: &str| running.subscribe(target(Some(namespace)), namespace == "z");
        let mut refused: Vec<_> = (0..200).map(|n| subscribe(&format!("a{n}"))).collect();
        let _z = subscribe("z");
        for _ in 0..2 {
            let begun = Instant::now();
            let mut outcomes = running.prober.core.last.subscribe();
            let sent = outcomes
                .wait_for(|last| last.as_ref().is_some_and(|o| o.result.is_ok() && o.sent_at >= begun));
            drop(sent.await.unwrap());
            assert!(begun.elapsed() <= Duration::from_secs(60), "{:?}", begun.elapsed());
            // Now another target is first in line.
            refused.remove(0);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_is_not_answered_fails_in_time() {
        let running = start(Arc::new(|_| Box::pin(std::future::pending())));
        let _subscription = running.subscribe(target(None), false);
        let begun = Instant::now();
        let outcome = running.prober.probe_after(Instant::now()).await;
        assert!(matches!(outcome.result, Err(LiveError::Deadline { .. })));
        assert_eq!(begun.elapsed(), TIMES.timeout + Duration::from_secs(1));
    }
}
