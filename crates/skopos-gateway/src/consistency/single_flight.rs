//! Reads shared by all concurrent callers.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;

/// A queue that makes one read at a time. Unlike a plain single flight, a caller never joins a read that has begun: it may have begun
/// too early for the caller. All such callers wait for the next read together.
#[derive(Debug)]
pub(crate) struct SingleFlight<T: Clone> {
    last: Mutex<Option<Flight<T>>>,
}

#[derive(Debug)]
struct Flight<T: Clone> {
    begun: Arc<AtomicBool>,
    read: WeakShared<BoxFuture<'static, T>>,
}

impl<T: Clone + Send + Sync + 'static> SingleFlight<T> {
    pub(crate) fn new() -> Self {
        Self { last: Mutex::new(None) }
    }

    /// Returns the result of `read`, or of another read that also begins after this call. It is cancelled when no caller waits
    /// for it.
    pub(crate) fn run(
        &self,
        read: impl Future<Output = T> + Send + 'static,
    ) -> Shared<BoxFuture<'static, T>> {
        let mut last = self.last.lock();
        let known = last.as_ref().and_then(|flight| Some((flight.read.upgrade()?, flight)));
        let under_way = match known {
            Some((next, flight)) if !flight.begun.load(Ordering::Acquire) => return next,
            known => known.map(|(under_way, _)| under_way),
        };
        let begun = Arc::new(AtomicBool::new(false));
        let begins = begun.clone();
        let read = async move {
            if let Some(under_way) = under_way {
                under_way.await;
            }
            begins.store(true, Ordering::Release);
            read.await
        };
        let read = read.boxed().shared();
        *last = read.downgrade().map(|read| Flight { begun, read });
        read
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use futures::future::join_all;
    use tokio::time::{Instant, sleep, timeout};

    use super::*;

    const READ_DURATION: Duration = Duration::from_secs(2);

    /// Reads that record when they began.
    #[derive(Clone, Default)]
    struct Reads {
        begun: Arc<AtomicUsize>,
        under_way: Arc<AtomicUsize>,
    }

    impl Reads {
        fn read(&self) -> impl Future<Output = Instant> + Send + 'static {
            let reads = self.clone();
            async move {
                let began = Instant::now();
                reads.begun.fetch_add(1, Ordering::Relaxed);
                assert_eq!(reads.under_way.fetch_add(1, Ordering::Relaxed), 0, "one at a time");
                sleep(READ_DURATION).await;
                reads.under_way.fetch_sub(1, Ordering::Relaxed);
                began
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn callers_share_read_started_after_their_call() {
        let (single_flight, reads) = (SingleFlight::new(), Reads::default());
        let asked = (0..100).map(|n| {
            let (single_flight, reads) = (&single_flight, &reads);
            async move {
                sleep(Duration::from_millis(100 * n)).await;
                let asked = Instant::now();
                let began = single_flight.run(reads.read()).await;
                assert!(began >= asked && asked.elapsed() <= 2 * READ_DURATION);
            }
        });
        join_all(asked).await;
        assert_eq!(reads.begun.load(Ordering::Relaxed), 6, "in ten seconds, of two each");
        // Alone, a caller reads at once.
        let asked = Instant::now();
        assert_eq!(single_flight.run(reads.read()).await, asked);
    }

    #[tokio::test(start_paused = true)]
    async fn read_runs_until_last_waiter_leaves() {
        let (single_flight, reads) = (SingleFlight::new(), Reads::default());
        let (first, begun) = (single_flight.run(reads.read()), Instant::now());
        assert!(timeout(READ_DURATION / 2, first).await.is_err());
        // The first caller gave up: its read is cancelled and does not block others.
        reads.under_way.store(0, Ordering::Relaxed);
        let second = single_flight.run(reads.read());
        assert!(timeout(READ_DURATION / 2, second.clone()).await.is_err());
        let third = single_flight.run(reads.read());
        drop(second);
        assert_eq!(third.await, begun + READ_DURATION / 2 + READ_DURATION);
        assert_eq!(reads.begun.load(Ordering::Relaxed), 3);
    }
}
