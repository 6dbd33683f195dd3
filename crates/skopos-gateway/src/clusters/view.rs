//! View of one kind of one cluster for lists and watches: states, and the events between them.
//!
//! ```text
//!  informer's store ─▶ journal ─▶ pump ─▶ Window, read by every watcher
//!        └────────────▶ snapshots; those with further pages are kept for a while
//! ```

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use skopos::journal::{Change, Cursor, Journal};
use skopos::{Object, RawObject, Snapshot};
use skopos_fleet::{CachedKind, StopReason, StopWatcher};
use skopos_serve::{Blocks, Event, Item, MemoryBudget, Window};
use skopos_wire::{FieldSource, LabelSource, MetadataChange};
use tokio::time::Instant;

use crate::consistency::Listing;
use crate::response::paged::Paged;

/// The view of one kind of one cluster.
pub(crate) struct View {
    /// The watcher of the end of the cached kind that this view shows.
    stop_watcher: StopWatcher,
    pub(super) window: Arc<Window<Row>>,
    /// Objects that are compressed already.
    pub(super) blocks: Blocks,
    /// States for further pages, by epoch and revision: after a restore of etcd, the same revision belongs to another
    /// history.
    paged: Mutex<Paged<(u64, u64), PagedState>>,
    /// Lists of the member, made because memory was behind.
    pub(super) listing: Arc<Listing>,
    used: Mutex<Instant>,
}

/// A state, with the number of bytes that it does not share with the store.
type PagedState = (Snapshot<RawObject>, usize);

/// The reason why a pump has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PumpEnd {
    /// A pause for the idle check.
    Paused,
    /// The end of the journal.
    Closed,
}

/// One version of one object.
#[derive(Clone)]
pub(crate) struct Row {
    object: Object<RawObject>,
    revision: u64,
}

/// Maximum number of changes per read of the journal.
const BATCH_SIZE: usize = 1_000;

/// Maximum number of states for further pages.
const MAX_PAGED: usize = 64;

impl View {
    /// Makes the view of the cached kind whose end `stop_watcher` observes. States for further pages share `paged` with other views.
    pub(super) fn new(
        stop_watcher: StopWatcher,
        window: Window<Row>,
        blocks: Blocks,
        paged: &MemoryBudget,
        listing: Arc<Listing>,
    ) -> Self {
        Self {
            stop_watcher,
            window: Arc::new(window),
            blocks,
            paged: Mutex::new(Paged::new(MAX_PAGED, paged)),
            listing,
            used: Mutex::new(Instant::now()),
        }
    }

    /// Marks the view as used.
    pub(super) fn touch(&self) {
        *self.used.lock() = Instant::now();
    }

    /// Returns for how long the view has been unused; zero while it has states for further pages.
    pub(super) fn idle(&self) -> Duration {
        match self.paged.lock().len() {
            0 => self.used.lock().elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// Returns the number of bytes that only the states for further pages hold.
    pub(super) fn paged_bytes(&self) -> usize {
        self.paged.lock().bytes()
    }

    /// Returns whether the view is of this cached kind, and not of another with the same name.
    pub(super) fn is_of(&self, kind: &CachedKind) -> bool {
        self.stop_watcher.is_of(kind)
    }

    /// Returns whether the next view under this name may be of another cluster.
    pub(super) fn is_of_the_past(&self) -> bool {
        matches!(self.stop_watcher.end_reason(), Some(StopReason::Removed | StopReason::Replaced))
    }

    /// Reads changes into the window, until `look` at the earliest or until the journal ends.
    pub(super) async fn pump(
        &self,
        journal: &Journal<RawObject>,
        cursor: &mut Cursor<RawObject>,
        look: Instant,
    ) -> PumpEnd {
        // At most as many as the journal holds.
        let mut gap: Vec<Event<Row>> = Vec::new();
        loop {
            match cursor.read(BATCH_SIZE) {
                Ok(batch) => {
                    let more = batch.reached.is_none();
                    let size = |old: &Object<RawObject>| old.raw().buffer().len();
                    self.replaced(batch.changes.iter().map(|change| change.old.as_ref().map_or(0, size)));
                    let events = batch.changes.iter().filter_map(event);
                    if !gap.is_empty() || batch.changes.iter().any(|change| change.gap) {
                        gap.extend(events);
                    } else {
                        self.window.extend(events);
                    }
                    if let Some(reached) = batch.reached.and_then(|revision| revision.as_u64()) {
                        // Objects that were created and deleted within a gap are unknown: no watch may start inside.
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
                // Watches have a gap here, so they must end; lists are correct.
                Err(_) => {
                    gap.clear();
                    let (snapshot, begun) = journal.begin();
                    *cursor = begun;
                    let Some(start) = snapshot.resource_version().as_u64() else { return PumpEnd::Closed };
                    self.replaced([snapshot.held_bytes() as usize]);
                    self.window.restart(start);
                }
            }
            let left = look.saturating_duration_since(Instant::now());
            match cursor.changed(left).await {
                Err(_closed) => return PumpEnd::Closed,
                Ok(_) if Instant::now() >= look => return PumpEnd::Paused,
                Ok(_) => {}
            }
        }
    }

    /// Drops expired state.
    pub(super) fn tidy(&self) {
        self.window.tidy();
        let gone = self.paged.lock().tidy();
        drop(gone);
    }

    /// Records that objects of these sizes are no longer in the store.
    fn replaced(&self, sizes: impl IntoIterator<Item = usize>) {
        let gone = self.paged.lock().replaced(sizes);
        drop(gone);
    }

    /// Keeps a state for further pages; `own` of its bytes are not shared with the store.
    pub(super) fn remember(&self, revision: u64, snapshot: &Snapshot<RawObject>, own: usize) {
        let gone = self.paged.lock().keep((snapshot.epoch(), revision), (snapshot.clone(), own), own);
        drop(gone);
    }

    /// Returns a kept state of this epoch, and extends the time for which it is kept.
    pub(super) fn remembered(&self, epoch: u64, revision: u64) -> Option<PagedState> {
        self.paged.lock().get((epoch, revision))
    }
}

/// Converts a change to an event of watches.
fn event(change: &Change<RawObject>) -> Option<Event<Row>> {
    let revision = change.resource_version.as_u64()?;
    let row = |object: &Object<RawObject>| Row::from_object(object.clone());
    let event = match (&change.new, change.last.as_ref().or(change.old.as_ref())) {
        (Some(new), _) => Event::put(revision, change.old.as_ref().and_then(row), row(new)?),
        (None, last) => Event::deleted(revision, row(last?)?),
    };
    Some(if change.further { event.further() } else { event })
}

impl Row {
    /// Makes a row; `None` if its version is not a number.
    pub(super) fn from_object(object: Object<RawObject>) -> Option<Self> {
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
        self.object.raw().json()
    }

    fn message_at(&self, revision: u64) -> Option<Bytes> {
        let raw = self.object.raw();
        if revision == self.revision {
            return raw.message();
        }
        raw.message_with(&MetadataChange {
            resource_version: &revision.to_string(),
            ..MetadataChange::default()
        })
    }

    fn is_transcoded(&self) -> bool {
        self.object.raw().is_protobuf() || self.object.raw().is_compact()
    }

    fn origin(&self) -> Bytes {
        self.object.raw().buffer().clone()
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
    use skopos_serve::{BlockCache, Registry, WindowOptions};

    use super::*;
    use crate::config::fleet::resource_id;
    use crate::consistency::Listings;
    use crate::testing::Lab;

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn watcher_behind_overflowed_journal_relists() {
        let lab = Lab::trusting(&["a"]);
        let create = |name: String| -> ResourceVersion {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"namespace": "default", "name": name}});
            let created = lab.member("a").create(object).unwrap();
            created["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
        };
        let transport = lab.services.fleet.cluster("a").unwrap().transport(TIMEOUT).await.unwrap();
        let factory = InformerFactory::new(transport, FactoryOptions::default());
        let small = JournalOptions { events: 4, ..JournalOptions::default() };
        let options = InformerOptions::all().journal(small);
        let informer = factory.raw(&ApiResource::erase::<ConfigMap>(&()), options).unwrap();
        informer.wait_synced(TIMEOUT).await.unwrap();
        let journal = informer.store().journal().unwrap();
        let (snapshot, mut cursor) = journal.begin();
        let old = snapshot.resource_version().as_u64().unwrap();
        let last = (0..20).fold(snapshot.resource_version().clone(), |_, n| create(format!("x{n}")));
        informer.wait_for(&last, TIMEOUT).await.unwrap();

        let maps = Registry::builtin().lookup("configmaps").unwrap();
        let kind = lab.services.fleet.cluster("a").unwrap().kind(&resource_id(&maps), TIMEOUT).await.unwrap();
        let window = Window::new(WindowOptions::default(), old);
        let view = View::new(
            kind.stop_watcher(),
            window,
            BlockCache::new(0).blocks(),
            &MemoryBudget::unbounded(),
            Listings::default().get(lab.services.fleet.cluster("a").unwrap().id(), &kind),
        );
        assert!(view.window.start(old).is_ok());
        let caught_up = async {
            // An object whose event comes after the pump has found its place again.
            let later = create("later".into()).as_u64().unwrap();
            while view.window.reached() < later {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            _ = view.pump(&journal, &mut cursor, Instant::now() + TIMEOUT) => panic!("there is more to come"),
            caught_up = tokio::time::timeout(TIMEOUT, caught_up) => caught_up.unwrap(),
        }
        let last = last.as_u64().unwrap();
        assert!(view.window.oldest_start() >= last);
        assert_eq!(view.window.start(old), Err(view.window.oldest_start()), "no window has 19 changes");
    }
}
