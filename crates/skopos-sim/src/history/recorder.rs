//! Recording of facts.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use skopos::{Event, RawWatchItem, Snapshot};
use skopos_wire::{ObjectKey, RawObject, ResourceVersion, WatchEvent};
use tokio::time::Instant;

use super::cast::{
    Cast, Client, ClientId, Cluster, ClusterId, Handler, HandlerId, Informer, InformerId, KeyId, Member,
    MemberId, Process, ProcessId, Queue, QueueId, ResourceId, ShapeId, TargetId, UidId, Visitor, VisitorId,
    Watcher, WatcherId,
};
use super::facts::{At, CallId, CallKind, Fact, FaultId, Flags, Heard, Kind};
use super::looks::{Content, Look, Seen, Standing, View, Walk};
use super::outside::MessageId;
use super::selection::{Selection, Shape, Target};
use super::visits::VisitId;
use super::{Entry, History, STAMP_LABEL};

/// Recorder of facts. Cheap to clone; all clones write into one history.
#[derive(Clone, Debug)]
pub struct Recorder {
    origin: Instant,
    pace: Pace,
    pages: Arc<Mutex<Pages>>,
}

/// Speed of the machine of a run. The run must not depend on it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// Full speed.
    Full,
    /// A short pause of real time after a number of facts.
    Halting,
}

#[derive(Debug, Default)]
struct Pages {
    history: History,
    keys: HashMap<ObjectKey, KeyId>,
    uids: HashMap<String, UidId>,
    shapes: HashMap<Shape, ShapeId>,
    targets: HashMap<Target, TargetId>,
    stamps: u32,
    calls: u32,
    visits: u32,
    messages: u32,
    faults: u16,
}

impl Pace {
    #[allow(clippy::disallowed_methods, reason = "real time is what it is about")]
    fn after(self, facts: usize) {
        const FACTS: usize = 150;
        const HALT: Duration = Duration::from_millis(10);
        match self {
            Self::Halting if facts.is_multiple_of(FACTS) => std::thread::sleep(HALT),
            Self::Full | Self::Halting => {}
        }
    }
}

impl Recorder {
    /// Makes a recorder of a run that begins now. `look_interval` is the interval at which each store will be looked at.
    pub(crate) fn new(seed: u64, look_interval: Duration, pace: Pace) -> Self {
        let pages = Self { origin: Instant::now(), pace, pages: Arc::default() };
        pages.edit(|pages| {
            pages.history.cast = Cast { seed, look_interval, ..Cast::default() };
        });
        pages
    }

    /// Returns the current moment.
    pub fn now(&self) -> At {
        self.at(Instant::now())
    }

    /// Converts a moment.
    pub fn at(&self, instant: Instant) -> At {
        At::after_start(instant.saturating_duration_since(self.origin))
    }

    /// Records a fact of now.
    pub fn record(&self, fact: Fact) {
        self.record_at(self.now(), fact);
    }

    /// Records a fact of an earlier moment.
    pub fn record_at(&self, at: At, fact: Fact) {
        let facts = self.edit(|pages| {
            pages.history.entries.push(Entry { at, fact });
            pages.history.entries.len()
        });
        self.pace.after(facts);
    }

    /// Returns the history, in order. The recorder is then empty.
    pub fn finish(&self) -> History {
        let mut history = self.edit(|pages| std::mem::take(&mut pages.history));
        history.entries.sort_by_key(|entry| entry.at);
        history
    }

    // ---- participants

    /// Adds a cluster.
    pub fn cluster(&self, cluster: Cluster) -> ClusterId {
        let at = self.edit(|pages| push(&mut pages.history.cast.clusters, cluster));
        ClusterId(u8::try_from(at).expect("a plan has at most 255 clusters"))
    }

    /// Adds an informer factory.
    pub fn client(&self, client: Client) -> ClientId {
        let at = self.edit(|pages| push(&mut pages.history.cast.clients, client));
        ClientId(u16::try_from(at).expect("a plan has at most 2^14 clients"))
    }

    /// Adds an informer, that is a store. All users of one store in a factory must use the same number.
    pub fn informer(&self, informer: Informer) -> InformerId {
        let at = self.edit(|pages| push(&mut pages.history.cast.informers, informer));
        InformerId(u16::try_from(at).expect("a plan has at most 2^14 informers"))
    }

    /// Adds a handler.
    pub fn handler(&self, handler: Handler) -> HandlerId {
        let at = self.edit(|pages| push(&mut pages.history.cast.handlers, handler));
        HandlerId(u16::try_from(at).expect("a plan has at most 2^14 handlers"))
    }

    /// Adds a work queue.
    pub fn queue(&self, queue: Queue) -> QueueId {
        let at = self.edit(|pages| push(&mut pages.history.cast.queues, queue));
        QueueId(
            u16::try_from(at)
                .expect("an informer has one queue at most, and their number is bounded by the plan"),
        )
    }

    /// Adds a raw watch.
    pub fn watcher(&self, watcher: Watcher) -> WatcherId {
        let at = self.edit(|pages| push(&mut pages.history.cast.watchers, watcher));
        WatcherId(u16::try_from(at).expect("a plan has at most 2^14 raw watches"))
    }

    /// Adds a member of the gateway.
    pub fn member(&self, member: Member) -> MemberId {
        let at = self.edit(|pages| push(&mut pages.history.cast.members, member));
        MemberId(u8::try_from(at).expect("a plan has at most 255 contexts"))
    }

    /// Adds a visitor.
    pub fn visitor(&self, visitor: Visitor) -> VisitorId {
        let at = self.edit(|pages| push(&mut pages.history.cast.visitors, visitor));
        VisitorId(u8::try_from(at).expect("a plan has at most 255 visitors"))
    }

    /// Adds a process with a notifier.
    pub fn process(&self, process: Process) -> ProcessId {
        let at = self.edit(|pages| push(&mut pages.history.cast.processes, process));
        ProcessId(u8::try_from(at).expect("a plan has at most 255 processes"))
    }

    // ---- numbers

    /// Returns the number for the next write, for the object's label [`STAMP_LABEL`].
    pub fn next_stamp(&self) -> u32 {
        self.edit(|pages| {
            pages.stamps += 1;
            pages.stamps
        })
    }

    /// Returns a number for the next call.
    pub fn next_call(&self) -> CallId {
        self.edit(|pages| {
            pages.calls += 1;
            CallId(pages.calls - 1)
        })
    }

    /// Returns a number for a visitor's next request.
    pub fn next_visit(&self) -> VisitId {
        self.edit(|pages| {
            pages.visits += 1;
            VisitId(pages.visits - 1)
        })
    }

    /// Returns a number for the next message to the outside.
    pub fn next_message(&self) -> MessageId {
        self.edit(|pages| {
            pages.messages += 1;
            MessageId(pages.messages - 1)
        })
    }

    /// Returns a number for the next fault.
    pub fn next_fault(&self) -> FaultId {
        self.edit(|pages| {
            pages.faults += 1;
            FaultId(pages.faults - 1)
        })
    }

    /// Returns the number of a plural name.
    pub fn resource(&self, plural: &str) -> ResourceId {
        self.edit(|pages| {
            let known = &mut pages.history.names.resources;
            let at = known
                .iter()
                .position(|name| name == plural)
                .unwrap_or_else(|| push(known, plural.to_owned()));
            ResourceId(u8::try_from(at).expect("clusters here serve three resources"))
        })
    }

    /// Returns the number of a key.
    pub fn key(&self, key: &ObjectKey) -> KeyId {
        self.edit(|pages| pages.key(key))
    }

    /// Returns the number of a uid.
    pub fn uid(&self, uid: &str) -> UidId {
        self.edit(|pages| pages.uid(uid))
    }

    /// Returns the number of a combination of labels and fields.
    pub fn shape(&self, shape: &Shape) -> ShapeId {
        self.edit(|pages| intern(&mut pages.shapes, &mut pages.history.names.shapes, shape, ShapeId))
    }

    /// Returns the number of a request's target.
    pub fn target(&self, target: &Target) -> TargetId {
        let id = |at| {
            TargetId(u16::try_from(at).expect("a few for each informer, whose number is bounded by the plan"))
        };
        self.edit(|pages| intern(&mut pages.targets, &mut pages.history.names.targets, target, id))
    }

    /// Returns an object in numbers.
    pub fn seen(&self, object: &RawObject) -> Seen {
        self.edit(|pages| pages.seen(object))
    }

    /// Returns all objects of a snapshot in numbers.
    pub fn seen_all<K>(&self, snapshot: &Snapshot<K>) -> Box<[Seen]> {
        self.edit(|pages| snapshot.iter().map(|object| pages.seen(object.raw())).collect())
    }

    // ---- conversions from the client's types

    /// Returns a snapshot in numbers, as it is now.
    pub fn look<K>(
        &self,
        informer: InformerId,
        walk: Walk,
        selection: &Selection,
        snapshot: &Snapshot<K>,
        standing: Standing,
    ) -> Look {
        let views = self.edit(|pages| match selection.namespaces.as_slice() {
            [] => {
                let content = snapshot.iter().map(|object| pages.seen(object.raw())).collect();
                [View { rv: rv(snapshot.resource_version()), content }].into()
            }
            namespaces => namespaces
                .iter()
                .map(|namespace| {
                    let objects = snapshot.in_namespace(namespace);
                    let content: Content = objects.map(|object| pages.seen(object.raw())).collect();
                    View { rv: rv(snapshot.resource_version_in(namespace)), content }
                })
                .collect(),
        });
        Look {
            informer,
            walk,
            epoch: u32::try_from(snapshot.epoch()).unwrap_or(u32::MAX),
            synced: snapshot.is_synced(),
            freshness: (&snapshot.freshness()).into(),
            standing,
            views,
        }
    }

    /// Records that a handler was called with this event.
    pub fn callback<K>(&self, handler: HandlerId, event: &Event<K>) {
        let flags = Flags::from(event.flags());
        let (kind, flags, old) = match event {
            Event::Added { initial, .. } => (Kind::Added, Flags { initial: *initial, ..flags }, None),
            Event::Updated { old, .. } => (Kind::Updated, flags, Some(self.seen(old.raw()))),
            Event::Deleted { final_state_known, .. } => {
                (Kind::Deleted, Flags { last_state_unknown: !final_state_known, ..flags }, None)
            }
        };
        self.record(Fact::Callback { handler, kind, flags, object: self.seen(event.object().raw()), old });
    }

    /// Records an item of a raw watch.
    pub fn heard(&self, watcher: WatcherId, item: &RawWatchItem) {
        let heard = match item {
            RawWatchItem::Event(event) => self.event(event),
            RawWatchItem::Skipped { since, to, .. } => Heard::Skipped { since: rv(since), to: rv(to) },
            RawWatchItem::Unreadable { key, resource_version } => {
                Heard::Unreadable { key: self.key(key), rv: rv(resource_version) }
            }
            RawWatchItem::Gone { key, resource_version } => {
                Heard::Gone { key: self.key(key), rv: rv(resource_version) }
            }
            _ => Heard::Other,
        };
        self.record(Fact::WatcherTold { watcher, heard });
    }

    fn event(&self, event: &WatchEvent) -> Heard {
        match event {
            WatchEvent::Added(object) => Heard::Change(Kind::Added, self.seen(object)),
            WatchEvent::Modified(object) => Heard::Change(Kind::Updated, self.seen(object)),
            WatchEvent::Deleted(object) => Heard::Change(Kind::Deleted, self.seen(object)),
            WatchEvent::Bookmark { resource_version, .. } => Heard::Bookmark { rv: rv(resource_version) },
            WatchEvent::Error(_) => Heard::Other,
        }
    }

    /// Records a call, and returns its number.
    pub fn called(
        &self,
        client: ClientId,
        informer: Option<InformerId>,
        kind: CallKind,
        limit: Duration,
    ) -> CallId {
        let call = self.next_call();
        self.record(Fact::Called { call, client, informer, kind, limit });
        call
    }

    fn edit<R>(&self, edit: impl FnOnce(&mut Pages) -> R) -> R {
        edit(&mut self.pages.lock())
    }
}

impl Pages {
    fn key(&mut self, key: &ObjectKey) -> KeyId {
        intern(&mut self.keys, &mut self.history.names.keys, key, KeyId)
    }

    fn uid(&mut self, uid: &str) -> UidId {
        match self.uids.get(uid) {
            Some(uid) => *uid,
            None => intern(&mut self.uids, &mut self.history.names.uids, &uid.to_owned(), UidId),
        }
    }

    fn seen(&mut self, object: &RawObject) -> Seen {
        let uid = self.uid(object.uid());
        Seen {
            key: self.key(object.key()),
            uid,
            rv: rv(object.resource_version()),
            stamp: object.label(STAMP_LABEL).and_then(|stamp| stamp.parse().ok()).unwrap_or(0),
        }
    }
}

fn rv(rv: &ResourceVersion) -> u64 {
    rv.as_u64().unwrap_or(u64::MAX)
}

fn intern<T: Clone + Eq + Hash, I: Copy>(
    known: &mut HashMap<T, I>,
    names: &mut Vec<T>,
    name: &T,
    id: impl Fn(u32) -> I,
) -> I {
    if let Some(known) = known.get(name) {
        return *known;
    }
    let new = id(u32::try_from(push(names, name.clone())).expect("fewer than 2^32 names"));
    known.insert(name.clone(), new);
    new
}

fn push<T>(to: &mut Vec<T>, item: T) -> usize {
    to.push(item);
    to.len() - 1
}
