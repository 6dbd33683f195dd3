//! Manual histories: one cluster, one client, an informer of all pods with one handler, and more on request.

use std::collections::BTreeMap;
use std::time::Duration;

use skopos_wire::ObjectKey;

use super::super::{Verdict, judge};
use crate::fault::Part;
use crate::history::{
    At, CallId, CallKind, Cast, Change, Client, ClientId, Cluster, ClusterId, Content, Entry, Fact, FaultId,
    Flags, Freshness, Handler, HandlerId, Heard, History, Informer, InformerId, KeyId, Kind, Look, Outcome,
    Queue, Reason, ResourceId, Seen, Selection, Shape, ShapeId, Standing, Target, TargetId, UidId, Verb,
    View, Walk, Watcher, WatcherId,
};

pub(in super::super) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns a live freshness with this maximum age in milliseconds.
pub(in super::super) fn live(millis: u64) -> Freshness {
    Freshness::Live { age: Duration::from_millis(millis) }
}

/// Returns the freshness while the link is down.
pub(in super::super) fn stale() -> Freshness {
    Freshness::Stale { age: None, reason: Reason::Link }
}

pub(in super::super) struct Tale {
    pub(in super::super) history: History,
    now: At,
    rv: u64,
    uids: u32,
    stamps: u32,
    calls: u32,
    faults: u16,
    /// Objects of each cluster.
    objects: BTreeMap<(ClusterId, KeyId), (Seen, ShapeId)>,
}

pub(in super::super) const CLUSTER: ClusterId = ClusterId(0);
pub(in super::super) const CLIENT: ClientId = ClientId(0);
pub(in super::super) const PODS: InformerId = InformerId(0);
pub(in super::super) const HEARER: HandlerId = HandlerId(0);

/// Parameters of a request.
struct Ask {
    verb: Verb,
    rv: Option<u64>,
    further: Option<u64>,
    timeout: Option<Duration>,
    initial: bool,
    metadata: bool,
}

const LIST: Ask =
    Ask { verb: Verb::List, rv: None, further: None, timeout: None, initial: false, metadata: false };

impl Tale {
    /// Makes a history that begins at second 0 with an informer and its handler, and no objects.
    pub(in super::super) fn new() -> Self {
        let client = Client {
            name: "client".to_owned(),
            cluster: CLUSTER,
            probe_interval: secs(30),
            stale_after: secs(90),
            audit_interval: None,
        };
        let cast = Cast {
            look_interval: Duration::from_millis(500),
            clusters: vec![Cluster { name: "cluster".to_owned(), bookmark_interval: secs(60) }],
            clients: vec![client],
            ..Cast::default()
        };
        let mut history = History { cast, ..History::default() };
        history.names.resources.push("pods".to_owned());
        history.names.shapes.push(Shape::default());
        let mut tale = Self {
            history,
            now: At::ZERO,
            rv: 10,
            uids: 0,
            stamps: 0,
            calls: 0,
            faults: 0,
            objects: BTreeMap::new(),
        };
        tale.informer(CLIENT, Selection::all());
        tale.handler(PODS);
        tale
    }

    /// Adds a life without a fault, from a first list to a clean end.
    pub(in super::super) fn good_life(&mut self) {
        let a = self.put("x/a");
        self.requested(Verb::List, None, false);
        self.see(live(0));
        self.hear_initial(a);
        self.record(Fact::HandlerSynced { handler: HEARER });
        self.requested(Verb::Watch, Some(self.rv), false);
        self.go(secs(5));
        let newer = self.put("x/a");
        self.see(live(10));
        self.hear(Kind::Updated, newer, Some(a));
        self.go(secs(5));
        let b = self.put("x/b");
        self.see(live(20));
        self.hear(Kind::Added, b, None);
        let call = self.call(CallKind::WaitFor { rv: self.rv }, secs(5));
        self.answer(call, live(20));
        self.go(secs(5));
        let gone = self.delete("x/b");
        self.see(live(30));
        self.hear(Kind::Deleted, gone, None);
        self.fault(1, Some(secs(15)), secs(2), false);
        self.go(secs(60));
        self.see(live(100));
        self.settle();
        self.record(Fact::HandlerStats { handler: HEARER, deepest: 3, overflows: 0, panics: 0, poisoned: 0 });
        self.look_last();
        self.record(Fact::HandlerRemoved { handler: HEARER });
        self.record(Fact::Shutdown { client: CLIENT, tasks: 0, connections: 0 });
    }

    pub(in super::super) fn judge(&self) -> Verdict {
        judge(&self.history)
    }

    pub(in super::super) fn go(&mut self, time: Duration) {
        self.now = self.now.plus(time);
    }

    pub(in super::super) fn rv(&self) -> u64 {
        self.rv
    }

    pub(in super::super) fn record(&mut self, fact: Fact) {
        self.history.entries.push(Entry { at: self.now, fact });
    }

    // ---- cast

    pub(in super::super) fn cluster(&mut self) -> ClientId {
        let cluster = ClusterId(self.history.cast.clusters.len() as u8);
        let name = format!("cluster-{}", cluster.0);
        self.history.cast.clusters.push(Cluster { name, bookmark_interval: secs(60) });
        let client =
            Client { cluster, name: format!("client-{}", cluster.0), ..self.history.cast.clients[0].clone() };
        self.history.cast.clients.push(client);
        ClientId(self.history.cast.clients.len() as u16 - 1)
    }

    pub(in super::super) fn informer(&mut self, client: ClientId, selection: Selection) -> InformerId {
        let id = InformerId(self.history.cast.informers.len() as u16);
        let name = format!("informer-{}", id.0);
        let resource = ResourceId(0);
        self.history.cast.informers.push(Informer {
            name,
            client,
            resource,
            selection,
            metadata_only: false,
        });
        self.record(Fact::InformerStarted { informer: id });
        id
    }

    pub(in super::super) fn handler(&mut self, informer: InformerId) -> HandlerId {
        let id = HandlerId(self.history.cast.handlers.len() as u16);
        let name = format!("handler-{}", id.0);
        let handler =
            Handler { name, informer, capacity: 10, retries: 3, resyncs: false, slowness: Duration::ZERO };
        self.history.cast.handlers.push(handler);
        self.record(Fact::HandlerAdded { handler: id });
        id
    }

    /// Adds a raw watch of everything, from the first client.
    pub(in super::super) fn watcher(&mut self) -> WatcherId {
        let name = "raw watch".to_owned();
        let (selection, slowness) = (Selection::all(), Duration::ZERO);
        let watcher = Watcher { name, client: CLIENT, resource: ResourceId(0), selection, slowness };
        self.history.cast.watchers.push(watcher);
        let watcher = WatcherId(self.history.cast.watchers.len() as u16 - 1);
        self.record(Fact::WatcherStarted { watcher });
        watcher
    }

    /// Adds an item of the watch.
    pub(in super::super) fn gives(&mut self, watcher: WatcherId, heard: Heard) {
        self.record(Fact::WatcherTold { watcher, heard });
    }

    pub(in super::super) fn queue(&mut self) -> crate::history::QueueId {
        self.history.cast.queues.push(Queue { name: "queue".to_owned(), workers: 2 });
        crate::history::QueueId(self.history.cast.queues.len() as u16 - 1)
    }

    // ---- truth

    pub(in super::super) fn key(&mut self, key: &str) -> KeyId {
        let key: ObjectKey = key
            .split_once('/')
            .map_or_else(|| ObjectKey::cluster(key), |(ns, name)| ObjectKey::namespaced(ns, name));
        let keys = &mut self.history.names.keys;
        let at = keys.iter().position(|known| *known == key).unwrap_or_else(|| {
            keys.push(key);
            keys.len() - 1
        });
        KeyId(at as u32)
    }

    /// Returns the number of the next write.
    pub(in super::super) fn next_stamp(&self) -> u32 {
        self.stamps + 1
    }

    pub(in super::super) fn put(&mut self, key: &str) -> Seen {
        self.put_in(CLUSTER, key, &[])
    }

    pub(in super::super) fn put_with(&mut self, key: &str, labels: &[(&str, &str)]) -> Seen {
        self.put_in(CLUSTER, key, labels)
    }

    pub(in super::super) fn put_in(
        &mut self,
        cluster: ClusterId,
        key: &str,
        labels: &[(&str, &str)],
    ) -> Seen {
        let key = self.key(key);
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.history.names.shapes.push(Shape { labels, ..Shape::default() });
        let shape = ShapeId(self.history.names.shapes.len() as u32 - 1);
        self.rv += 1;
        self.stamps += 1;
        let known = self.objects.get(&(cluster, key)).map(|(object, _)| object.uid);
        let change = if known.is_some() { Change::Updated } else { Change::Created };
        let uid = known.unwrap_or_else(|| {
            self.uids += 1;
            UidId(self.uids)
        });
        let object = Seen { key, uid, rv: self.rv, stamp: self.stamps };
        self.objects.insert((cluster, key), (object, shape));
        self.record(Fact::Committed { cluster, resource: ResourceId(0), object, shape, change });
        object
    }

    pub(in super::super) fn delete(&mut self, key: &str) -> Seen {
        let key = self.key(key);
        self.rv += 1;
        let (last, shape) = self.objects.remove(&(CLUSTER, key)).expect("an object");
        let object = Seen { rv: self.rv, ..last };
        let change = Change::Deleted;
        self.record(Fact::Committed { cluster: CLUSTER, resource: ResourceId(0), object, shape, change });
        object
    }

    /// Deletes all of these at one RV.
    pub(in super::super) fn expire<const N: usize>(&mut self, keys: [&str; N]) -> [Seen; N] {
        let rv = self.rv;
        keys.map(|key| {
            self.rv = rv;
            self.delete(key)
        })
    }

    /// Rolls history back to a state that equals the current one, except for these objects.
    pub(in super::super) fn roll_back(&mut self, rv: u64, without: &[&str]) {
        for key in without {
            let key = self.key(key);
            self.objects.remove(&(CLUSTER, key));
        }
        self.rv = rv;
        self.record(Fact::RolledBack { cluster: CLUSTER, rv });
    }

    // ---- wire

    pub(in super::super) fn requested(&mut self, verb: Verb, rv: Option<u64>, initial: bool) {
        self.ask(Ask { verb, rv, initial, ..LIST });
    }

    /// Adds a request for a further page of a list.
    pub(in super::super) fn paged(&mut self, page: u64) {
        self.ask(Ask { further: Some(page), ..LIST });
    }

    /// Adds a list of metadata, as audits make.
    pub(in super::super) fn audited(&mut self) {
        self.ask(Ask { metadata: true, ..LIST });
    }

    /// Adds a verification watch, beside the open watch.
    pub(in super::super) fn looked_again(&mut self) {
        self.ask(Ask { verb: Verb::Watch, rv: Some(self.rv), timeout: Some(secs(3)), ..LIST });
    }

    fn ask(&mut self, Ask { verb, rv, further, timeout, initial, metadata }: Ask) {
        let target = self.pods();
        self.record(Fact::Requested {
            cluster: CLUSTER,
            // As clients do.
            connection: u32::from(verb == Verb::Watch),
            verb,
            target,
            rv,
            limit: None,
            further,
            timeout,
            initial,
            metadata,
        });
    }

    fn pods(&mut self) -> TargetId {
        if self.history.names.targets.is_empty() {
            self.history.names.targets.push(Target { resource: "pods".to_owned(), ..Target::default() });
        }
        TargetId(0)
    }

    /// Ends a watch at the server after this lifetime.
    pub(in super::super) fn watch_ended(&mut self, stood: Duration) {
        let target = self.pods();
        self.record(Fact::WatchEnded { cluster: CLUSTER, target, stood });
    }

    /// Adds a refusal of a compacted RV, and the relist.
    pub(in super::super) fn relisted(&mut self) {
        self.watch_ended(Duration::ZERO);
        self.requested(Verb::List, None, false);
    }

    pub(in super::super) fn fault_begins(
        &mut self,
        cluster: ClusterId,
        number: u8,
        detect: Option<Duration>,
        recover: Duration,
        lies: bool,
    ) -> FaultId {
        let fault = FaultId(self.faults);
        self.faults += 1;
        self.record(Fact::FaultBegan {
            fault,
            number,
            cluster: Some(cluster),
            lies,
            detect,
            recover,
            retry_after: None,
            part: Part::WHOLE,
            spares_lists: false,
        });
        self.record(Fact::FaultHit { fault });
        fault
    }

    /// Changes the part that the last fault is confined to, and whether it spares lists.
    pub(in super::super) fn confine(&mut self, confine: impl FnOnce(&mut Part, &mut bool)) {
        let last = self.history.entries.iter_mut().rev().find_map(|entry| match &mut entry.fact {
            Fact::FaultBegan { part, spares_lists, .. } => Some((part, spares_lists)),
            _ => None,
        });
        let (part, spares_lists) = last.expect("a fault");
        confine(part, spares_lists);
    }

    /// Adds a fault that is over at once.
    pub(in super::super) fn fault(
        &mut self,
        number: u8,
        detect: Option<Duration>,
        recover: Duration,
        lies: bool,
    ) {
        let fault = self.fault_begins(CLUSTER, number, detect, recover, lies);
        self.record(Fact::FaultHealed { fault });
    }

    // ---- client

    /// Returns a look at a store that is right.
    pub(in super::super) fn look(&self, informer: InformerId, freshness: Freshness) -> Look {
        let informers = &self.history.cast.informers[informer.index()];
        let cluster = self.history.cast.clients[informers.client.index()].cluster;
        let names = &self.history.names;
        let here = self.objects.iter().filter(|((there, key), (_, shape))| {
            *there == cluster
                && informers.selection.matches(&names.keys[key.index()], &names.shapes[shape.index()])
        });
        let content: Content = here.map(|(_, (object, _))| *object).collect();
        Look {
            informer,
            walk: Walk::Regular,
            epoch: 0,
            synced: true,
            freshness,
            standing: Standing::default(),
            views: [View { rv: self.rv, content }].into(),
        }
    }

    pub(in super::super) fn saw(&mut self, look: Look) {
        self.record(Fact::Looked(Box::new(look)));
    }

    /// Records a look at the informer of all pods that is right.
    pub(in super::super) fn see(&mut self, freshness: Freshness) -> Look {
        let look = self.look(PODS, freshness);
        self.saw(look.clone());
        look
    }

    pub(in super::super) fn hear(&mut self, kind: Kind, object: Seen, old: Option<Seen>) {
        self.tell(HEARER, kind, object, old, Flags::default());
    }

    pub(in super::super) fn hear_initial(&mut self, object: Seen) {
        self.tell(HEARER, Kind::Added, object, None, Flags { initial: true, ..Flags::default() });
    }

    pub(in super::super) fn hear_gap(&mut self, kind: Kind, object: Seen, old: Option<Seen>) {
        self.relisted();
        self.tell(HEARER, kind, object, old, Flags { gap: true, ..Flags::default() });
    }

    pub(in super::super) fn tell(
        &mut self,
        handler: HandlerId,
        kind: Kind,
        object: Seen,
        old: Option<Seen>,
        flags: Flags,
    ) {
        self.record(Fact::Callback { handler, kind, flags, object, old });
    }

    pub(in super::super) fn panics(&mut self, handler: HandlerId) {
        self.record(Fact::CallbackEnded { handler, panicked: true });
    }

    pub(in super::super) fn call(&mut self, kind: CallKind, limit: Duration) -> CallId {
        self.call_of(PODS, kind, limit)
    }

    pub(in super::super) fn call_of(
        &mut self,
        informer: InformerId,
        kind: CallKind,
        limit: Duration,
    ) -> CallId {
        let call = CallId(self.calls);
        self.calls += 1;
        self.record(Fact::Called { call, client: CLIENT, informer: Some(informer), kind, limit });
        call
    }

    pub(in super::super) fn returned(&mut self, call: CallId, outcome: Outcome) {
        self.record(Fact::Returned { call, outcome });
    }

    /// Returns a right snapshot from the call.
    pub(in super::super) fn answer(&mut self, call: CallId, freshness: Freshness) {
        let look = Look { walk: Walk::Answer(call), ..self.look(PODS, freshness) };
        self.saw(look);
        self.returned(call, Outcome::Done);
    }

    // ---- the end

    pub(in super::super) fn settle(&mut self) {
        self.record(Fact::Quiet);
        self.go(secs(120));
        self.record(Fact::Settled);
    }

    pub(in super::super) fn look_last(&mut self) {
        let look = Look { walk: Walk::Last, ..self.look(PODS, live(10)) };
        self.saw(look);
    }
}
