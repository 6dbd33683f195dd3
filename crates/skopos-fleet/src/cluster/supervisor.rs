//! The supervising task of a cluster: observes it, stops unused resources, and shuts it down.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use skopos::ResourceId;
use tokio::time::{Instant, timeout};

use super::breaker::Breaker;
use super::core::{ClusterInner, ClusterParts};
use super::documents::DocumentRequest;
use super::health::HealthObserver;
use super::kinds::{Starting, StopReason};
use super::machine::{Failure, Input, Observation};
use super::persistence::PERSISTENCE_TIMEOUT;
use super::session::ClusterConnection;
use super::state::Condition;

/// Interval between two checks of a cluster.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Interval between two checks while the state is about to change.
const QUICK_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Longest time for which `QUICK_CHECK_INTERVAL` applies.
const QUICK_CHECK_PERIOD: Duration = Duration::from_secs(60);

/// Interval between attempts to make connections that could not be configured.
const RECONFIGURE_INTERVAL: Duration = Duration::from_secs(30);

/// Interval between requests for the documents of a server that did not answer.
const DOCUMENT_RETRY_INTERVAL: Duration = Duration::from_secs(20);

/// Interval between heartbeat requests to a server without cached resources.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);

/// Creates a cluster, and starts its supervisor and the identity check of its connection.
pub(crate) fn start(parts: ClusterParts) -> Arc<ClusterInner> {
    let inner = ClusterInner::new(parts);
    inner.tasks.spawn(supervise(inner.clone()));
    inner.start_identity_check(&inner.connection());
    inner
}

/// Runs until the cluster leaves or the fleet shuts down, then ends the cluster.
async fn supervise(inner: Arc<ClusterInner>) {
    let supervising = inner.left.run_until_cancelled(run(&inner));
    let _ = inner.stop.run_until_cancelled(supervising).await;
    let why = match inner.left.is_cancelled() {
        true => StopReason::Removed,
        false => StopReason::Closed,
    };
    if !inner.end(why).await {
        tracing::warn!(cluster = %inner.id, "something of the cluster did not end in time");
    }
}

async fn run(inner: &Arc<ClusterInner>) {
    restore(inner).await;
    let mut supervisor = Supervisor::new(inner);
    loop {
        let pause = supervisor.check();
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = inner.wakeup.notified() => {}
        }
    }
}

/// Restores the checkpoints of an earlier run.
async fn restore(inner: &Arc<ClusterInner>) {
    let Some(persistence) = inner.persistence.clone().filter(|_| !inner.is_replacement) else { return };
    // On every outcome: callers must not wait any longer.
    let _restored = inner.restored.clone().drop_guard();
    let Ok(restored) = timeout(PERSISTENCE_TIMEOUT, persistence.load(&inner.id)).await else {
        tracing::warn!(cluster = %inner.id, "what was kept of the cluster was not to be had in time");
        return;
    };
    inner.documents.restore(restored.documents, &inner.options);
    loop {
        let connection = inner.connection();
        let starts = restored.kinds.iter().filter_map(|resource| restore_kind(inner, resource));
        // Each start has its own timeout. A new connection starts again what has not started yet.
        let starting = futures::future::join_all(starts);
        if connection.superseded.run_until_cancelled(starting).await.is_some() {
            return;
        }
    }
}

fn restore_kind(inner: &Arc<ClusterInner>, resource: &ResourceId) -> Option<Starting> {
    let starting = inner.start_kind(resource, inner.options.kinds.contains(resource));
    starting.inspect_err(|error| tracing::warn!(%error, "a kind of an earlier run is not started")).ok()
}

struct Supervisor<'a> {
    inner: &'a Arc<ClusterInner>,
    health: HealthObserver,
    breaker: Breaker,
    observed: Arc<ClusterConnection>,
    /// Set if the cluster was live at the last check.
    live: bool,
    /// Time since which the connections could not be configured.
    unusable_since: Option<Instant>,
    fetch_at: Instant,
    /// Set if all essential documents were requested once over this connection.
    documents_requested: bool,
    essential: Vec<DocumentRequest>,
}

impl<'a> Supervisor<'a> {
    fn new(inner: &'a Arc<ClusterInner>) -> Self {
        let now = Instant::now();
        let (health, breaker) = (HealthObserver::default(), Breaker::default());
        Self {
            inner,
            health,
            breaker,
            observed: inner.connection(),
            live: false,
            unusable_since: None,
            fetch_at: now,
            documents_requested: false,
            essential: DocumentRequest::essential(),
        }
    }

    /// Makes one observation; returns the time until the next.
    fn check(&mut self) -> Duration {
        let (inner, now) = (self.inner, Instant::now());
        let connection = inner.connection();
        if !Arc::ptr_eq(&connection, &self.observed) {
            (self.observed, self.health, self.fetch_at) =
                (connection.clone(), HealthObserver::default(), now);
            self.documents_requested = false;
            self.breaker.close();
        }
        self.observe(&connection, now);
        let condition = inner.state().condition;
        if condition != Condition::Paused {
            self.pin_kinds(&connection);
            self.fetch_documents(now);
        }
        let was_live = std::mem::replace(&mut self.live, condition == Condition::Live);
        if let Some(limit) = inner.options.idle_stop.filter(|_| self.live) {
            // A resource that was retained while the server did not answer must not be stopped as soon as the server
            // returns.
            if !was_live {
                inner.kinds.touch();
            }
            inner.kinds.stop_idle(limit);
        }
        if condition.is_asked() {
            inner.kinds.stop_not_served();
        }
        inner.kinds.stop_unwanted(&inner.options.admits);
        if let Some(budget) = inner.options.memory_budget {
            for (resource, bytes) in inner.kinds.enforce_budget(budget, inner.options.budget_memory) {
                tracing::warn!(cluster = %inner.id, %resource, bytes, budget,
                    "a kind was let go: the cluster's memory budget is used up");
            }
        }
        self.next_delay(&connection, now)
    }

    fn observe(&mut self, connection: &Arc<ClusterConnection>, now: Instant) {
        let inner = self.inner;
        if let Some(reason) = connection.unusable() {
            let since = *self.unusable_since.get_or_insert(now);
            let failing = Some(Failure { since, reason, cause: "configuration" });
            inner.step(Input::Observed(Observation { failing, ..Observation::default() }));
            if connection.spec.is_ok() && now >= since + RECONFIGURE_INTERVAL {
                self.unusable_since = None;
                inner.reconfigure();
            }
            return;
        }
        self.unusable_since = None;
        let Some(session) = connection.existing() else { return };
        let stats = session.transport.stats();
        let mut observation = self.health.observe(&stats, &inner.kinds.all(), now);
        if inner.externally_notified.swap(false, Ordering::Relaxed) {
            self.breaker.close();
            self.health.reset_silence(now);
            // The server is probably back. Without a request, a cluster that no caller uses would not show it.
            self.fetch_at = now;
        }
        if inner.state().condition == Condition::Paused {
            return;
        }
        if !self.breaker.is_open()
            && let Some(silence) = self.health.silence(&stats)
        {
            self.breaker.open(connection, &silence, now);
        }
        if self.breaker.is_open() {
            let silent = self.breaker.check(inner, connection, now);
            if silent.is_none() {
                self.health.reset_silence(now);
            }
            observation.failing = silent.or(observation.failing);
        }
        inner.step(Input::Observed(observation));
    }

    /// Starts the configured resources that do not run.
    fn pin_kinds(&self, connection: &ClusterConnection) {
        if connection.unusable().is_some() {
            return;
        }
        for resource in &self.inner.options.kinds {
            if self.inner.kinds.is_started(resource) || !self.inner.options.admits.admits(resource) {
                continue;
            }
            if let Err(error) = self.inner.start_kind(resource, true) {
                tracing::debug!(%error, "a configured kind is not started");
            }
        }
    }

    /// Asks for the essential documents if prefetching is enabled. Until the server answers there is one request at a
    /// time, at a low rate.
    fn fetch_documents(&mut self, now: Instant) {
        let inner = self.inner;
        let Some((first, others)) = self.essential.split_first() else { return };
        if !inner.options.prefetch_documents {
            return;
        }
        let is_there = |request: &DocumentRequest| inner.documents.get(request).is_some();
        let condition = inner.state().condition;
        let answers = matches!(condition, Condition::Live | Condition::Degraded) && is_there(first);
        let incomplete = answers && !others.iter().all(is_there);
        // As soon as the first document is there, the others are due: the server may be down a moment later.
        if now < self.fetch_at && (self.documents_requested || !incomplete) {
            return;
        }
        self.documents_requested |= incomplete;
        self.fetch_at = now + DOCUMENT_RETRY_INTERVAL;
        let wanted = match condition {
            _ if incomplete => others,
            Condition::Live if answers && !inner.kinds.all().is_empty() => return,
            Condition::Live if answers => {
                self.fetch_at = now + HEARTBEAT_INTERVAL.max(inner.options.document_age) + CHECK_INTERVAL;
                std::slice::from_ref(first)
            }
            _ => std::slice::from_ref(first),
        };
        for request in wanted {
            drop(inner.fetch_ahead(request));
        }
    }

    fn next_delay(&self, connection: &ClusterConnection, now: Instant) -> Duration {
        let state = self.inner.state();
        let quick = state.condition == Condition::Connecting && now < state.since + QUICK_CHECK_PERIOD;
        match connection.is_requested() {
            // No caller has used the cluster.
            false if !self.inner.options.prefetch_documents => Duration::from_secs(3600),
            _ if quick => QUICK_CHECK_INTERVAL,
            _ => CHECK_INTERVAL,
        }
    }
}
