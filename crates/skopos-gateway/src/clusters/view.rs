//! What is kept of one kind of one cluster, as the contract wants it: states, and the events between them.
//!
//! ```text
//!  informer's store ─▶ journal ─▶ pump ─▶ Window, read by every watcher
//!        └────────────▶ snapshots, of which those with more pages to come are remembered for a while
//! ```

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use skopos::journal::{Change, Cursor, Journal};
use skopos::{Object, RawObject, Read, ResourceId, Snapshot};
use skopos_fleet::{CachedKind, ClusterId};
use skopos_serve::{
    Allowance, BlockCache, BlockStats, Blocks, Event, Item, Window, WindowOptions, WindowStats,
};
use skopos_wire::{FieldSource, LabelSource};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::turns::Turns;
use crate::paged::Paged;

/// All views; those that nobody uses any more are let go.
#[derive(Clone)]
pub(crate) struct Views {
    shared: Arc<Shared>,
}

/// What was made for lists and watches of single clusters so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Served {
    /// Frames of watches: each is made once in each form, however many watch.
    pub frames_encoded: u64,
    /// Watches that ended because their clients did not read.
    pub evictions: u64,
    /// Compressed objects.
    pub blocks: BlockStats,
    /// Bytes of objects that the events kept for watches hold, at most: the stores hold some of them, too.
    pub event_bytes: usize,
    /// Bytes of frames.
    pub frame_bytes: usize,
    /// Bytes of objects that states kept for further pages hold, and the newest do not; about.
    pub paged_bytes: usize,
}

struct Shared {
    views: Mutex<All>,
    /// Of views that are let go.
    past: Mutex<Served>,
    compressed: BlockCache,
    beside: Beside,
    tasks: TaskTracker,
    stop: CancellationToken,
}

type All = HashMap<ClusterId, OfCluster>;

/// The views of one cluster, and what they share.
struct OfCluster {
    views: HashMap<ResourceId, Arc<View>>,
    window: WindowOptions,
    paged: Allowance,
}

/// What the views of one cluster may hold together, however many they are.
#[derive(Clone, Copy, Debug)]
struct Beside {
    /// Of events, and as much once more of states kept for further pages.
    events: usize,
    frames: usize,
}

/// One kind of one cluster.
pub(crate) struct View {
    pub(super) window: Arc<Window<Row>>,
    /// Objects that are compressed already.
    pub(super) blocks: Blocks,
    /// By epoch and revision: after a restore of etcd, the same revision is of another history.
    paged: Mutex<Paged<(u64, u64), Kept>>,
    /// What is listed from the member, for all who need it at the same time.
    pub(super) live: Turns<Option<Read<RawObject>>>,
    used: Mutex<Instant>,
}

/// A state, and how many bytes of it are its own, and not of the store.
type Kept = (Snapshot<RawObject>, usize);

/// Why a pump has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    /// It is time to look whether anybody needs it.
    InTime,
    /// There will be nothing more to take over.
    ForGood,
}

/// One version of one object.
#[derive(Clone)]
pub(crate) struct Row {
    object: Object<RawObject>,
    revision: u64,
}

/// How many changes are taken over at once.
const BATCH: usize = 1_000;

/// A view that nobody has held for so long is let go.
const IDLE: Duration = Duration::from_secs(300);

/// How often it is looked whether there is something to let go.
const LOOK: Duration = Duration::from_secs(60);

/// Who has a view that nobody uses: the map, and its task.
const OWN: usize = 2;

/// What the events of a cluster may hold, and what its states kept for further pages may, of what its stores may.
const EVENTS: usize = 4;

/// What the frames of its events may: they go to all who watch within moments, and can be made again.
const FRAMES: usize = 16;

/// But not less of any, or watches would end for a few hundred changes at once.
const LEAST: usize = 8 << 20;

/// Most states that are remembered for further pages.
const MOST_PAGED: usize = 64;

// === impl Views ===

impl Views {
    /// Keeps so many bytes of compressed objects, for all clusters together, beside stores of which each cluster's may have
    /// so many.
    pub(crate) fn new(compressed: usize, per_cluster: usize) -> Self {
        let part = |part: usize| (per_cluster / part).max(LEAST);
        let beside = Beside { events: part(EVENTS), frames: part(FRAMES) };
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let compressed = BlockCache::new(compressed);
        let shared =
            Shared { views: Mutex::default(), past: Mutex::default(), compressed, beside, tasks, stop };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn served(&self) -> Served {
        let views = self.shared.views.lock();
        let mut served = *self.shared.past.lock();
        for view in views.values().flat_map(|of| of.views.values()) {
            served.add(&view.window.stats());
            served.hold(&view.window.stats(), view.paged.lock().bytes());
        }
        drop(views);
        Served { blocks: self.shared.compressed.stats(), ..served }
    }

    /// The view of a kind; `None` if the kind has no content, keeps no journal, or has versions that are no numbers.
    pub(crate) fn of(&self, cluster: &ClusterId, kind: &CachedKind) -> Option<Arc<View>> {
        let mut clusters = self.shared.views.lock();
        let known = clusters.get(cluster);
        if let Some(view) = known.and_then(|of| of.views.get(kind.resource())) {
            *view.used.lock() = Instant::now();
            return Some(view.clone());
        }
        let journal = kind.informer().store().journal()?;
        let (snapshot, cursor) = journal.begin();
        if !snapshot.is_synced() || self.shared.stop.is_cancelled() {
            return None;
        }
        let start = snapshot.resource_version().as_u64()?;
        let key = (cluster.clone(), kind.resource().clone());
        let of = clusters.entry(cluster.clone()).or_insert_with(|| OfCluster::new(self.shared.beside));
        let view = Arc::new(View {
            window: Arc::new(Window::new(of.window.clone(), start)),
            blocks: self.shared.compressed.blocks(),
            paged: Mutex::new(Paged::new(MOST_PAGED, &of.paged)),
            live: Turns::new(),
            used: Mutex::new(Instant::now()),
        });
        of.views.insert(key.1.clone(), view.clone());
        drop(clusters);
        let (views, tended, stop) = (self.clone(), view.clone(), self.shared.stop.clone());
        self.shared.tasks.spawn(async move {
            stop.run_until_cancelled(views.tend(&key, &tended, journal, cursor)).await;
            views.forget(&key, &tended);
        });
        Some(view)
    }

    /// Ends all of them, and waits until nothing is left, at most for `limit`.
    pub(crate) async fn shutdown(&self, limit: Duration) -> bool {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        tokio::time::timeout(limit, self.shared.tasks.wait()).await.is_ok()
    }

    /// Until nobody needs the view any more, or it can tell nothing more.
    async fn tend(
        &self,
        key: &(ClusterId, ResourceId),
        view: &Arc<View>,
        journal: Journal<RawObject>,
        mut cursor: Cursor<RawObject>,
    ) {
        while view.pump(&journal, &mut cursor, Instant::now() + LOOK).await == Stopped::InTime {
            view.tidy();
            if self.forget_if_idle(key, view) {
                return;
            }
        }
    }

    /// Lets a view go that nobody has, and nobody had for a while. Requests take it under the same lock: none has it
    /// afterwards, to wait for what it would be told.
    fn forget_if_idle(&self, key: &(ClusterId, ResourceId), view: &Arc<View>) -> bool {
        let mut views = self.shared.views.lock();
        if Arc::strong_count(view) > OWN {
            *view.used.lock() = Instant::now();
        }
        let idle = view.used.lock().elapsed() >= IDLE && view.paged.lock().len() == 0;
        if idle {
            self.take_out(&mut views, key, view);
        }
        idle
    }

    /// Whoever has the view still is told that it is over.
    fn forget(&self, key: &(ClusterId, ResourceId), view: &Arc<View>) {
        self.take_out(&mut self.shared.views.lock(), key, view);
        view.window.end();
    }

    fn take_out(&self, clusters: &mut All, (cluster, kind): &(ClusterId, ResourceId), view: &Arc<View>) {
        let Some(of) = clusters.get_mut(cluster) else { return };
        if of.views.get(kind).is_some_and(|known| Arc::ptr_eq(known, view)) {
            of.views.remove(kind);
            self.shared.past.lock().add(&view.window.stats());
        }
        if of.views.is_empty() {
            clusters.remove(cluster);
        }
    }
}

// === impl Served ===

impl Served {
    /// What was made by way of a window.
    pub(crate) fn add(&mut self, stats: &WindowStats) {
        self.frames_encoded += stats.encoded;
        self.evictions += stats.evicted;
    }

    /// What it holds, and what states do that are kept for further pages.
    pub(crate) fn hold(&mut self, stats: &WindowStats, paged: usize) {
        self.event_bytes += stats.bytes;
        self.frame_bytes += stats.frame_bytes;
        self.paged_bytes += paged;
    }
}

// === impl OfCluster ===

impl OfCluster {
    fn new(beside: Beside) -> Self {
        let mut window = WindowOptions::default();
        window.allowance = Allowance::new(beside.events);
        window.frame_allowance = Allowance::new(beside.frames);
        Self { views: HashMap::new(), window, paged: Allowance::new(beside.events) }
    }
}

// === impl View ===

impl View {
    /// Takes over changes, until `look` at the earliest or until there will be no more.
    async fn pump(
        &self,
        journal: &Journal<RawObject>,
        cursor: &mut Cursor<RawObject>,
        look: Instant,
    ) -> Stopped {
        // At most as many as the journal holds.
        let mut gap: Vec<Event<Row>> = Vec::new();
        loop {
            match cursor.read(BATCH) {
                Ok(batch) => {
                    let more = batch.reached.is_none();
                    let size = |old: &Object<RawObject>| old.raw().bytes().len();
                    self.replaced(batch.changes.iter().map(|change| change.old.as_ref().map_or(0, size)));
                    let events = batch.changes.iter().filter_map(event);
                    if !gap.is_empty() || batch.changes.iter().any(|change| change.gap) {
                        gap.extend(events);
                    } else {
                        self.window.extend(events);
                    }
                    if let Some(reached) = batch.reached.and_then(|revision| revision.as_u64()) {
                        // What came and went within a gap nobody knows: no watch may start inside.
                        match gap.is_empty() {
                            true => self.window.advance(reached),
                            false => self.window.extend_gap(gap.drain(..), reached),
                        }
                    }
                    if more {
                        tokio::task::yield_now().await;
                        continue;
                    }
                }
                // History is broken for whoever watches; lists are right as they are.
                Err(_) => {
                    gap.clear();
                    let (snapshot, begun) = journal.begin();
                    *cursor = begun;
                    let Some(start) = snapshot.resource_version().as_u64() else { return Stopped::ForGood };
                    self.replaced([snapshot.json_bytes() as usize]);
                    self.window.begin_anew(start);
                }
            }
            let left = look.saturating_duration_since(Instant::now());
            match cursor.changed(left).await {
                Err(_closed) => return Stopped::ForGood,
                Ok(_) if Instant::now() >= look => return Stopped::InTime,
                Ok(_) => {}
            }
        }
    }

    /// Lets go of what nobody is to see any more.
    fn tidy(&self) {
        self.window.tidy();
        let gone = self.paged.lock().tidy();
        drop(gone);
    }

    /// Objects of such sizes are not in the store any more.
    fn replaced(&self, sizes: impl IntoIterator<Item = usize>) {
        let gone = self.paged.lock().replaced(sizes);
        drop(gone);
    }

    /// Remembers a state for the pages to come, of which so many bytes are its own.
    pub(super) fn remember(&self, revision: u64, snapshot: &Snapshot<RawObject>, own: usize) {
        let gone = self.paged.lock().keep((snapshot.epoch(), revision), (snapshot.clone(), own), own);
        drop(gone);
    }

    /// A state of an epoch that was remembered, and is for some time more.
    pub(super) fn remembered(&self, epoch: u64, revision: u64) -> Option<Kept> {
        self.paged.lock().get((epoch, revision))
    }
}

/// A change as watches are told of it.
fn event(change: &Change<RawObject>) -> Option<Event<Row>> {
    let revision = change.resource_version.as_u64()?;
    let row = |object: &Object<RawObject>| Row::of(object.clone());
    match (&change.new, change.last.as_ref().or(change.old.as_ref())) {
        (Some(new), _) => Some(Event::put(revision, change.old.as_ref().and_then(row), row(new)?)),
        (None, Some(last)) => Some(Event::deleted(revision, row(last)?)),
        (None, None) => None,
    }
}

// === impl Row ===

impl Row {
    /// `None` if its version is no number.
    pub(super) fn of(object: Object<RawObject>) -> Option<Self> {
        let revision = object.resource_version().as_u64()?;
        Some(Self { object, revision })
    }
}

impl Item for Row {
    fn namespace(&self) -> Option<&str> {
        self.object.namespace()
    }

    fn name(&self) -> &str {
        self.object.name()
    }

    fn revision(&self) -> u64 {
        self.revision
    }

    fn json(&self) -> Bytes {
        self.object.raw().bytes().clone()
    }
}

impl LabelSource for Row {
    fn label(&self, key: &str) -> Option<&str> {
        self.object.label(key)
    }
}

impl FieldSource for Row {
    fn field(&self, path: &str) -> Option<Cow<'_, str>> {
        FieldSource::field(self.object.raw(), path)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::ApiResource;
    use serde_json::json;
    use skopos::journal::JournalOptions;
    use skopos::{FactoryOptions, InformerFactory, InformerOptions, ResourceVersion};
    use skopos_serve::Registry;

    use super::*;
    use crate::fleet::resource_id;
    use crate::testing::Lab;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn who_was_behind_when_the_journal_overflowed_lists_anew() {
        let lab = Lab::trusting(&["a"]);
        let create = |name: String| -> ResourceVersion {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"namespace": "default", "name": name}});
            let created = lab.member("a").create(object).unwrap();
            created["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
        };
        let transport = lab.services.fleet.cluster("a").unwrap().transport(LIMIT).await.unwrap();
        let factory = InformerFactory::new(transport, FactoryOptions::default());
        let small = JournalOptions { events: 4, ..JournalOptions::default() };
        let options = InformerOptions::all().journal(small);
        let informer = factory.raw(&ApiResource::erase::<ConfigMap>(&()), options).unwrap();
        informer.wait_synced(LIMIT).await.unwrap();
        let journal = informer.store().journal().unwrap();
        let (snapshot, mut cursor) = journal.begin();
        let old = snapshot.resource_version().as_u64().unwrap();
        let last = (0..20).fold(snapshot.resource_version().clone(), |_, n| create(format!("x{n}")));
        informer.wait_for(&last, LIMIT).await.unwrap();

        let view = View {
            window: Arc::new(Window::new(WindowOptions::default(), old)),
            blocks: BlockCache::new(0).blocks(),
            paged: Mutex::new(Paged::new(MOST_PAGED, &Allowance::unbounded())),
            live: Turns::new(),
            used: Mutex::new(Instant::now()),
        };
        assert!(view.window.start(old).is_ok());
        let caught_up = async {
            // One that is told after the pump has found its place again.
            let later = create("later".into()).as_u64().unwrap();
            while view.window.reached() < later {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            _ = view.pump(&journal, &mut cursor, Instant::now() + LIMIT) => panic!("there is more to come"),
            caught_up = tokio::time::timeout(LIMIT, caught_up) => caught_up.unwrap(),
        }
        let last = last.as_u64().unwrap();
        assert!(view.window.oldest_start() >= last);
        assert_eq!(view.window.start(old), Err(view.window.oldest_start()), "19 changes are told by nobody");
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_a_view_is_told_by_it_however_long_it_took() {
        let lab = Lab::trusting(&["a"]);
        let cluster = lab.services.fleet.cluster("a").unwrap();
        let maps = Registry::builtin().lookup("configmaps").unwrap();
        let kind = cluster.kind(&resource_id(&maps), LIMIT).await.unwrap();
        let views = Views::new(0, 0);
        // A request that has taken it and does not watch yet.
        let view = views.of(cluster.id(), &kind).unwrap();
        tokio::time::sleep(2 * IDLE).await;
        let watch = view.window.subscribe();
        let created = lab.member("a").create(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "default", "name": "x"}}));
        let created: u64 = created.unwrap()["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        tokio::time::sleep(LIMIT).await;
        assert!(view.window.reached() >= created && !watch.is_closed());
        assert!(Arc::ptr_eq(&view, &views.of(cluster.id(), &kind).unwrap()));
        // States for pages that nobody asks for go, however long the view is watched.
        view.remember(created, &kind.informer().snapshot(), 0);
        tokio::time::sleep(IDLE - Duration::from_secs(1)).await;
        assert_eq!(view.paged.lock().len(), 1);
        tokio::time::sleep(2 * LOOK).await;
        assert_eq!(view.paged.lock().len(), 0);
        // From when it was given back on, it is as good as new.
        let (window, last) = (view.window.clone(), Arc::downgrade(&view));
        drop((watch, view));
        tokio::time::sleep(IDLE / 2).await;
        assert!(last.upgrade().is_some());
        tokio::time::sleep(2 * IDLE).await;
        assert!(last.upgrade().is_none() && window.subscribe().is_closed());
        assert!(views.shutdown(LIMIT).await);
    }
}
