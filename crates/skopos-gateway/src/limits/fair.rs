//! A semaphore that is fair between its users. When it is full, free permits go to the waiting users in turn.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// A semaphore shared by users with keys. Cheap to clone.
///
/// A key has at most `per_key` permits, and at most `queue` acquisitions that wait. A free permit goes to the key whose turn it
/// is, so a key with a thousand waiting acquisitions delays another by one permit.
pub(crate) struct FairSemaphore<K: Hash + Eq + Clone>(Arc<SemaphoreInner<K>>);

/// A handle that does not keep the semaphore alive.
pub(crate) struct WeakFairSemaphore<K: Hash + Eq + Clone>(Weak<SemaphoreInner<K>>);

/// A permit of a [`FairSemaphore`], given back when dropped.
pub(crate) struct FairPermit<K: Hash + Eq + Clone> {
    shared: Arc<SemaphoreInner<K>>,
    key: K,
}

/// The bounds of a [`FairSemaphore`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct FairLimits {
    /// Permits in all.
    pub(crate) permits: usize,
    /// Permits of one key.
    pub(crate) per_key: usize,
    /// Waiting acquisitions of one key.
    pub(crate) queue: usize,
}

/// The refusal of an acquisition: the key has as many waiting acquisitions as permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many acquisitions are waiting")]
pub(crate) struct QueueFull;

struct SemaphoreInner<K: Hash + Eq + Clone> {
    limits: FairLimits,
    state: Mutex<State<K>>,
}

struct State<K: Hash + Eq + Clone> {
    held: usize,
    users: HashMap<K, User<K>>,
    /// Keys with waiting acquisitions, the next one first.
    queue_order: VecDeque<K>,
}

struct User<K: Hash + Eq + Clone> {
    held: usize,
    /// True if the key is in `queue_order`.
    has_turn: bool,
    waiting: VecDeque<oneshot::Sender<FairPermit<K>>>,
}

enum Entered<K: Hash + Eq + Clone> {
    Held,
    Waiting(oneshot::Receiver<FairPermit<K>>),
}

impl<K: Hash + Eq + Clone> FairSemaphore<K> {
    pub(crate) fn new(limits: FairLimits) -> Self {
        let state = State { held: 0, users: HashMap::new(), queue_order: VecDeque::new() };
        Self(Arc::new(SemaphoreInner { limits, state: Mutex::new(state) }))
    }

    /// Waits for a permit. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// At once if the key has too many waiting acquisitions.
    pub(crate) async fn acquire(&self, key: K) -> Result<FairPermit<K>, QueueFull> {
        match self.0.enter(&key)? {
            Entered::Held => Ok(FairPermit { shared: self.0.clone(), key }),
            // The queue keeps the sender until it has sent.
            Entered::Waiting(permit) => permit.await.map_err(|_| QueueFull),
        }
    }

    pub(crate) fn downgrade(&self) -> WeakFairSemaphore<K> {
        WeakFairSemaphore(Arc::downgrade(&self.0))
    }
}

impl<K: Hash + Eq + Clone> Clone for FairSemaphore<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Hash + Eq + Clone> WeakFairSemaphore<K> {
    pub(crate) fn upgrade(&self) -> Option<FairSemaphore<K>> {
        self.0.upgrade().map(FairSemaphore)
    }
}

impl<K: Hash + Eq + Clone> Drop for FairPermit<K> {
    fn drop(&mut self) {
        self.shared.leave(&self.key);
    }
}

impl<K: Hash + Eq + Clone> SemaphoreInner<K> {
    fn enter(&self, key: &K) -> Result<Entered<K>, QueueFull> {
        let mut state = self.state.lock();
        let State { held, users, queue_order } = &mut *state;
        let user = users.entry(key.clone()).or_insert_with(User::new);
        if *held < self.limits.permits && user.held < self.limits.per_key && user.waiting.is_empty() {
            *held += 1;
            user.held += 1;
            return Ok(Entered::Held);
        }
        if user.waiting.len() >= self.limits.queue {
            user.waiting.retain(|waiting| !waiting.is_closed());
        }
        if user.waiting.len() >= self.limits.queue {
            return Err(QueueFull);
        }
        if !std::mem::replace(&mut user.has_turn, true) {
            queue_order.push_back(key.clone());
        }
        let (permit, waiting) = oneshot::channel();
        user.waiting.push_back(permit);
        Ok(Entered::Waiting(waiting))
    }

    /// Returns a permit, and gives free ones to the keys whose turn it is.
    fn leave(self: &Arc<Self>, key: &K) {
        let mut state = self.state.lock();
        state.held -= 1;
        if let Some(user) = state.users.get_mut(key) {
            user.held -= 1;
            if user.is_idle() {
                state.users.remove(key);
            }
        }
        let mut given = Vec::new();
        while state.held < self.limits.permits {
            let Some((key, waiting)) = state.next(self.limits.per_key) else { break };
            given.push((waiting, FairPermit { shared: self.clone(), key }));
        }
        drop(state);
        for (waiting, permit) in given {
            // If the waiter has gone in the meantime, dropping the permit returns it.
            let _ = waiting.send(permit);
        }
    }
}

impl<K: Hash + Eq + Clone> State<K> {
    /// Takes the next waiting acquisition of a key that may have another permit, and counts the permit.
    fn next(&mut self, per_key: usize) -> Option<(K, oneshot::Sender<FairPermit<K>>)> {
        for _ in 0..self.queue_order.len() {
            let key = self.queue_order.pop_front()?;
            let user = self.users.get_mut(&key)?;
            while user.waiting.front().is_some_and(oneshot::Sender::is_closed) {
                user.waiting.pop_front();
            }
            let waiting = if user.held < per_key { user.waiting.pop_front() } else { None };
            user.has_turn = !user.waiting.is_empty();
            if user.has_turn {
                self.queue_order.push_back(key.clone());
            }
            match waiting {
                Some(waiting) => {
                    user.held += 1;
                    self.held += 1;
                    return Some((key, waiting));
                }
                None if user.is_idle() => drop(self.users.remove(&key)),
                None => {}
            }
        }
        None
    }
}

impl<K: Hash + Eq + Clone> User<K> {
    fn new() -> Self {
        Self { held: 0, has_turn: false, waiting: VecDeque::new() }
    }

    fn is_idle(&self) -> bool {
        self.held == 0 && !self.has_turn
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::future::join_all;
    use tokio::time::{Instant, sleep, timeout};

    use super::*;

    fn semaphore(permits: usize, per_key: usize, queue: usize) -> FairSemaphore<&'static str> {
        FairSemaphore::new(FairLimits { permits, per_key, queue })
    }

    /// Holds a permit for a second; returns the time until it was returned.
    async fn work(semaphore: &FairSemaphore<&'static str>, key: &'static str) -> Option<Duration> {
        let begun = Instant::now();
        let _permit = semaphore.acquire(key).await.ok()?;
        sleep(Duration::from_secs(1)).await;
        Some(begun.elapsed())
    }

    fn is_empty(semaphore: &FairSemaphore<&'static str>) -> bool {
        let state = semaphore.0.state.lock();
        state.held == 0 && state.users.is_empty() && state.queue_order.is_empty()
    }

    #[tokio::test(start_paused = true)]
    async fn busy_key_delays_others_by_one_permit() {
        let semaphore = semaphore(2, 2, 1000);
        let busy = join_all((0..100).map(|_| work(&semaphore, "busy")));
        let other = async {
            sleep(Duration::from_millis(10)).await;
            work(&semaphore, "other").await
        };
        let (busy, other) = tokio::join!(busy, other);
        assert!(other.unwrap() <= Duration::from_secs(2), "{other:?}");
        assert_eq!(busy.iter().flatten().max(), Some(&Duration::from_secs(51)));
        assert!(is_empty(&semaphore));
    }

    #[tokio::test(start_paused = true)]
    async fn key_has_own_bound_and_others_use_rest() {
        let semaphore = semaphore(4, 2, 1000);
        let busy = join_all((0..10).map(|_| work(&semaphore, "busy")));
        let others = join_all(["a", "b"].map(|key| work(&semaphore, key)));
        let (busy, others) = tokio::join!(busy, others);
        assert_eq!(others, [Some(Duration::from_secs(1)); 2]);
        assert_eq!(busy.iter().flatten().max(), Some(&Duration::from_secs(5)));
        assert!(is_empty(&semaphore));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_refuses_its_own_key_alone() {
        let semaphore = semaphore(1, 1, 3);
        let busy = join_all((0..10).map(|_| work(&semaphore, "busy")));
        let (busy, other) = tokio::join!(busy, work(&semaphore, "other"));
        assert_eq!(busy.iter().flatten().count(), 4);
        assert!(other.is_some() && is_empty(&semaphore));
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_acquisitions_leave_nothing_behind() {
        let semaphore = semaphore(1, 1, 3);
        let held = semaphore.acquire("a").await.unwrap();
        for _ in 0..100 {
            for key in ["a", "b", "c"] {
                assert!(timeout(Duration::from_millis(1), semaphore.acquire(key)).await.is_err());
            }
        }
        drop(held);
        assert!(is_empty(&semaphore));
        assert!(semaphore.acquire("b").await.is_ok());
        // The acquisition is cancelled while its permit arrives.
        let held = semaphore.acquire("a").await.unwrap();
        let mut waiting = Box::pin(semaphore.acquire("b"));
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(held);
        drop(waiting);
        assert!(is_empty(&semaphore));
    }
}
