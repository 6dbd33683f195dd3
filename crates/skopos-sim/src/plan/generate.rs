//! Plans from seeds.

use std::time::Duration;

use super::{
    Burst, ClientPlan, ClusterPlan, FaultPlan, GatewayPlan, HandlerPlan, InformerPlan, Manner, NotifierPlan,
    Plan, QueuePlan, ReaderKind, ReaderPlan, Strikes, gateway, leases, notifier, silent, watchers,
};
use crate::cluster::{Moment, NAMES, NAMESPACES, Resource, Write, WriteKind};
use crate::fault::{CATALOGUE, Entry, Inflict};
use crate::history::{Selection, Term};

/// Length of a mixed run: one hour.
const HOUR: Duration = Duration::from_secs(3600);

/// Time after the last healing until all must be well. The longest waits of the client are a throttled retry, an audit, and the
/// retry of an undecodable object.
const QUIET: Duration = Duration::from_secs(420);

/// One run of a single fault in this number has many objects.
const CROWDED: u32 = 40;

const LOOK_INTERVAL: Duration = Duration::from_secs(1);

impl Plan {
    /// Makes a plan of one hour with several faults and many users.
    pub fn mixed(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let clusters: Vec<_> = (0..random.usize(1..=2)).map(|_| random.cluster()).collect();
        let mut clients = Vec::new();
        for cluster in 0..clusters.len() {
            for late in 0..random.usize(1..=2) {
                clients.push(random.client(cluster, HOUR, late > 0));
            }
        }
        let bursts = random.bursts(clusters.len(), HOUR);
        let mut faults = Vec::new();
        for _ in 0..random.usize(3..=12) {
            let entry = random.simulated();
            let cluster = random.usize(0..clusters.len());
            let from = random.within(secs(10), HOUR - secs(60));
            faults.extend(random.fault(entry, cluster, clusters[cluster].servers, from));
        }
        random.meet(&mut clients, &faults);
        random.restart(&mut clients, 12, HOUR);
        let mut plan = Self {
            seed,
            length: HOUR,
            quiet: QUIET,
            look_interval: LOOK_INTERVAL,
            clusters,
            clients,
            bursts,
            faults,
            gateway: GatewayPlan::default(),
            notifier: NotifierPlan::default(),
        };
        leases::add(&mut plan, 0, secs(600));
        watchers::add(&mut plan, 0);
        gateway::add(&mut plan, 0);
        notifier::add(&mut plan, 0);
        plan
    }

    /// Makes a plan of one fault at several points.
    pub fn single(number: u8, seed: u64) -> Option<Self> {
        let entry = crate::fault::entry(number).filter(|entry| entry.is_simulated())?;
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(u64::from(number)));
        let length = secs(900);
        let mut cluster = random.cluster();
        if number == 33 {
            cluster.servers = cluster.servers.max(2);
        }
        if number == 35 {
            cluster.watch_list = true;
        }
        let mut clients = vec![random.client(0, length, false)];
        // Conditions that a fault needs in order to hit something.
        if matches!(number, 11 | 23) {
            clients[0].streamed = false;
            clients[0].page_size = Some(random.u32(2..6));
        }
        if number == 35 {
            clients[0].streamed = true;
        }
        let for_late = matches!(number, 11 | 12 | 23 | 35);
        if for_late || number == 25 {
            // Only first lists and relists meet the fault, or its first part.
            let mut late = random.client(0, length, true);
            late.starts = secs(120);
            late.stops = None;
            late.streamed = number == 35 || number == 12 && random.bool();
            late.page_size = Some(random.u32(2..6));
            clients.push(late);
        }
        match number {
            41 => clients[0].informers.iter_mut().for_each(|informer| informer.shared = Some(secs(60))),
            43 => random.handlers(&mut clients[0], |random| Manner::Slow(secs(random.u64(1..20)))),
            44 => random.handlers(&mut clients[0], |random| Manner::Panics(random.u32(2..10))),
            48 | 49 => clients.iter_mut().for_each(|client| client.stops = Some(secs(300))),
            _ => {}
        }
        let mut bursts = random.bursts(1, length);
        bursts.push(random.start(0));
        if number == 43 {
            // More than a slow handler can process, and more than one batch.
            let writes = (0..600).map(|_| random.write()).collect();
            bursts.push(Burst { at: length / 2, cluster: 0, spacing: millis(100), writes });
        }
        let mut faults = Vec::new();
        match number {
            // A shutdown while no dial succeeds.
            48 => faults.push(FaultPlan {
                number,
                what: [Inflict::NoAnswer, Inflict::Refused][random.usize(0..2)].clone(),
                cluster: 0,
                strikes: Strikes::At(secs(random.u64(250..299))),
                lasts: secs(120),
            }),
            11 | 12 | 23 | 35 => {
                let (what, lasts) = entry.draw(&mut random.0, cluster.servers);
                // Longer than the time limit of its detection.
                let lasts = if matches!(number, 11 | 12) { lasts.max(secs(150)) } else { lasts };
                let strikes = match number {
                    23 => Strikes::Moment(Moment::Paged, 1, secs(119)),
                    35 => Strikes::Moment(Moment::ListStreamed, 1, secs(119)),
                    _ => Strikes::At(secs(119)),
                };
                faults.push(FaultPlan { number, what, cluster: 0, strikes, lasts });
            }
            _ => {
                let mut from = random.within(secs(20), secs(120));
                // The losses of several such faults could not be distinguished.
                for _ in 0..if number == 47 { 1 } else { 3 } {
                    let Some(mut fault) = random.fault(entry, 0, cluster.servers, from) else { continue };
                    if number == 25 && faults.is_empty() {
                        // Between two pages of a new client: a list that is refused at once can be repeated.
                        fault.strikes = Strikes::Moment(Moment::Paged, 1, secs(119));
                    }
                    from = fault.strikes.earliest() + fault.lasts + random.within(secs(60), secs(160));
                    faults.push(fault);
                    if from > length - secs(100) {
                        break;
                    }
                }
            }
        }
        if number == 9 && random.bool() {
            let dead = random.dead_while_slow(&faults);
            faults.extend(dead);
        }
        random.confront(&mut clients[0], &faults);
        if number == 41 {
            random.restart(&mut clients, 1, length);
        }
        if !for_late && !matches!(number, 41 | 43 | 44 | 47 | 48 | 49) {
            random.begin_inside(&mut clients, &faults, number);
        }
        if number != 43 && random.chance(CROWDED) {
            bursts.push(random.crowd());
            clients.iter_mut().for_each(ClientPlan::copes_with_many);
        }
        if number == 47 {
            // A later write would restore what was lost.
            let last = faults.last().map_or(length, |fault| fault.strikes.earliest() + fault.lasts);
            bursts.retain(|burst| burst.at <= last);
        }
        let clusters = vec![cluster];
        let quiet = match number {
            // Until an audit has repaired it...
            47 => secs(800),
            // ... or the damaged object has been read again.
            13..=17 => QUIET,
            _ => secs(240),
        };
        let look_interval = LOOK_INTERVAL;
        let mut plan = Self {
            seed,
            length,
            quiet,
            look_interval,
            clusters,
            clients,
            bursts,
            faults,
            gateway: GatewayPlan::default(),
            notifier: NotifierPlan::default(),
        };
        if number != 47 {
            leases::add(&mut plan, u64::from(number), secs(120));
        }
        watchers::add(&mut plan, u64::from(number));
        silent::add(&mut plan, number);
        gateway::add(&mut plan, u64::from(number));
        notifier::add(&mut plan, u64::from(number));
        Some(plan)
    }
}

/// Random values of a plan.
pub(super) struct Random(fastrand::Rng);

impl std::ops::Deref for Random {
    type Target = fastrand::Rng;
    fn deref(&self) -> &fastrand::Rng {
        &self.0
    }
}

impl std::ops::DerefMut for Random {
    fn deref_mut(&mut self) -> &mut fastrand::Rng {
        &mut self.0
    }
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        // Seeds that are close to each other begin alike.
        random.u64(..);
        Self(random)
    }

    pub(super) fn within(&mut self, least: Duration, most: Duration) -> Duration {
        let (least, most) = (least.as_millis() as u64, most.as_millis() as u64);
        Duration::from_millis(self.u64(least..=most.max(least)))
    }

    pub(super) fn chance(&mut self, one_in: u32) -> bool {
        self.u32(0..one_in) == 0
    }

    fn simulated(&mut self) -> &'static Entry {
        loop {
            let entry = &CATALOGUE[self.usize(0..CATALOGUE.len())];
            if entry.is_simulated() && !matches!(entry.number, 41 | 43 | 44 | 48 | 49) {
                return entry;
            }
        }
    }

    pub(super) fn cluster(&mut self) -> ClusterPlan {
        ClusterPlan {
            servers: [1, 1, 2, 3][self.usize(0..4)],
            latency: [Duration::ZERO, Duration::ZERO, millis(1), millis(30)][self.usize(0..4)],
            bookmark_interval: secs([10, 60, 60][self.usize(0..3)]),
            pause_within_revision: Duration::ZERO,
            watch_list: !self.chance(3),
            event_window: secs([75, 75, 20, 600][self.usize(0..4)]),
            compaction_interval: secs([300, 300, 60][self.usize(0..3)]),
            max_streams: [100, 100, 3][self.usize(0..3)],
        }
    }

    pub(super) fn client(&mut self, cluster: usize, length: Duration, late: bool) -> ClientPlan {
        let starts = if late { self.within(Duration::ZERO, length / 2) } else { Duration::ZERO };
        let lives = length - starts;
        let stops = (late && self.bool()).then(|| starts + self.within(secs(30), lives));
        let informers = (0..self.usize(1..=3)).map(|_| self.informer(lives)).collect();
        ClientPlan {
            cluster,
            starts,
            stops,
            probe_interval: secs(30),
            audit_interval: Some(secs(600)),
            page_size: [Some(500), Some(500), Some(4), None][self.usize(0..4)],
            streamed: !self.chance(3),
            restores: None,
            informers,
            watchers: Vec::new(),
        }
    }

    pub(super) fn informer(&mut self, lives: Duration) -> InformerPlan {
        let resource =
            [Resource::ConfigMaps, Resource::ConfigMaps, Resource::Pods, Resource::Nodes][self.usize(0..4)];
        let handlers = (0..self.usize(1..=2)).map(|_| self.handler(lives)).collect();
        let readers = (0..self.usize(1..=3)).map(|_| self.reader()).collect();
        InformerPlan {
            resource,
            selection: self.selection(resource),
            metadata_only: self.chance(5),
            shared: self.chance(5).then(|| self.within(Duration::ZERO, lives)),
            again: None,
            handlers,
            readers,
            queue: self.chance(3).then(|| QueuePlan {
                workers: self.u16(1..4),
                slowness: [Duration::ZERO, millis(1), millis(500)][self.usize(0..3)],
                fails: self.u32(2..20),
            }),
        }
    }

    pub(super) fn selection(&mut self, resource: Resource) -> Selection {
        let text = str::to_owned;
        let labels = match self.u32(0..8) {
            0 => vec![Term::Is(text("app"), text("web"))],
            1 => vec![Term::IsNot(text("app"), text("web"))],
            2 => vec![Term::In(text("app"), vec![text("db"), text("job")]), Term::Has(text("tier"))],
            3 => vec![Term::HasNot(text("tier"))],
            _ => Vec::new(),
        };
        let fields = match (resource, self.u32(0..4)) {
            (Resource::Pods, 0) => vec![Term::Is(text("spec.nodeName"), text("n1"))],
            (Resource::Pods, 1) => vec![Term::IsNot(text("spec.nodeName"), text("n1"))],
            (Resource::ConfigMaps, 0) => vec![Term::IsNot(text("metadata.name"), text("o1"))],
            _ => Vec::new(),
        };
        let namespaces = match (resource.is_namespaced(), self.u32(0..5)) {
            (true, 0) => vec![text(NAMESPACES[self.usize(0..3)])],
            (true, 1) => vec![text("a"), text("c")],
            _ => Vec::new(),
        };
        Selection { namespaces, labels, fields }
    }

    fn handler(&mut self, lives: Duration) -> HandlerPlan {
        let manner = match self.u32(0..6) {
            0 => Manner::Slow(self.within(millis(10), secs(5))),
            1 => Manner::Panics(self.u32(3..40)),
            _ => Manner::Quick,
        };
        let added = if self.chance(3) { self.within(Duration::ZERO, lives / 2) } else { Duration::ZERO };
        HandlerPlan {
            manner,
            added,
            removed: self.chance(4).then(|| self.within(secs(1), lives / 2)),
            capacity: [1000, 1000, 4, 1][self.usize(0..4)],
            resync: self.chance(6).then(|| self.within(secs(60), secs(600))),
        }
    }

    fn handlers(&mut self, client: &mut ClientPlan, mut manner: impl FnMut(&mut Self) -> Manner) {
        for informer in &mut client.informers {
            for handler in &mut informer.handlers {
                handler.manner = manner(self);
                handler.capacity = [1, 4, 20][self.usize(0..3)];
                handler.removed = None;
            }
        }
    }

    fn reader(&mut self) -> ReaderPlan {
        let what = match self.u32(0..8) {
            0 => ReaderKind::Snapshot,
            1 => ReaderKind::Get,
            2 => ReaderKind::WaitSynced,
            3 | 4 => ReaderKind::WaitFor,
            5 => ReaderKind::Read(self.within(Duration::ZERO, secs(40))),
            6 => ReaderKind::ReadOne(self.within(Duration::ZERO, secs(40))),
            _ => ReaderKind::Audit,
        };
        let (every, limit) = (self.within(secs(5), secs(120)), self.within(millis(100), secs(20)));
        // Some calls have no time to wait. The value is not drawn, so that existing seeds keep their plans.
        let limit = if every.as_millis() % 6 == 0 { Duration::ZERO } else { limit };
        ReaderPlan { what, every, limit }
    }

    pub(super) fn write(&mut self) -> Write {
        Write {
            resource: [Resource::ConfigMaps, Resource::ConfigMaps, Resource::Pods, Resource::Nodes]
                [self.usize(0..4)],
            namespace: self.u8(0..3),
            name: self.u8(0..NAMES),
            kind: [WriteKind::Put, WriteKind::Put, WriteKind::Put, WriteKind::Delete, WriteKind::Replace]
                [self.usize(0..5)],
            salt: self.u32(..),
        }
    }

    /// Makes the initial objects.
    fn start(&mut self, cluster: usize) -> Burst {
        let writes = (0..30).map(|_| Write { kind: WriteKind::Put, ..self.write() }).collect();
        Burst { at: Duration::ZERO, cluster, spacing: Duration::ZERO, writes }
    }

    /// Makes so large a number of config maps that a list takes several pages, and more than a window of a stream.
    fn crowd(&mut self) -> Burst {
        let names = (0..=u8::MAX).flat_map(|name| (0..3).map(move |namespace| (name, namespace)));
        let write = |(name, namespace)| {
            let (resource, kind) = (Resource::ConfigMaps, WriteKind::Put);
            Write { resource, namespace, name, kind, salt: u32::from(name) }
        };
        let writes = names.map(write).collect();
        Burst { at: Duration::ZERO, cluster: 0, spacing: Duration::ZERO, writes }
    }

    fn bursts(&mut self, clusters: usize, length: Duration) -> Vec<Burst> {
        let mut bursts: Vec<_> = (0..clusters).map(|cluster| self.start(cluster)).collect();
        for cluster in 0..clusters {
            let mut at = self.within(secs(1), secs(20));
            // From a write every few seconds to one every few minutes.
            let pause = self.within(secs(3), secs(60));
            while at < length {
                let many = if self.chance(12) { self.usize(5..60) } else { self.usize(1..4) };
                let writes = (0..many).map(|_| self.write()).collect();
                let spacing = [Duration::ZERO, millis(5), millis(300)][self.usize(0..3)];
                bursts.push(Burst { at, cluster, spacing, writes });
                at += self.within(pause / 4, pause * 2);
            }
        }
        bursts
    }

    fn fault(&mut self, entry: &Entry, cluster: usize, servers: usize, from: Duration) -> Option<FaultPlan> {
        if matches!(entry.number, 41 | 43 | 44 | 49) {
            return None;
        }
        let (what, lasts) = entry.draw(&mut self.0, servers);
        let strikes = match self.u32(0..9) {
            0 => Strikes::Moment(Moment::Committed, self.u64(1..6), from),
            1 => Strikes::Moment(Moment::WatchOpened, self.u64(1..3), from),
            2 => Strikes::Moment(Moment::Probed, self.u64(1..3), from),
            3 => Strikes::Moment(Moment::ListStreamed, 1, from),
            4 => Strikes::Moment(Moment::Paged, 1, from),
            _ => Strikes::At(from),
        };
        Some(FaultPlan { number: entry.number, what, cluster, strikes, lasts })
    }
}

pub(super) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
