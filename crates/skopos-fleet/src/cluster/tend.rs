//! The supervising task of a cluster: observes it, stops unused resources, and shuts it down.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use skopos::ResourceId;
use tokio::time::{Instant, timeout};

use super::breaker::Breaker;
use super::documents::DocumentRequest;
use super::kinds::{Ended, Starting};
use super::machine::{Condition, Input, Observation};
use super::observe::Eyes;
use super::session::Link;
use super::unit::{KEEPER_PATIENCE, Unit};

/// Interval between two checks of a cluster.
const PULSE: Duration = Duration::from_secs(1);

/// Interval between two checks while the state is about to change.
const QUICK_PULSE: Duration = Duration::from_millis(100);

/// Longest time for which `QUICK_PULSE` applies.
const QUICK_FOR: Duration = Duration::from_secs(60);

/// Interval between attempts to make connections that could not be configured.
const RECONFIGURE: Duration = Duration::from_secs(30);

/// Interval between requests for the documents of a server that did not answer.
const ASK_AGAIN: Duration = Duration::from_secs(20);

/// Interval between heartbeat requests to a server without cached resources.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// Runs until the cluster leaves or the fleet shuts down, then ends the cluster.
pub(crate) async fn tend(unit: Arc<Unit>) {
    let tending = unit.left.run_until_cancelled(run(&unit));
    let _ = unit.stop.run_until_cancelled(tending).await;
    let why = match unit.left.is_cancelled() {
        true => Ended::Removed,
        false => Ended::Closed,
    };
    if !unit.end(why).await {
        tracing::warn!(cluster = %unit.id, "something of the cluster did not end in time");
    }
}

async fn run(unit: &Arc<Unit>) {
    remember(unit).await;
    let mut tender = Tender::new(unit);
    loop {
        let pause = tender.look();
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = unit.stirred.notified() => {}
        }
    }
}

/// Restores the checkpoints of an earlier run.
async fn remember(unit: &Arc<Unit>) {
    let Some(keeper) = unit.keeper.clone().filter(|_| !unit.replaces) else { return };
    // On every outcome: callers must not wait any longer.
    let _recalled = unit.recalled.clone().drop_guard();
    let Ok(remembered) = timeout(KEEPER_PATIENCE, keeper.remembered(&unit.id)).await else {
        tracing::warn!(cluster = %unit.id, "what was kept of the cluster was not to be had in time");
        return;
    };
    unit.documents.remember(remembered.documents, &unit.options);
    loop {
        let link = unit.link();
        let starts = remembered.kinds.iter().filter_map(|resource| recall(unit, resource));
        // Each start has its own timeout. A new link starts again what has not started yet.
        let starting = futures::future::join_all(starts);
        if link.superseded.run_until_cancelled(starting).await.is_some() {
            return;
        }
    }
}

fn recall(unit: &Arc<Unit>, resource: &ResourceId) -> Option<Starting> {
    let starting = unit.start_kind(resource, unit.options.kinds.contains(resource));
    starting.inspect_err(|error| tracing::warn!(%error, "a kind of an earlier run is not started")).ok()
}

struct Tender<'a> {
    unit: &'a Arc<Unit>,
    eyes: Eyes,
    breaker: Breaker,
    watched: Arc<Link>,
    /// Set if the cluster was live at the last check.
    live: bool,
    /// Time since which the connections could not be configured.
    unusable_since: Option<Instant>,
    ask_at: Instant,
    /// Set if all essential documents were requested once over this link.
    introduced: bool,
    essential: Vec<DocumentRequest>,
}

impl<'a> Tender<'a> {
    fn new(unit: &'a Arc<Unit>) -> Self {
        let now = Instant::now();
        let (eyes, breaker) = (Eyes::default(), Breaker::default());
        Self {
            unit,
            eyes,
            breaker,
            watched: unit.link(),
            live: false,
            unusable_since: None,
            ask_at: now,
            introduced: false,
            essential: DocumentRequest::essential(),
        }
    }

    /// Makes one observation; returns the time until the next.
    fn look(&mut self) -> Duration {
        let (unit, now) = (self.unit, Instant::now());
        let link = unit.link();
        if !Arc::ptr_eq(&link, &self.watched) {
            (self.watched, self.eyes, self.ask_at) = (link.clone(), Eyes::default(), now);
            self.introduced = false;
            self.breaker.forget();
        }
        self.observe(&link, now);
        let condition = unit.state().condition;
        if condition != Condition::Paused {
            self.pin_kinds(&link);
            self.ask(now);
        }
        let was_live = std::mem::replace(&mut self.live, condition == Condition::Live);
        if let Some(limit) = unit.options.idle_stop.filter(|_| self.live) {
            // A resource that was retained while the server did not answer must not be stopped as soon as the server
            // returns.
            if !was_live {
                unit.kinds.touch();
            }
            unit.kinds.stop_idle(limit);
        }
        if condition.is_asked() {
            unit.kinds.stop_not_served();
        }
        unit.kinds.stop_unwanted(&unit.options.admits);
        if let Some(budget) = unit.options.memory_budget {
            for (resource, bytes) in unit.kinds.keep_within(budget, unit.options.budget_memory) {
                tracing::warn!(cluster = %unit.id, %resource, bytes, budget,
                    "a kind was let go: the cluster's memory budget is used up");
            }
        }
        self.pause(&link, now)
    }

    fn observe(&mut self, link: &Arc<Link>, now: Instant) {
        let unit = self.unit;
        if let Some(reason) = link.unusable() {
            let since = *self.unusable_since.get_or_insert(now);
            let failing = Some((since, reason));
            unit.step(Input::Observed(Observation { failing, ..Observation::default() }));
            if link.spec.is_ok() && now >= since + RECONFIGURE {
                self.unusable_since = None;
                unit.renew_link();
            }
            return;
        }
        self.unusable_since = None;
        let Some(session) = link.made() else { return };
        let stats = session.transport.stats();
        let mut observation = self.eyes.look(&stats, &unit.kinds.all(), now);
        if unit.told.swap(false, Ordering::Relaxed) {
            self.breaker.forget();
            self.eyes.forgive(now);
            // The server is probably back. Without a request, a cluster that no caller uses would not show it.
            self.ask_at = now;
        }
        if unit.state().condition == Condition::Paused {
            return;
        }
        if !self.breaker.is_open()
            && let Some((since, reason)) = self.eyes.silence(&stats)
        {
            self.breaker.open(link, since, &reason, now);
        }
        if self.breaker.is_open() {
            let silent = self.breaker.check(unit, link, now);
            if silent.is_none() {
                self.eyes.forgive(now);
            }
            observation.failing = silent.or(observation.failing);
        }
        unit.step(Input::Observed(observation));
    }

    /// Starts the configured resources that do not run.
    fn pin_kinds(&self, link: &Link) {
        if link.unusable().is_some() {
            return;
        }
        for resource in &self.unit.options.kinds {
            if self.unit.kinds.is_started(resource) || !self.unit.options.admits.admits(resource) {
                continue;
            }
            if let Err(error) = self.unit.start_kind(resource, true) {
                tracing::debug!(%error, "a configured kind is not started");
            }
        }
    }

    /// Asks for the essential documents if prefetching is enabled. Until the server answers there is one request at a
    /// time, at a low rate.
    fn ask(&mut self, now: Instant) {
        let unit = self.unit;
        let Some((first, others)) = self.essential.split_first() else { return };
        if !unit.options.prefetch_documents {
            return;
        }
        let is_there = |request: &DocumentRequest| unit.documents.get(request).is_some();
        let condition = unit.state().condition;
        let answers = matches!(condition, Condition::Live | Condition::Degraded) && is_there(first);
        let incomplete = answers && !others.iter().all(is_there);
        // As soon as the first document is there, the others are due: the server may be down a moment later.
        if now < self.ask_at && (self.introduced || !incomplete) {
            return;
        }
        self.introduced |= incomplete;
        self.ask_at = now + ASK_AGAIN;
        let wanted = match condition {
            _ if incomplete => others,
            Condition::Live if answers && !unit.kinds.all().is_empty() => return,
            Condition::Live if answers => {
                self.ask_at = now + HEARTBEAT.max(unit.options.document_age) + PULSE;
                std::slice::from_ref(first)
            }
            _ => std::slice::from_ref(first),
        };
        for request in wanted {
            unit.fetch_ahead(request);
        }
    }

    fn pause(&self, link: &Link, now: Instant) -> Duration {
        let state = self.unit.state();
        let quick = state.condition == Condition::Connecting && now < state.since + QUICK_FOR;
        match link.is_begun() {
            // No caller has used the cluster.
            false if !self.unit.options.prefetch_documents => Duration::from_secs(3600),
            _ if quick => QUICK_PULSE,
            _ => PULSE,
        }
    }
}
