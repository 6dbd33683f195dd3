//! A fault in force: it began, may have hit something, and is healed by its holder.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use skopos_testserver::{CloseMode, Fault, FaultGuard, Lag};
use tokio::time::{Instant, sleep_until};

use super::inflict::Inflict;
use super::rules::{On, Part};
use crate::cluster::{Cluster, Resource, Write, WriteKind};
use crate::history::{Fact, FaultId, Recorder};
use crate::net::{Cut, DialFault, Direction, Handle, Slowness};

/// Targets of faults.
#[derive(Clone)]
pub struct Harmed {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// Nanoseconds by which the clients' wall clock is ahead of their monotonic one.
    pub lead: Arc<AtomicI64>,
    /// Nanoseconds for which their machine has slept.
    pub slept: Arc<AtomicU64>,
    /// The recorder of facts.
    pub recorder: Recorder,
}

/// A fault in force.
pub struct Active {
    id: FaultId,
    harmed: Harmed,
    remedy: Remedy,
    hit: bool,
    watched_at_first: bool,
    dials_at_first: u64,
}

/// Action that ends a fault.
enum Remedy {
    Nothing,
    Network(Handle),
    /// Connections that were not cut yet are spared.
    Cut,
    /// Drops the black holes of connections that never recover.
    Forgotten(Handle),
    /// Ends the fault of requests, and the ending of open watches.
    Rule(FaultGuard, Option<FaultGuard>),
    Site(usize),
    Streams,
    Lag(u64),
    /// Dials are refused; before they are admitted again, these writes are made.
    Gap(Handle, Vec<Write>, bool),
}

impl Active {
    /// Begins the fault at once.
    pub fn begin(harmed: Harmed, number: u8, what: &Inflict) -> Self {
        let Harmed { cluster, recorder, .. } = &harmed;
        let bounds = what.bounds();
        let id = recorder.next_fault();
        recorder.record(Fact::FaultBegan {
            fault: id,
            number,
            cluster: (!what.is_everywhere()).then_some(cluster.id),
            lies: what.lies(),
            detect: bounds.detect,
            recover: bounds.recover,
            retry_after: what.retry_after(),
            part: what.part(),
            spares_lists: what.spares_lists(),
        });
        let watched_at_first = !cluster.watched_connections().is_empty();
        let dials_at_first = cluster.network.dials_struck();
        let remedy = inflict(&harmed, what);
        let mut active = Self { id, harmed, remedy, hit: false, watched_at_first, dials_at_first };
        active.look_for_hit(what);
        active
    }

    /// Holds the fault until `end`, and heals it. Returns whether it hit anything.
    pub async fn hold_until(mut self, end: Instant, what: &Inflict) -> bool {
        loop {
            let next = end.min(Instant::now() + Duration::from_secs(1));
            match &self.remedy {
                Remedy::Rule(guard, _) if !self.hit => {
                    tokio::select! {
                        biased;
                        () = guard.wait_hits(1) => {}
                        () = sleep_until(end) => {}
                    }
                }
                _ if self.hit => sleep_until(end).await,
                _ => sleep_until(next).await,
            }
            self.look_for_hit(what);
            if Instant::now() >= end {
                break;
            }
        }
        let hit = self.hit;
        self.heal();
        hit
    }

    fn look_for_hit(&mut self, what: &Inflict) {
        if self.hit || !self.has_hit(what) {
            return;
        }
        self.hit = true;
        self.harmed.recorder.record(Fact::FaultHit { fault: self.id });
    }

    fn has_hit(&self, what: &Inflict) -> bool {
        let cluster = &self.harmed.cluster;
        let dial_struck = cluster.network.dials_struck() > self.dials_at_first;
        match &self.remedy {
            Remedy::Rule(guard, _) => guard.hits() > 0,
            Remedy::Lag(_) => !cluster.watched_connections().is_empty(),
            Remedy::Site(_) => dial_struck || self.watched_at_first,
            _ => match what {
                Inflict::Suspend(_) | Inflict::ClockJump(_) | Inflict::Starve(_) => true,
                // The users record this themselves.
                Inflict::Users => false,
                Inflict::NoName | Inflict::Refused | Inflict::NoAnswer | Inflict::HungUp => dial_struck,
                Inflict::ExpiredCertificate | Inflict::UntrustedCertificate => dial_struck,
                Inflict::NoDescriptors => dial_struck,
                Inflict::Cut { .. } => {
                    self.watched_at_first
                        && (cluster.network.wires().iter().any(|wire| wire.is_cut())
                            || cluster.watched_connections().is_empty())
                }
                _ => self.watched_at_first,
            },
        }
    }

    fn heal(self) {
        let Self { id, harmed: Harmed { cluster, recorder, .. }, remedy, .. } = self;
        match remedy {
            Remedy::Nothing => {}
            Remedy::Network(handle) | Remedy::Forgotten(handle) => cluster.network.heal(handle),
            Remedy::Cut => cluster.network.wires().iter().for_each(|wire| wire.spare()),
            Remedy::Rule(guard, ends) => {
                drop(ends);
                guard.heal();
            }
            Remedy::Site(site) => cluster.site_up(site),
            Remedy::Streams => cluster.server.faults().limit_streams(None),
            Remedy::Lag(number) => cluster.end_lag(number),
            Remedy::Gap(handle, writes, compact) => {
                for write in &writes {
                    cluster.write(write);
                }
                if compact {
                    cluster.compact();
                }
                cluster.network.heal(handle);
            }
        }
        recorder.record(Fact::FaultHealed { fault: id });
    }
}

/// Ends all open watches at once. For a part of the cluster, its watches are ended while the fault is held.
fn end_watches(cluster: &Cluster, part: Part) -> Option<FaultGuard> {
    if part == Part::WHOLE {
        cluster.server.close_watches();
        return None;
    }
    Some(cluster.server.faults().inject(Fault::Close).on(On::Watches.matching(part)))
}

fn inflict(harmed: &Harmed, what: &Inflict) -> Remedy {
    let cluster = &harmed.cluster;
    let (network, faults) = (&cluster.network, cluster.server.faults());
    let cut_off = |what: DialFault| {
        let handle = network.trouble_dials(what);
        faults.kill_connections(CloseMode::Rst);
        handle
    };
    match what {
        Inflict::BlackHole { direction, new_too } => {
            Remedy::Network(network.black_hole(*direction, *new_too, |_| true))
        }
        Inflict::HalfOpen => {
            let handle = network.black_hole(Direction::Both, false, |_| true);
            faults.kill_connections(CloseMode::Fin);
            Remedy::Forgotten(handle)
        }
        Inflict::End { how, all } => {
            let watched = cluster.watched_connections();
            let watched = watched.keys().next().copied();
            for wire in network.wires() {
                if *all || Some(wire.number()) == watched {
                    wire.end(*how);
                }
            }
            Remedy::Nothing
        }
        Inflict::Cut { after, how } => {
            network.wires().iter().for_each(|wire| wire.cut(Cut { after: *after, how: *how }));
            Remedy::Cut
        }
        Inflict::Delay(delay) => Remedy::Network(network.slow_down(Slowness::Delay(*delay))),
        Inflict::Throttle(bytes) => Remedy::Network(network.slow_down(Slowness::Throttle(*bytes))),
        Inflict::NoName => Remedy::Network(cut_off(DialFault::Dns)),
        Inflict::Refused => Remedy::Network(cut_off(DialFault::Refused)),
        Inflict::NoAnswer => Remedy::Network(cut_off(DialFault::Silent)),
        Inflict::HungUp => Remedy::Network(cut_off(DialFault::HangsUp)),
        Inflict::ExpiredCertificate => Remedy::Network(cut_off(DialFault::Expired)),
        Inflict::UntrustedCertificate => Remedy::Network(cut_off(DialFault::Untrusted)),
        Inflict::NoDescriptors => Remedy::Network(cut_off(DialFault::NoDescriptors)),
        Inflict::SiteDown { site, reset } => {
            cluster.site_down(*site, if *reset { CloseMode::Rst } else { CloseMode::Fin });
            Remedy::Site(*site)
        }
        Inflict::Requests { rule, on, part, times, close_watches } => {
            let guard = faults.inject(rule.fault()).on(on.matching(*part));
            let guard = match times {
                Some(times) => guard.times(*times),
                None => guard,
            };
            let ends = close_watches.then(|| end_watches(cluster, *part)).flatten();
            Remedy::Rule(guard, ends)
        }
        Inflict::GoAway => {
            faults.go_away();
            Remedy::Nothing
        }
        Inflict::StreamLimit(streams) => {
            faults.limit_streams(Some(*streams));
            faults.kill_connections(CloseMode::Fin);
            Remedy::Streams
        }
        Inflict::Lag { site, by } => {
            let lag = match by {
                Some(by) => Lag::By(*by),
                None => Lag::Frozen { at: cluster.server.resource_version() },
            };
            Remedy::Lag(cluster.lag(*site, lag))
        }
        Inflict::CloseWatches => {
            cluster.server.close_watches();
            Remedy::Nothing
        }
        Inflict::Compaction(writes) => Remedy::Gap(cut_off(DialFault::Refused), writes.clone(), true),
        Inflict::ReplacedInGap(writes) => Remedy::Gap(cut_off(DialFault::Refused), writes.clone(), false),
        Inflict::CompactionUnderWatches => {
            // The newest RV is never compacted, so an older one is needed.
            let kind = WriteKind::Put;
            cluster.write(&Write { resource: Resource::ConfigMaps, namespace: 0, name: 0, kind, salt: 0 });
            cluster.compact();
            Remedy::Nothing
        }
        Inflict::RollBack(by) => {
            cluster.roll_back(*by);
            Remedy::Nothing
        }
        Inflict::Suspend(time) => {
            let nanos = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
            harmed.lead.fetch_add(nanos, Ordering::SeqCst);
            harmed.slept.fetch_add(nanos.unsigned_abs(), Ordering::SeqCst);
            Remedy::Nothing
        }
        Inflict::ClockJump(seconds) => {
            harmed.lead.fetch_add(seconds * 1_000_000_000, Ordering::SeqCst);
            Remedy::Nothing
        }
        Inflict::Starve(_) | Inflict::Users => Remedy::Nothing,
    }
}
