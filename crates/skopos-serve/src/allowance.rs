//! Bytes that several share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many bytes for all who share them. Clones are the same allowance.
///
/// It refuses nothing: who takes what is needed looks then whether there is too much, and gives back what it can do without.
#[derive(Clone, Debug)]
pub struct Allowance(Arc<Bytes>);

/// What one of those who share an [`Allowance`] holds of it; given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    of: Allowance,
    bytes: usize,
}

#[derive(Debug)]
struct Bytes {
    most: usize,
    used: AtomicUsize,
}

// === impl Allowance ===

impl Allowance {
    /// So many bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Bytes { most, used: AtomicUsize::new(0) }))
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
