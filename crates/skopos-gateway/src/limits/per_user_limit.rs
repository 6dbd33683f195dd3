//! Per-caller limits on open watches and streams.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use skopos_wire::Status;

use crate::auth::Identity;

/// Counters of the open watches or streams of each caller. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PerUserLimit {
    shared: Arc<LimitInner>,
}

/// The permit of one watch or stream, returned when dropped.
#[derive(Debug)]
pub struct Permit {
    shared: Arc<LimitInner>,
    user: Arc<str>,
}

#[derive(Debug)]
struct LimitInner {
    what: &'static str,
    max: u32,
    open: Mutex<HashMap<Arc<str>, u32>>,
}

impl PerUserLimit {
    /// Creates a limit of `max` for each user; `what` names the counted things in the plural.
    pub fn new(what: &'static str, max: u32) -> Self {
        Self { shared: Arc::new(LimitInner { what, max, open: Mutex::default() }) }
    }

    /// Returns the same counters if the limit has not changed, otherwise new ones.
    #[must_use]
    pub fn renewed(&self, max: u32) -> Self {
        if max == self.shared.max { self.clone() } else { Self::new(self.shared.what, max) }
    }

    /// Takes a permit.
    ///
    /// # Errors
    /// 429 if the caller has as many as allowed.
    pub fn acquire(&self, who: &Identity) -> Result<Permit, Status> {
        let who = who.caller();
        let mut open = self.shared.open.lock();
        let user: Arc<str> = match open.get_key_value(who.user.as_str()) {
            Some((user, count)) if *count >= self.shared.max => {
                let what = self.shared.what;
                let message = format!("{user} has {count} {what} open, which is as many as allowed");
                return Err(Status::too_many_requests(message, 10));
            }
            Some((user, _)) => user.clone(),
            None => who.user.as_str().into(),
        };
        *open.entry(user.clone()).or_default() += 1;
        Ok(Permit { shared: self.shared.clone(), user })
    }

    /// Returns the number of permits in use, of all callers.
    pub fn open(&self) -> u64 {
        self.shared.open.lock().values().map(|count| u64::from(*count)).sum()
    }
}

impl Drop for Permit {
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
    fn limits_permits_per_caller_and_returns_them() {
        let limiter = PerUserLimit::new("watches", 2);
        let (jane, joe) = (Identity::authenticated("jane", []), Identity::authenticated("joe", []));
        let first = limiter.acquire(&jane).unwrap();
        let _second = limiter.acquire(&jane).unwrap();
        let refused = limiter.acquire(&jane).unwrap_err();
        assert_eq!((refused.code, refused.retry_after_seconds()), (429, Some(10)));
        let joes = limiter.acquire(&joe).unwrap();
        drop(first);
        let third = limiter.acquire(&jane).unwrap();
        assert_eq!(limiter.open(), 3);
        drop((third, joes));
        assert_eq!(limiter.shared.open.lock().len(), 1);
    }
}
