//! Byte budget shared by several holders.

use std::any::Any;
use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Byte budget shared by several holders. Clones share one budget.
///
/// It refuses nothing: a holder takes what it needs and then checks whether the total exceeds the limit. Either the holder gives
/// back what it can do without ([`Reservation::is_exceeded`]), or the budget evicts from its registered holders. The holder with the
/// most bytes is evicted first, so one large holder costs the others nothing.
#[derive(Clone, Debug)]
pub struct MemoryBudget(Arc<Inner>);

/// One holder's bytes of a [`MemoryBudget`], given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: MemoryBudget,
    bytes: usize,
}

/// A holder whose oldest contents can be evicted at any time.
pub(crate) trait Evictable: Send + Sync {
    /// Returns the bytes held and the time of the oldest content; `None` if it holds nothing.
    fn usage(&self) -> Option<(usize, Instant)>;

    /// Evicts `bytes` bytes or slightly more, the oldest first and nothing younger than `youngest`. Returns what the
    /// caller must drop outside of every lock, for it may be much.
    fn evict(&self, bytes: usize, youngest: Instant) -> Box<dyn Any>;
}

#[derive(Debug)]
struct Inner {
    limit: usize,
    used: AtomicUsize,
    evictables: Mutex<Vec<Weak<dyn Evictable>>>,
}

/// Age after which content is evicted first, whichever holder has it: every watcher that keeps up has read it.
const EVICT_FIRST_AGE: Duration = Duration::from_secs(1);

/// Divisor of the limit: a 32nd of it is evicted beyond the excess, from content older than [`EVICT_FIRST_AGE`]. So not each
/// event has to search for a holder to evict from.
const RECLAIM_DIVISOR: usize = 32;

impl MemoryBudget {
    /// Creates a budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Inner { limit, used: AtomicUsize::new(0), evictables: Mutex::default() }))
    }

    /// Creates a budget without a limit.
    pub fn unbounded() -> Self {
        Self::new(usize::MAX)
    }

    /// Creates an empty reservation.
    pub fn share(&self) -> Reservation {
        Reservation { budget: self.clone(), bytes: 0 }
    }

    /// Returns the bytes that all holders have together.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Registers a holder for eviction. What it holds must be counted in a [`Reservation`].
    pub(crate) fn register(&self, evictable: Weak<dyn Evictable>) {
        let mut evictables = self.0.evictables.lock();
        evictables.retain(|known| known.strong_count() > 0);
        evictables.push(evictable);
    }

    /// Evicts from the largest holders until the total is within the limit. The caller must hold no lock that a holder takes.
    pub(crate) fn reclaim(&self) {
        let limit = self.0.limit;
        if self.used() <= limit {
            return;
        }
        // Declared before the lock, so dropped after it is released.
        let (mut evicted, mut known) = (Vec::new(), Vec::new());
        let evictables = self.0.evictables.lock();
        known.extend(evictables.iter().filter_map(Weak::upgrade));
        let now = Instant::now();
        for (age, goal) in [(EVICT_FIRST_AGE, limit - limit / RECLAIM_DIVISOR), (Duration::ZERO, limit)] {
            let Some(youngest) = now.checked_sub(age) else { continue };
            while let Some(excess) = self.used().checked_sub(goal).filter(|excess| *excess > 0) {
                let held = known.iter().filter_map(|evictable| Some((evictable, evictable.usage()?)));
                let old = held.filter(|(_, (_, oldest))| *oldest <= youngest);
                let largest = old.max_by_key(|(_, (bytes, oldest))| (*bytes, Reverse(*oldest)));
                let Some((evictable, (bytes, _))) = largest else { break };
                // At most half, because another holder may be the largest afterwards.
                evicted.push(evictable.evict(excess.min(bytes / 2).max(1), youngest));
            }
        }
    }
}

impl Reservation {
    /// Returns the bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the bytes held.
    pub fn set(&mut self, bytes: usize) {
        let used = &self.budget.0.used;
        if bytes >= self.bytes {
            used.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }

    /// Returns whether the total exceeds the limit and this reservation is not empty.
    pub fn is_exceeded(&self) -> bool {
        self.bytes > 0 && self.budget.used() > self.budget.0.limit
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.set(0);
    }
}
