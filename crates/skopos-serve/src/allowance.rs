//! Bytes that several share.

use std::any::Any;
use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// So many bytes for all who share them. Clones are the same allowance.
///
/// It refuses nothing: who takes what is needed looks then whether there is too much. Either he gives back what he himself can do
/// without ([`Share::is_too_much`]), or all are asked who hold something that can be taken from them: the one who holds most gives
/// way, so that one who needs a lot costs the others nothing of their part.
#[derive(Clone, Debug)]
pub struct Allowance(Arc<Pool>);

/// What one of those who share an [`Allowance`] holds of it; given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    of: Allowance,
    bytes: usize,
}

/// Who holds what can be taken away at any time, the oldest first.
pub(crate) trait Holder: Send + Sync {
    /// How many bytes, and since when the oldest of it is there; `None` if it is nothing.
    fn holds(&self) -> Option<(usize, Instant)>;

    /// Lets go of the oldest, of so many bytes or a little more, and of nothing younger than `youngest`. Gives what is to be
    /// dropped where no lock is held, for it may be much.
    fn let_go(&self, bytes: usize, youngest: Instant) -> Box<dyn Any>;
}

#[derive(Debug)]
struct Pool {
    most: usize,
    used: AtomicUsize,
    holders: Mutex<Vec<Weak<dyn Holder>>>,
}

/// What is so old was read by all who keep up: it goes before anything that is younger, whoever holds that.
const READ: Duration = Duration::from_secs(1);

/// Of what is so old, a part more than has to goes at once, so that not each event has one sought who gives way.
const SLACK: usize = 32;

// === impl Allowance ===

impl Allowance {
    /// So many bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Pool { most, used: AtomicUsize::new(0), holders: Mutex::default() }))
    }

    /// More than anybody has.
    #[must_use]
    pub fn unbounded() -> Self {
        Self::new(usize::MAX)
    }

    /// Nothing yet, for one who shares it.
    #[must_use]
    pub fn share(&self) -> Share {
        Share { of: self.clone(), bytes: 0 }
    }

    /// How many bytes all hold together.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// From now on, this one is asked too where there is too much. What it holds is to be in a [`Share`].
    pub(crate) fn enlist(&self, holder: Weak<dyn Holder>) {
        let mut holders = self.0.holders.lock();
        holders.retain(|known| known.strong_count() > 0);
        holders.push(holder);
    }

    /// Has those who hold most let go until there is not too much. To be called with no lock held that one of them takes.
    pub(crate) fn relieve(&self) {
        let most = self.0.most;
        if self.used() <= most {
            return;
        }
        // Dropped behind the lock.
        let (mut gone, mut known) = (Vec::new(), Vec::new());
        let holders = self.0.holders.lock();
        known.extend(holders.iter().filter_map(Weak::upgrade));
        let now = Instant::now();
        for (age, goal) in [(READ, most - most / SLACK), (Duration::ZERO, most)] {
            let Some(youngest) = now.checked_sub(age) else { continue };
            while let Some(excess) = self.used().checked_sub(goal).filter(|excess| *excess > 0) {
                let held = known.iter().filter_map(|holder| Some((holder, holder.holds()?)));
                let old = held.filter(|(_, (_, oldest))| *oldest <= youngest);
                let largest = old.max_by_key(|(_, (bytes, oldest))| (*bytes, Reverse(*oldest)));
                let Some((holder, (bytes, _))) = largest else { break };
                // No more than half, for then somebody else may be the one who holds most.
                gone.push(holder.let_go(excess.min(bytes / 2).max(1), youngest));
            }
        }
    }
}

// === impl Share ===

impl Share {
    /// How many bytes it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// It holds so many bytes now.
    pub fn set(&mut self, bytes: usize) {
        let used = &self.of.0.used;
        if bytes >= self.bytes {
            used.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }

    /// Whether all hold more than they may, and this one holds some of it.
    #[must_use]
    pub fn is_too_much(&self) -> bool {
        self.bytes > 0 && self.of.used() > self.of.0.most
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}
