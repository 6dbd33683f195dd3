//! The merged history of one kind, shared: fed by the members' journals, read by lists and watches.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use skopos_fleet::ClusterId;
use skopos_serve::{Allowance, Event as WindowEvent, Window, WindowOptions};
use skopos_wire::RawObject;
use tokio::sync::{Notify, broadcast, watch};

use super::contents::Entry;
use super::follows::Ages;
use super::item::MergedItem;
use super::mark::{Maker, Mark};
use super::merger::{Copy, Event, Merger, Position, Resume, Roster, Told, View};
use super::restart::{Stand, Standing};
use crate::clock::Clock;
use crate::paged::Paged;

/// The merged history of one kind.
///
/// One short lock orders changes and readers: an event is in the window at the moment at which its change is in the content,
/// and a mark that was given out has all before it and nothing behind it. Nobody waits or does I/O while holding it.
#[derive(Debug)]
pub(crate) struct History {
    core: Mutex<Core>,
    window: Arc<Window<MergedItem>>,
    clock: Clock,
    opened: watch::Sender<bool>,
    /// Told after whatever a member has told, bookmarks included.
    heard: Notify,
    vanished: broadcast::Sender<ClusterId>,
}

#[derive(Debug)]
struct Core {
    merger: Merger,
    paged: Paged<Mark, Shown>,
}

/// Changes of a member, in their order, and how far they lead if that is known.
#[derive(Debug, Default)]
pub(crate) struct Since {
    pub(crate) changes: Vec<(Position, Told)>,
    /// The whole content, sorted by key, to which a list of the store's has led: of what came and went before it there are no
    /// changes, and a list that was shown ahead of the store may have had some of that.
    pub(crate) relisted: Option<(Position, Vec<RawObject>)>,
    pub(crate) reached: Option<Position>,
}

/// The content at a mark, and how old it was then.
type Shown = (Arc<Roster>, Arc<Ages>);

/// The most states that are remembered for further pages.
const MOST_PAGED: usize = 512;

// === impl History ===

impl History {
    /// A history that goes on from what an earlier process left, if anything; its marks are this maker's.
    pub(crate) fn new(
        past: Option<Standing>,
        maker: Maker,
        options: WindowOptions,
        paged: &Allowance,
        clock: Clock,
    ) -> Self {
        let merger = Merger::new(past, maker, clock.timestamp());
        let window = Arc::new(Window::new(options, merger.start().number()));
        let (vanished, _) = broadcast::channel(64);
        let core = Mutex::new(Core { merger, paged: Paged::new(MOST_PAGED, paged) });
        Self { core, window, clock, opened: watch::Sender::new(false), heard: Notify::new(), vanished }
    }

    /// The events, and who watches them.
    pub(crate) fn window(&self) -> &Arc<Window<MergedItem>> {
        &self.window
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.timestamp()
    }

    /// Lets readers in; see [`Merger::open`].
    pub(crate) fn open(&self) {
        let mut core = self.core.lock();
        if !self.opened.send_replace(true) {
            core.merger.open(self.now());
        }
    }

    /// Whether readers were let in.
    pub(crate) fn is_open(&self) -> bool {
        *self.opened.borrow()
    }

    /// Waits until readers are let in, or all of these members have content: who sees no others need not wait for them, and
    /// cannot tell by the time that passes how they stand.
    pub(crate) async fn opened_to(&self, seen: &[ClusterId]) {
        let complete = || {
            let view = self.view();
            seen.iter().all(|id| view.roster.get(id).is_some_and(|member| member.position.is_some()))
        };
        let mut opened = self.opened.subscribe();
        // Seen before it is looked, so that no news are missed; the sender is in here.
        while !*opened.borrow_and_update() && !complete() && opened.changed().await.is_ok() {}
    }

    /// Waits until the members have told so much.
    pub(crate) async fn wait_for(&self, enough: impl Fn(&Roster) -> bool) {
        loop {
            // Made before the look, so that nothing that is told after it is missed.
            let heard = self.heard.notified();
            if enough(&self.core.lock().merger.roster()) {
                return;
            }
            heard.await;
        }
    }

    /// What is to be kept before anybody sees this; see [`Merger::claim`].
    pub(crate) fn claim(&self) -> Option<Standing> {
        self.core.lock().merger.claim()
    }

    /// Where an earlier process left the member; see [`Merger::left`].
    pub(crate) fn left(&self, cluster: &ClusterId) -> Option<Stand> {
        self.core.lock().merger.left(cluster).cloned()
    }

    /// A member's whole content, sorted by key, and what has changed since: nobody sees the one without the other.
    pub(crate) fn take(
        &self,
        cluster: &ClusterId,
        position: Position,
        copy: Copy,
        objects: impl IntoIterator<Item = RawObject>,
        since: Since,
    ) {
        let objects: Vec<RawObject> = objects.into_iter().collect();
        let gone = {
            let mut core = self.core.lock();
            let now = self.now();
            let mut events = core.merger.take(cluster, position, copy, objects, now);
            events.extend(since.tell(&mut core.merger, cluster, now));
            self.publish(&mut core, events)
        };
        drop(gone);
        // Nothing but news for those who wait for content.
        self.opened.send_modify(|_| {});
        self.heard.notify_waiters();
        self.window.wake();
    }

    /// Takes in what a member has listed, sorted by key, ahead of what it tells one by one; see [`Merger::take_ahead`].
    pub(crate) fn take_ahead(&self, cluster: &ClusterId, position: Position, objects: Vec<RawObject>) {
        let gone = {
            let mut core = self.core.lock();
            let events = core.merger.take_ahead(cluster, position, objects, self.now());
            self.publish(&mut core, events)
        };
        drop(gone);
        self.heard.notify_waiters();
        self.window.wake();
    }

    /// Changes of a member.
    pub(crate) fn change(&self, cluster: &ClusterId, since: Since) {
        let gone = {
            let mut core = self.core.lock();
            let events = since.tell(&mut core.merger, cluster, self.now());
            self.publish(&mut core, events)
        };
        drop(gone);
        self.heard.notify_waiters();
        self.window.wake();
    }

    /// A member's objects vanish without having been deleted. Watches that could see them are to end.
    pub(crate) fn vanish(&self, cluster: &ClusterId) {
        let (had_any, gone) = {
            let mut core = self.core.lock();
            let view = core.merger.view(self.now());
            let contents = view.roster.get(cluster).map(|member| member.contents.clone());
            drop(view);
            let had_any = core.merger.vanish(cluster, self.now());
            let sizes =
                contents.iter().flat_map(|contents| contents.iter()).map(|entry| entry.object.bytes().len());
            (had_any, (core.paged.replaced(sizes), contents))
        };
        drop(gone);
        if had_any {
            // Nobody watches if nobody listens.
            let _ = self.vanished.send(cluster.clone());
        }
    }

    /// Members that vanish from now on.
    pub(crate) fn follow_vanished(&self) -> broadcast::Receiver<ClusterId> {
        self.vanished.subscribe()
    }

    /// The content now.
    pub(crate) fn view(&self) -> View {
        let mut core = self.core.lock();
        let view = core.merger.view(self.now());
        self.window.advance(view.mark.number());
        view
    }

    /// Remembers the content at a mark, and how old it was then, for pages to come.
    pub(crate) fn remember(&self, view: &View, ages: &Arc<Ages>) {
        let gone = self.core.lock().paged.keep(view.mark, (view.roster.clone(), ages.clone()), 0);
        drop(gone);
    }

    /// The content at a mark at which a paged list stands, and how old it was then; it is remembered for some time more.
    pub(crate) fn view_at(&self, mark: Mark) -> Option<(View, Arc<Ages>)> {
        let (roster, ages) = self.core.lock().paged.get(mark)?;
        Some((View { mark, roster }, ages))
    }

    /// Lets go of what nobody is to see any more: to be called now and then.
    pub(crate) fn tidy(&self) {
        self.window.tidy();
        let gone = self.core.lock().paged.tidy();
        drop(gone);
    }

    /// How many states are remembered for further pages, and how many bytes they hold that the newest does not, about.
    pub(crate) fn paged(&self) -> (usize, usize) {
        let paged = &self.core.lock().paged;
        (paged.len(), paged.bytes())
    }

    /// Whether a watcher of these clusters can go on from `mark`, and from where.
    pub(crate) fn resume(&self, mark: Mark, selects: impl Fn(&ClusterId) -> bool) -> Resume {
        self.core.lock().merger.resume(mark, selects)
    }

    /// What the next process needs to know.
    pub(crate) fn standing(&self) -> Standing {
        self.core.lock().merger.standing()
    }

    /// Calls `f` while nothing changes, with whether the cluster has content.
    pub(crate) fn with_content<R>(&self, cluster: &ClusterId, f: impl FnOnce(bool) -> R) -> R {
        let mut core = self.core.lock();
        let view = core.merger.view(self.now());
        f(view.roster.get(cluster).is_some_and(|member| member.position.is_some()))
    }

    /// Calls `f` while nothing changes, with the mark of the cluster's last change.
    pub(crate) fn with_changes<R>(&self, cluster: &ClusterId, f: impl FnOnce(Mark) -> R) -> R {
        let mut core = self.core.lock();
        let view = core.merger.view(self.now());
        f(view.roster.get(cluster).map_or(view.mark, |member| member.changed()))
    }

    /// With the lock held, so that events come in the order of their marks. Watchers are woken without it, and what is no longer
    /// remembered is dropped without.
    #[must_use]
    fn publish(&self, core: &mut Core, events: Vec<Event>) -> Vec<Shown> {
        let size = |old: &Entry| old.object.bytes().len();
        let gone = core.paged.replaced(events.iter().map(|event| event.old.as_ref().map_or(0, size)));
        self.window.append(events.into_iter().map(|event| {
            let item = |entry| MergedItem::new(event.cluster.clone(), entry);
            let mark = event.mark.number();
            match event.deleted {
                true => WindowEvent::deleted(mark, item(event.new)),
                false => WindowEvent::put(mark, event.old.map(item), item(event.new)),
            }
        }));
        gone
    }
}

// === impl Since ===

impl Since {
    fn tell(self, merger: &mut Merger, cluster: &ClusterId, now: Timestamp) -> Vec<Event> {
        let mut events = Vec::new();
        for (position, told) in self.changes {
            events.extend(merger.change(cluster, position, told, now));
        }
        if let Some((position, objects)) = self.relisted {
            events.extend(merger.take(cluster, position, Copy::Same, objects, now));
        }
        if let Some(position) = self.reached {
            merger.reached(cluster, position);
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use skopos_wire::Limits;

    #[test]
    fn an_object_that_came_and_went_before_a_relist_does_not_stay() {
        let now = Timestamp::from_microsecond(1_000).unwrap();
        let mut merger = Merger::new(None, Maker::new(1), now);
        merger.open(now);
        let id = ClusterId::new("c0").unwrap();
        let position = |version: u64| Position { identity: None, epoch: 0, version: version.into() };
        let object = |name: &str, version: u64| {
            let value = json!({"metadata": {"namespace": "n", "name": name, "uid": name,
                "resourceVersion": version.to_string()}});
            RawObject::from_value(&value, &Limits::default()).unwrap()
        };
        merger.take(&id, position(5), Copy::New, [object("a", 3)], now);
        // A list ahead of the store shows an object that is created and deleted between two lists of the store.
        merger.take_ahead(&id, position(8), [object("a", 3), object("b", 7)], now);
        let relisted = Some((position(9), vec![object("a", 3)]));
        let since = Since { changes: Vec::new(), relisted, reached: Some(position(9)) };
        let events = since.tell(&mut merger, &id, now);
        assert!(
            matches!(events.as_slice(), [event] if event.deleted && event.new.object.name() == "b"),
            "{events:?}"
        );
        // A relist that is older than the list ahead takes nothing back.
        merger.take_ahead(&id, position(12), [object("a", 11)], now);
        let relisted = Some((position(10), vec![object("a", 3)]));
        let since = Since { changes: Vec::new(), relisted, reached: Some(position(10)) };
        assert!(since.tell(&mut merger, &id, now).is_empty());
    }
}
