//! How many watches a caller may have.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use skopos_wire::Status;

use crate::auth::Identity;

/// Counts the watches of each caller. Cheap to clone.
#[derive(Clone, Debug)]
pub struct WatchLimiter {
    shared: Arc<Shared>,
}

/// The place of one watch: free again when dropped.
#[derive(Debug)]
pub struct WatchPermit {
    shared: Arc<Shared>,
    user: Arc<str>,
}

#[derive(Debug)]
struct Shared {
    most: u32,
    open: Mutex<HashMap<Arc<str>, u32>>,
}

// === impl WatchLimiter ===

impl WatchLimiter {
    /// At most so many for each user.
    #[must_use]
    pub fn new(most: u32) -> Self {
        Self { shared: Arc::new(Shared { most, open: Mutex::default() }) }
    }

    /// Takes a place for a watch.
    ///
    /// # Errors
    /// 429 when the caller has as many as allowed.
    pub fn enter(&self, who: &Identity) -> Result<WatchPermit, Status> {
        let mut open = self.shared.open.lock();
        let user: Arc<str> = match open.get_key_value(who.user.as_str()) {
            Some((user, count)) if *count >= self.shared.most => {
                let message = format!("{user} has {count} watches open, which is as many as allowed");
                return Err(Status::too_many_requests(message, 10));
            }
            Some((user, _)) => user.clone(),
            None => who.user.as_str().into(),
        };
        *open.entry(user.clone()).or_default() += 1;
        Ok(WatchPermit { shared: self.shared.clone(), user })
    }

    /// Watches that are open now.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.shared.open.lock().values().map(|count| u64::from(*count)).sum()
    }
}

// === impl WatchPermit ===

impl Drop for WatchPermit {
    fn drop(&mut self) {
        let mut open = self.shared.open.lock();
        if let Some(count) = open.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caller_has_so_many_places_and_gets_them_back() {
        let limiter = WatchLimiter::new(2);
        let (jane, joe) = (Identity::authenticated("jane", []), Identity::authenticated("joe", []));
        let first = limiter.enter(&jane).unwrap();
        let _second = limiter.enter(&jane).unwrap();
        let refused = limiter.enter(&jane).unwrap_err();
        assert_eq!((refused.code, refused.retry_after_seconds()), (429, Some(10)));
        let joes = limiter.enter(&joe).unwrap();
        drop(first);
        let third = limiter.enter(&jane).unwrap();
        assert_eq!(limiter.open(), 3);
        drop((third, joes));
        assert_eq!(limiter.shared.open.lock().len(), 1);
    }
}
