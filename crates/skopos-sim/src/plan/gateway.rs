//! A gateway over the clusters of a plan, and its users.
//!
//! It is drawn separately, so that the rest of a seed's plan is unchanged.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Plan;
use super::generate::{Random, millis, secs};

/// One plan in this number has a gateway.
const SELDOM: u64 = 6;

/// A gateway. Without contexts there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayPlan {
    /// The contexts of its members; those of each kubeconfig are in this order.
    pub contexts: Vec<ContextPlan>,
    /// Its users.
    pub visitors: Vec<VisitorPlan>,
}

/// A context of a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextPlan {
    /// Its name.
    pub name: String,
    /// The kubeconfig that has it, counted from 0.
    pub kubeconfig: usize,
    /// The cluster that it leads to.
    pub cluster: usize,
}

/// A user of the gateway that writes objects and reads them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VisitorPlan {
    /// Time of the first write.
    pub starts: Duration,
    /// Approximate time between a write, with its reads, and the next write.
    pub every: Duration,
    /// Maximum time from a write to its reads.
    pub pause: Duration,
    /// One request in this number is given up before its answer comes.
    pub hasty: u32,
}

/// Names of contexts, with the index of each one's kubeconfig: ordinary names, names that begin with another, names that must be
/// escaped or changed, and the same name twice.
const NAMES: [[(&str, usize); 3]; 8] = [
    [("north", 0), ("south", 0), ("north-2", 1)],
    [("prod", 0), ("prod-2", 0), ("prod-22", 0)],
    [("prod-2", 0), ("prod", 0), ("pro", 1)],
    [("prod", 0), ("prod", 1), ("prod", 2)],
    [("team/prod", 0), ("team-prod", 0), ("team/prod", 1)],
    [("kubernetes-admin@kubernetes", 0), ("kubernetes-admin@kubernetes", 1), ("kubernetes-admin", 0)],
    [("arn:aws:eks:eu-1:1:cluster/a b", 0), ("arn:aws:eks:eu-1:1:cluster/a%20b", 0), ("..", 0)],
    [("östlich", 0), ("clusters", 1), ("fleet", 1)],
];

/// Adds a gateway to one plan of [`SELDOM`], to a different one for each fault.
pub(super) fn add(plan: &mut Plan, salt: u64) {
    if !plan.seed.wrapping_add(salt).is_multiple_of(SELDOM) {
        return;
    }
    let mut random = Random::new(plan.seed.wrapping_mul(0x3c6e_f372).wrapping_add(salt));
    let wanted = if random.chance(4) { 3 } else { 2 };
    while plan.clusters.len() < wanted {
        plan.clusters.push(random.cluster());
    }
    let names = NAMES[random.usize(0..NAMES.len())];
    let contexts = names.into_iter().zip(0..plan.clusters.len());
    let contexts = contexts.map(|((name, kubeconfig), cluster)| {
        let name = name.to_owned();
        ContextPlan { name, kubeconfig, cluster }
    });
    let visitors = (0..random.usize(1..=4)).map(|_| random.visitor(plan.length)).collect();
    plan.gateway = GatewayPlan { contexts: contexts.collect(), visitors };
}

impl GatewayPlan {
    /// Returns whether there is a gateway.
    pub fn is_there(&self) -> bool {
        !self.contexts.is_empty()
    }
}

impl Random {
    fn visitor(&mut self, length: Duration) -> VisitorPlan {
        // A long run has no more requests than a short one.
        let slowness = 1 + u32::try_from(length.as_secs() / 1800).unwrap_or(1);
        VisitorPlan {
            starts: self.within(secs(1), secs(60)),
            every: secs([4, 10, 30][self.usize(0..3)]) * slowness,
            pause: [Duration::ZERO, Duration::ZERO, millis(20), millis(3000)][self.usize(0..4)],
            hasty: self.u32(8..40),
        }
    }
}
