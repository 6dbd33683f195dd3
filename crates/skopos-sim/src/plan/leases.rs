//! Leases that expire: several objects go at one RV, and faults strike between two of them.
//!
//! Drawn apart from all else, so that what a seed decides otherwise stays as it is.

use std::time::Duration;

use super::generate::{Random, millis, secs};
use super::{Burst, Plan, Strikes};
use crate::cluster::{Moment, Write, WriteKind};

/// So long before they expire objects are written that may not be there.
const WRITTEN_BEFORE: Duration = Duration::from_secs(4);

/// Faults whose time has to do with what the clients of their runs do.
const TIMED: [u8; 5] = [11, 12, 23, 35, 48];

/// In every other plan, at intervals of up to `seldom`.
pub(super) fn add(plan: &mut Plan, salt: u64, seldom: Duration) {
    let mut random = Random::new(plan.seed.wrapping_mul(0x2545_f491).wrapping_add(salt));
    if random.bool() {
        return;
    }
    for cluster in 0..plan.clusters.len() {
        plan.clusters[cluster].pause_within_revision = millis([0, 20, 50, 100][random.usize(0..4)]);
        let mut at = random.within(secs(20), seldom);
        while at < plan.length {
            plan.bursts.extend(random.lease(at, cluster));
            at += random.within(secs(20), seldom);
        }
    }
    for fault in &mut plan.faults {
        if let Strikes::At(from) = fault.strikes
            && !TIMED.contains(&fault.number)
            && random.bool()
        {
            fault.strikes = Strikes::Moment(Moment::Parted, 1, from);
        }
    }
}

impl Random {
    /// Writes most of what is in a lease, and then it expires.
    fn lease(&mut self, at: Duration, cluster: usize) -> [Burst; 2] {
        let others = self.u8(1..6);
        let expires = Write { kind: WriteKind::Expire(others), ..self.write() };
        let mut writes = expires.lease(others);
        writes.retain(|_| !self.chance(8));
        for write in &mut writes {
            (write.kind, write.salt) = (WriteKind::Put, self.u32(..));
        }
        let burst = |at, writes| Burst { at, cluster, spacing: Duration::ZERO, writes };
        [burst(at - WRITTEN_BEFORE, writes), burst(at, vec![expires])]
    }
}
