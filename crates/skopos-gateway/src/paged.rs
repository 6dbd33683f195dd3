//! The states at which paged lists stand, so that all pages of a list are of one state.

use std::collections::VecDeque;
use std::time::Duration;

use skopos_serve::{Allowance, Share};
use tokio::time::Instant;

/// States whose lists have pages to come, by version: for [`LAST`] since each was last asked for, and not more than a number
/// of them, of which the one that was used longest ago goes first.
///
/// A state costs nothing but the objects that were replaced since, unless it was never the newest one: then it costs all that it
/// has. That is counted, and where it is more than may be, what keeps most of it alive goes.
#[derive(Debug)]
pub(crate) struct Paged<V, S> {
    /// In the order in which they were last used.
    states: VecDeque<Kept<V, S>>,
    most: usize,
    /// How many bytes of objects were replaced so far.
    replaced: usize,
    /// What the states hold that nothing else does, about.
    held: Share,
}

#[derive(Debug)]
struct Kept<V, S> {
    version: V,
    state: S,
    used: Instant,
    /// How many bytes had been replaced when it was kept.
    replaced: usize,
    /// How many bytes it has that the newest state never had.
    own: usize,
}

/// What replacing an object copies of what holds the objects together, about.
const OVERHEAD: usize = 512;

/// Continue tokens are good for so long, as on an API server whose etcd is compacted every five minutes.
const LAST: Duration = Duration::from_secs(300);

// === impl Paged ===

impl<V: Copy + PartialEq, S: Clone> Paged<V, S> {
    /// None yet, and never more than `most`, nor more than there may be of `allowance`.
    pub(crate) fn new(most: usize, allowance: &Allowance) -> Self {
        Self { states: VecDeque::new(), most, replaced: 0, held: allowance.share() }
    }

    /// A list of this state has pages to come; so many bytes of it are its own, and not of the newest state. Gives what is let go
    /// for it: to be dropped without a lock, for it may be large.
    #[must_use]
    pub(crate) fn keep(&mut self, version: V, state: S, own: usize) -> Vec<S> {
        let mut gone = self.tidy();
        if self.get(version).is_none() {
            let (used, replaced) = (Instant::now(), self.replaced);
            self.states.push_back(Kept { version, state, used, replaced, own });
            if self.states.len() > self.most {
                gone.extend(self.states.pop_front().map(|kept| kept.state));
            }
        }
        gone.extend(self.relieve());
        gone
    }

    /// Objects of such sizes are not in the newest state any more (0: a new one is). Lets go, as [`keep`](Self::keep) does, of what
    /// holds too much.
    #[must_use]
    pub(crate) fn replaced(&mut self, sizes: impl IntoIterator<Item = usize>) -> Vec<S> {
        let bytes: usize = sizes.into_iter().map(|size| size + OVERHEAD).sum();
        self.replaced = self.replaced.wrapping_add(bytes);
        self.relieve()
    }

    /// The state of this version, which is kept for some time more.
    pub(crate) fn get(&mut self, version: V) -> Option<S> {
        let place = self.states.iter().position(|kept| kept.version == version && !kept.is_old())?;
        let mut kept = self.states.remove(place)?;
        kept.used = Instant::now();
        let state = kept.state.clone();
        self.states.push_back(kept);
        Some(state)
    }

    /// Lets go, as [`keep`](Self::keep) does, of those that nobody asked for in time: to be called now and then.
    #[must_use]
    pub(crate) fn tidy(&mut self) -> Vec<S> {
        let old = self.states.iter().take_while(|kept| kept.is_old()).count();
        let gone = self.states.drain(..old).map(|kept| kept.state).collect();
        self.measure();
        gone
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    /// How many bytes they hold that nothing else does, about.
    pub(crate) fn bytes(&self) -> usize {
        self.held.bytes()
    }

    /// Lets go of what holds too much.
    fn relieve(&mut self) -> Vec<S> {
        self.measure();
        let mut gone = Vec::new();
        while self.held.is_too_much()
            && let Some(place) = self.heaviest()
        {
            gone.extend(self.states.remove(place).map(|kept| kept.state));
            self.measure();
        }
        gone
    }

    /// What holds most. Of those that have something of their own, it is the turn of the one that was used longest ago, and not of
    /// the last of them: there would be no second page of what is too large.
    fn heaviest(&self) -> Option<usize> {
        let size = |place: &usize| self.size_of(&self.states[*place]);
        let (own, shared): (Vec<usize>, Vec<usize>) = (0..self.states.len())
            .filter(|place| size(place) > 0)
            .partition(|place| self.states[*place].own > 0);
        let own = own.first().filter(|_| own.len() > 1);
        own.into_iter().chain(&shared).copied().max_by_key(size)
    }

    /// The oldest of those that have nothing of their own has all that the others of them have, and more.
    fn measure(&mut self) {
        let own: usize = self.states.iter().map(|kept| kept.own).sum();
        let shared = self.states.iter().filter(|kept| kept.own == 0).map(|kept| self.size_of(kept)).max();
        self.held.set(own + shared.unwrap_or_default());
    }

    fn size_of(&self, kept: &Kept<V, S>) -> usize {
        if kept.own > 0 { kept.own } else { self.replaced.wrapping_sub(kept.replaced) }
    }
}

// === impl Kept ===

impl<V, S> Kept<V, S> {
    fn is_old(&self) -> bool {
        self.used.elapsed() >= LAST
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
    async fn who_goes_on_keeps_his_state_and_what_nobody_asks_for_goes() {
        let mut paged = Paged::new(3, &Allowance::unbounded());
        let state = Arc::new(1);
        assert!(paged.keep(1, state.clone(), 0).is_empty());
        assert!(paged.keep(2, Arc::new(2), 0).is_empty());
        for _ in 0..10 {
            tokio::time::advance(LAST - Duration::from_secs(1)).await;
            assert_eq!(paged.get(1).as_deref(), Some(&1), "asked for again and again");
        }
        assert_eq!((paged.get(2), paged.tidy().len(), versions(&paged)), (None, 1, vec![1]));
        // Others page, too: those that were used last stay.
        for other in 3..=20 {
            let gone = paged.keep(other, Arc::new(other), 0);
            assert_eq!((gone.len(), paged.get(1).is_some()), (usize::from(other > 4), true));
        }
        assert_eq!((versions(&paged), paged.len()), (vec![19, 20, 1], 3));
        // The second page of the same.
        assert!(paged.keep(19, Arc::new(0), 0).is_empty());
        assert_eq!((paged.get(19).as_deref(), paged.len()), (Some(&19), 3));
        tokio::time::advance(LAST).await;
        assert_eq!(paged.tidy().len(), 3);
        assert_eq!((paged.len(), Arc::strong_count(&state)), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_state_costs_what_was_replaced_since() {
        let allowance = Allowance::new(100_000);
        let (mut pods, mut maps) = (Paged::new(9, &allowance), Paged::new(9, &allowance));
        assert!(pods.replaced([60_000]).is_empty());
        assert_eq!(allowance.used(), 0, "nobody keeps it");
        let _ = (pods.keep(1, Arc::new(1), 0), maps.keep(1, Arc::new(1), 0));
        assert!(pods.replaced([30_000, 0]).is_empty());
        assert_eq!((pods.bytes(), maps.bytes()), (30_000 + 2 * OVERHEAD, 0));
        let _ = pods.keep(2, Arc::new(2), 0);
        assert!(maps.replaced([40_000]).is_empty());
        assert_eq!(allowance.used(), 70_000 + 3 * OVERHEAD);
        // The oldest gives way, and what it alone held is free.
        assert_eq!(pods.replaced([30_000]), [Arc::new(1)]);
        assert_eq!((versions(&pods), pods.bytes()), (vec![2], 30_000 + OVERHEAD));
        assert_eq!(maps.replaced([40_000]), [Arc::new(1)]);
        tokio::time::advance(LAST).await;
        assert_eq!((pods.tidy().len(), allowance.used()), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_state_that_was_never_the_newest_costs_all_that_it_has() {
        const NONE: [u64; 0] = [];
        let allowance = Allowance::new(100_000);
        let mut pods = Paged::new(9, &allowance);
        let keep = |pods: &mut Paged<u64, Arc<u64>>, version: u64, own| {
            let gone = pods.keep(version, Arc::new(version), own);
            gone.iter().map(|state| **state).collect::<Vec<_>>()
        };
        for version in 1..=3 {
            assert_eq!(keep(&mut pods, version, 30_000), NONE);
            assert_eq!(pods.bytes(), 30_000 * version as usize);
        }
        assert_eq!(keep(&mut pods, 3, 30_000), NONE, "the second page of the same");
        // What is replaced in the newest state they never had.
        assert_eq!(keep(&mut pods, 4, 0), NONE);
        assert!(pods.replaced([5_000]).is_empty());
        assert_eq!(pods.bytes(), 95_000 + OVERHEAD);
        // The one that was used longest ago gives way, and not the newest, which may be larger.
        assert!(pods.get(1).is_some());
        assert_eq!(keep(&mut pods, 5, 31_000), [2]);
        assert_eq!(keep(&mut pods, 6, 200_000), [3, 1, 5, 4]);
        assert_eq!(keep(&mut pods, 7, 0), NONE);
        assert_eq!((versions(&pods), allowance.used()), (vec![6, 7], 200_000), "one can be read to its end");
        assert_eq!(pods.replaced([10]), [Arc::new(7)]);
        assert_eq!(keep(&mut pods, 8, 10_000), [6]);
        assert_eq!(allowance.used(), 10_000);
    }
}
