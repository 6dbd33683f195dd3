//! Leases that expire: several objects are deleted at one RV, and faults strike between two of them.
//!
//! They are drawn separately, so that the rest of a seed's plan is unchanged.

use std::time::Duration;

use super::generate::{Random, millis, secs};
use super::{Burst, Plan, Strikes};
use crate::cluster::{Moment, Write, WriteKind};

/// Time before the expiry at which objects are written that may be missing.
const WRITTEN_BEFORE: Duration = Duration::from_secs(4);

/// Faults whose timing depends on the clients of their runs.
const TIMED: [u8; 5] = [11, 12, 23, 35, 48];

/// Adds leases to every other plan, at intervals of up to `seldom`.
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
    /// Writes most objects of a lease, and then expires it.
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
