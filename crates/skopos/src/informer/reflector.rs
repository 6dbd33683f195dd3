//! One list/watch of an informer: the driver's task, and the sink that writes to the store.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use skopos_reflect::{
    Change, Clock, Commit, Condition, Driver, DriverHandle, DriverOptions, MachineOptions, Reason,
    ReflectorState, Resume, Sink, Target, Time,
};
use skopos_wire::{ObjectKey, RawObject, ResourceVersion};
use tokio_util::sync::CancellationToken;

use super::compaction::Compaction;
use super::quarantine::{Quarantine, UnreadableObjects};
use super::resource::ResourceId;
use super::stats::TroubleLog;
use super::transform::Transform;
use super::watch_list_support::WatchListSupport;
use crate::factory::context::FactoryContext;
use crate::freshness::FreshnessCell;
use crate::freshness::prober::Prober;
use crate::handler::panic::text_of;
use crate::store::{ReflectorObserver, StoreCore, StoreWriter};

/// One list/watch of an informer.
pub(crate) struct Reflector {
    pub(crate) target: Target,
    pub(crate) handle: DriverHandle,
    pub(crate) troubles: Arc<TroubleLog>,
    pub(crate) quarantine: Arc<Quarantine>,
    /// True while only a comparison with a list can tell whether anything is missing.
    needs_comparison: Arc<AtomicBool>,
    panicked: Arc<AtomicBool>,
}

impl Reflector {
    /// Returns whether the content should be compared with a list now.
    pub(crate) fn needs_comparison(&self) -> bool {
        self.needs_comparison.load(Ordering::Relaxed)
    }

    /// Records that the content is being compared.
    pub(crate) fn comparison_started(&self) {
        self.needs_comparison.store(false, Ordering::Relaxed);
    }

    /// Returns whether the list/watch panicked: it will not deliver anything any more.
    pub(crate) fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::Relaxed)
    }

    /// Simulates a panic.
    #[cfg(test)]
    pub(crate) fn simulate_panic(&self) {
        self.panicked.store(true, Ordering::Relaxed);
    }
}

/// The parameters of one list/watch.
pub(crate) struct ReflectorParts<'a> {
    pub(crate) context: &'a FactoryContext,
    /// The part of the content that it fills.
    pub(crate) part: usize,
    pub(crate) resource: &'a ResourceId,
    pub(crate) target: Target,
    pub(crate) store: &'a Arc<StoreCore>,
    pub(crate) prober: Arc<Prober>,
    pub(crate) machine: MachineOptions,
    pub(crate) transform: Transform,
    pub(crate) compaction: Compaction,
    pub(crate) stop: CancellationToken,
    pub(crate) seed: u64,
    /// The position of the restored content.
    pub(crate) resume: Option<Resume>,
}

/// Starts one list/watch in a task of the factory.
pub(crate) fn start(parts: ReflectorParts<'_>) -> Reflector {
    let ReflectorParts {
        context,
        part,
        resource,
        target,
        store,
        prober,
        mut machine,
        transform,
        compaction,
        stop,
        seed,
        resume,
    } = parts;
    // Restored content is proven as soon as the watch is open, as after an outage.
    let was_down = resume.is_some();
    machine.resume = resume;
    let troubles = Arc::new(TroubleLog::default());
    let quarantine = Arc::new(Quarantine::default());
    let needs_comparison = Arc::new(AtomicBool::new(false));
    let (cell, clock) = (store.freshness().clone(), context.freshness.clock);
    let limits = context.options.limits.clone();
    let negotiation = context.encodings.negotiation(&target);
    let options = DriverOptions { machine, limits, clock, seed: Some(seed), negotiation };
    let driver = Driver::new(context.transport.clone(), target.clone(), options);
    let handle = driver.handle();
    let observer = FreshnessObserver {
        part,
        store: store.clone(),
        cell: cell.clone(),
        clock,
        troubles: troubles.clone(),
        prober,
        was_down,
    };
    let writer = StoreWriter::new(store.clone(), part, observer);
    let sink = StoreSink {
        part,
        store: store.clone(),
        writer,
        cell: cell.clone(),
        troubles: troubles.clone(),
        quarantine: quarantine.clone(),
        needs_comparison: needs_comparison.clone(),
        staged: BTreeSet::new(),
        transform,
        compaction,
        resource: resource.clone(),
        watch_list_support: context.watch_list_support.clone(),
    };
    let panicked = Arc::new(AtomicBool::new(false));
    let (name, flag) = (target.to_string(), panicked.clone());
    // Boxed: a future passed by value takes its space twice, and this one is most of an idle informer's memory.
    let run = async move { drop(driver.run(sink, stop).await) }.boxed();
    context.tasks.spawn(async move {
        if let Some(panic) = panic_of(run).await {
            tracing::error!(target = %name, %panic, "a list/watch panicked, and is over");
            flag.store(true, Ordering::Relaxed);
            publish_panic(&cell, part, clock, &panic);
        }
    });
    Reflector { target, handle, troubles, quarantine, needs_comparison, panicked }
}

/// Runs the future to its end; returns its panic's message if it panicked.
async fn panic_of(run: impl Future<Output = ()>) -> Option<String> {
    AssertUnwindSafe(run).catch_unwind().await.err().map(|panic| text_of(&*panic))
}

/// Publishes a panic, which is a bug in this crate, as the list/watch's state. The content must not be taken for live
/// content.
fn publish_panic(cell: &FreshnessCell, part: usize, clock: Clock, panic: &str) {
    let reason: Reason =
        format!("the list/watch panicked: {panic}; ask the factory for the informer again").into();
    cell.update(part, |part| {
        let state = ReflectorState::clone(&part.reflector);
        let (since, reason) = (clock.now(), Some(reason.clone()));
        part.reflector = Arc::new(ReflectorState {
            condition: Condition::Stopped,
            since,
            reason,
            retry_at: None,
            ..state
        });
    });
}

/// An observer that publishes the reflector's state as freshness.
struct FreshnessObserver {
    part: usize,
    store: Arc<StoreCore>,
    cell: Arc<FreshnessCell>,
    clock: Clock,
    troubles: Arc<TroubleLog>,
    prober: Arc<Prober>,
    /// True if the reflector has failed since its watch was last open.
    was_down: bool,
}

impl ReflectorObserver for FreshnessObserver {
    fn fresh_as_of(&mut self, at: Time) {
        // An RV proves the age of content that belongs to this server's history. A checkpoint may belong to a history that
        // was replaced by a backup since, and an audit or a list has to agree with it first.
        if !self.store.peek().is_restored(self.part) {
            self.cell.prove(self.part, self.clock.instant(at));
        }
    }

    fn fresh_only_as_of(&mut self, at: Option<Time>) {
        self.cell.retract(self.part, at.map(|at| self.clock.instant(at)));
    }

    fn state(&mut self, state: &ReflectorState) {
        self.troubles.state(state);
        self.was_down |= state.condition.is_failing();
        if self.was_down && state.condition.is_watching() {
            self.was_down = false;
            // The last proof may be old, and only a probe brings a newer one.
            self.prober.request_probe();
        }
        let state = Arc::new(state.clone());
        self.cell.update(self.part, |part| part.reflector = state.clone());
    }
}

/// The sink between the driver and the store: applies the transform and the compaction, and records complete lists and
/// objects that cannot be read.
struct StoreSink {
    part: usize,
    store: Arc<StoreCore>,
    writer: StoreWriter,
    cell: Arc<FreshnessCell>,
    troubles: Arc<TroubleLog>,
    quarantine: Arc<Quarantine>,
    needs_comparison: Arc<AtomicBool>,
    /// The unreadable objects of the list that is being received.
    staged: BTreeSet<ObjectKey>,
    transform: Transform,
    compaction: Compaction,
    resource: ResourceId,
    watch_list_support: Arc<WatchListSupport>,
}

impl Sink for StoreSink {
    fn begin_replace(&mut self) {
        self.staged.clear();
        self.compaction.begin_list();
        self.writer.begin_replace();
    }

    fn stage(&mut self, object: RawObject) {
        let object = self.compaction.listed(self.transform.refine(object));
        self.writer.stage(object);
    }

    fn unstage(&mut self, key: &ObjectKey) {
        self.writer.unstage(key);
    }

    fn stage_unreadable(&mut self, key: &ObjectKey) {
        self.staged.insert(key.clone());
        self.writer.stage_unreadable(key);
    }

    fn commit_replace(&mut self, commit: Commit) {
        let cause = commit.cause;
        let keys = std::mem::take(&mut self.staged);
        self.quarantine.replace(UnreadableObjects { keys, nameless: commit.nameless });
        self.writer.commit_replace(commit);
        self.troubles.relisted(cause);
        self.cell.update(self.part, |part| part.audit = None);
    }

    fn abort_replace(&mut self) {
        self.writer.abort_replace();
    }

    fn apply(&mut self, changes: &mut Vec<Change>, resource_version: &ResourceVersion) {
        let held = self.store.peek().json_bytes;
        for change in changes.iter_mut() {
            if let Change::Put(object) | Change::Deleted(object) = change {
                *object = self.compaction.held(self.transform.refine(object.clone()), held);
            }
        }
        self.quarantine.remove(changes.iter().map(Change::key));
        self.writer.apply(changes, resource_version);
    }

    fn advance(&mut self, resource_version: &ResourceVersion) {
        self.writer.advance(resource_version);
    }

    fn skipped(&mut self, key: &ObjectKey, resource_version: &ResourceVersion) {
        self.quarantine.add(key);
        self.writer.skipped(key, resource_version);
    }

    fn fresh_as_of(&mut self, at: Time) {
        self.writer.fresh_as_of(at);
    }

    fn fresh_only_as_of(&mut self, at: Option<Time>) {
        self.writer.fresh_only_as_of(at);
    }

    fn watch_list_unsupported(&mut self) {
        self.watch_list_support.record_unsupported(&self.resource);
    }

    /// Requests a comparison, for the next round of the factory's maintenance.
    fn compare(&mut self) -> bool {
        self.needs_comparison.store(true, Ordering::Relaxed);
        true
    }

    fn state(&mut self, state: &ReflectorState) {
        self.writer.state(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panicked_reflector_is_stale_with_reason() {
        let cell = FreshnessCell::standalone();
        let clock = Clock::new();
        cell.update(0, |part| part.synced = true);
        cell.prove(0, tokio::time::Instant::now());
        cell.update(0, |part| {
            part.reflector = Arc::new(ReflectorState {
                condition: Condition::Watching,
                ..ReflectorState::clone(&part.reflector)
            });
        });
        assert!(cell.freshness().is_live());
        assert_eq!(panic_of(async {}).await, None);
        let panic = panic_of(async { panic!("no {}", "way") }).await.expect("it panicked");
        publish_panic(&cell, 0, clock, &panic);
        let freshness = cell.freshness();
        assert!(!freshness.is_live() && freshness.to_string().contains("panicked: no way"), "{freshness}");
    }
}
