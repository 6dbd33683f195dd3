//! Snapshots for paged lists, so that all pages of a list show the same state.

use std::collections::VecDeque;
use std::time::Duration;

use skopos_serve::{MemoryBudget, Reservation};
use tokio::time::Instant;

/// Snapshots of lists with pages to come, by version. Each is kept for [`SNAPSHOT_TTL`] after its last use. Beyond a
/// maximum number the least recently used one is dropped.
///
/// A snapshot costs only the objects replaced since, unless it was never the newest state: then it costs all its objects. The
/// cost is counted, and beyond the budget the most expensive snapshots are dropped.
#[derive(Debug)]
pub(crate) struct Paged<V, S> {
    /// The snapshots, in order of last use.
    states: VecDeque<PagedSnapshot<V, S>>,
    max_states: usize,
    /// The number of bytes of objects replaced so far.
    replaced: usize,
    /// The approximate number of bytes held by the snapshots alone.
    held: Reservation,
}

#[derive(Debug)]
struct PagedSnapshot<V, S> {
    version: V,
    state: S,
    used: Instant,
    /// The number of bytes replaced before it was kept.
    replaced: usize,
    /// The number of bytes that the newest state never had.
    own: usize,
}

/// The approximate overhead of a replaced object: the copied part of the index.
const REPLACED_OVERHEAD: usize = 512;

/// The lifetime of a continue token, as on an API server whose etcd is compacted every five minutes.
const SNAPSHOT_TTL: Duration = Duration::from_secs(300);

impl<V: Copy + PartialEq, S: Clone> Paged<V, S> {
    /// Creates an empty set of at most `max_states` snapshots, within `budget`.
    pub(crate) fn new(max_states: usize, budget: &MemoryBudget) -> Self {
        Self { states: VecDeque::new(), max_states, replaced: 0, held: budget.share() }
    }

    /// Keeps the snapshot of a list with pages to come; `own` bytes of it are not in the newest state. Returns the snapshots
    /// dropped for it. The caller must drop them without a lock, because they may be large.
    #[must_use]
    pub(crate) fn keep(&mut self, version: V, state: S, own: usize) -> Vec<S> {
        let mut gone = self.tidy();
        if self.get(version).is_none() {
            let (used, replaced) = (Instant::now(), self.replaced);
            self.states.push_back(PagedSnapshot { version, state, used, replaced, own });
            if self.states.len() > self.max_states {
                gone.extend(self.states.pop_front().map(|kept| kept.state));
            }
        }
        gone.extend(self.relieve());
        gone
    }

    /// Records that objects of these sizes are no longer in the newest state (0: a new object). Returns dropped snapshots, as
    /// [`keep`](Self::keep) does.
    #[must_use]
    pub(crate) fn replaced(&mut self, sizes: impl IntoIterator<Item = usize>) -> Vec<S> {
        let bytes: usize = sizes.into_iter().map(|size| size + REPLACED_OVERHEAD).sum();
        self.replaced = self.replaced.wrapping_add(bytes);
        self.relieve()
    }

    /// Returns the snapshot of this version, and extends its lifetime.
    pub(crate) fn get(&mut self, version: V) -> Option<S> {
        let place = self.states.iter().position(|kept| kept.version == version && !kept.is_old())?;
        let mut kept = self.states.remove(place)?;
        kept.used = Instant::now();
        let state = kept.state.clone();
        self.states.push_back(kept);
        Some(state)
    }

    /// Returns the snapshots that have expired, as [`keep`](Self::keep) does. To be called now and then.
    #[must_use]
    pub(crate) fn tidy(&mut self) -> Vec<S> {
        let old = self.states.iter().take_while(|kept| kept.is_old()).count();
        let gone = self.states.drain(..old).map(|kept| kept.state).collect();
        self.measure();
        gone
    }

    /// Returns the number of snapshots.
    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    /// Returns the approximate number of bytes held by the snapshots alone.
    pub(crate) fn bytes(&self) -> usize {
        self.held.bytes()
    }

    /// Returns snapshots dropped to stay within the budget.
    fn relieve(&mut self) -> Vec<S> {
        self.measure();
        let mut gone = Vec::new();
        while self.held.is_exceeded()
            && let Some(place) = self.heaviest()
        {
            gone.extend(self.states.remove(place).map(|kept| kept.state));
            self.measure();
        }
        gone
    }

    /// Returns the most expensive snapshot. Of those with bytes of their own, only the least recently used is a candidate, and
    /// never the last one: otherwise a very large list would never get its second page.
    fn heaviest(&self) -> Option<usize> {
        let size = |place: &usize| self.size_of(&self.states[*place]);
        let (own, shared): (Vec<usize>, Vec<usize>) = (0..self.states.len())
            .filter(|place| size(place) > 0)
            .partition(|place| self.states[*place].own > 0);
        let own = own.first().filter(|_| own.len() > 1);
        own.into_iter().chain(&shared).copied().max_by_key(size)
    }

    /// Measures the cost. The oldest snapshot without bytes of its own includes all that the other such snapshots hold.
    fn measure(&mut self) {
        let own: usize = self.states.iter().map(|kept| kept.own).sum();
        let shared = self.states.iter().filter(|kept| kept.own == 0).map(|kept| self.size_of(kept)).max();
        self.held.set(own + shared.unwrap_or_default());
    }

    fn size_of(&self, kept: &PagedSnapshot<V, S>) -> usize {
        if kept.own > 0 { kept.own } else { self.replaced.wrapping_sub(kept.replaced) }
    }
}

impl<V, S> PagedSnapshot<V, S> {
    fn is_old(&self) -> bool {
        self.used.elapsed() >= SNAPSHOT_TTL
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn versions(paged: &Paged<u64, Arc<u64>>) -> Vec<u64> {
        paged.states.iter().map(|kept| kept.version).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn used_snapshot_stays_and_unused_expires() {
        let mut paged = Paged::new(3, &MemoryBudget::unbounded());
        let state = Arc::new(1);
        assert!(paged.keep(1, state.clone(), 0).is_empty());
        assert!(paged.keep(2, Arc::new(2), 0).is_empty());
        for _ in 0..10 {
            tokio::time::advance(SNAPSHOT_TTL - Duration::from_secs(1)).await;
            assert_eq!(paged.get(1).as_deref(), Some(&1), "asked for again and again");
        }
        assert_eq!((paged.get(2), paged.tidy().len(), versions(&paged)), (None, 1, vec![1]));
        // Other lists have pages too; the most recently used snapshots stay.
        for other in 3..=20 {
            let gone = paged.keep(other, Arc::new(other), 0);
            assert_eq!((gone.len(), paged.get(1).is_some()), (usize::from(other > 4), true));
        }
        assert_eq!((versions(&paged), paged.len()), (vec![19, 20, 1], 3));
        // The second page of the same list.
        assert!(paged.keep(19, Arc::new(0), 0).is_empty());
        assert_eq!((paged.get(19).as_deref(), paged.len()), (Some(&19), 3));
        tokio::time::advance(SNAPSHOT_TTL).await;
        assert_eq!(paged.tidy().len(), 3);
        assert_eq!((paged.len(), Arc::strong_count(&state)), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn snapshot_costs_bytes_replaced_since() {
        let budget = MemoryBudget::new(100_000);
        let (mut pods, mut maps) = (Paged::new(9, &budget), Paged::new(9, &budget));
        assert!(pods.replaced([60_000]).is_empty());
        assert_eq!(budget.used(), 0, "no request keeps it");
        let _ = (pods.keep(1, Arc::new(1), 0), maps.keep(1, Arc::new(1), 0));
        assert!(pods.replaced([30_000, 0]).is_empty());
        assert_eq!((pods.bytes(), maps.bytes()), (30_000 + 2 * REPLACED_OVERHEAD, 0));
        let _ = pods.keep(2, Arc::new(2), 0);
        assert!(maps.replaced([40_000]).is_empty());
        assert_eq!(budget.used(), 70_000 + 3 * REPLACED_OVERHEAD);
        // The oldest is dropped, and its bytes are free.
        assert_eq!(pods.replaced([30_000]), [Arc::new(1)]);
        assert_eq!((versions(&pods), pods.bytes()), (vec![2], 30_000 + REPLACED_OVERHEAD));
        assert_eq!(maps.replaced([40_000]), [Arc::new(1)]);
        tokio::time::advance(SNAPSHOT_TTL).await;
        assert_eq!((pods.tidy().len(), budget.used()), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn never_current_snapshot_costs_full_size() {
        const NONE: [u64; 0] = [];
        let budget = MemoryBudget::new(100_000);
        let mut pods = Paged::new(9, &budget);
        let keep = |pods: &mut Paged<u64, Arc<u64>>, version: u64, own| {
            let gone = pods.keep(version, Arc::new(version), own);
            gone.iter().map(|state| **state).collect::<Vec<_>>()
        };
        for version in 1..=3 {
            assert_eq!(keep(&mut pods, version, 30_000), NONE);
            assert_eq!(pods.bytes(), 30_000 * version as usize);
        }
        assert_eq!(keep(&mut pods, 3, 30_000), NONE, "the second page of the same");
        // These snapshots never had the objects replaced in the newest state.
        assert_eq!(keep(&mut pods, 4, 0), NONE);
        assert!(pods.replaced([5_000]).is_empty());
        assert_eq!(pods.bytes(), 95_000 + REPLACED_OVERHEAD);
        // The least recently used is dropped, not the newest, which may be larger.
        assert!(pods.get(1).is_some());
        assert_eq!(keep(&mut pods, 5, 31_000), [2]);
        assert_eq!(keep(&mut pods, 6, 200_000), [3, 1, 5, 4]);
        assert_eq!(keep(&mut pods, 7, 0), NONE);
        assert_eq!((versions(&pods), budget.used()), (vec![6, 7], 200_000), "one can be read to its end");
        assert_eq!(pods.replaced([10]), [Arc::new(7)]);
        assert_eq!(keep(&mut pods, 8, 10_000), [6]);
        assert_eq!(budget.used(), 10_000);
    }
}
