//! The kinds of one cluster that are kept in memory: started on first use, stopped when nobody uses them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use skopos::{Condition, Informer, LinkState, RawObject, ResourceId};
use tokio::sync::watch;
use tokio::time::Instant;

use super::machine::Trouble;
use super::options::{Admits, ClusterOptions};
use super::stats::KindStats;
use crate::error::FleetError;

/// One kind of one cluster, kept in memory. Whoever holds one keeps it in use: it is not stopped for being idle, and goes
/// last when memory is short. Cheap to clone.
#[derive(Clone)]
pub struct CachedKind {
    held: Arc<Held>,
}

/// Why a kind is not kept any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ended {
    /// Nobody used it for a while.
    Idle,
    /// It did not fit into the cluster's memory budget.
    Evicted,
    /// It may not be kept any more ([`ClusterOptions::admits`]).
    Unwanted,
    /// The server does not serve it any more: its definition was deleted.
    NotServed,
    /// The cluster is reached another way now, and another copy is there.
    Reconnected,
    /// Another cluster has taken the place of the one that this is of.
    Replaced,
    /// The cluster left the fleet.
    Removed,
    /// The fleet was shut down.
    Closed,
}

/// What becomes of a kind, without a use of it.
#[derive(Clone, Debug)]
pub struct Fate {
    ended: watch::Receiver<Option<Ended>>,
}

/// A use of a kind; the last one that goes notes when that was.
struct Held {
    entry: Arc<Entry>,
}

/// A kind that runs.
pub(crate) struct Entry {
    pub(crate) informer: Informer<RawObject>,
    ended: watch::Sender<Option<Ended>>,
    /// Uses now.
    holders: AtomicUsize,
    last_used: Mutex<Instant>,
    /// Wanted by configuration.
    pub(crate) pinned: bool,
}

pub(crate) type Starting = Shared<BoxFuture<'static, Result<Arc<Entry>, FleetError>>>;

/// All kinds of one cluster.
pub(crate) struct Kinds {
    slots: Mutex<Slots>,
    starts: AtomicU64,
    evictions: AtomicU64,
}

/// How long it is believed that the server refuses a kind.
const REFUSAL_MEMORY: Duration = Duration::from_secs(10);

/// A kind that the server has not served for so long is gone. A definition that is replaced comes back within moments.
const NOT_SERVED_FOR: Duration = Duration::from_secs(5);

/// After so many failures in a row nobody waits for the next attempt: what comes and goes is over by then.
const FAILURES: u32 = 3;

/// How many refusals are remembered.
const MOST_REFUSALS: usize = 256;

#[derive(Default)]
struct Slots {
    running: BTreeMap<ResourceId, Slot>,
    /// What the server refused lately: code, reason, when.
    refused: BTreeMap<ResourceId, (u16, Arc<str>, Instant)>,
    /// What did not fit, how large it was, and when that was.
    too_large: BTreeMap<ResourceId, (u64, Instant)>,
    number: u64,
}

struct Slot {
    starting: Starting,
    /// Tells this start from later ones of the same kind.
    number: u64,
}

/// A kind to wait for.
pub(crate) struct Start {
    pub(crate) starting: Starting,
    /// Whether it was begun just now: then somebody has to drive it.
    pub(crate) begun: Option<u64>,
}

impl CachedKind {
    pub(crate) fn new(entry: Arc<Entry>) -> Self {
        entry.holders.fetch_add(1, Ordering::SeqCst);
        Self { held: Arc::new(Held { entry }) }
    }

    /// The kind.
    pub fn resource(&self) -> &ResourceId {
        self.held.entry.informer.resource()
    }

    /// Its informer: store, freshness, reads with a bound on the age.
    pub fn informer(&self) -> &Informer<RawObject> {
        &self.held.entry.informer
    }

    /// Whether there is anything to read.
    pub fn has_content(&self) -> bool {
        self.held.entry.has_content()
    }

    /// What the server says when it will not let us have the kind: code and reason.
    pub fn refusal(&self) -> Option<(u16, Arc<str>)> {
        self.held.entry.refusal()
    }

    /// How often the server has failed to list it by now, and why, where waiting on is in vain.
    pub(crate) fn failure(&self) -> Option<(u32, Arc<str>)> {
        self.held.entry.failure()
    }

    /// What becomes of it, for those who do not keep it in use.
    pub fn fate(&self) -> Fate {
        Fate { ended: self.held.entry.ended.subscribe() }
    }

    /// Waits until it is not kept any more. Let go of it then; what it holds stays readable until you do.
    pub async fn ended(&self) -> Ended {
        let mut ended = self.held.entry.ended.subscribe();
        match ended.wait_for(Option::is_some).await {
            Ok(reason) => reason.unwrap_or(Ended::Closed),
            // The sender is in the entry that is held.
            Err(_) => Ended::Closed,
        }
    }

    /// Why it is not kept any more, if so.
    pub fn end_reason(&self) -> Option<Ended> {
        *self.held.entry.ended.borrow()
    }
}

impl Fate {
    /// Whether it is that of this kind, and not of another copy, or of that of another cluster.
    pub fn is_of(&self, kind: &CachedKind) -> bool {
        self.ended.same_channel(&kind.held.entry.ended.subscribe())
    }

    /// Why it is not kept any more, if so.
    pub fn end_reason(&self) -> Option<Ended> {
        *self.ended.borrow()
    }
}

impl Drop for Held {
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

impl Entry {
    pub(crate) fn new(informer: Informer<RawObject>, pinned: bool) -> Arc<Self> {
        Arc::new(Self {
            informer,
            ended: watch::Sender::new(None),
            holders: AtomicUsize::new(0),
            last_used: Mutex::new(Instant::now()),
            pinned,
        })
    }

    /// Of whatever age: also what a checkpoint held.
    pub(crate) fn has_content(&self) -> bool {
        self.informer.snapshot().is_synced()
    }

    /// Waits until there is anything to read.
    pub(crate) async fn content(&self) {
        let mut progress = self.informer.store().progress();
        // The sender is in the store, which the informer holds.
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
        Some((code, reason_of(state)))
    }

    /// How often the server has failed to list it, and what it said last, where more patience does not help.
    pub(crate) fn failure(&self) -> Option<(u32, Arc<str>)> {
        let state = self.informer.state();
        let fails = state.condition == Condition::ServerError && state.attempts >= FAILURES;
        fails.then(|| (state.attempts, reason_of(state)))
    }

    /// What is wrong with its list/watch. That the server does not serve the kind (any more) is no trouble.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        let state = self.informer.state();
        let troubled = matches!(state.condition, Condition::Degraded(_)) || state.condition.is_failing();
        let resource = self.informer.resource();
        (troubled && state.condition != Condition::NotServed)
            .then(|| Trouble { reason: format!("{resource}: {state}").into(), kind: Some(resource.clone()) })
    }

    /// Whether the server has not served it for so long.
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

    pub(crate) fn end(&self, reason: Ended) {
        self.ended.send_if_modified(|ended| ended.replace(reason).is_none());
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.holders.load(Ordering::SeqCst) > 0
    }

    fn is_idle_for(&self, limit: Duration) -> bool {
        !self.is_in_use() && !self.pinned && self.last_used.lock().elapsed() >= limit
    }

    fn bytes(&self) -> u64 {
        self.informer.snapshot().json_bytes()
    }
}

/// What the server said last.
fn reason_of(state: LinkState) -> Arc<str> {
    let reason = state.reason.unwrap_or_else(|| state.condition.to_string().into());
    Arc::from(&*reason)
}

impl Kinds {
    pub(crate) fn new() -> Self {
        Self { slots: Mutex::default(), starts: AtomicU64::new(0), evictions: AtomicU64::new(0) }
    }

    /// The kind, if it runs.
    pub(crate) fn get(&self, resource: &ResourceId) -> Option<Arc<Entry>> {
        self.slots.lock().running.get(resource).and_then(Slot::entry)
    }

    /// Whether it runs or is being started.
    pub(crate) fn is_started(&self, resource: &ResourceId) -> bool {
        self.slots.lock().running.get(resource).is_some_and(|slot| !slot.has_failed())
    }

    /// The server refuses the kind: it is not kept any longer, and not asked for again for a while.
    pub(crate) fn refused(&self, resource: &ResourceId, code: u16, reason: Arc<str>) {
        let mut slots = self.slots.lock();
        let pinned = slots.running.get(resource).and_then(Slot::entry).is_some_and(|entry| entry.pinned);
        if pinned {
            return;
        }
        slots.running.remove(resource);
        slots.forget_refusals();
        slots.refused.insert(resource.clone(), (code, reason, Instant::now()));
    }

    /// What the server said when it refused the kind lately.
    pub(crate) fn refusal(&self, resource: &ResourceId) -> Option<(u16, Arc<str>)> {
        let slots = self.slots.lock();
        let (code, reason, at) = slots.refused.get(resource)?;
        (at.elapsed() < REFUSAL_MEMORY).then(|| (*code, reason.clone()))
    }

    /// All that run.
    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        self.slots.lock().running.values().filter_map(Slot::entry).collect()
    }

    /// Starts and evictions so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.starts.load(Ordering::Relaxed), self.evictions.load(Ordering::Relaxed))
    }

    /// The start of a kind: the one under way, or a new one if there is room; `Err` says why there is none.
    pub(crate) fn start(
        &self,
        resource: &ResourceId,
        options: &ClusterOptions,
        begin: impl FnOnce() -> Starting,
    ) -> Result<Start, Arc<str>> {
        if !options.admits.admits(resource) {
            return Err("it may not be kept".into());
        }
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.running.get(resource).filter(|slot| !slot.has_failed()) {
            return Ok(Start { starting: slot.starting.clone(), begun: None });
        }
        slots.check_room(resource, options)?;
        if slots.running.len() >= options.max_kinds && !self.evict(&mut slots, Entry::is_in_use) {
            let reason = format!("{} kinds are in use already, and no more may be kept", options.max_kinds);
            return Err(reason.into());
        }
        slots.number += 1;
        let slot = Slot { starting: begin(), number: slots.number };
        let start = Start { starting: slot.starting.clone(), begun: Some(slot.number) };
        slots.running.insert(resource.clone(), slot);
        self.starts.fetch_add(1, Ordering::Relaxed);
        Ok(start)
    }

    /// A start came to nothing.
    pub(crate) fn failed(&self, resource: &ResourceId, number: u64) {
        let mut slots = self.slots.lock();
        if slots.running.get(resource).is_some_and(|slot| slot.number == number) {
            slots.running.remove(resource);
        }
    }

    /// Puts another copy in the place of a kind that runs.
    pub(crate) fn replace(&self, old: &Arc<Entry>, starting: Starting) {
        let mut slots = self.slots.lock();
        let current = slots.running.get_mut(old.informer.resource());
        if let Some(slot) = current.filter(|slot| slot.entry().is_some_and(|entry| Arc::ptr_eq(&entry, old)))
        {
            slot.starting = starting;
        }
        drop(slots);
        old.end(Ended::Reconnected);
    }

    /// Counts as if everything had been used now: while a cluster does not answer nothing is idle.
    pub(crate) fn touch(&self) {
        let now = Instant::now();
        self.all().iter().for_each(|entry| *entry.last_used.lock() = now);
    }

    /// Stops what nobody has used for so long.
    pub(crate) fn stop_idle(&self, limit: Duration) {
        self.remove(Ended::Idle, |entry| entry.is_idle_for(limit));
    }

    /// Stops what the server does not serve any more, whoever uses it: there is nothing to wait for.
    pub(crate) fn stop_not_served(&self) {
        self.remove(Ended::NotServed, |entry| !entry.pinned && entry.is_not_served_for(NOT_SERVED_FOR));
    }

    /// Stops what may not be kept any more, whoever uses it.
    pub(crate) fn stop_unwanted(&self, admits: &Admits) {
        self.remove(Ended::Unwanted, |entry| !admits.admits(entry.informer.resource()));
    }

    /// While more is kept than may be, lets the kind go that was not used for the longest time: of those that nobody holds
    /// if possible. What went that way is remembered for `memory`. Returns what went, with its size.
    pub(crate) fn keep_within(&self, budget: u64, memory: Duration) -> Vec<(ResourceId, u64)> {
        let mut gone = Vec::new();
        let mut slots = self.slots.lock();
        loop {
            let entries: Vec<Arc<Entry>> = slots.running.values().filter_map(Slot::entry).collect();
            let sizes: Vec<u64> = entries.iter().map(|entry| entry.bytes()).collect();
            if sizes.iter().sum::<u64>() <= budget {
                return gone;
            }
            // What holds nothing frees nothing.
            let candidates = entries.iter().zip(&sizes).filter(|(_, size)| **size > 0);
            let coldest = candidates
                .min_by_key(|(entry, _)| (entry.is_in_use(), entry.pinned, *entry.last_used.lock()));
            let Some((entry, size)) = coldest else { return gone };
            let resource = entry.informer.resource().clone();
            slots.running.remove(&resource);
            slots.too_large.retain(|_, (_, at)| at.elapsed() < memory);
            slots.too_large.insert(resource.clone(), (*size, Instant::now()));
            entry.end(Ended::Evicted);
            self.evictions.fetch_add(1, Ordering::Relaxed);
            gone.push((resource, *size));
        }
    }

    /// Forgets what has not started yet.
    pub(crate) fn forget_starting(&self) {
        self.slots.lock().running.retain(|_, slot| slot.entry().is_some());
    }

    /// Lets go of everything, and of what is being started.
    pub(crate) fn discard(&self, reason: Ended) {
        let gone = std::mem::take(&mut self.slots.lock().running);
        gone.values().filter_map(Slot::entry).for_each(|entry| entry.end(reason));
    }

    /// Tells all holders that it is over, and keeps what there is for reading.
    pub(crate) fn end(&self, reason: Ended) {
        self.forget_starting();
        self.all().iter().for_each(|entry| entry.end(reason));
    }

    fn remove(&self, reason: Ended, which: impl Fn(&Entry) -> bool) {
        let mut slots = self.slots.lock();
        slots.running.retain(|resource, slot| {
            let Some(entry) = slot.entry().filter(|entry| which(entry)) else { return true };
            tracing::debug!(%resource, ?reason, "a kind is not kept any more");
            entry.end(reason);
            false
        });
    }

    /// Makes room for one more kind by letting the coldest go, if one is not needed.
    fn evict(&self, slots: &mut Slots, needed: impl Fn(&Entry) -> bool) -> bool {
        let entries = slots.running.values().filter_map(Slot::entry);
        let free = entries.filter(|entry| !entry.pinned && !needed(entry));
        // What has no content is no loss.
        let coldest = free.min_by_key(|entry| (entry.has_content(), *entry.last_used.lock()));
        let Some(coldest) = coldest else { return false };
        slots.running.remove(coldest.informer.resource());
        coldest.end(Ended::Evicted);
        self.evictions.fetch_add(1, Ordering::Relaxed);
        true
    }
}

impl Slots {
    fn forget_refusals(&mut self) {
        self.refused.retain(|_, (_, _, at)| at.elapsed() < REFUSAL_MEMORY);
        while self.refused.len() >= MOST_REFUSALS {
            let oldest =
                self.refused.iter().min_by_key(|(_, (_, _, at))| *at).map(|(resource, _)| resource.clone());
            let Some(oldest) = oldest else { return };
            self.refused.remove(&oldest);
        }
    }

    /// Whether a kind that did not fit before may be tried again.
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
    /// It came to nothing, and whoever drove it will take it away.
    fn has_failed(&self) -> bool {
        self.starting.peek().is_some_and(Result::is_err)
    }

    fn entry(&self) -> Option<Arc<Entry>> {
        self.starting.peek().and_then(|started| started.as_ref().ok()).cloned()
    }
}
