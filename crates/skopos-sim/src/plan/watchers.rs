//! Raw watches, which have no store.
//!
//! They are drawn separately, so that the rest of a seed's plan is unchanged.

use std::time::Duration;

use super::generate::{Random, millis, secs};
use super::{Plan, WatcherPlan};
use crate::cluster::Resource;
use crate::history::Term;

/// Adds raw watches to every other plan, beside the informers of its clients.
pub(super) fn add(plan: &mut Plan, salt: u64) {
    let mut random = Random::new(plan.seed.wrapping_mul(0x6a09_e667).wrapping_add(salt));
    if random.bool() {
        return;
    }
    let mut names = 0..;
    for client in &mut plan.clients {
        let lives = client.stops.unwrap_or(plan.length).saturating_sub(client.starts);
        let count = random.usize(0..=2);
        client.watchers = names.by_ref().take(count).map(|name| random.watcher(name, lives)).collect();
    }
}

impl Random {
    fn watcher(&mut self, name: u32, lives: Duration) -> WatcherPlan {
        let resource = [Resource::ConfigMaps, Resource::Pods, Resource::Nodes][self.usize(0..3)];
        let mut selection = self.selection(resource);
        selection.namespaces.truncate(1);
        // This term is true of all objects, and unique to the watch. It identifies the watch's requests.
        selection.labels.push(Term::HasNot(format!("watcher-{name}")));
        WatcherPlan {
            resource,
            selection,
            begins: if self.bool() { Duration::ZERO } else { self.within(secs(1), lives / 2) },
            leaves: self.chance(4).then(|| self.within(secs(1), lives)),
            slowness: [Duration::ZERO, Duration::ZERO, millis(5), millis(200)][self.usize(0..4)],
        }
    }
}
