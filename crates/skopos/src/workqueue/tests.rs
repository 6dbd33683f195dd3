use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn queue() -> WorkQueue<&'static str> {
    WorkQueue::new(WorkQueueOptions::default())
}

/// Makes a queue whose keys come again after 10 ms, 20 ms and so on.
fn retrying() -> WorkQueue<&'static str> {
    let rate_limit = RateLimit::Exponential { first: ms(10), longest: Duration::from_secs(10) };
    WorkQueue::new(WorkQueueOptions::default().rate_limit(rate_limit))
}

async fn next(queue: &WorkQueue<&'static str>) -> Item<&'static str> {
    timeout(Duration::from_secs(3600), queue.get()).await.expect("nothing comes").expect("it was shut down")
}

async fn is_quiet(queue: &WorkQueue<&'static str>, time: Duration) -> bool {
    timeout(time, queue.get()).await.is_err()
}

async fn all<T: 'static>(workers: JoinSet<T>) -> Vec<T> {
    timeout(Duration::from_secs(3600), workers.join_all()).await.expect("a worker does not end")
}

#[tokio::test(start_paused = true)]
async fn keys_keep_order_and_repeats_collapse() {
    let queue = queue();
    ["a", "b", "a", "c", "b", "a"].into_iter().for_each(|key| queue.add(key).unwrap());
    assert_eq!(queue.len(), 3);
    for key in ["a", "b", "c"] {
        let item = next(&queue).await;
        assert_eq!(*item.key(), key);
        item.done();
    }
    assert!(queue.is_empty());
    let stats = queue.stats();
    assert_eq!((stats.adds, stats.collapsed, stats.deepest), (3, 3, 3));
}

#[tokio::test(start_paused = true)]
async fn key_added_during_work_returns_once_after() {
    let queue = queue();
    queue.add("a").unwrap();
    let item = next(&queue).await;
    [1, 2, 3].into_iter().for_each(|_| queue.add("a").unwrap());
    assert_eq!(queue.len(), 0);
    assert!(is_quiet(&queue, Duration::from_secs(60)).await, "it is in two workers' hands");
    item.done();
    assert_eq!(queue.len(), 1);
    next(&queue).await.done();
    assert!(is_quiet(&queue, Duration::from_secs(60)).await);
    assert_eq!(queue.stats().collapsed, 2);
}

#[tokio::test(start_paused = true)]
async fn done_key_can_be_added_again() {
    let queue = queue();
    for _ in 0..3 {
        queue.add("a").unwrap();
        next(&queue).await.done();
        assert_eq!(queue.stats().processing, 0);
    }
    // A worker may add the key that it holds.
    queue.add("a").unwrap();
    let item = next(&queue).await;
    queue.add(item.key()).unwrap();
    item.done();
    next(&queue).await.done();
}

#[tokio::test(start_paused = true)]
async fn done_keys_leave_no_state() {
    let queue = WorkQueue::new(WorkQueueOptions::default().capacity(4));
    for key in 0..1000 {
        queue.add(key).unwrap();
        queue.add_rate_limited(key).unwrap();
        queue.get().await.unwrap().retry();
        while queue.num_requeues(&key) > 0 {
            queue.get().await.unwrap().done();
        }
    }
    // Room for four means that none of the thousand is stored.
    while timeout(Duration::from_secs(3600), queue.get())
        .await
        .is_ok_and(|item| item.map(Item::done).is_some())
    {}
    (0..4).for_each(|key| queue.add(key).unwrap());
    assert_eq!(queue.add(4), Err(AddError::Full { capacity: 4 }));
}

#[tokio::test(start_paused = true)]
async fn earliest_delay_of_key_wins() {
    let queue = queue();
    let begun = Instant::now();
    queue.add_after("late", ms(500)).unwrap();
    queue.add_after("a", ms(300)).unwrap();
    queue.add_after("a", ms(100)).unwrap();
    queue.add_after("a", ms(200)).unwrap();
    assert_eq!((queue.len(), queue.stats().delayed), (0, 2));
    let item = next(&queue).await;
    assert_eq!((*item, begun.elapsed()), ("a", ms(100)));
    item.done();
    let item = next(&queue).await;
    assert_eq!((*item, begun.elapsed()), ("late", ms(500)));
    item.done();
    assert!(is_quiet(&queue, Duration::from_secs(3600)).await, "the later times were forgotten");
}

#[tokio::test(start_paused = true)]
async fn accepts_zero_and_unbounded_delays() {
    let queue = queue();
    queue.add_after("never", Duration::MAX).unwrap();
    queue.add_after("now", Duration::ZERO).unwrap();
    assert_eq!(*next(&queue).await, "now");
    assert_eq!(queue.stats().delayed, 2, "the one that was dropped is tried again");
    // Without a waiting worker, too: the next call sees that its time has come.
    queue.add_after("soon", ms(1)).unwrap();
    sleep(ms(2)).await;
    assert_eq!(queue.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn delayed_keys_come_in_order_of_due_time() {
    let queue = WorkQueue::new(WorkQueueOptions::default());
    let delays: Vec<u64> = (0..500).map(|key| key * 7919 % 500).collect();
    for delay in &delays {
        queue.add_after(*delay, ms(*delay)).unwrap();
    }
    let begun = Instant::now();
    for expected in 0..500 {
        let item = queue.get().await.unwrap();
        assert_eq!((*item, begun.elapsed()), (expected, ms(expected)));
        item.done();
    }
}

#[tokio::test(start_paused = true)]
async fn idle_worker_keeps_time_for_delayed_key() {
    let queue = queue();
    let mut workers = JoinSet::new();
    for _ in 0..3 {
        let queue = queue.clone();
        workers.spawn(async move {
            let begun = Instant::now();
            let item = queue.get().await?;
            // Long work: no other key can count on this worker.
            sleep(Duration::from_secs(60)).await;
            let key = *item.key();
            item.done();
            Some((key, begun.elapsed()))
        });
    }
    sleep(ms(1)).await;
    // The worker that is woken for the delayed key is the one that takes the other key.
    queue.add_after("delayed", ms(100)).unwrap();
    tokio::task::yield_now().await;
    queue.add("at once").unwrap();
    sleep(ms(1)).await;
    // And a waiting worker is cancelled.
    assert!(is_quiet(&queue, ms(50)).await);
    sleep(ms(100)).await;
    queue.shut_down();
    let mut ended = all(workers).await;
    ended.sort_unstable();
    assert_eq!(ended, [None, Some(("at once", ms(60_001))), Some(("delayed", ms(60_101)))]);
}

#[tokio::test(start_paused = true)]
async fn failures_wait_longer_and_longer_until_it_is_done() {
    let queue = retrying();
    queue.add("a").unwrap();
    let mut last = Instant::now();
    for (failures, wait) in [(0, 0), (1, 10), (2, 20), (3, 40), (4, 80)] {
        let item = next(&queue).await;
        assert_eq!((item.failures(), last.elapsed()), (failures, ms(wait)));
        assert_eq!(queue.num_requeues(&"a"), failures);
        last = Instant::now();
        item.retry();
    }
    next(&queue).await.done();
    assert_eq!(queue.num_requeues(&"a"), 0);
    queue.add_rate_limited("a").unwrap();
    queue.forget(&"a");
    assert_eq!(next(&queue).await.failures(), 0);
    assert_eq!(queue.stats().retries, 7);
}

#[tokio::test(start_paused = true)]
async fn changed_failing_key_returns_at_once_with_failures() {
    let queue = retrying();
    queue.add("a").unwrap();
    let item = next(&queue).await;
    queue.add("a").unwrap();
    item.retry();
    assert_eq!(queue.len(), 1);
    let item = next(&queue).await;
    assert_eq!(item.failures(), 1);
    item.done();
    assert!(is_quiet(&queue, Duration::from_secs(60)).await, "that was the second try");
}

#[tokio::test(start_paused = true)]
async fn done_until_comes_again_and_forgets_failures() {
    let queue = retrying();
    queue.add("a").unwrap();
    next(&queue).await.retry();
    let item = next(&queue).await;
    let begun = Instant::now();
    item.done_until(Duration::from_secs(30));
    let item = next(&queue).await;
    assert_eq!((item.failures(), begun.elapsed()), (0, Duration::from_secs(30)));
    item.done();
}

#[tokio::test(start_paused = true)]
async fn panicked_or_cancelled_worker_loses_no_key() {
    let queue = retrying();
    let mut workers = JoinSet::new();
    queue.add("a").unwrap();

    let worker = queue.clone();
    workers.spawn(async move {
        let item = worker.get().await.unwrap();
        panic!("on purpose: {}", *item);
    });
    assert!(workers.join_next().await.unwrap().unwrap_err().is_panic());

    let worker = queue.clone();
    let work = async move {
        let _item = worker.get().await;
        std::future::pending::<()>().await;
    };
    assert!(timeout(Duration::from_secs(5), work).await.is_err());

    let early = async |queue: &WorkQueue<&'static str>| -> Result<(), std::num::ParseIntError> {
        let item = next(queue).await;
        let _: u32 = item.parse()?;
        item.done();
        Ok(())
    };
    assert!(early(&queue).await.is_err());

    let item = next(&queue).await;
    assert_eq!((*item, item.failures()), ("a", 3));
    item.done();
}

#[tokio::test(start_paused = true)]
async fn full_queue_refuses_or_delays_new_keys() {
    let queue = WorkQueue::new(WorkQueueOptions::default().capacity(2));
    queue.add("a").unwrap();
    queue.add_after("b", Duration::from_secs(60)).unwrap();
    let full = Err(AddError::Full { capacity: 2 });
    assert_eq!(queue.add("c"), full);
    assert_eq!(queue.add_after("c", ms(1)), full);
    assert_eq!(queue.add_rate_limited("c"), full);
    assert_eq!(queue.add("a"), Ok(()), "it has its place");
    let begun = Instant::now();
    assert_eq!(queue.add_within("c", ms(50)).await, full);
    assert_eq!(begun.elapsed(), ms(50));

    let item = queue.get().await.unwrap();
    let worker = async {
        sleep(ms(20)).await;
        item.done();
    };
    let (added, ()) = tokio::join!(queue.add_within("c", Duration::MAX), worker);
    assert_eq!(added, Ok(()));
    assert_eq!(begun.elapsed(), ms(70));
    assert_eq!(queue.stats().refused, 5);

    // A shutdown ends the wait for room.
    let (added, ()) = tokio::join!(queue.add_within("d", Duration::MAX), async {
        sleep(ms(20)).await;
        queue.shut_down();
    });
    assert_eq!(added, Err(AddError::ShutDown));
}

#[tokio::test(start_paused = true)]
async fn shutdown_hands_out_waiting_keys_then_ends() {
    let queue = queue();
    let mut workers = JoinSet::new();
    ["a", "b"].into_iter().for_each(|key| queue.add(key).unwrap());
    queue.add_after("later", ms(100)).unwrap();
    let first = next(&queue).await;
    queue.add("a").unwrap();
    for _ in 0..5 {
        let queue = queue.clone();
        workers.spawn(async move {
            let mut done = Vec::new();
            while let Some(item) = queue.get().await {
                done.push(*item);
                item.done();
            }
            done
        });
    }
    queue.shut_down();
    assert_eq!(queue.add("c"), Err(AddError::ShutDown));
    assert_eq!(queue.add_after("c", ms(1)), Err(AddError::ShutDown));
    assert_eq!(queue.add_within("c", ms(1)).await, Err(AddError::ShutDown));
    sleep(ms(10)).await;
    // `a` was added while it was worked on, and before the shutdown.
    first.done();
    let mut done: Vec<_> = all(workers).await.concat();
    done.sort_unstable();
    assert_eq!(done, ["a", "b"]);
    assert!(queue.get().await.is_none());
    let stats = queue.stats();
    assert_eq!((stats.abandoned, stats.delayed, stats.processing, stats.shut_down), (1, 0, 0, true));
}

#[tokio::test(start_paused = true)]
async fn drain_waits_for_running_and_added_work() {
    let queue = queue();
    ["a", "b"].into_iter().for_each(|key| queue.add(key).unwrap());
    let item = next(&queue).await;
    queue.add("a").unwrap();
    let begun = Instant::now();
    let worker = async {
        sleep(ms(20)).await;
        item.done();
        let mut done = Vec::new();
        while let Some(item) = queue.get().await {
            sleep(ms(10)).await;
            done.push(*item);
            // In a drain, a failure is not tried again.
            item.retry();
        }
        done
    };
    let (drained, done) = tokio::join!(queue.shut_down_with_drain(Duration::MAX), worker);
    assert_eq!((drained, done, begun.elapsed()), (Ok(()), vec!["b", "a"], ms(40)));
    assert_eq!(queue.shut_down_with_drain(Duration::ZERO).await, Ok(()), "nothing is left");
}

#[tokio::test(start_paused = true)]
async fn drain_limit_reports_abandoned_keys() {
    let queue = WorkQueue::new(WorkQueueOptions::named("pods"));
    ["a", "b", "c"].into_iter().for_each(|key| queue.add(key).unwrap());
    let item = queue.get().await.unwrap();
    queue.add("a").unwrap();
    let begun = Instant::now();
    let left = queue.shut_down_with_drain(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    assert_eq!((left.abandoned, left.processing), (3, 1));
    assert_eq!(
        left.to_string(),
        "pods was not drained within 5.0s: 3 keys were not begun and are forgotten, 1 are still worked on"
    );
    assert!(queue.get().await.is_none(), "workers are to end");
    assert_eq!(queue.shut_down_with_drain(ms(1)).await.unwrap_err().processing, 1);
    item.done();
    assert_eq!(queue.shut_down_with_drain(Duration::ZERO).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn many_workers_work_all_off_and_end() {
    let queue: WorkQueue<u64> = WorkQueue::new(WorkQueueOptions::default());
    let mut workers = JoinSet::new();
    for worker in 0..8 {
        let queue = queue.clone();
        workers.spawn(async move {
            let mut done = Vec::new();
            while let Some(item) = queue.get().await {
                sleep(ms((*item * 31 + worker) % 7)).await;
                done.push(*item);
                item.done();
            }
            done
        });
    }
    for key in 0..400 {
        queue.add(key).unwrap();
        queue.add_after(key + 1000, ms(key % 90)).unwrap();
        sleep(ms(key % 3)).await;
    }
    sleep(ms(100)).await;
    queue.shut_down_with_drain(Duration::from_secs(60)).await.unwrap();
    let mut done = all(workers).await.concat();
    done.sort_unstable();
    assert_eq!(done, (0..400).chain(1000..1400).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn stats_show_latency_and_hung_worker() {
    let queue = queue();
    queue.add("a").unwrap();
    sleep(ms(100)).await;
    let a = next(&queue).await;
    queue.add_after("b", ms(50)).unwrap();
    // 30 ms too late: no worker was there to take it.
    sleep(ms(80)).await;
    let b = next(&queue).await;
    sleep(ms(20)).await;
    let stats = queue.stats();
    assert_eq!((stats.longest_running, stats.unfinished), (Some(ms(100)), ms(120)));
    assert_eq!((stats.latency.count, stats.latency.sum, stats.latency.longest), (2, ms(130), ms(100)));
    assert_eq!(stats.latency.at_most, [0, 0, 0, 0, 2, 2, 2, 2, 2]);
    a.done();
    b.done();
    let stats = queue.stats();
    assert_eq!((stats.work.count, stats.work.mean(), stats.work.longest), (2, Some(ms(60)), ms(100)));
    assert_eq!((stats.longest_running, stats.unfinished), (None, Duration::ZERO));
    assert_eq!(
        format!("{queue:?}"),
        "WorkQueue { name: \"workqueue\", waiting: 0, delayed: 0, processing: 0, shut_down: false }"
    );
}
