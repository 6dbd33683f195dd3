//! Clients that begin during a fault, and those that meet a fault of only a part of a cluster.

use std::time::Duration;

use super::generate::Random;
use super::{Again, ClientPlan, FaultPlan, InformerPlan, Manner, ReaderKind, ReaderPlan, Strikes};
use crate::cluster::{NAMESPACES, Resource};
use crate::fault::{Inflict, Part};
use crate::history::Selection;
use crate::net::Direction;

/// Pause between a client and its successor.
const CHANGE: (Duration, Duration) = (Duration::ZERO, Duration::from_secs(3));
/// Faults that only first lists meet. They may last long enough for a list to be given up.
const OF_FIRST_LISTS: [u8; 2] = [25, 50];

impl ClientPlan {
    /// Adjusts handlers and pages so that many objects do not take longer than a run.
    pub(super) fn copes_with_many(&mut self) {
        self.page_size = self.page_size.map(|_| 500);
        for informer in &mut self.informers {
            informer.queue = None;
            for handler in &mut informer.handlers {
                if let Manner::Slow(_) = handler.manner {
                    handler.manner = Manner::Quick;
                }
            }
        }
    }
}

impl Random {
    /// Moves some of the later clients into a fault of their cluster.
    pub(super) fn meet(&mut self, clients: &mut Vec<ClientPlan>, faults: &[FaultPlan]) {
        for at in 0..clients.len() {
            let own: Vec<_> = faults.iter().filter(|fault| fault.cluster == clients[at].cluster).collect();
            if clients[at].starts.is_zero() || own.is_empty() || self.bool() {
                continue;
            }
            let fault = own[self.usize(0..own.len())];
            let client = &mut clients[at];
            client.starts = self.inside(fault);
            match client.stops {
                Some(stops) if stops > client.starts && self.bool() => {
                    let next = self.successor(client, at, stops);
                    clients.push(next);
                }
                Some(stops) if stops > client.starts => {}
                _ => client.stops = None,
            }
        }
    }

    /// Makes a client begin within the fault in some runs of a single fault: a new one, or the first one again.
    pub(super) fn begin_inside(&mut self, clients: &mut Vec<ClientPlan>, faults: &[FaultPlan], number: u8) {
        let Some(fault) = faults.first() else { return };
        let often = OF_FIRST_LISTS.contains(&number);
        let at = self.inside(fault);
        match self.u32(0..8) {
            0 => {
                let next = self.successor(&mut clients[0], 0, at);
                clients.push(next);
            }
            3 => {
                for informer in &mut clients[0].informers {
                    informer.again = Some(self.again(at));
                    informer.queue = None;
                }
            }
            1 | 2 => clients.push(self.late(fault.cluster, at)),
            _ if often => clients.push(self.late(fault.cluster, at)),
            _ => {}
        }
    }

    /// Stops the client of this number, and makes one like it, perhaps with its content.
    fn successor(&mut self, client: &mut ClientPlan, number: usize, at: Duration) -> ClientPlan {
        client.stops = Some(at);
        let longest = [CHANGE.1, CHANGE.1 * 60][self.usize(0..2)];
        let starts = at + self.within(CHANGE.0, longest);
        let restores = (!self.chance(3)).then_some(number);
        ClientPlan { starts, stops: None, restores, ..client.clone() }
    }

    /// Restarts one informer in this number, at some time.
    pub(super) fn restart(&mut self, clients: &mut [ClientPlan], one_of: u32, length: Duration) {
        for informer in clients.iter_mut().flat_map(|client| &mut client.informers) {
            if informer.queue.is_none() && self.chance(one_of) {
                let after = self.within(Duration::from_secs(60), length * 2 / 3);
                informer.again = Some(self.again(after));
            }
        }
    }

    fn again(&mut self, after: Duration) -> Again {
        let longest = [0, 2, 60][self.usize(0..3)];
        Again { after, pause: self.within(Duration::ZERO, Duration::from_secs(longest)) }
    }

    /// Makes a client with one informer, and a user that waits for it.
    fn late(&mut self, cluster: usize, starts: Duration) -> ClientPlan {
        let mut late = self.client(cluster, Duration::from_secs(300), false);
        late.starts = starts;
        late.informers.truncate(1);
        for informer in &mut late.informers {
            let every = Duration::from_secs(self.u64(20..60));
            let limit = Duration::from_secs(self.u64(1..40));
            informer.readers.push(ReaderPlan { what: ReaderKind::WaitSynced, every, limit });
        }
        late
    }

    fn inside(&mut self, fault: &FaultPlan) -> Duration {
        fault.strikes.earliest() + self.within(Duration::ZERO, fault.lasts / 2)
    }

    /// Makes a connection that dies while all bytes are slow.
    pub(super) fn dead_while_slow(&mut self, faults: &[FaultPlan]) -> Option<FaultPlan> {
        let slow = faults.first()?;
        let direction = [Direction::Both, Direction::ToClient, Direction::ToServer][self.usize(0..3)];
        Some(FaultPlan {
            number: 1,
            what: Inflict::BlackHole { direction, new_too: self.bool() },
            cluster: slow.cluster,
            strikes: Strikes::At(self.inside(slow)),
            lasts: Duration::from_secs(40),
        })
    }

    /// Adds two informers for a fault of only a part of a cluster. One has a set of namespaces, or of resources, and the
    /// fault strikes some of them. The fault must leave the other one alone.
    pub(super) fn confront(&mut self, client: &mut ClientPlan, faults: &[FaultPlan]) {
        let Some(part) = faults.iter().map(|fault| fault.what.part()).find(|part| *part != Part::WHOLE)
        else {
            return;
        };
        let struck = part.resource.unwrap_or(Resource::ConfigMaps);
        let here = usize::from(part.namespace.unwrap_or(0)) % NAMESPACES.len();
        let (next, last) = ((here + 1) % NAMESPACES.len(), (here + 2) % NAMESPACES.len());
        let some = self.of(struck, &[here, next]);
        let spared = match (part.namespace, part.resource) {
            (Some(_), _) => self.of(struck, &[last]),
            (None, Some(Resource::Pods)) => self.of(Resource::ConfigMaps, &[here]),
            (None, _) => self.of(Resource::Pods, &[here]),
        };
        client.informers.truncate(1);
        client.informers.extend([some, spared]);
    }

    /// Makes an informer of these namespaces, with a reader of single objects and an auditor.
    fn of(&mut self, resource: Resource, namespaces: &[usize]) -> InformerPlan {
        let mut namespaces: Vec<_> = namespaces.iter().map(|at| NAMESPACES[*at].to_owned()).collect();
        namespaces.sort();
        let mut informer = self.informer(Duration::from_secs(900));
        informer.resource = resource;
        informer.selection = Selection { namespaces, ..Selection::default() };
        for what in [ReaderKind::ReadOne(Duration::from_secs(1)), ReaderKind::Audit] {
            let every = self.within(Duration::from_secs(20), Duration::from_secs(200));
            informer.readers.push(ReaderPlan { what, every, limit: Duration::from_secs(10) });
        }
        informer
    }
}
