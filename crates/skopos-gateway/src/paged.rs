//! The states at which paged lists stand, so that all pages of a list are of one state.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// States whose lists have pages to come, by version: for [`LAST`] since each was last asked for, and not more than a number
/// of them, of which the one that was used longest ago goes first.
#[derive(Debug)]
pub(crate) struct Paged<V, S> {
    /// In the order in which they were last used.
    states: VecDeque<Kept<V, S>>,
    most: usize,
}

#[derive(Debug)]
struct Kept<V, S> {
    version: V,
    state: S,
    used: Instant,
}

/// Continue tokens are good for so long, as on an API server whose etcd is compacted every five minutes.
const LAST: Duration = Duration::from_secs(300);

// === impl Paged ===

impl<V: Copy + PartialEq, S: Clone> Paged<V, S> {
    /// None yet, and never more than `most`.
    pub(crate) fn new(most: usize) -> Self {
        Self { states: VecDeque::new(), most }
    }

    /// A list of this state has pages to come. Gives what is let go for it: to be dropped without a lock, for it may be large.
    #[must_use]
    pub(crate) fn keep(&mut self, version: V, state: S) -> Vec<S> {
        let mut gone = self.tidy();
        if self.get(version).is_none() {
            self.states.push_back(Kept { version, state, used: Instant::now() });
            if self.states.len() > self.most {
                gone.extend(self.states.pop_front().map(|kept| kept.state));
            }
        }
        gone
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
        self.states.drain(..old).map(|kept| kept.state).collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.states.len()
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
        let mut paged = Paged::new(3);
        let state = Arc::new(1);
        assert!(paged.keep(1, state.clone()).is_empty());
        assert!(paged.keep(2, Arc::new(2)).is_empty());
        for _ in 0..10 {
            tokio::time::advance(LAST - Duration::from_secs(1)).await;
            assert_eq!(paged.get(1).as_deref(), Some(&1), "asked for again and again");
        }
        assert_eq!((paged.get(2), paged.tidy().len(), versions(&paged)), (None, 1, vec![1]));
        // Others page, too: those that were used last stay.
        for other in 3..=20 {
            let gone = paged.keep(other, Arc::new(other));
            assert_eq!((gone.len(), paged.get(1).is_some()), (usize::from(other > 4), true));
        }
        assert_eq!((versions(&paged), paged.len()), (vec![19, 20, 1], 3));
        // The second page of the same.
        assert!(paged.keep(19, Arc::new(0)).is_empty());
        assert_eq!((paged.get(19).as_deref(), paged.len()), (Some(&19), 3));
        tokio::time::advance(LAST).await;
        assert_eq!(paged.tidy().len(), 3);
        assert_eq!((paged.len(), Arc::strong_count(&state)), (0, 1));
    }
}
