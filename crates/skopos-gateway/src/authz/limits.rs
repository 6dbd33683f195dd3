//! Limits on the number of concurrent access reviews.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::limits::fair::{FairLimits, FairPermit, FairSemaphore, QueueFull, WeakFairSemaphore};

/// Limits of the reviews of each cluster, shared fairly between callers. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct ReviewLimits {
    clusters: Arc<Mutex<ClusterSemaphores>>,
}

#[derive(Default)]
struct ClusterSemaphores {
    /// Semaphores by cluster. Callers may name clusters that do not exist, so unused ones are removed.
    semaphores: HashMap<Arc<str>, WeakFairSemaphore<Arc<str>>>,
    /// The number of semaphores at which unused ones are removed.
    sweep_at: usize,
}

/// The permit of one review. It keeps the cluster's semaphore in use.
pub(super) struct ReviewPermit {
    _permit: FairPermit<Arc<str>>,
    _semaphore: FairSemaphore<Arc<str>>,
}

/// API Priority and Fairness gives one user of a default kube-apiserver some 20 seats and 50 places in its queue.
const LIMITS: FairLimits = FairLimits { permits: 64, per_key: 8, queue: 256 };

const MIN_SWEEP: usize = 64;

impl ReviewLimits {
    /// Waits until a review of `user`'s rights in `cluster` may begin.
    ///
    /// # Errors
    /// Returns at once if the user already has too many waiting reviews there.
    pub(super) async fn acquire(&self, cluster: &Arc<str>, user: &str) -> Result<ReviewPermit, QueueFull> {
        let semaphore = self.clusters.lock().semaphore(cluster);
        let permit = semaphore.acquire(user.into()).await?;
        Ok(ReviewPermit { _permit: permit, _semaphore: semaphore })
    }
}

impl ClusterSemaphores {
    fn semaphore(&mut self, cluster: &Arc<str>) -> FairSemaphore<Arc<str>> {
        if let Some(known) = self.semaphores.get(cluster).and_then(WeakFairSemaphore::upgrade) {
            return known;
        }
        if self.semaphores.len() >= self.sweep_at.max(MIN_SWEEP) {
            self.semaphores.retain(|_, semaphore| semaphore.upgrade().is_some());
            self.sweep_at = 2 * self.semaphores.len();
        }
        let semaphore = FairSemaphore::new(LIMITS);
        self.semaphores.insert(cluster.clone(), semaphore.downgrade());
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn unused_clusters_are_removed() {
        let limits = ReviewLimits::default();
        let _held = limits.acquire(&"held".into(), "jane").await.unwrap();
        for n in 0..10_000 {
            limits.acquire(&format!("made-up-{n}").into(), "jane").await.unwrap();
        }
        let clusters = limits.clusters.lock();
        assert!(clusters.semaphores.len() <= 2 * MIN_SWEEP && clusters.semaphores.contains_key("held"));
    }
}
