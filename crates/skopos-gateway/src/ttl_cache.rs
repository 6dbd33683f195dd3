//! Short-lived cache of answers. Concurrent callers with the same key share one request.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use tokio::time::Instant;

/// A cache of answers by key, with a bound on their number.
pub(crate) struct TtlCache<K, V> {
    max_entries: usize,
    max_duration: Duration,
    inner: Mutex<Inner<K, V>>,
}

/// The result of a request.
#[derive(Clone, Debug)]
pub(crate) struct Fetched<V> {
    pub(crate) value: V,
    /// The time for which the answer may be served from the cache.
    pub(crate) ttl: Ttl,
}

/// The lifetime of a cached answer, and its starting point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ttl {
    /// Counted from the start of the request, not its end: the answer may miss changes made while the request was under way.
    FromRequest(Duration),
    /// Counted from the arrival of the answer. For failures, which may take longer to find out than they are kept.
    FromResponse(Duration),
}

/// An answer, and the time since its request began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cached<V> {
    pub(crate) value: V,
    pub(crate) age: Duration,
}

struct Inner<K, V> {
    entries: HashMap<K, CacheEntry<V>>,
    in_flight: HashMap<K, InFlight<V>>,
    /// The keys of `entries` with the start of their requests, oldest first. Also contains keys requested again or
    /// removed since.
    order: VecDeque<(K, Instant)>,
}

struct CacheEntry<V> {
    value: V,
    requested_at: Instant,
    until: Instant,
}

/// A request under way. It is dropped when all its callers have gone.
struct InFlight<V> {
    requested_at: Instant,
    flight: WeakShared<BoxFuture<'static, Fetched<V>>>,
}

impl<K: Hash + Eq + Clone, V: Clone> TtlCache<K, V> {
    /// Creates a cache of at most `max_entries` answers. A request takes no longer than `max_duration` while a caller
    /// polls it.
    pub(crate) fn new(max_entries: usize, max_duration: Duration) -> Self {
        let inner = Inner { entries: HashMap::new(), in_flight: HashMap::new(), order: VecDeque::new() };
        Self { max_entries: max_entries.max(1), max_duration, inner: Mutex::new(inner) }
    }

    /// Returns the answer to `key`: a cached one, that of a request under way, or that of `ask`. `ask` must end without
    /// outside help.
    pub(crate) async fn get(
        &self,
        key: K,
        ask: impl FnOnce() -> BoxFuture<'static, Fetched<V>>,
    ) -> Cached<V> {
        let (requested_at, flight) = match self.find(&key, ask) {
            Found::Cached(cached) => return cached,
            Found::InFlight(requested_at, flight) => (requested_at, flight),
        };
        let answer = flight.clone().await;
        self.insert(key, requested_at, &answer);
        Cached { value: answer.value, age: requested_at.elapsed() }
    }

    /// Returns the cached answer, if there is one.
    pub(crate) fn peek(&self, key: &K) -> Option<Cached<V>> {
        self.inner.lock().peek(key, Instant::now())
    }

    fn find(&self, key: &K, ask: impl FnOnce() -> BoxFuture<'static, Fetched<V>>) -> Found<V> {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        if let Some(cached) = inner.peek(key, now) {
            return Found::Cached(cached);
        }
        // A flight that has not ended by now is not polled by its callers. Its own deadlines have expired, whatever it
        // returns.
        let in_flight =
            inner.in_flight.get(key).filter(|in_flight| now - in_flight.requested_at <= self.max_duration);
        let under_way =
            in_flight.and_then(|in_flight| Some((in_flight.requested_at, in_flight.flight.upgrade()?)));
        if let Some((requested_at, flight)) = under_way {
            return Found::InFlight(requested_at, flight);
        }
        let flight = ask().shared();
        if let Some(weak) = flight.downgrade() {
            inner.in_flight.insert(key.clone(), InFlight { requested_at: now, flight: weak });
        }
        // Removes requests whose callers have all gone.
        if inner.in_flight.len() > self.max_entries {
            inner.in_flight.retain(|_, in_flight| in_flight.flight.upgrade().is_some());
        }
        Found::InFlight(now, flight)
    }

    fn insert(&self, key: K, requested_at: Instant, answer: &Fetched<V>) {
        let mut inner = self.inner.lock();
        // Another request may be under way by now. If not, this is the first caller of the flight.
        if inner.in_flight.get(&key).is_none_or(|in_flight| in_flight.requested_at != requested_at) {
            return;
        }
        inner.in_flight.remove(&key);
        let now = Instant::now();
        let until = match answer.ttl {
            Ttl::FromRequest(time) => requested_at + time,
            Ttl::FromResponse(time) => now + time,
        };
        if until <= now {
            inner.entries.remove(&key);
            return;
        }
        inner.order.push_back((key.clone(), requested_at));
        inner.entries.insert(key, CacheEntry { value: answer.value.clone(), requested_at, until });
        inner.evict(self.max_entries, now);
    }
}

impl<K: Hash + Eq, V: Clone> Inner<K, V> {
    fn peek(&self, key: &K, now: Instant) -> Option<Cached<V>> {
        let entry = self.entries.get(key).filter(|entry| now < entry.until)?;
        Some(Cached { value: entry.value.clone(), age: now - entry.requested_at })
    }

    /// Removes answers that have expired, and the oldest ones beyond the bound.
    fn evict(&mut self, max_entries: usize, now: Instant) {
        let Self { entries, order, .. } = self;
        while let Some((key, requested_at)) = order.front() {
            if let Some(oldest) = entries.get(key).filter(|oldest| oldest.requested_at == *requested_at) {
                if now < oldest.until && entries.len() <= max_entries {
                    break;
                }
                entries.remove(key);
            }
            order.pop_front();
        }
        if order.len() > 2 * max_entries {
            order.retain(|(key, requested_at)| {
                entries.get(key).is_some_and(|entry| entry.requested_at == *requested_at)
            });
        }
    }
}

enum Found<V> {
    Cached(Cached<V>),
    InFlight(Instant, Shared<BoxFuture<'static, Fetched<V>>>),
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Requests {
        cache: Arc<TtlCache<&'static str, usize>>,
        times: Arc<AtomicUsize>,
    }

    impl Requests {
        fn new(max_entries: usize) -> Self {
            Self {
                cache: Arc::new(TtlCache::new(max_entries, Duration::from_secs(2))),
                times: Arc::default(),
            }
        }

        /// Makes a request that takes a second and returns the number of requests so far.
        async fn ask(&self, key: &'static str, ttl: u64) -> Cached<usize> {
            let times = self.times.clone();
            let ask = move || {
                async move {
                    let value = times.fetch_add(1, Ordering::Relaxed) + 1;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    Fetched { value, ttl: Ttl::FromRequest(Duration::from_secs(ttl)) }
                }
                .boxed()
            };
            self.cache.get(key, ask).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_share_one_fetch() {
        let requests = Requests::new(10);
        let all = futures::future::join_all((0..50).map(|_| requests.ask("a", 10))).await;
        assert!(
            all.iter().all(|cached| *cached == Cached { value: 1, age: Duration::from_secs(1) }),
            "{all:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn answer_ttl_starts_at_request() {
        let requests = Requests::new(10);
        requests.ask("a", 10).await;
        tokio::time::advance(Duration::from_millis(8_999)).await;
        assert_eq!(requests.ask("a", 10).await, Cached { value: 1, age: Duration::from_millis(9_999) });
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(requests.ask("a", 10).await.value, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn failure_ttl_starts_at_response() {
        let cache: TtlCache<&str, u8> = TtlCache::new(10, Duration::from_secs(4));
        let ask = |value| {
            move || {
                async move {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    Fetched { value, ttl: Ttl::FromResponse(Duration::from_secs(1)) }
                }
                .boxed()
            }
        };
        cache.get("a", ask(1)).await;
        tokio::time::advance(Duration::from_millis(999)).await;
        assert_eq!(cache.get("a", ask(2)).await, Cached { value: 1, age: Duration::from_millis(3_999) });
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(cache.get("a", ask(2)).await.value, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn unpolled_caller_does_not_block_others() {
        let requests = Requests::new(10);
        let mut idle = Box::pin(requests.ask("a", 10));
        assert!(futures::poll!(&mut idle).is_pending());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(requests.ask("a", 10).await.value, 1, "it may have come just now");
        let mut idle = Box::pin(requests.ask("b", 10));
        assert!(futures::poll!(&mut idle).is_pending());
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(requests.ask("b", 10).await, Cached { value: 3, age: Duration::from_secs(1) });
        assert_eq!(idle.await.value, 2);
        assert_eq!(requests.ask("b", 10).await.value, 3, "what was asked for last counts");
    }

    #[tokio::test(start_paused = true)]
    async fn refetches_answer_with_zero_ttl() {
        let requests = Requests::new(10);
        assert_eq!(requests.ask("a", 0).await.value, 1);
        assert_eq!(requests.ask("a", 0).await.value, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn askers_that_go_away_leave_nothing_behind() {
        let requests = Requests::new(10);
        let waited = tokio::time::timeout(Duration::from_millis(500), requests.ask("a", 10)).await;
        assert!(waited.is_err());
        assert_eq!(requests.ask("a", 10).await, Cached { value: 2, age: Duration::from_secs(1) });
    }

    #[tokio::test(start_paused = true)]
    async fn caps_number_of_entries() {
        let requests = Requests::new(2);
        for key in ["a", "b", "c", "d"] {
            requests.ask(key, 10).await;
        }
        assert_eq!(requests.cache.inner.lock().entries.len(), 2);
        assert_eq!(requests.ask("d", 10).await.value, 4);
        assert_eq!(requests.ask("a", 10).await.value, 5);
        for _ in 0..50 {
            for key in ["a", "b", "c"] {
                requests.ask(key, 1).await;
            }
        }
        let inner = requests.cache.inner.lock();
        assert!(inner.order.len() <= 4 && inner.entries.len() <= 2 && inner.in_flight.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn next_insert_removes_expired_entries() {
        let requests = Requests::new(10);
        for key in ["a", "b", "c", "a"] {
            requests.ask(key, 10).await;
        }
        assert_eq!(requests.cache.inner.lock().entries.len(), 3);
        tokio::time::advance(Duration::from_secs(10)).await;
        requests.ask("d", 10).await;
        let inner = requests.cache.inner.lock();
        assert_eq!((inner.entries.len(), inner.order.len()), (1, 1));
    }
}
