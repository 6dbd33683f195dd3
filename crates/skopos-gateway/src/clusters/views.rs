//! Views of all kinds of all clusters: made on request, dropped when idle, with their common memory limits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use skopos::journal::{Cursor, Journal};
use skopos::{RawObject, ResourceId};
use skopos_fleet::{CachedKind, ClusterId};
use skopos_serve::{BlockCache, BlockStats, MemoryBudget, Window, WindowOptions, WindowStats};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::view::{PumpEnd, Row, View};
use crate::consistency::Listings;

/// All views. Idle ones are dropped.
#[derive(Clone)]
pub(crate) struct Views {
    shared: Arc<ViewsInner>,
}

/// Statistics of lists and watches of single clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Served {
    /// Frames of watches: each is made once per form, for any number of watches.
    pub frames_encoded: u64,
    /// Watches that ended because their clients did not read.
    pub evictions: u64,
    /// Compressed objects.
    pub blocks: BlockStats,
    /// Bytes of objects that the events kept for watches hold, at most: the stores hold some of them, too.
    pub event_bytes: usize,
    /// Bytes of frames.
    pub frame_bytes: usize,
    /// Approximate bytes of objects that only the states for further pages hold.
    pub paged_bytes: usize,
}

struct ViewsInner {
    views: Mutex<All>,
    /// The statistics of dropped views.
    past: Mutex<Served>,
    compressed: BlockCache,
    listings: Listings,
    limits: MemoryLimits,
    tasks: TaskTracker,
    stop: CancellationToken,
}

type All = HashMap<ClusterId, ClusterViews>;

/// The views of one cluster, with their common limits.
struct ClusterViews {
    views: HashMap<ResourceId, Arc<View>>,
    /// The last revision of an earlier cluster of this name, by kind, with the time of its end.
    ended: HashMap<ResourceId, (u64, Instant)>,
    window: WindowOptions,
    paged: MemoryBudget,
}

/// The memory limits of one cluster's views together, whatever their number.
#[derive(Clone, Copy, Debug)]
struct MemoryLimits {
    /// The limit for events; states for further pages have the same limit.
    events: usize,
    frames: usize,
}

/// Time after which an unused view is dropped.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Time for which the last revision of an earlier cluster is kept. A client that comes later with a revision of it has
/// been away for longer than any watch lasts.
const PAST_REVISION_TTL: Duration = Duration::from_secs(3600);

/// Interval of the idle checks.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The references to an unused view: the map's and its task's.
const OWN_REFERENCES: usize = 2;

/// Divisor of a cluster's memory budget for the limit of its events, and for that of its states for further pages.
const EVENT_DIVISOR: usize = 4;

/// Divisor for the limit of frames. Frames are sent to all watches within moments, and can be made again.
const FRAME_DIVISOR: usize = 16;

/// The minimum of each limit; with less, a few hundred changes at once would end watches.
const MIN_LIMIT_BYTES: usize = 8 << 20;

impl Views {
    /// Makes the views. All clusters share `compressed` bytes for compressed objects; each cluster's stores have a budget
    /// of `per_cluster` bytes.
    pub(crate) fn new(compressed: usize, per_cluster: usize, listings: Listings) -> Self {
        let part = |part: usize| (per_cluster / part).max(MIN_LIMIT_BYTES);
        let limits = MemoryLimits { events: part(EVENT_DIVISOR), frames: part(FRAME_DIVISOR) };
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let compressed = BlockCache::new(compressed);
        let shared = ViewsInner {
            views: Mutex::default(),
            past: Mutex::default(),
            compressed,
            listings,
            limits,
            tasks,
            stop,
        };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn served(&self) -> Served {
        let views = self.shared.views.lock();
        let mut served = *self.shared.past.lock();
        for view in views.values().flat_map(|of| of.views.values()) {
            served.add(&view.window.stats());
            served.hold(&view.window.stats(), view.paged_bytes());
        }
        drop(views);
        Served { blocks: self.shared.compressed.stats(), ..served }
    }

    /// Returns the view of a kind; `None` if the kind has no content or no journal, or versions that are not numbers.
    pub(crate) fn get(&self, cluster: &ClusterId, kind: &CachedKind) -> Option<Arc<View>> {
        let mut clusters = self.shared.views.lock();
        let known = clusters.get(cluster).and_then(|of| of.views.get(kind.resource()).cloned());
        match known {
            Some(view) if view.is_of(kind) => {
                view.touch();
                return Some(view);
            }
            Some(before) => {
                self.take_out(&mut clusters, &(cluster.clone(), kind.resource().clone()), &before);
                before.window.end();
            }
            None => {}
        }
        let journal = kind.informer().store().journal()?;
        let (snapshot, cursor) = journal.begin();
        if !snapshot.is_synced() || self.shared.stop.is_cancelled() {
            return None;
        }
        let start = snapshot.resource_version().as_u64()?;
        let key = (cluster.clone(), kind.resource().clone());
        let of = clusters.entry(cluster.clone()).or_insert_with(|| ClusterViews::new(self.shared.limits));
        let window = of.window(kind.resource(), start);
        let view = Arc::new(View::new(
            kind.stop_watcher(),
            window,
            self.shared.compressed.blocks(),
            &of.paged,
            self.shared.listings.get(cluster, kind),
        ));
        of.views.insert(key.1.clone(), view.clone());
        drop(clusters);
        let (views, tended, stop) = (self.clone(), view.clone(), self.shared.stop.clone());
        self.shared.tasks.spawn(async move {
            stop.run_until_cancelled(views.tend(&key, &tended, journal, cursor)).await;
            views.remove(&key, &tended);
        });
        Some(view)
    }

    /// Ends all views, and waits for their tasks, at most for `limit`. Returns whether all have ended.
    pub(crate) async fn shutdown(&self, limit: Duration) -> bool {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        tokio::time::timeout(limit, self.shared.tasks.wait()).await.is_ok()
    }

    /// Runs the view until it is idle or its journal has ended.
    async fn tend(
        &self,
        key: &(ClusterId, ResourceId),
        view: &Arc<View>,
        journal: Journal<RawObject>,
        mut cursor: Cursor<RawObject>,
    ) {
        while view.pump(&journal, &mut cursor, Instant::now() + IDLE_CHECK_INTERVAL).await == PumpEnd::Paused
        {
            view.tidy();
            self.shared.listings.tidy();
            if self.remove_if_idle(key, view) {
                return;
            }
        }
    }

    /// Drops a view that has been unused for a while. Requests take views under the same lock, so none can get a view
    /// after it was dropped.
    fn remove_if_idle(&self, key: &(ClusterId, ResourceId), view: &Arc<View>) -> bool {
        let mut views = self.shared.views.lock();
        if Arc::strong_count(view) > OWN_REFERENCES {
            view.touch();
        }
        let idle = view.idle() >= IDLE_TIMEOUT;
        if idle {
            self.take_out(&mut views, key, view);
        }
        idle
    }

    /// Drops the view, and ends its watches.
    fn remove(&self, key: &(ClusterId, ResourceId), view: &Arc<View>) {
        self.take_out(&mut self.shared.views.lock(), key, view);
        view.window.end();
    }

    fn take_out(&self, clusters: &mut All, (cluster, kind): &(ClusterId, ResourceId), view: &Arc<View>) {
        let Some(of) = clusters.get_mut(cluster) else { return };
        if of.views.get(kind).is_some_and(|known| Arc::ptr_eq(known, view)) {
            of.views.remove(kind);
            self.shared.past.lock().add(&view.window.stats());
            if view.is_of_the_past() {
                let reached = view.window.reached();
                of.ended.insert(kind.clone(), (reached, Instant::now()));
                // Its watchers must list again.
                view.window.restart(reached);
            }
        }
        of.ended.retain(|_, (_, when)| when.elapsed() < PAST_REVISION_TTL);
        if of.views.is_empty() && of.ended.is_empty() {
            clusters.remove(cluster);
        }
    }
}

impl Served {
    /// Adds the counters of a window.
    pub(crate) fn add(&mut self, stats: &WindowStats) {
        self.frames_encoded += stats.encoded;
        self.evictions += stats.evicted;
    }

    /// Adds the memory of a window, and of states for further pages.
    pub(crate) fn hold(&mut self, stats: &WindowStats, paged: usize) {
        self.event_bytes += stats.bytes;
        self.frame_bytes += stats.frame_bytes;
        self.paged_bytes += paged;
    }
}

impl ClusterViews {
    fn new(limits: MemoryLimits) -> Self {
        let mut window = WindowOptions::default();
        window.budget = MemoryBudget::new(limits.events);
        window.frame_budget = MemoryBudget::new(limits.frames);
        Self { views: HashMap::new(), ended: HashMap::new(), window, paged: MemoryBudget::new(limits.events) }
    }

    /// Makes a window that begins at `start`. No watch may begin at a revision that only the history of another cluster
    /// has reached.
    fn window(&self, kind: &ResourceId, start: u64) -> Window<Row> {
        let past = self.ended.get(kind).map_or(start, |(reached, _)| start.max(*reached));
        let window = Window::new(self.window.clone(), past);
        if past > start {
            window.restart(start);
        }
        window
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skopos_serve::{Registry, ResourceType};

    use super::*;
    use crate::config::fleet::resource_id;
    use crate::testing::Lab;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn maps() -> Arc<ResourceType> {
        Registry::builtin().lookup("configmaps").unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn view_closes_when_another_store_takes_its_name() {
        let lab = Lab::trusting(&["a", "b"]);
        let views = Views::new(0, 0, Listings::default());
        let name = ClusterId::new("a").unwrap();
        let view_of = async |cluster: &str| {
            let cluster = lab.services.fleet.cluster(cluster).unwrap();
            views.get(&name, &cluster.kind(&resource_id(&maps()), TIMEOUT).await.unwrap()).unwrap()
        };
        let before = view_of("a").await;
        let watch = before.window.subscribe();
        assert!(Arc::ptr_eq(&before, &view_of("a").await) && !watch.is_closed());
        let now = view_of("b").await;
        assert!(!Arc::ptr_eq(&before, &now) && watch.is_closed() && !now.window.subscribe().is_closed());
    }

    #[tokio::test(start_paused = true)]
    async fn held_view_delivers_events_after_idle_timeout() {
        let lab = Lab::trusting(&["a"]);
        let cluster = lab.services.fleet.cluster("a").unwrap();
        let kind = cluster.kind(&resource_id(&maps()), TIMEOUT).await.unwrap();
        let views = Views::new(0, 0, Listings::default());
        // A request that holds the view, but has not begun its watch.
        let view = views.get(cluster.id(), &kind).unwrap();
        tokio::time::sleep(2 * IDLE_TIMEOUT).await;
        let watch = view.window.subscribe();
        let created = lab.member("a").create(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "default", "name": "x"}}));
        let created: u64 = created.unwrap()["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        tokio::time::sleep(TIMEOUT).await;
        assert!(view.window.reached() >= created && !watch.is_closed());
        assert!(Arc::ptr_eq(&view, &views.get(cluster.id(), &kind).unwrap()));
        // States for pages expire, however long the view is watched.
        view.remember(created, &kind.informer().snapshot(), 1);
        tokio::time::sleep(IDLE_TIMEOUT - Duration::from_secs(1)).await;
        assert_eq!(view.paged_bytes(), 1);
        tokio::time::sleep(2 * IDLE_CHECK_INTERVAL).await;
        assert_eq!(view.paged_bytes(), 0);
        // The idle time begins when the last request drops the view.
        let (window, last) = (view.window.clone(), Arc::downgrade(&view));
        drop((watch, view));
        tokio::time::sleep(IDLE_TIMEOUT / 2).await;
        assert!(last.upgrade().is_some());
        tokio::time::sleep(2 * IDLE_TIMEOUT).await;
        assert!(last.upgrade().is_none() && window.subscribe().is_closed());
        assert!(views.shutdown(TIMEOUT).await);
    }
}
