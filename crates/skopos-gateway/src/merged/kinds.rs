//! The kinds with a merged view: started by the first request, stopped after an idle time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use skopos::ResourceId;
use skopos::transport::WallClock;
use skopos_fleet::{CachedKind, Fleet};
use skopos_serve::{MemoryBudget, ResourceType, WindowOptions};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::continue_keys::ContinueKeys;
use super::feed::{Absences, Feed};
use super::followed_stores::FollowedStores;
use super::history::History;
use super::merged_version::InstanceTag;
use super::resume_store::{ResumeFile, ResumeStorage, ResumeStore};
use crate::catalog::Catalogs;
use crate::clusters::Served;
use crate::config::fleet::resource_id;
use crate::consistency::Listings;

/// Options of merged views: memory, and storage of the state for the next process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KindsOptions {
    /// The storage of resume files, one small file per kind.
    pub resume_storage: ResumeStorage,
    /// The idle time after which a kind is stopped. Default 10 min.
    pub idle_stop: Duration,
    /// The size of the history of each kind, and of all together.
    pub window: WindowOptions,
    /// The memory budget of the states for further pages of lists, for all kinds together.
    pub paged: MemoryBudget,
    /// The source of the time of day. Default: the operating system.
    pub clock: WallClock,
    /// The keys of continue tokens. Default: a random one.
    pub continue_keys: Option<ContinueKeys>,
    /// The seed of a random key for continue tokens. Default: the operating system's randomness; a seed is for simulations.
    pub seed: Option<u64>,
}

/// A kind as a merged view reads it from the members.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) resource: ResourceId,
    pub(crate) namespaced: bool,
    /// True if not built in: each member is asked first whether it serves the kind, with this definition.
    pub(crate) custom: bool,
}

/// The merged view of one kind.
pub(crate) struct Kind {
    pub(crate) history: Arc<History>,
    pub(crate) absences: Absences,
    pub(crate) followed_stores: FollowedStores,
    used: Mutex<Instant>,
}

pub(crate) struct Kinds {
    fleet: Fleet,
    catalogs: Catalogs,
    listings: Listings,
    options: KindsOptions,
    resume_store: Option<ResumeStore>,
    running: Arc<Running>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// The running kinds.
type Running = Mutex<HashMap<Shape, Arc<Kind>>>;

/// Number of idle checks within [`KindsOptions::idle_stop`].
const IDLE_CHECKS: u32 = 4;

/// The minimum time between two of these checks.
const MIN_IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum, because the check also removes expired state.
const MAX_IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Interval of the checks whether all changes were passed on.
const SETTLE_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Minimum budget for the events of all kinds, for their frames, and for the states of further pages.
const MIN_BUDGET_BYTES: usize = 64 << 20;

/// The maximum length of a resume file's name, which file systems limit.
const MAX_FILE_NAME: usize = 240;

impl Default for KindsOptions {
    fn default() -> Self {
        Self {
            resume_storage: ResumeStorage::default(),
            idle_stop: Duration::from_secs(600),
            window: WindowOptions::default(),
            paged: MemoryBudget::unbounded(),
            clock: WallClock::system(),
            continue_keys: None,
            seed: None,
        }
    }
}

impl KindsOptions {
    /// Makes options for clusters with a memory budget of `per_cluster` bytes each. The events of all kinds together get
    /// twice that, so that a cluster's whole content can arrive at once without ending watches. The states for further
    /// pages get as much, and the frames of the events a quarter of `per_cluster`; each gets at least 64 MiB.
    pub fn beside(per_cluster: usize) -> Self {
        let most = per_cluster.saturating_mul(2).max(MIN_BUDGET_BYTES);
        let mut window = WindowOptions::default();
        window.budget = MemoryBudget::new(most);
        window.frame_budget = MemoryBudget::new((per_cluster / 4).max(MIN_BUDGET_BYTES));
        Self { window, paged: MemoryBudget::new(most), ..Self::default() }
    }
}

impl Shape {
    pub(crate) fn new(resource: &ResourceType) -> Self {
        let (namespaced, custom) = (resource.namespaced, resource.custom);
        Self { resource: resource_id(resource), namespaced, custom }
    }
}

impl Kinds {
    pub(crate) fn new(fleet: Fleet, catalogs: Catalogs, listings: Listings, options: KindsOptions) -> Self {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let resume_store = ResumeStore::from_storage(&options.resume_storage);
        if let Some(loading) = resume_store.as_ref().and_then(ResumeStore::load) {
            let stop = stop.clone();
            tasks.spawn(async move {
                stop.run_until_cancelled(loading).await;
            });
        }
        Self { fleet, catalogs, listings, options, resume_store, running: Arc::default(), stop, tasks }
    }

    /// Returns the merged view of a kind; starts it if it does not run.
    pub(crate) async fn get(&self, shape: &Shape) -> Arc<Kind> {
        if let Some(kind) = self.find(shape) {
            return kind;
        }
        let file = self.file(shape);
        let past = match &file {
            Some(file) => file.read().await,
            None => None,
        };
        let (instance, window) = (InstanceTag::new(fastrand::u64(..)), self.options.window.clone());
        let history =
            Arc::new(History::new(past, instance, window, &self.options.paged, self.options.clock.clone()));
        if let (Some(file), Some(claim)) = (&file, history.claim()) {
            file.claim(&claim).await;
        }
        let mut running = self.running.lock();
        // Another request may have been faster.
        if let Some(kind) = running.get(shape) {
            return kind.clone();
        }
        let (absences, followed_stores) =
            (Absences::default(), FollowedStores::new(self.options.clock.clone()));
        let stop = self.stop.child_token();
        let kind = Arc::new(Kind {
            history: history.clone(),
            absences: absences.clone(),
            followed_stores: followed_stores.clone(),
            used: Mutex::new(Instant::now()),
        });
        let feed = Feed {
            fleet: self.fleet.clone(),
            shape: shape.clone(),
            catalogs: self.catalogs.clone(),
            history: history.clone(),
            absences,
            followed_stores,
        };
        let (all, limit) = (self.running.clone(), self.options.idle_stop);
        let idle = idle(all, self.listings.clone(), shape.clone(), stop.clone(), limit);
        self.tasks.spawn(async move {
            let keeping = async {
                match file {
                    Some(file) => file.save_periodically(&history, &stop).await,
                    None => stop.cancelled().await,
                }
            };
            tokio::join!(feed.run(stop.clone()), keeping, idle);
            history.window().end();
        });
        running.insert(shape.clone(), kind.clone());
        kind
    }

    /// Returns the statistics of watches of the running kinds, and the memory held for lists and watches.
    pub(crate) fn served(&self) -> Served {
        let mut served = Served::default();
        for kind in self.running.lock().values() {
            let stats = kind.history.window().stats();
            served.add(&stats);
            served.hold(&stats, kind.history.paged().1);
        }
        served
    }

    /// Waits, at most for `limit`, until all content of the members is passed on. The content must not change any more.
    pub(crate) async fn settle(&self, limit: Duration) {
        let settling = async {
            while !self.is_settled() {
                sleep(SETTLE_POLL_INTERVAL).await;
            }
        };
        if timeout(limit, settling).await.is_err() {
            tracing::warn!(
                "not all watches were informed in time: some may have to list again after the restart"
            );
        }
    }

    fn is_settled(&self) -> bool {
        let members = self.fleet.members();
        let running = self.running.lock();
        running.iter().all(|(shape, kind)| {
            let resume_state = kind.history.resume_state();
            // Members whose content is not taken have nothing to pass on.
            let mut taken = members.values().filter(|cluster| kind.absences.get(cluster.id()).is_none());
            taken.all(|cluster| {
                let held = cluster.cached(&shape.resource).filter(CachedKind::has_content);
                let held = held.map(|held| held.informer().snapshot().resource_version().clone());
                held.is_none_or(|held| {
                    resume_state.members.get(cluster.id()).is_some_and(|member| member.to >= held)
                })
            })
        })
    }

    pub(crate) async fn shutdown(&self, limit: Duration) -> bool {
        self.stop.cancel();
        self.tasks.close();
        timeout(limit, self.tasks.wait()).await.is_ok()
    }

    fn find(&self, shape: &Shape) -> Option<Arc<Kind>> {
        let running = self.running.lock();
        let kind = running.get(shape)?;
        *kind.used.lock() = Instant::now();
        Some(kind.clone())
    }

    fn file(&self, shape: &Shape) -> Option<ResumeFile> {
        let resume_store = self.resume_store.as_ref()?;
        let Shape { resource, namespaced, custom } = shape;
        let group = if resource.group.is_empty() { "core" } else { &resource.group };
        let mut name = format!("{group}.{}.{}", resource.version, resource.plural);
        // A built-in kind has one definition; a custom kind may have two in two clusters, with one history each.
        if *custom {
            name = format!("{name}.{}.{}", resource.kind, if *namespaced { "namespaced" } else { "cluster" });
        }
        let safe = name.len() <= MAX_FILE_NAME
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'));
        safe.then(|| resume_store.file(name)).flatten()
    }
}

/// Removes and stops a kind that was unused for `limit`. Until then, drops its expired state at intervals.
async fn idle(
    running: Arc<Running>,
    listings: Listings,
    shape: Shape,
    stop: CancellationToken,
    limit: Duration,
) {
    let mut ticks = interval((limit / IDLE_CHECKS).clamp(MIN_IDLE_CHECK_INTERVAL, MAX_IDLE_CHECK_INTERVAL));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        listings.tidy();
        let mut running = running.lock();
        // Under the lock, so that no request finds a kind that is being stopped.
        let Some(kind) = running.get(&shape) else { continue };
        kind.history.tidy();
        // Each request and each watch holds a reference to the kind.
        if Arc::strong_count(kind) > 1 {
            *kind.used.lock() = Instant::now();
        } else if kind.used.lock().elapsed() > limit {
            tracing::debug!(resource = %shape.resource, "no caller asks for the merged view of a resource any more");
            running.remove(&shape);
            stop.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skopos_fleet::ClusterId;
    use skopos_serve::{Event, Window};
    use skopos_wire::{Limits, RawObject};

    use super::super::contents::Entry;
    use super::super::item::MergedItem;
    use super::super::merged_version::MergedVersion;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn event_memory_does_not_grow_with_kinds() {
        let options = KindsOptions::beside(32 << 20).window;
        let value = json!({"metadata": {"namespace": "default", "name": "x", "uid": "u", "resourceVersion": "1",
            "annotations": {"large": "x".repeat(1 << 20)}}});
        let object = RawObject::from_value(&value, &Limits::default()).unwrap();
        let item = |merged_version| {
            let entry = Entry { object: object.clone(), merged_version: MergedVersion::new(merged_version) };
            MergedItem::new(ClusterId::new("north").unwrap(), entry)
        };
        let windows: Vec<_> = (0..10).map(|_| Window::new(options.clone(), 0)).collect();
        for merged_version in 1..=50 {
            for window in &windows {
                window.push(Event::put(merged_version, None, item(merged_version)));
            }
            tokio::time::advance(Duration::from_millis(100)).await;
            let held: usize = windows.iter().map(|window| window.stats().bytes).sum();
            assert!(
                held <= MIN_BUDGET_BYTES && (merged_version < 10 || held > MIN_BUDGET_BYTES / 2),
                "{held}"
            );
        }
        assert!(windows.iter().all(|window| window.stats().events > 1), "each has its part");
    }
}
