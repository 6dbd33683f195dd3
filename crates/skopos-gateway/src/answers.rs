//! Short-lived cache of answers. Concurrent callers with the same key share one request.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use tokio::time::Instant;

/// A cache of answers by key, with a bound on their number.
pub(crate) struct Answers<K, V> {
    most: usize,
    longest: Duration,
    inner: Mutex<Inner<K, V>>,
}

/// The result of a request.
#[derive(Clone, Debug)]
pub(crate) struct Answer<V> {
    pub(crate) value: V,
    /// The time for which the answer may be served from the cache.
    pub(crate) holds: Holds,
}

/// The lifetime of a cached answer, and its starting point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Counted from the start of the request, not its end: the answer may miss changes made while the request was under way.
    SinceAsked(Duration),
    /// Counted from the arrival of the answer. For failures, which may take longer to find out than they are kept.
    SinceCome(Duration),
}

/// An answer, and the time since its request began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aged<V> {
    pub(crate) value: V,
    pub(crate) age: Duration,
}

struct Inner<K, V> {
    known: HashMap<K, Known<V>>,
    asking: HashMap<K, Asking<V>>,
    /// The keys of `known` with the start of their requests, oldest first. Also contains keys requested again or removed
    /// since.
    order: VecDeque<(K, Instant)>,
}

struct Known<V> {
    value: V,
    asked: Instant,
    until: Instant,
}

/// A request under way. It is dropped when all its callers have gone.
struct Asking<V> {
    asked: Instant,
    flight: WeakShared<BoxFuture<'static, Answer<V>>>,
}

// === impl Answers ===

impl<K: Hash + Eq + Clone, V: Clone> Answers<K, V> {
    /// Creates a cache of at most `most` answers. A request takes no longer than `longest` while a caller polls it.
    pub(crate) fn new(most: usize, longest: Duration) -> Self {
        let inner = Inner { known: HashMap::new(), asking: HashMap::new(), order: VecDeque::new() };
        Self { most: most.max(1), longest, inner: Mutex::new(inner) }
    }

    /// Returns the answer to `key`: a cached one, that of a request under way, or that of `ask`. `ask` must end without
    /// outside help.
    pub(crate) async fn get(&self, key: K, ask: impl FnOnce() -> BoxFuture<'static, Answer<V>>) -> Aged<V> {
        let (asked, flight) = match self.find(&key, ask) {
            Found::Known(aged) => return aged,
            Found::Asking(asked, flight) => (asked, flight),
        };
        let answer = flight.clone().await;
        self.keep(key, asked, &answer);
        Aged { value: answer.value, age: asked.elapsed() }
    }

    /// Returns the cached answer, if there is one.
    pub(crate) fn kept(&self, key: &K) -> Option<Aged<V>> {
        self.inner.lock().kept(key, Instant::now())
    }

    fn find(&self, key: &K, ask: impl FnOnce() -> BoxFuture<'static, Answer<V>>) -> Found<V> {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        if let Some(aged) = inner.kept(key, now) {
            return Found::Known(aged);
        }
        // A flight that has not ended by now is not polled by its callers. Its own deadlines have expired, whatever it
        // returns.
        let asking = inner.asking.get(key).filter(|asking| now - asking.asked <= self.longest);
        let under_way = asking.and_then(|asking| Some((asking.asked, asking.flight.upgrade()?)));
        if let Some((asked, flight)) = under_way {
            return Found::Asking(asked, flight);
        }
        let flight = ask().shared();
        if let Some(weak) = flight.downgrade() {
            inner.asking.insert(key.clone(), Asking { asked: now, flight: weak });
        }
        // Removes requests whose callers have all gone.
        if inner.asking.len() > self.most {
            inner.asking.retain(|_, asking| asking.flight.upgrade().is_some());
        }
        Found::Asking(now, flight)
    }

    fn keep(&self, key: K, asked: Instant, answer: &Answer<V>) {
        let mut inner = self.inner.lock();
        // Another request may be under way by now. If not, this is the first caller of the flight.
        if inner.asking.get(&key).is_none_or(|asking| asking.asked != asked) {
            return;
        }
        inner.asking.remove(&key);
        let now = Instant::now();
        let until = match answer.holds {
            Holds::SinceAsked(time) => asked + time,
            Holds::SinceCome(time) => now + time,
        };
        if until <= now {
            inner.known.remove(&key);
            return;
        }
        inner.order.push_back((key.clone(), asked));
        inner.known.insert(key, Known { value: answer.value.clone(), asked, until });
        inner.forget(self.most, now);
    }
}

impl<K: Hash + Eq, V: Clone> Inner<K, V> {
    fn kept(&self, key: &K, now: Instant) -> Option<Aged<V>> {
        let known = self.known.get(key).filter(|known| now < known.until)?;
        Some(Aged { value: known.value.clone(), age: now - known.asked })
    }

    /// Removes answers that have expired, and the oldest ones beyond the bound.
    fn forget(&mut self, most: usize, now: Instant) {
        let Self { known, order, .. } = self;
        while let Some((key, asked)) = order.front() {
            if let Some(oldest) = known.get(key).filter(|oldest| oldest.asked == *asked) {
                if now < oldest.until && known.len() <= most {
                    break;
                }
                known.remove(key);
            }
            order.pop_front();
        }
        if order.len() > 2 * most {
            order.retain(|(key, asked)| known.get(key).is_some_and(|known| known.asked == *asked));
        }
    }
}

enum Found<V> {
    Known(Aged<V>),
    Asking(Instant, Shared<BoxFuture<'static, Answer<V>>>),
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Asked {
        answers: Arc<Answers<&'static str, usize>>,
        times: Arc<AtomicUsize>,
    }

    impl Asked {
        fn new(most: usize) -> Self {
            Self { answers: Arc::new(Answers::new(most, Duration::from_secs(2))), times: Arc::default() }
        }

        /// Makes a request that takes a second and returns the number of requests so far.
        async fn ask(&self, key: &'static str, holds: u64) -> Aged<usize> {
            let times = self.times.clone();
            let ask = move || {
                async move {
                    let value = times.fetch_add(1, Ordering::Relaxed) + 1;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    Answer { value, holds: Holds::SinceAsked(Duration::from_secs(holds)) }
                }
                .boxed()
            };
            self.answers.get(key, ask).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_want_it_at_once_ask_once() {
        let asked = Asked::new(10);
        let all = futures::future::join_all((0..50).map(|_| asked.ask("a", 10))).await;
        assert!(all.iter().all(|aged| *aged == Aged { value: 1, age: Duration::from_secs(1) }), "{all:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_holds_from_when_it_was_asked_for() {
        let asked = Asked::new(10);
        asked.ask("a", 10).await;
        tokio::time::advance(Duration::from_millis(8_999)).await;
        assert_eq!(asked.ask("a", 10).await, Aged { value: 1, age: Duration::from_millis(9_999) });
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(asked.ask("a", 10).await.value, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn that_there_is_no_answer_holds_from_when_that_was_known() {
        let answers: Answers<&str, u8> = Answers::new(10, Duration::from_secs(4));
        let ask = |value| {
            move || {
                async move {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    Answer { value, holds: Holds::SinceCome(Duration::from_secs(1)) }
                }
                .boxed()
            }
        };
        answers.get("a", ask(1)).await;
        tokio::time::advance(Duration::from_millis(999)).await;
        assert_eq!(answers.get("a", ask(2)).await, Aged { value: 1, age: Duration::from_millis(3_999) });
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(answers.get("a", ask(2)).await.value, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_and_does_not_look_keeps_the_answer_from_nobody() {
        let asked = Asked::new(10);
        let mut idle = Box::pin(asked.ask("a", 10));
        assert!(futures::poll!(&mut idle).is_pending());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(asked.ask("a", 10).await.value, 1, "it may have come just now");
        let mut idle = Box::pin(asked.ask("b", 10));
        assert!(futures::poll!(&mut idle).is_pending());
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(asked.ask("b", 10).await, Aged { value: 3, age: Duration::from_secs(1) });
        assert_eq!(idle.await.value, 2);
        assert_eq!(asked.ask("b", 10).await.value, 3, "what was asked for last counts");
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_hold_is_asked_again() {
        let asked = Asked::new(10);
        assert_eq!(asked.ask("a", 0).await.value, 1);
        assert_eq!(asked.ask("a", 0).await.value, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn askers_that_go_away_leave_nothing_behind() {
        let asked = Asked::new(10);
        let waited = tokio::time::timeout(Duration::from_millis(500), asked.ask("a", 10)).await;
        assert!(waited.is_err());
        assert_eq!(asked.ask("a", 10).await, Aged { value: 2, age: Duration::from_secs(1) });
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_are_kept() {
        let asked = Asked::new(2);
        for key in ["a", "b", "c", "d"] {
            asked.ask(key, 10).await;
        }
        assert_eq!(asked.answers.inner.lock().known.len(), 2);
        assert_eq!(asked.ask("d", 10).await.value, 4);
        assert_eq!(asked.ask("a", 10).await.value, 5);
        for _ in 0..50 {
            for key in ["a", "b", "c"] {
                asked.ask(key, 1).await;
            }
        }
        let inner = asked.answers.inner.lock();
        assert!(inner.order.len() <= 4 && inner.known.len() <= 2 && inner.asking.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_hold_any_more_is_forgotten_with_the_next_that_comes() {
        let asked = Asked::new(10);
        for key in ["a", "b", "c", "a"] {
            asked.ask(key, 10).await;
        }
        assert_eq!(asked.answers.inner.lock().known.len(), 3);
        tokio::time::advance(Duration::from_secs(10)).await;
        asked.ask("d", 10).await;
        let inner = asked.answers.inner.lock();
        assert_eq!((inner.known.len(), inner.order.len()), (1, 1));
    }
}
