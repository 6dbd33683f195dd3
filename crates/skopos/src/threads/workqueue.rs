use std::sync::Arc;
use std::time::Duration;

use shuttle::future::{block_on, spawn, yield_now};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use shuttle::thread;
use tokio::sync::Notify;

use super::{Happened, explore};
use crate::sync::timeout;
use crate::workqueue::{AddError, Item, WorkQueue, WorkQueueOptions};

const MS: Duration = Duration::from_millis(1);

/// A value that changes, and the version that a worker has seen.
#[derive(Default)]
struct Thing {
    version: AtomicU32,
    seen: AtomicU32,
    in_hands: AtomicBool,
}

impl Thing {
    fn change(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
    }
}

type Things = Arc<[Thing; 2]>;

async fn work(queue: WorkQueue<usize>, things: Things, again: Happened) {
    while let Some(item) = queue.get().await {
        let thing = &things[*item];
        assert!(!thing.in_hands.swap(true, Ordering::SeqCst), "a key is in two workers' hands");
        let version = thing.version.load(Ordering::SeqCst);
        yield_now().await;
        again.note(thing.version.load(Ordering::SeqCst) - version);
        thing.seen.store(version, Ordering::SeqCst);
        thing.in_hands.store(false, Ordering::SeqCst);
        match thread_rng().gen_range(0..3) {
            0 => item.done(),
            1 => item.retry(),
            _ => item.done_until(5 * MS),
        }
    }
}

#[test]
fn key_has_one_worker_that_sees_last_change() {
    let again = Happened::default();
    let noted = again.clone();
    explore(move || {
        let queue = WorkQueue::new(WorkQueueOptions::default());
        let things = Things::default();
        let producer = || {
            let (queue, things) = (queue.clone(), things.clone());
            thread::spawn(move || {
                for _ in 0..3 {
                    let key = thread_rng().gen_range(0..2);
                    things[key].change();
                    queue.add(key).unwrap();
                }
            })
        };
        let workers = [(); 2].map(|()| spawn(work(queue.clone(), things.clone(), noted.clone())));
        [producer(), producer()].into_iter().for_each(|producer| producer.join().unwrap());
        block_on(queue.shut_down_with_drain(Duration::MAX)).unwrap();
        workers.into_iter().for_each(|worker| block_on(worker).unwrap());
        for thing in things.iter() {
            assert_eq!(
                thing.seen.load(Ordering::SeqCst),
                thing.version.load(Ordering::SeqCst),
                "a key was lost"
            );
        }
    });
    again.check("a change while the key was worked on");
}

#[test]
fn a_delayed_key_comes_although_workers_come_and_go() {
    let cancelled = Happened::default();
    let noted = cancelled.clone();
    explore(move || {
        let queue = WorkQueue::new(WorkQueueOptions::default());
        let delayed_came = Arc::new(Notify::new());
        let both_came = Arc::new((AtomicUsize::new(0), Notify::new()));
        let both = (delayed_came.clone(), both_came.clone());
        let work = move |item: Item<&'static str>| {
            let (delayed_came, both_came) = both.clone();
            async move {
                match *item {
                    // This worker is busy until the other key has come: no other key can count on it.
                    "now" => delayed_came.notified().await,
                    _ => delayed_came.notify_one(),
                }
                item.done();
                if both_came.0.fetch_add(1, Ordering::SeqCst) == 1 {
                    both_came.1.notify_one();
                }
            }
        };
        let steady = [(); 2].map(|()| {
            let (queue, work) = (queue.clone(), work.clone());
            spawn(async move {
                while let Some(item) = queue.get().await {
                    work(item).await;
                }
            })
        });
        let fickle = {
            let (queue, work, noted) = (queue.clone(), work.clone(), noted.clone());
            spawn(async move {
                for _ in 0..2 {
                    match timeout(MS, queue.get()).await {
                        Ok(Some(item)) => work(item).await,
                        Ok(None) => return,
                        Err(_) => noted.note(1),
                    }
                }
            })
        };
        let (now, later) = (queue.clone(), queue.clone());
        let threads = [
            thread::spawn(move || now.add("now").unwrap()),
            thread::spawn(move || later.add_after("delayed", 10 * MS).unwrap()),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        block_on(both_came.1.notified());
        queue.shut_down();
        steady.into_iter().for_each(|worker| block_on(worker).unwrap());
        block_on(fickle).unwrap();
    });
    cancelled.check("a worker that was cancelled");
}

#[test]
fn waiting_producer_gets_free_capacity() {
    let waited = Happened::default();
    let noted = waited.clone();
    explore(move || {
        let queue = WorkQueue::new(WorkQueueOptions::default().capacity(1));
        let producers = [0, 10].map(|first| {
            let queue = queue.clone();
            spawn(async move {
                for key in first..first + 2 {
                    queue.add_within(key, Duration::MAX).await.unwrap();
                }
            })
        });
        let worker = {
            let queue = queue.clone();
            spawn(async move {
                let mut got = Vec::new();
                while let Some(item) = queue.get().await {
                    got.push(*item);
                    item.done();
                }
                got
            })
        };
        producers.into_iter().for_each(|producer| block_on(producer).unwrap());
        noted.note(queue.stats().refused);
        queue.shut_down();
        let mut got = block_on(worker).unwrap();
        got.sort_unstable();
        assert_eq!(got, [0, 1, 10, 11]);
    });
    waited.check("a wait for room");
}

#[test]
fn shutdown_keeps_accepted_keys_and_ends_workers() {
    let (late, early) = (Happened::default(), Happened::default());
    let (note_late, note_early) = (late.clone(), early.clone());
    explore(move || {
        let queue = WorkQueue::new(WorkQueueOptions::default());
        let producers = [0, 10].map(|first| {
            let queue = queue.clone();
            thread::spawn(move || {
                (first..first + 3)
                    .filter(|key| queue.add(*key) != Err(AddError::ShutDown))
                    .collect::<Vec<_>>()
            })
        });
        let workers = [(); 3].map(|()| {
            let queue = queue.clone();
            spawn(async move {
                let mut got = Vec::new();
                while let Some(item) = queue.get().await {
                    got.push(*item);
                    yield_now().await;
                    item.retry();
                }
                got
            })
        });
        let stopper = {
            let queue = queue.clone();
            thread::spawn(move || queue.shut_down())
        };
        let accepted = producers.map(|producer| producer.join().unwrap()).concat();
        stopper.join().unwrap();
        let got = workers.map(|worker| block_on(worker).unwrap()).concat();
        assert!(accepted.iter().all(|key| got.contains(key)), "accepted {accepted:?}, worked on {got:?}");
        note_late.note(6 - accepted.len());
        note_early.note(accepted.len());
    });
    late.check("an addition after the shutdown");
    early.check("an addition before the shutdown");
}

#[test]
fn limited_drain_ends_despite_busy_workers() {
    let (cut, whole) = (Happened::default(), Happened::default());
    let (note_cut, note_whole) = (cut.clone(), whole.clone());
    explore(move || {
        let queue = WorkQueue::new(WorkQueueOptions::default());
        (0..3).for_each(|key| queue.add(key).unwrap());
        let workers = [(); 2].map(|()| {
            let queue = queue.clone();
            spawn(async move {
                while let Some(item) = queue.get().await {
                    let _ = queue.add(*item);
                    yield_now().await;
                    item.done();
                }
            })
        });
        match block_on(queue.shut_down_with_drain(5 * MS)) {
            Ok(()) => note_whole.note(1),
            Err(_) => note_cut.note(1),
        }
        workers.into_iter().for_each(|worker| block_on(worker).unwrap());
        let stats = queue.stats();
        assert_eq!((stats.depth, stats.delayed, stats.processing), (0, 0, 0));
    });
    cut.check("a drain that was cut off");
    whole.check("a complete drain");
}
