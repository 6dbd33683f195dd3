//! Cached resources of one cluster: started on first use, stopped when unused.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use skopos::{Condition, Informer, RawObject, ReflectorState, ResourceId};
use tokio::sync::watch;
use tokio::time::Instant;

use super::machine::Trouble;
use super::options::{ClusterOptions, KindFilter};
use super::stats::KindStats;
use crate::error::FleetError;

/// A cached resource of one cluster. A handle keeps it in use: it is not stopped for being idle, and is evicted last.
/// Cheap to clone.
#[derive(Clone)]
pub struct CachedKind {
    held: Arc<UseGuard>,
}

/// Reason why a resource is no longer cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// It was unused for a while.
    Idle,
    /// It did not fit into the cluster's memory budget.
    Evicted,
    /// It is no longer admitted ([`ClusterOptions::admits`]).
    Unwanted,
    /// The server no longer serves it: its definition was deleted.
    NotServed,
    /// The cluster's connection changed, and another copy is there.
    Reconnected,
    /// Another cluster replaced the one that this content belongs to.
    Replaced,
    /// The cluster left the fleet.
    Removed,
    /// The fleet was shut down.
    Closed,
}

/// A watcher of the end of a cached resource, which does not keep it in use.
#[derive(Clone, Debug)]
pub struct StopWatcher {
    ended: watch::Receiver<Option<StopReason>>,
}

/// A use of a cached resource; dropping the last one records the time.
struct UseGuard {
    entry: Arc<CachedInformer>,
}

/// A running informer.
pub(crate) struct CachedInformer {
    pub(crate) informer: Informer<RawObject>,
    ended: watch::Sender<Option<StopReason>>,
    /// The number of uses now.
    holders: AtomicUsize,
    last_used: Mutex<Instant>,
    /// Set for one of the configured resources.
    pub(crate) pinned: bool,
}

pub(crate) type Starting = Shared<BoxFuture<'static, Result<Arc<CachedInformer>, FleetError>>>;

/// All cached resources of one cluster.
pub(crate) struct Kinds {
    slots: Mutex<Slots>,
    starts: AtomicU64,
    evictions: AtomicU64,
}

/// Time for which a refusal by the server is remembered.
const REFUSAL_TTL: Duration = Duration::from_secs(10);

/// Time after which a resource that the server does not serve is dropped. A replaced definition comes back within
/// moments.
const NOT_SERVED_TIMEOUT: Duration = Duration::from_secs(5);

/// Consecutive failures after which callers stop waiting: transient failures are over by then.
const MAX_FAILURES: u32 = 3;

/// Limit on remembered refusals.
const MAX_REFUSALS: usize = 256;

#[derive(Default)]
struct Slots {
    running: BTreeMap<ResourceId, Slot>,
    /// Recent refusals by the server: code, reason, time.
    refused: BTreeMap<ResourceId, (u16, Arc<str>, Instant)>,
    /// Resources that did not fit: size and time.
    too_large: BTreeMap<ResourceId, (u64, Instant)>,
}

struct Slot {
    starting: Starting,
}

impl CachedKind {
    pub(crate) fn new(entry: Arc<CachedInformer>) -> Self {
        entry.holders.fetch_add(1, Ordering::SeqCst);
        Self { held: Arc::new(UseGuard { entry }) }
    }

    /// Returns the resource.
    pub fn resource(&self) -> &ResourceId {
        self.held.entry.informer.resource()
    }

    /// Returns its informer: store, freshness, reads with a bound on the age.
    pub fn informer(&self) -> &Informer<RawObject> {
        &self.held.entry.informer
    }

    /// Returns whether there is content to read.
    pub fn has_content(&self) -> bool {
        self.held.entry.has_content()
    }

    /// Returns code and reason if the server refuses the resource.
    pub fn refusal(&self) -> Option<(u16, Arc<str>)> {
        self.held.entry.refusal()
    }

    /// Returns the number of failed lists and the reason, once waiting longer cannot help.
    pub(crate) fn failure(&self) -> Option<(u32, Arc<str>)> {
        self.held.entry.failure()
    }

    /// Returns a watcher of its end, which does not keep it in use.
    pub fn stop_watcher(&self) -> StopWatcher {
        StopWatcher { ended: self.held.entry.ended.subscribe() }
    }

    /// Waits until it is no longer cached. Drop the handle then; its content stays readable until you do.
    pub async fn ended(&self) -> StopReason {
        let mut ended = self.held.entry.ended.subscribe();
        match ended.wait_for(Option::is_some).await {
            Ok(reason) => reason.unwrap_or(StopReason::Closed),
            // The sender is in the held entry, so it cannot be dropped.
            Err(_) => StopReason::Closed,
        }
    }

    /// Returns the reason why it is no longer cached, if so.
    pub fn end_reason(&self) -> Option<StopReason> {
        *self.held.entry.ended.borrow()
    }
}

impl StopWatcher {
    /// Returns whether this watches exactly this copy, not another copy or another cluster's.
    pub fn is_of(&self, kind: &CachedKind) -> bool {
        self.ended.same_channel(&kind.held.entry.ended.subscribe())
    }

    /// Returns the reason why it is no longer cached, if so.
    pub fn end_reason(&self) -> Option<StopReason> {
        *self.ended.borrow()
    }
}

impl Drop for UseGuard {
    fn drop(&mut self) {
        *self.entry.last_used.lock() = Instant::now();
        self.entry.holders.fetch_sub(1, Ordering::SeqCst);
    }
}

impl fmt::Debug for CachedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CachedKind").field(self.informer()).finish()
    }
}

impl CachedInformer {
    pub(crate) fn new(informer: Informer<RawObject>, pinned: bool) -> Arc<Self> {
        Arc::new(Self {
            informer,
            ended: watch::Sender::new(None),
            holders: AtomicUsize::new(0),
            last_used: Mutex::new(Instant::now()),
            pinned,
        })
    }

    /// Returns whether there is content, of any age, including restored content.
    pub(crate) fn has_content(&self) -> bool {
        self.informer.snapshot().is_synced()
    }

    /// Waits until there is content to read.
    pub(crate) async fn content(&self) {
        let mut progress = self.informer.store().progress();
        // The sender is in the store, which the informer holds, so it cannot be dropped.
        let _ = progress.wait_for(|progress| progress.synced).await;
    }

    pub(crate) fn refusal(&self) -> Option<(u16, Arc<str>)> {
        let state = self.informer.state();
        let code = match state.condition {
            Condition::Unauthorized => 401,
            Condition::Forbidden => 403,
            Condition::NotServed => 404,
            Condition::Rejected => 400,
            _ => return None,
        };
        Some((code, last_reason(state)))
    }

    /// Returns the number of failed lists and the server's last reason, once waiting longer cannot help.
    pub(crate) fn failure(&self) -> Option<(u32, Arc<str>)> {
        let state = self.informer.state();
        let fails = state.condition == Condition::ServerError && state.attempts >= MAX_FAILURES;
        fails.then(|| (state.attempts, last_reason(state)))
    }

    /// Returns the problem of its list/watch. A resource that the server does not serve (any more) is not a problem.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        let state = self.informer.state();
        let troubled = matches!(state.condition, Condition::Degraded(_)) || state.condition.is_failing();
        let resource = self.informer.resource();
        (troubled && state.condition != Condition::NotServed).then(|| Trouble {
            reason: format!("{resource}: {state}").into(),
            cause: "kind",
            unseen: self.informer.freshness().age(),
            kind: Some(resource.clone()),
        })
    }

    /// Returns whether the server has not served it for at least `limit`.
    fn is_not_served_for(&self, limit: Duration) -> bool {
        let informer = &self.informer;
        informer.state().condition == Condition::NotServed && informer.state_for() >= limit
    }

    pub(crate) fn stats(&self) -> KindStats {
        KindStats {
            informer: self.informer.stats(),
            in_use: self.is_in_use(),
            last_used: *self.last_used.lock(),
            pinned: self.pinned,
        }
    }

    pub(crate) fn end(&self, reason: StopReason) {
        self.ended.send_if_modified(|ended| ended.replace(reason).is_none());
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.holders.load(Ordering::SeqCst) > 0
    }

    fn is_idle_for(&self, limit: Duration) -> bool {
        !self.is_in_use() && !self.pinned && self.last_used.lock().elapsed() >= limit
    }

    fn bytes(&self) -> u64 {
        self.informer.snapshot().held_bytes()
    }
}

/// Returns the server's last reason.
fn last_reason(state: ReflectorState) -> Arc<str> {
    let reason = state.reason.unwrap_or_else(|| state.condition.to_string().into());
    Arc::from(&*reason)
}

impl Kinds {
    pub(crate) fn new() -> Self {
        Self { slots: Mutex::default(), starts: AtomicU64::new(0), evictions: AtomicU64::new(0) }
    }

    /// Returns the resource if it runs.
    pub(crate) fn get(&self, resource: &ResourceId) -> Option<Arc<CachedInformer>> {
        self.slots.lock().running.get(resource).and_then(Slot::entry)
    }

    /// Returns whether it runs or is being started.
    pub(crate) fn is_started(&self, resource: &ResourceId) -> bool {
        self.slots.lock().running.get(resource).is_some_and(|slot| !slot.has_failed())
    }

    /// Drops a resource that the server refuses, and remembers the refusal for a while. Configured resources stay.
    pub(crate) fn refused(&self, resource: &ResourceId, code: u16, reason: Arc<str>) {
        let mut slots = self.slots.lock();
        let pinned = slots.running.get(resource).and_then(Slot::entry).is_some_and(|entry| entry.pinned);
        if pinned {
            return;
        }
        slots.running.remove(resource);
        slots.drop_old_refusals();
        slots.refused.insert(resource.clone(), (code, reason, Instant::now()));
    }

    /// Returns code and reason of a recent refusal.
    pub(crate) fn refusal(&self, resource: &ResourceId) -> Option<(u16, Arc<str>)> {
        let slots = self.slots.lock();
        let (code, reason, at) = slots.refused.get(resource)?;
        (at.elapsed() < REFUSAL_TTL).then(|| (*code, reason.clone()))
    }

    /// Returns all running resources.
    pub(crate) fn all(&self) -> Vec<Arc<CachedInformer>> {
        self.slots.lock().running.values().filter_map(Slot::entry).collect()
    }

    /// Returns the number of starts and evictions so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.starts.load(Ordering::Relaxed), self.evictions.load(Ordering::Relaxed))
    }

    /// Joins the start of a resource under way, or else begins one, which `begin` has to drive. `Err`: the reason why there
    /// is no room.
    pub(crate) fn start(
        &self,
        resource: &ResourceId,
        options: &ClusterOptions,
        begin: impl FnOnce() -> Starting,
    ) -> Result<Starting, Arc<str>> {
        if !options.admits.admits(resource) {
            return Err("it may not be kept".into());
        }
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.running.get(resource).filter(|slot| !slot.has_failed()) {
            return Ok(slot.starting.clone());
        }
        slots.check_room(resource, options)?;
        if slots.running.len() >= options.max_kinds && !self.evict(&mut slots, CachedInformer::is_in_use) {
            let reason = format!("{} kinds are in use already, and no more may be kept", options.max_kinds);
            return Err(reason.into());
        }
        let starting = begin();
        slots.running.insert(resource.clone(), Slot { starting: starting.clone() });
        self.starts.fetch_add(1, Ordering::Relaxed);
        Ok(starting)
    }

    /// Removes a start that failed.
    pub(crate) fn failed(&self, resource: &ResourceId, starting: &Starting) {
        let mut slots = self.slots.lock();
        if slots.running.get(resource).is_some_and(|slot| slot.starting.ptr_eq(starting)) {
            slots.running.remove(resource);
        }
    }

    /// Replaces a running resource by another copy.
    pub(crate) fn replace(&self, old: &Arc<CachedInformer>, starting: Starting) {
        let mut slots = self.slots.lock();
        let current = slots.running.get_mut(old.informer.resource());
        if let Some(slot) = current.filter(|slot| slot.entry().is_some_and(|entry| Arc::ptr_eq(&entry, old)))
        {
            slot.starting = starting;
        }
        drop(slots);
        old.end(StopReason::Reconnected);
    }

    /// Marks everything as used now: nothing is idle while a cluster does not answer.
    pub(crate) fn touch(&self) {
        let now = Instant::now();
        self.all().iter().for_each(|entry| *entry.last_used.lock() = now);
    }

    /// Stops resources unused for at least `limit`.
    pub(crate) fn stop_idle(&self, limit: Duration) {
        self.remove(StopReason::Idle, |entry| entry.is_idle_for(limit));
    }

    /// Stops resources that the server no longer serves, even if in use: waiting for them is pointless.
    pub(crate) fn stop_not_served(&self) {
        self.remove(StopReason::NotServed, |entry| {
            !entry.pinned && entry.is_not_served_for(NOT_SERVED_TIMEOUT)
        });
    }

    /// Stops resources that are no longer admitted, even if in use.
    pub(crate) fn stop_unwanted(&self, admits: &KindFilter) {
        self.remove(StopReason::Unwanted, |entry| !admits.admits(entry.informer.resource()));
    }

    /// Evicts the least recently used resources while the budget is exceeded, unused ones first. Evictions are
    /// remembered for `memory`. Returns the evicted resources with their sizes.
    pub(crate) fn enforce_budget(&self, budget: u64, memory: Duration) -> Vec<(ResourceId, u64)> {
        let mut gone = Vec::new();
        let mut slots = self.slots.lock();
        loop {
            let entries: Vec<Arc<CachedInformer>> = slots.running.values().filter_map(Slot::entry).collect();
            let sizes: Vec<u64> = entries.iter().map(|entry| entry.bytes()).collect();
            if sizes.iter().sum::<u64>() <= budget {
                return gone;
            }
            // Evicting an empty resource frees nothing.
            let candidates = entries.iter().zip(&sizes).filter(|(_, size)| **size > 0);
            let coldest = candidates
                .min_by_key(|(entry, _)| (entry.is_in_use(), entry.pinned, *entry.last_used.lock()));
            let Some((entry, size)) = coldest else { return gone };
            let resource = entry.informer.resource().clone();
            slots.running.remove(&resource);
            slots.too_large.retain(|_, (_, at)| at.elapsed() < memory);
            slots.too_large.insert(resource.clone(), (*size, Instant::now()));
            entry.end(StopReason::Evicted);
            self.evictions.fetch_add(1, Ordering::Relaxed);
            gone.push((resource, *size));
        }
    }

    /// Drops starts that are not complete yet.
    pub(crate) fn drop_incomplete(&self) {
        self.slots.lock().running.retain(|_, slot| slot.entry().is_some());
    }

    /// Drops everything, including starts under way.
    pub(crate) fn discard(&self, reason: StopReason) {
        let gone = std::mem::take(&mut self.slots.lock().running);
        gone.values().filter_map(Slot::entry).for_each(|entry| entry.end(reason));
    }

    /// Notifies all holders of the end, and retains content for reading.
    pub(crate) fn end(&self, reason: StopReason) {
        self.drop_incomplete();
        self.all().iter().for_each(|entry| entry.end(reason));
    }

    fn remove(&self, reason: StopReason, which: impl Fn(&CachedInformer) -> bool) {
        let mut slots = self.slots.lock();
        slots.running.retain(|resource, slot| {
            let Some(entry) = slot.entry().filter(|entry| which(entry)) else { return true };
            tracing::debug!(%resource, ?reason, "a kind is not kept any more");
            entry.end(reason);
            false
        });
    }

    /// Evicts the least recently used resource that is not needed, to make room for one more.
    fn evict(&self, slots: &mut Slots, needed: impl Fn(&CachedInformer) -> bool) -> bool {
        let entries = slots.running.values().filter_map(Slot::entry);
        let free = entries.filter(|entry| !entry.pinned && !needed(entry));
        // Evicting a resource without content loses nothing.
        let coldest = free.min_by_key(|entry| (entry.has_content(), *entry.last_used.lock()));
        let Some(coldest) = coldest else { return false };
        slots.running.remove(coldest.informer.resource());
        coldest.end(StopReason::Evicted);
        self.evictions.fetch_add(1, Ordering::Relaxed);
        true
    }
}

impl Slots {
    fn drop_old_refusals(&mut self) {
        self.refused.retain(|_, (_, _, at)| at.elapsed() < REFUSAL_TTL);
        while self.refused.len() >= MAX_REFUSALS {
            let oldest =
                self.refused.iter().min_by_key(|(_, (_, _, at))| *at).map(|(resource, _)| resource.clone());
            let Some(oldest) = oldest else { return };
            self.refused.remove(&oldest);
        }
    }

    /// Returns an error while a resource that did not fit must not be retried.
    fn check_room(&mut self, resource: &ResourceId, options: &ClusterOptions) -> Result<(), Arc<str>> {
        let Some((size, at)) = self.too_large.get(resource).copied() else { return Ok(()) };
        let budget = options.memory_budget.unwrap_or(u64::MAX);
        let used: u64 = self.running.values().filter_map(Slot::entry).map(|entry| entry.bytes()).sum();
        if at.elapsed() >= options.budget_memory || used.saturating_add(size) <= budget {
            self.too_large.remove(resource);
            return Ok(());
        }
        let reason = format!(
            "it had {} MiB when it was let go {:.0?} ago, and {} of {} MiB are in use",
            size >> 20,
            at.elapsed(),
            used >> 20,
            budget >> 20
        );
        Err(reason.into())
    }
}

impl Slot {
    /// Returns whether the start failed. The task that drives it will remove it.
    fn has_failed(&self) -> bool {
        self.starting.peek().is_some_and(Result::is_err)
    }

    fn entry(&self) -> Option<Arc<CachedInformer>> {
        self.starting.peek().and_then(|started| started.as_ref().ok()).cloned()
    }
}
