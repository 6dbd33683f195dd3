//! Merged history of one kind, shared: written by the members' feeds, read by lists and watches.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use skopos::transport::WallClock;
use skopos_fleet::ClusterId;
use skopos_serve::{Event as WindowEvent, MemoryBudget, Window, WindowOptions};
use skopos_wire::RawObject;
use tokio::sync::{Notify, broadcast, watch};

use super::contents::Entry;
use super::followed_stores::Ages;
use super::item::MergedItem;
use super::merged_version::{InstanceTag, MergedVersion};
use super::merger::{ContentSource, Event, MemberChange, Merger, Position, Resume, Roster, View};
use super::resume_state::{MemberState, ResumeState};
use crate::response::paged::Paged;

/// The merged history of one kind.
///
/// One short lock orders changes and readers: a change enters the content and the window at the same moment. A
/// given-out merged version covers all changes before it and none after it. No holder of the lock waits or does I/O.
#[derive(Debug)]
pub(crate) struct History {
    core: Mutex<Core>,
    window: Arc<Window<MergedItem>>,
    clock: WallClock,
    opened: watch::Sender<bool>,
    /// Notified after each message of a member, bookmarks included.
    received: Notify,
    vanished: broadcast::Sender<ClusterId>,
}

#[derive(Debug)]
struct Core {
    merger: Merger,
    paged: Paged<MergedVersion, Shown>,
}

/// Changes of a member, in order, with the position that they lead to, if known.
#[derive(Debug, Default)]
pub(crate) struct MemberChanges {
    pub(crate) changes: Vec<(Position, MemberChange)>,
    /// The whole content, sorted by key, after a relist of the store. Objects that were created and deleted before it
    /// have no changes here, but a list shown ahead of the store may have had them.
    pub(crate) relisted: Option<(Position, Vec<RawObject>)>,
    pub(crate) reached: Option<Position>,
}

/// The content at a merged version, and its ages then.
type Shown = (Arc<Roster>, Arc<Ages>);

/// The maximum number of states kept for further pages.
const MAX_PAGED: usize = 512;

impl History {
    /// Makes a history that continues from the saved state of an earlier process, if any; its merged versions are this
    /// gateway instance's.
    pub(crate) fn new(
        past: Option<ResumeState>,
        instance: InstanceTag,
        options: WindowOptions,
        paged: &MemoryBudget,
        clock: WallClock,
    ) -> Self {
        let merger = Merger::new(past, instance, timestamp(&clock));
        let window = Arc::new(Window::new(options, merger.start().number()));
        let (vanished, _) = broadcast::channel(64);
        let core = Mutex::new(Core { merger, paged: Paged::new(MAX_PAGED, paged) });
        Self { core, window, clock, opened: watch::Sender::new(false), received: Notify::new(), vanished }
    }

    /// Returns the window: the events and their watchers.
    pub(crate) fn window(&self) -> &Arc<Window<MergedItem>> {
        &self.window
    }

    pub(crate) fn now(&self) -> Timestamp {
        timestamp(&self.clock)
    }

    /// Lets readers in; see [`Merger::open`].
    pub(crate) fn open(&self) {
        let mut core = self.core.lock();
        if !self.opened.send_replace(true) {
            core.merger.open(self.now());
        }
    }

    /// Returns whether readers were let in.
    pub(crate) fn is_open(&self) -> bool {
        *self.opened.borrow()
    }

    /// Waits until readers are let in, or all of these members have content. A caller that sees only these need not wait
    /// for others, and cannot infer the others' state from the time.
    pub(crate) async fn opened_to(&self, seen: &[ClusterId]) {
        let complete = || {
            let view = self.view();
            seen.iter().all(|id| view.roster.get(id).is_some_and(|member| member.position.is_some()))
        };
        let mut opened = self.opened.subscribe();
        // Marked as seen before the check, so that no change is missed; the sender is in `self`.
        while !*opened.borrow_and_update() && !complete() && opened.changed().await.is_ok() {}
    }

    /// Waits until the members' state is `enough`.
    pub(crate) async fn wait_for(&self, enough: impl Fn(&Roster) -> bool) {
        loop {
            // Created before the check, so that no later notification is missed.
            let received = self.received.notified();
            if enough(&self.core.lock().merger.roster()) {
                return;
            }
            received.await;
        }
    }

    /// Returns the state to save before this history is visible; see [`Merger::claim`].
    pub(crate) fn claim(&self) -> Option<ResumeState> {
        self.core.lock().merger.claim()
    }

    /// Returns the saved position of the member; see [`Merger::saved_member`].
    pub(crate) fn saved_member(&self, cluster: &ClusterId) -> Option<MemberState> {
        self.core.lock().merger.saved_member(cluster).cloned()
    }

    /// Applies a member's whole content, sorted by key, and the changes since then, atomically.
    pub(crate) fn take(
        &self,
        cluster: &ClusterId,
        position: Position,
        content_source: ContentSource,
        objects: impl IntoIterator<Item = RawObject>,
        since: MemberChanges,
    ) {
        let objects: Vec<RawObject> = objects.into_iter().collect();
        self.apply(|merger, now| {
            let mut events = merger.take(cluster, position, content_source, objects, now);
            events.extend(since.apply(merger, cluster, now));
            events
        });
        // Only notifies those that wait for content.
        self.opened.send_modify(|_| {});
        self.wake();
    }

    /// Applies a list of a member, sorted by key, ahead of its changes; see [`Merger::take_ahead`].
    pub(crate) fn take_ahead(&self, cluster: &ClusterId, position: Position, objects: Vec<RawObject>) {
        self.apply(|merger, now| merger.take_ahead(cluster, position, objects, now));
        self.wake();
    }

    /// Applies changes of a member.
    pub(crate) fn change(&self, cluster: &ClusterId, since: MemberChanges) {
        self.apply(|merger, now| since.apply(merger, cluster, now));
        self.wake();
    }

    /// Changes the content and appends the events to the window, under the lock, so that they come in the order of their
    /// merged versions. Drops old states without the lock.
    fn apply(&self, change: impl FnOnce(&mut Merger, Timestamp) -> Vec<Event>) {
        let mut core = self.core.lock();
        let events = change(&mut core.merger, self.now());
        let size = |old: &Entry| old.object.buffer().len();
        let gone = core.paged.replaced(events.iter().map(|event| event.old.as_ref().map_or(0, size)));
        self.window.append(events.into_iter().map(|event| {
            let item = |entry| MergedItem::new(event.cluster.clone(), entry);
            let merged_version = event.merged_version.number();
            match event.deleted {
                true => WindowEvent::deleted(merged_version, item(event.new)),
                false => WindowEvent::put(merged_version, event.old.map(item), item(event.new)),
            }
        }));
        drop(core);
        drop(gone);
    }

    fn wake(&self) {
        self.received.notify_waiters();
        self.window.wake();
    }

    /// Removes a member's objects without deletions. Watches that could see them must end.
    pub(crate) fn vanish(&self, cluster: &ClusterId) {
        let (had_any, gone) = {
            let mut core = self.core.lock();
            let view = core.merger.view(self.now());
            let contents = view.roster.get(cluster).map(|member| member.contents.clone());
            drop(view);
            let had_any = core.merger.vanish(cluster, self.now());
            let sizes =
                contents.iter().flat_map(|contents| contents.iter()).map(|entry| entry.object.buffer().len());
            (had_any, (core.paged.replaced(sizes), contents))
        };
        drop(gone);
        if had_any {
            // An error means that no watch is open.
            let _ = self.vanished.send(cluster.clone());
        }
    }

    /// Returns a receiver of the members that vanish from now on.
    pub(crate) fn follow_vanished(&self) -> broadcast::Receiver<ClusterId> {
        self.vanished.subscribe()
    }

    /// Returns the content now.
    pub(crate) fn view(&self) -> View {
        let mut core = self.core.lock();
        let view = core.merger.view(self.now());
        self.window.advance(view.merged_version.number());
        view
    }

    /// Keeps the content at a merged version, and its ages then, for further pages.
    pub(crate) fn remember(&self, view: &View, ages: &Arc<Ages>) {
        let gone = self.core.lock().paged.keep(view.merged_version, (view.roster.clone(), ages.clone()), 0);
        drop(gone);
    }

    /// Returns the content at the merged version of a paged list, and its ages then; extends the time for which it is
    /// kept.
    pub(crate) fn view_at(&self, merged_version: MergedVersion) -> Option<(View, Arc<Ages>)> {
        let (roster, ages) = self.core.lock().paged.get(merged_version)?;
        Some((View { merged_version, roster }, ages))
    }

    /// Drops expired state; to be called at intervals.
    pub(crate) fn tidy(&self) {
        self.window.tidy();
        let gone = self.core.lock().paged.tidy();
        drop(gone);
    }

    /// Returns the number of states kept for further pages, and about how many bytes they hold beyond the newest.
    pub(crate) fn paged(&self) -> (usize, usize) {
        let paged = &self.core.lock().paged;
        (paged.len(), paged.bytes())
    }

    /// Decides whether a watcher of these clusters can resume from `merged_version`, and from where.
    pub(crate) fn resume(
        &self,
        merged_version: MergedVersion,
        selects: impl Fn(&ClusterId) -> bool,
    ) -> Resume {
        self.core.lock().merger.resume(merged_version, selects)
    }

    /// Returns the state that the next process needs.
    pub(crate) fn resume_state(&self) -> ResumeState {
        self.core.lock().merger.resume_state()
    }

    /// Calls `f` under the lock, with whether the cluster has content.
    pub(crate) fn with_content<R>(&self, cluster: &ClusterId, f: impl FnOnce(bool) -> R) -> R {
        let mut core = self.core.lock();
        let view = core.merger.view(self.now());
        f(view.roster.get(cluster).is_some_and(|member| member.position.is_some()))
    }

    /// Calls `f` under the lock, with the merged version of the cluster's last change.
    pub(crate) fn with_changes<R>(&self, cluster: &ClusterId, f: impl FnOnce(MergedVersion) -> R) -> R {
        let mut core = self.core.lock();
        let view = core.merger.view(self.now());
        f(view.roster.get(cluster).map_or(view.merged_version, |member| member.changed()))
    }
}

impl MemberChanges {
    fn apply(self, merger: &mut Merger, cluster: &ClusterId, now: Timestamp) -> Vec<Event> {
        let mut events = Vec::new();
        for (position, change) in self.changes {
            events.extend(merger.change(cluster, position, change, now));
        }
        if let Some((position, objects)) = self.relisted {
            events.extend(merger.take(cluster, position, ContentSource::Same, objects, now));
        }
        if let Some(position) = self.reached {
            merger.reached(cluster, position);
        }
        events
    }
}

fn timestamp(clock: &WallClock) -> Timestamp {
    Timestamp::try_from(clock.now()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skopos_wire::Limits;

    use super::*;

    #[test]
    fn object_created_and_deleted_before_relist_is_gone() {
        let now = Timestamp::from_microsecond(1_000).unwrap();
        let mut merger = Merger::new(None, InstanceTag::new(1), now);
        merger.open(now);
        let id = ClusterId::new("c0").unwrap();
        let position = |version: u64| Position { identity: None, epoch: 0, version: version.into() };
        let object = |name: &str, version: u64| {
            let value = json!({"metadata": {"namespace": "n", "name": name, "uid": name,
                "resourceVersion": version.to_string()}});
            RawObject::from_value(&value, &Limits::default()).unwrap()
        };
        merger.take(&id, position(5), ContentSource::New, [object("a", 3)], now);
        // A list ahead of the store shows an object that is created and deleted between two lists of the store.
        merger.take_ahead(&id, position(8), [object("a", 3), object("b", 7)], now);
        let relisted = Some((position(9), vec![object("a", 3)]));
        let since = MemberChanges { changes: Vec::new(), relisted, reached: Some(position(9)) };
        let events = since.apply(&mut merger, &id, now);
        assert!(
            matches!(events.as_slice(), [event] if event.deleted && event.new.object.name() == "b"),
            "{events:?}"
        );
        // A relist that is older than the list ahead takes nothing back.
        merger.take_ahead(&id, position(12), [object("a", 11)], now);
        let relisted = Some((position(10), vec![object("a", 3)]));
        let since = MemberChanges { changes: Vec::new(), relisted, reached: Some(position(10)) };
        assert!(since.apply(&mut merger, &id, now).is_empty());
    }
}
