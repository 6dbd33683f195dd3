use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, OptionFuture, select_all};
use futures::stream::{FuturesUnordered, StreamExt as _};
use k8s_openapi::api::core::v1::Namespace;
use skopos::{Informer, InformerFactory};
use skopos_reflect::{Clock, Time, exponential_delay};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::event_feed::{EventFeed, FeedState, told_changes};
use super::handle::SinkCommand;
use super::report::SinkReport;
use super::sink_loop::TICK;
use crate::event::{
    Delivery, DeliveryOutcome, EventKey, EventMessage, EventReceiver, EventSource, FieldPath, Ledger,
    LedgerChange, LedgerError, LedgerStore, Outbox, OutboxOptions,
};
use crate::plan::{HeldRemovals, HoldReason, Removal};

/// Options of a receiver and the objects that it gets.
pub struct EventSinkOptions {
    /// Its name, for people and metrics.
    pub name: String,
    /// The receiver.
    pub receiver: Arc<dyn EventReceiver>,
    /// The objects, each resource once.
    pub sources: Vec<EventSource>,
    /// Place of the ledger.
    pub ledgers: Arc<dyn LedgerStore>,
    /// Number of messages that are in flight at the same time. Default 16.
    pub parallel: usize,
    /// Delay until a list may confirm a deletion that was not seen. Default 30 s.
    pub confirm: Duration,
    /// Delay before a ledger that another process has taken over is opened again. Default 60 s, longer than the end of a term
    /// is unnoticed.
    pub reopen: Duration,
    /// The number of the leader's term, which is sent to receivers.
    pub term: Option<u64>,
    /// Seed of the jitter of pauses. Default: random.
    pub seed: Option<u64>,
}

/// The loop of one receiver.
pub(super) struct EventLoop {
    pub(super) options: EventSinkOptions,
    pub(super) factory: InformerFactory,
    /// `kube-system`, whose uid is the cluster's identity.
    pub(super) identity: Informer<Namespace>,
    pub(super) clock: Clock,
    pub(super) commands: mpsc::Receiver<SinkCommand>,
    pub(super) reports: watch::Sender<Arc<SinkReport>>,
}

/// State of the loop once it is connected.
struct Rounds {
    feeds: Vec<EventFeed>,
    outbox: Outbox,
    ledger: Arc<dyn Ledger>,
    /// Messages to send once the ledger is on disk.
    batch: Vec<Delivery>,
    commit: Option<BoxFuture<'static, Commit>>,
    commit_at: Time,
    failed_commits: u32,
    ledger_problem: Option<String>,
    /// True if the ledger has to be opened again.
    is_over: bool,
    in_flight: FuturesUnordered<BoxFuture<'static, (EventKey, DeliveryOutcome)>>,
    /// The fields that are reported, by resource.
    fields: BTreeMap<Arc<str>, Arc<[FieldPath]>>,
    equal_as_of: Option<Time>,
    held: Vec<HeldRemovals>,
    sink_problem: Option<String>,
    steps: BTreeMap<String, u64>,
}

type Commit = (Arc<Vec<LedgerChange>>, Result<(), LedgerError>);

/// Pauses between two attempts after a failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(10);
/// Time that messages in flight get at the end.
const GRACE: Duration = Duration::from_secs(3);

impl EventSinkOptions {
    /// Returns the defaults for a receiver.
    pub fn new(
        name: impl Into<String>,
        receiver: Arc<dyn EventReceiver>,
        sources: Vec<EventSource>,
        ledgers: Arc<dyn LedgerStore>,
    ) -> Self {
        Self {
            name: name.into(),
            receiver,
            sources,
            ledgers,
            parallel: 16,
            confirm: Duration::from_secs(30),
            reopen: Duration::from_secs(60),
            term: None,
            seed: None,
        }
    }

    /// Returns the options of the outbox.
    pub(super) fn outbox(&self) -> OutboxOptions {
        OutboxOptions {
            sink: self.name.clone(),
            changes: told_changes(&self.sources),
            confirm: self.confirm,
            seed: self.seed.unwrap_or_else(|| fastrand::u64(..)),
            ..OutboxOptions::default()
        }
    }
}

impl EventLoop {
    pub(super) async fn run(mut self, stop: CancellationToken) {
        while let Some(mut rounds) = stop.run_until_cancelled(self.connect()).await {
            self.work(&mut rounds, &stop).await;
            let problem = rounds.ledger_problem.clone().unwrap_or_default();
            self.finish(rounds).await;
            if stop.is_cancelled() {
                return;
            }
            self.cannot_start(problem);
            stop.run_until_cancelled(self.rest(self.options.reopen)).await;
        }
    }

    /// Works until it is stopped, or the ledger has to be opened again.
    async fn work(&mut self, rounds: &mut Rounds, stop: &CancellationToken) {
        while !stop.is_cancelled() && !rounds.is_over {
            let state = self.look(rounds);
            self.begin(rounds);
            self.report(rounds, &state);
            let next = self.next(rounds, &state);
            let Rounds { feeds, commit, in_flight, .. } = rounds;
            let clock = self.clock;
            tokio::select! {
                () = stop.cancelled() => {}
                () = any_changed(feeds, clock) => {}
                Some(written) = OptionFuture::from(commit.as_mut()) => self.written(rounds, written),
                Some((key, outcome)) = in_flight.next() => {
                    self.answered(rounds, key, outcome);
                    // Many answers are taken in together, because a look at everything after each would take too long.
                    while let Some(Some((key, outcome))) = rounds.in_flight.next().now_or_never() {
                        self.answered(rounds, key, outcome);
                    }
                }
                Some(command) = self.commands.recv() => self.obey(command, rounds),
                () = sleep_until(clock.instant(next)) => {}
            }
        }
    }

    /// Opens the ledger and watches the objects, and retries until both succeed.
    async fn connect(&mut self) -> Rounds {
        let mut failures = 0;
        loop {
            match self.try_connect().await {
                Ok(rounds) => return rounds,
                Err(problem) => self.cannot_start(problem),
            }
            self.rest(exponential_delay(FIRST_PAUSE, LAST_PAUSE, failures)).await;
            failures += 1;
        }
    }

    fn cannot_start(&self, problem: String) {
        if self.reports.borrow().sink_problem.as_ref() != Some(&problem) {
            tracing::warn!(sink = self.options.name, problem, "the sink cannot start");
        }
        let mut report = SinkReport::starting(&self.options.name);
        report.sink_problem = Some(problem);
        self.reports.send_replace(Arc::new(report));
    }

    /// Waits, and declines commands.
    async fn rest(&mut self, pause: Duration) {
        let until = self.clock.now() + pause;
        loop {
            tokio::select! {
                () = sleep_until(self.clock.instant(until)) => break,
                Some(command) = self.commands.recv() => command.decline(),
            }
        }
    }

    async fn try_connect(&self) -> Result<Rounds, String> {
        let mut feeds = Vec::new();
        for source in &self.options.sources {
            feeds.push(EventFeed::connect(&self.factory, source.clone(), self.clock).await?);
        }
        let opened = self.options.ledgers.open(&self.options.name).await;
        let (ledger, content) = opened.map_err(|error| error.to_string())?;
        if content.is_new {
            tracing::info!(
                sink = self.options.name,
                "the ledger is new: the receiver gets everything that is there"
            );
        }
        let fields = feeds.iter().zip(&self.options.sources);
        let fields = fields.map(|(feed, source)| (feed.resource().clone(), source.fields.clone().into()));
        Ok(Rounds {
            fields: fields.collect(),
            feeds,
            outbox: Outbox::new(self.options.outbox(), content),
            ledger,
            batch: Vec::new(),
            commit: None,
            commit_at: self.clock.now(),
            failed_commits: 0,
            ledger_problem: None,
            is_over: false,
            in_flight: FuturesUnordered::new(),
            equal_as_of: None,
            held: Vec::new(),
            sink_problem: None,
            steps: BTreeMap::new(),
        })
    }

    /// Takes in the changes of the cluster.
    fn look(&self, rounds: &mut Rounds) -> FeedState {
        if let Some(namespace) = self.identity.snapshot().iter().next() {
            rounds.outbox.saw_cluster(&namespace.uid().into());
        }
        let states: Vec<_> =
            rounds.feeds.iter_mut().map(|feed| feed.take_in(self.clock, &mut rounds.outbox)).collect();
        for feed in &mut rounds.feeds {
            feed.confirm(self.clock, &rounds.outbox);
        }
        rounds.held = self.held(&rounds.outbox);
        let oldest = |of: fn(&FeedState) -> Option<Time>| {
            states.iter().map(of).collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().min())
        };
        let state = FeedState {
            as_of: oldest(|state| state.as_of),
            view_as_of: oldest(|state| state.view_as_of),
            problem: self.unidentified().or_else(|| states.iter().find_map(|state| state.problem.clone())),
            objects: states.iter().map(|state| state.objects).sum(),
            has_more: states.iter().any(|state| state.has_more),
        };
        if let Some(as_of) = state.as_of
            && self.is_equal(rounds)
        {
            rounds.equal_as_of = Some(rounds.equal_as_of.map_or(as_of, |known| known.max(as_of)));
        }
        state
    }

    fn is_equal(&self, rounds: &Rounds) -> bool {
        let outbox = &rounds.outbox;
        outbox.pending().0 == 0 && outbox.disabled().is_none() && !outbox.is_held()
    }

    /// Returns the reason for which it is unknown which cluster answers.
    fn unidentified(&self) -> Option<String> {
        if self.identity.snapshot().iter().next().is_some() {
            return None;
        }
        let freshness = self.identity.freshness();
        let reason = freshness.reason().map_or_else(|| "no answer yet".to_owned(), ToString::to_string);
        Some(format!(
            "the namespace kube-system cannot be read, and messages say which cluster they are of: {reason}"
        ))
    }

    /// Returns the changes that wait for evidence.
    fn held(&self, outbox: &Outbox) -> Vec<HeldRemovals> {
        let removals = |keys: &mut dyn Iterator<Item = &EventKey>| {
            keys.map(|key| Removal { name: key.to_string().into(), value: None }).collect()
        };
        if outbox.is_held() {
            let is_another = outbox.cluster().is_some() && self.unidentified().is_none();
            let held = is_another
                .then(|| HeldRemovals::new(HoldReason::AnotherCluster, removals(&mut outbox.waiting())));
            return held.into_iter().collect();
        }
        let unconfirmed: std::collections::BTreeSet<_> = removals(&mut outbox.unconfirmed());
        let held = (!unconfirmed.is_empty()).then(|| HeldRemovals::new(HoldReason::Unconfirmed, unconfirmed));
        held.into_iter().collect()
    }

    /// Begins a write of the ledger, with the messages that are sent once it is on disk.
    fn begin(&self, rounds: &mut Rounds) {
        let now = self.clock.now();
        if rounds.commit.is_some() || rounds.commit_at > now {
            return;
        }
        let free = self.options.parallel.max(1).saturating_sub(rounds.in_flight.len());
        rounds.batch = rounds.outbox.due(now, free);
        if rounds.batch.is_empty() && !rounds.outbox.has_changes() {
            return;
        }
        let (changes, ledger) = (Arc::new(rounds.outbox.take_changes()), rounds.ledger.clone());
        let write = async move {
            let written = ledger.write(changes.clone()).await;
            (changes, written)
        };
        rounds.commit = Some(write.boxed());
    }

    /// Sends the messages whose ledger entries are on disk. If the write failed, none is sent.
    fn written(&self, rounds: &mut Rounds, (changes, written): Commit) {
        rounds.commit = None;
        let batch = std::mem::take(&mut rounds.batch);
        if let Err(error) = written {
            let problem = error.to_string();
            if rounds.ledger_problem.as_ref() != Some(&problem) {
                tracing::error!(
                    sink = self.options.name,
                    problem,
                    "nothing is sent that could not be remembered"
                );
            }
            batch.iter().for_each(|delivery| rounds.outbox.not_sent(&delivery.key));
            rounds.outbox.not_written(&changes);
            rounds.commit_at =
                self.clock.now() + exponential_delay(FIRST_PAUSE, LAST_PAUSE, rounds.failed_commits);
            rounds.failed_commits = rounds.failed_commits.saturating_add(1);
            rounds.ledger_problem = Some(problem);
            rounds.is_over = error.ends_ledger();
            return;
        }
        (rounds.ledger_problem, rounds.failed_commits) = (None, 0);
        for delivery in batch {
            let (receiver, term) = (self.options.receiver.clone(), self.options.term);
            let cluster = rounds.outbox.cluster().cloned().unwrap_or_else(|| "".into());
            let fields = rounds.fields.get(&delivery.key.resource).cloned().unwrap_or_default();
            let send = async move {
                let message = EventMessage { delivery: &delivery, fields: &fields, cluster: &cluster, term };
                let outcome = receiver.deliver(message).await;
                (delivery.key, outcome)
            };
            rounds.in_flight.push(send.boxed());
        }
    }

    fn answered(&self, rounds: &mut Rounds, key: EventKey, outcome: DeliveryOutcome) {
        let result = outcome.as_str();
        match outcome.problem() {
            None => tracing::debug!(sink = self.options.name, object = %key, "delivered"),
            Some(problem) => {
                tracing::warn!(sink = self.options.name, object = %key, result, problem, "not delivered");
            }
        }
        *rounds.steps.entry(result.to_owned()).or_default() += 1;
        rounds.sink_problem = match &outcome {
            DeliveryOutcome::Unreachable(problem)
            | DeliveryOutcome::Throttled { problem, .. }
            | DeliveryOutcome::Disabled(problem) => Some(problem.clone()),
            _ => None,
        };
        rounds.outbox.outcome(self.clock.now(), &key, outcome);
    }

    fn obey(&self, command: SinkCommand, rounds: &mut Rounds) {
        match command {
            SinkCommand::Approve { id, known } => {
                let held = rounds.held.iter().find(|held| held.id == id);
                if let Some(held) = held {
                    tracing::info!(sink = self.options.name, id, "held messages were approved");
                    if let (HoldReason::AnotherCluster, Some(namespace)) =
                        (held.reason, self.identity.snapshot().iter().next())
                    {
                        rounds.outbox.accept_cluster(namespace.uid().into());
                    }
                    let names: std::collections::HashSet<_> =
                        held.removals.iter().map(|removal| removal.name.to_string()).collect();
                    rounds.outbox.confirm(|key| names.contains(&key.to_string()));
                }
                // The requester may be gone.
                let _ = known.send(held.is_some());
            }
            SinkCommand::Retry => {
                rounds.outbox.retry(self.clock.now());
                rounds.commit_at = self.clock.now();
            }
            SinkCommand::RetryDead { id, count } => {
                let _ = count.send(rounds.outbox.retry_dead(id.as_deref()));
            }
            SinkCommand::Verify { done } => {
                let state = self.look(rounds);
                self.report(rounds, &state);
                let _ = done.send(());
            }
        }
    }

    fn report(&self, rounds: &Rounds, state: &FeedState) {
        let outbox = &rounds.outbox;
        let mut report = SinkReport::from_outbox(&self.options.name, outbox, &rounds.held);
        report.wanted = state.objects;
        report.equal = self.is_equal(rounds) && state.as_of.is_some();
        report.equal_as_of = rounds.equal_as_of;
        report.view_as_of = state.view_as_of;
        report.view_problem.clone_from(&state.problem);
        let disabled = outbox.disabled().map(str::to_owned);
        report.sink_problem = rounds.ledger_problem.clone().or(disabled).or(rounds.sink_problem.clone());
        report.steps.clone_from(&rounds.steps);
        self.reports.send_replace(Arc::new(report));
    }

    /// Returns the latest time of the next round.
    fn next(&self, rounds: &Rounds, state: &FeedState) -> Time {
        let now = self.clock.now();
        if state.has_more {
            return now;
        }
        let is_free = rounds.commit.is_none() && rounds.in_flight.len() < self.options.parallel.max(1);
        let due = rounds.outbox.wake_at().filter(|_| is_free).map(|at| at.max(rounds.commit_at));
        let lists = rounds.feeds.iter().filter_map(|feed| feed.list_at(&rounds.outbox));
        due.into_iter().chain(lists).fold(now + TICK, Time::min)
    }

    /// Waits for the answers in flight, and writes them, for a bounded time. The next process sends the rest again.
    async fn finish(&self, mut rounds: Rounds) {
        let ending = async {
            if let Some(commit) = rounds.commit.take() {
                let written = commit.await;
                // Nothing more is sent.
                rounds.batch.drain(..).for_each(|delivery| rounds.outbox.not_sent(&delivery.key));
                self.written(&mut rounds, written);
            }
            while let Some((key, outcome)) = rounds.in_flight.next().await {
                self.answered(&mut rounds, key, outcome);
            }
        };
        let _ = timeout(GRACE, ending).await;
        let changes = Arc::new(rounds.outbox.take_changes());
        if let Ok(Err(error)) = timeout(GRACE, rounds.ledger.write(changes)).await {
            tracing::error!(sink = self.options.name, %error, "what was acknowledged last is sent again after the start");
        }
    }
}

/// Waits until one of the feeds has something to take in.
async fn any_changed(feeds: &mut [EventFeed], clock: Clock) {
    match feeds {
        [] => std::future::pending().await,
        feeds => drop(select_all(feeds.iter_mut().map(|feed| feed.changed(clock).boxed())).await),
    }
}
