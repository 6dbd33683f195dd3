//! Notifiers of a cluster: processes that share a Lease, changes of their Services, and faults of the outside.
//!
//! They are drawn separately, so that the rest of a seed's plan is unchanged.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Plan;
use super::generate::{Random, millis, secs};
use crate::cluster::{ENDPOINTS, SERVICES, ServiceChange, ServiceWrite};
use crate::history::Trouble;

/// One plan in this number has notifiers, because a minute of them costs as much as several minutes of everything else.
const SELDOM: u64 = 10;

/// They run for the last minutes of a run, and no longer.
const SPAN: Duration = Duration::from_secs(1200);

/// Notifiers. Without processes there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifierPlan {
    /// The cluster that they make the outside equal to.
    pub cluster: usize,
    /// The duration of their Lease.
    pub lease: Duration,
    /// Delay of a message to the outside, each way.
    pub latency: Duration,
    /// The processes.
    pub processes: Vec<ProcessPlan>,
    /// Changes of Services.
    pub services: Vec<ServiceBurst>,
    /// Faults of the outside.
    pub troubles: Vec<TroublePlan>,
    /// Manual changes of the outside.
    pub edits: Vec<EditPlan>,
}

/// A process that works while it has the Lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessPlan {
    /// Time of its start.
    pub starts: Duration,
    /// Time of its end; `None`: at the end of the run.
    pub stops: Option<Duration>,
    /// True if it is killed, and releases nothing.
    pub killed: bool,
    /// Seconds by which its wall clock is ahead.
    pub ahead: i64,
}

/// Changes of Services at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceBurst {
    /// The time.
    pub at: Duration,
    /// The changes.
    pub writes: Vec<ServiceWrite>,
}

/// A temporary fault of the outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TroublePlan {
    /// Time of its beginning.
    pub at: Duration,
    /// Its duration.
    pub lasts: Duration,
    /// The kind of fault.
    pub what: Trouble,
}

/// A manual change of a name outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditPlan {
    /// The time.
    pub at: Duration,
    /// The Service that determines the name.
    pub service: u8,
    /// The change.
    pub what: Edit,
}

/// Kind of a manual change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Edit {
    /// A foreign record takes the name.
    Claim,
    /// A foreign record is removed, if there is one.
    Yield,
    /// A value is added.
    Add,
    /// The first value is removed.
    Remove,
    /// All records of the name are removed.
    Wipe,
}

/// Adds notifiers to one plan of [`SELDOM`], to a different one for each fault.
pub(super) fn add(plan: &mut Plan, salt: u64) {
    if plan.seed.wrapping_add(salt) % SELDOM != 2 {
        return;
    }
    let mut random = Random::new(plan.seed.wrapping_mul(0x510e_527f).wrapping_add(salt));
    let span = plan.length.min(SPAN);
    plan.notifier = random.notifier(span, plan.clusters.len());
    plan.notifier.postpone(plan.length - span);
}

impl NotifierPlan {
    /// Returns whether there are notifiers.
    pub fn is_there(&self) -> bool {
        !self.processes.is_empty()
    }

    /// Delays everything, except the initial Services.
    fn postpone(&mut self, by: Duration) {
        for process in &mut self.processes {
            process.starts += by;
            process.stops = process.stops.map(|stops| stops + by);
        }
        self.services.iter_mut().filter(|burst| !burst.at.is_zero()).for_each(|burst| burst.at += by);
        self.troubles.iter_mut().for_each(|trouble| trouble.at += by);
        self.edits.iter_mut().for_each(|edit| edit.at += by);
    }
}

impl Random {
    fn notifier(&mut self, length: Duration, clusters: usize) -> NotifierPlan {
        let mut plan = NotifierPlan {
            cluster: self.usize(0..clusters),
            lease: secs([15, 30, 60, 60][self.usize(0..4)]),
            latency: millis([1, 1, 10, 60][self.usize(0..4)]),
            processes: self.processes(length),
            ..NotifierPlan::default()
        };
        let first = (0..SERVICES).filter(|_| !self.chance(6)).collect::<Vec<_>>();
        let writes = first.into_iter().map(|service| ServiceWrite { service, what: self.endpoints(0) });
        plan.services.push(ServiceBurst { at: Duration::ZERO, writes: writes.collect() });
        let pause = self.within(secs(10), secs(150));
        let mut at = self.within(secs(5), secs(60));
        while at < length {
            let writes = (0..self.usize(1..=2)).map(|_| self.service_write()).collect();
            plan.services.push(ServiceBurst { at, writes });
            at += self.within(pause / 4, pause * 2);
        }
        let mut at = self.within(secs(20), length / 4);
        while at < length - secs(30) {
            let what = self.trouble(plan.processes.len());
            let longest = if self.chance(4) { secs(400) } else { secs(60) };
            let lasts = self.within(secs(2), longest);
            plan.troubles.push(TroublePlan { at, lasts: lasts.min(length - secs(5) - at), what });
            at += lasts + self.within(secs(60), length / 4);
        }
        let mut at = self.within(secs(30), length / 4);
        while at < length {
            let what = [Edit::Claim, Edit::Yield, Edit::Yield, Edit::Add, Edit::Remove, Edit::Wipe];
            let (service, what) = (self.u8(0..SERVICES), what[self.usize(0..what.len())]);
            plan.edits.push(EditPlan { at, service, what });
            at += self.within(secs(30), length / 4);
        }
        plan
    }

    /// Makes one process or two at a time; each one that ends has a successor.
    fn processes(&mut self, length: Duration) -> Vec<ProcessPlan> {
        let mut processes = Vec::new();
        for _ in 0..if self.chance(4) { 1 } else { 2 } {
            let mut starts = if self.bool() { Duration::ZERO } else { self.within(Duration::ZERO, secs(60)) };
            loop {
                let stops = self.bool().then(|| starts + self.within(secs(60), length));
                let stops = stops.filter(|stops| *stops + secs(60) < length);
                let ahead = [0, 0, 3600, -3600][self.usize(0..4)];
                processes.push(ProcessPlan { starts, stops, killed: self.bool(), ahead });
                let Some(stops) = stops.filter(|_| processes.len() < 5) else { break };
                starts = stops + self.within(Duration::ZERO, secs(120));
                if starts + secs(30) > length {
                    break;
                }
            }
        }
        // At least one process works until the end.
        if processes.iter().all(|process| process.stops.is_some()) {
            processes[0].stops = None;
        }
        processes
    }

    fn trouble(&mut self, processes: usize) -> Trouble {
        match self.u32(0..8) {
            0 | 1 => Trouble::Down,
            2 | 3 => Trouble::Frozen,
            4 => Trouble::Mute,
            5 => Trouble::Refuses,
            6 => Trouble::Torn,
            _ => Trouble::Cut(self.u8(0..u8::try_from(processes).unwrap_or(1))),
        }
    }

    fn service_write(&mut self) -> ServiceWrite {
        let service = self.u8(0..SERVICES);
        let what = match self.u32(0..15) {
            0 => ServiceChange::Delete,
            1 => ServiceChange::Replace,
            2 => ServiceChange::Deselect,
            3 | 4 => ServiceChange::Select,
            5 => self.endpoints(2),
            6 | 7 => self.endpoints(1),
            12.. => ServiceChange::Touch,
            _ => self.endpoints(0),
        };
        ServiceWrite { service, what }
    }

    /// Makes endpoints. `trouble`: 0 if all serve, 1 if some may not, 2 if none does.
    fn endpoints(&mut self, trouble: u32) -> ServiceChange {
        let (mut ready, mut failing, mut ending) = (Vec::new(), Vec::new(), Vec::new());
        for endpoint in 1..=ENDPOINTS {
            match (self.u32(0..4), trouble) {
                (0, _) => {}
                (1, 1) | (1 | 2, 2) => failing.push(endpoint),
                (2, 1) => ending.push(endpoint),
                (3, 2) => {}
                _ => ready.push(endpoint),
            }
        }
        if trouble == 0 && ready.is_empty() {
            ready.push(1);
        }
        ServiceChange::Endpoints { ready, failing, ending, split: self.chance(4) }
    }
}
