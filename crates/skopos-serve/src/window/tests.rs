use std::task::{Context, Poll};

use futures::task::noop_waker;

use super::*;
use crate::testing::{Object, pod};

fn window(options: WindowOptions) -> Arc<Window<Object>> {
    Arc::new(Window::new(options, 0))
}

fn event(revision: u64) -> Event<Object> {
    Event::put(revision, None, pod("n", &format!("p{revision}"), revision, &[], ""))
}

/// Returns the revisions of up to `max` events after the cursor, and moves it.
fn take(window: &Window<Object>, cursor: &mut Cursor, max: usize) -> Option<Vec<u64>> {
    let events = window.read(cursor, None, max)?;
    events.iter().for_each(|event| cursor.take(event));
    Some(events.iter().map(|event| event.revision()).collect())
}

#[tokio::test(start_paused = true)]
async fn cursor_reads_events_of_shared_revision_once() {
    let revisions = [3, 5, 5, 5, 5, 6, 9, 9, 9];
    for step in 1..=revisions.len() {
        let window = window(WindowOptions::default());
        window.extend(revisions.map(event));
        let mut cursor = Cursor::after(2);
        let mut seen = Vec::new();
        loop {
            let before = window.behind(&cursor);
            let taken = take(&window, &mut cursor, step).unwrap();
            assert_eq!(window.behind(&cursor), before - taken.len());
            if taken.is_empty() {
                break;
            }
            seen.extend(taken);
        }
        assert_eq!(seen, revisions, "{step} at a time");
        // Later events with the same revision are new, however far the window claims to have come.
        window.push(event(9));
        assert_eq!(take(&window, &mut cursor, 10), Some(vec![9]));
        window.reach(&mut cursor, window.reached());
        window.push(event(9));
        assert_eq!(take(&window, &mut cursor, 10), Some(vec![9]));
        window.push(event(10));
        assert_eq!((take(&window, &mut cursor, 10), cursor.revision()), (Some(vec![10]), 10));
    }
}

#[tokio::test(start_paused = true)]
async fn delivers_events_at_already_reached_revision() {
    let window = window(WindowOptions::default());
    let mut cursor = Cursor::after(2);
    // A bookmark may come before the first of the events that share its revision, and between them.
    window.advance(5);
    window.reach(&mut cursor, window.reached());
    assert_eq!(cursor.revision(), 5);
    for name in ["a", "b"] {
        window.push(Event::put(5, None, pod("n", name, 5, &[], "")));
        assert_eq!(take(&window, &mut cursor, 10), Some(vec![5]));
        window.reach(&mut cursor, window.reached());
    }
    // A cursor that began after that revision has all of it.
    assert_eq!(take(&window, &mut Cursor::after(5), 10), Some(vec![]));
}

#[tokio::test(start_paused = true)]
async fn start_includes_further_events_of_its_revision() {
    let window = window(WindowOptions { min_events: 1, max_events: 3, ..WindowOptions::default() });
    window.extend([4, 5, 5].map(event));
    let mut early = window.start(5).unwrap();
    assert_eq!(take(&window, &mut early, 10), Some(vec![]), "the content had both");
    window.extend([event(5).further(), event(5).further()]);
    let mut late = window.start(5).unwrap();
    for cursor in [&mut early, &mut late] {
        assert_eq!(window.behind(cursor), 2);
        assert_eq!(take(&window, cursor, 1), Some(vec![5]));
        assert_eq!(take(&window, cursor, 10), Some(vec![5]));
        assert_eq!(take(&window, cursor, 10), Some(vec![]));
    }
    window.push(event(6));
    assert_eq!(take(&window, &mut early, 10), Some(vec![6]));
    assert_eq!(take(&window, &mut window.start(5).unwrap(), 10), Some(vec![5, 5, 6]));
    // No watch may start there once one of the events is dropped.
    window.push(event(7));
    assert_eq!((window.start(5), window.start(6).is_ok()), (Err(6), true));
    assert_eq!(take(&window, &mut Cursor::after(5), 10), None);
    assert_eq!(take(&window, &mut late, 10), Some(vec![6, 7]), "who has them goes on");
}

#[tokio::test(start_paused = true)]
async fn keeps_events_newest_content_may_lack() {
    let window = window(WindowOptions { min_events: 1, max_events: 2, ..WindowOptions::default() });
    window.extend([4, 5].map(event));
    window.extend([5; 4].map(|revision| event(revision).further()));
    assert_eq!(take(&window, &mut window.start(5).unwrap(), 10), Some(vec![5; 4]));
    window.advance(6);
    window.tidy();
    assert_eq!((window.stats().events, window.start(5)), (2, Err(6)));
    assert_eq!(take(&window, &mut window.start(6).unwrap(), 10), Some(vec![]));
}

#[tokio::test(start_paused = true)]
async fn cursor_within_shared_revision_keeps_position() {
    let options = WindowOptions { min_events: 1, max_events: 2, ..WindowOptions::default() };
    let window = window(options);
    window.extend([5, 5].map(event));
    let mut between = Cursor::after(4);
    assert_eq!(take(&window, &mut between, 1), Some(vec![5]));
    // The first of the two is dropped: a cursor after it misses nothing, and no watch may start before them any more.
    window.push(event(6));
    assert_eq!((window.stats().events, window.start(4)), (2, Err(5)));
    assert_eq!(take(&window, &mut Cursor::after(4), 10), None);
    assert_eq!(take(&window, &mut between.clone(), 10), Some(vec![5, 6]));
    window.push(event(7));
    assert_eq!(take(&window, &mut between, 10), None, "the second went unread");
}

#[tokio::test(start_paused = true)]
async fn cursor_ahead_of_rollback_waits_for_history() {
    let window = window(WindowOptions::default());
    window.extend([4, 5, 5, 5].map(event));
    let mut cursors = [1, 2, 4].map(|many| {
        let mut cursor = Cursor::after(3);
        assert_eq!(take(&window, &mut cursor, many).map(|seen| seen.len()), Some(many));
        cursor
    });
    window.roll_back(4);
    window.extend([5, 6, 6].map(event));
    let told = cursors.each_mut().map(|cursor| take(&window, cursor, 10).unwrap());
    assert_eq!(told, [vec![5, 6, 6], vec![6, 6], vec![6, 6]]);
    // Once that has happened, events at the reached revision are new as ever.
    window.roll_back(5);
    window.advance(7);
    for cursor in &mut cursors {
        window.reach(cursor, window.reached());
    }
    window.extend([7, 7].map(event));
    assert_eq!(cursors.each_mut().map(|cursor| take(&window, cursor, 10).unwrap()), [[7, 7]; 3]);
}

#[tokio::test(start_paused = true)]
async fn cursor_before_rollback_keeps_position() {
    let window = window(WindowOptions::default());
    window.extend([4, 5, 5, 6, 7].map(event));
    let mut between = Cursor::after(3);
    assert_eq!(take(&window, &mut between, 2), Some(vec![4, 5]));
    let mut ahead = between;
    assert_eq!(take(&window, &mut ahead, 3), Some(vec![5, 6, 7]));
    window.roll_back(6);
    window.extend([7, 8].map(event));
    assert_eq!(take(&window, &mut between.clone(), 10), Some(vec![5, 6, 7, 8]));
    // Another rollback, but not as far: one cursor was behind its target, the other was not.
    window.roll_back(7);
    window.push(event(8));
    assert_eq!(take(&window, &mut between, 10), Some(vec![5, 6, 7, 8]));
    assert_eq!(take(&window, &mut ahead, 10), Some(vec![8]));
}

#[tokio::test(start_paused = true)]
async fn cursor_older_than_window_expires() {
    let options = WindowOptions { min_events: 2, max_events: 3, ..WindowOptions::default() };
    let window = window(options);
    window.extend([1, 2, 3].map(event));
    let mut slow = Cursor::after(0);
    assert_eq!(take(&window, &mut slow.clone(), 10), Some(vec![1, 2, 3]));
    window.push(event(4));
    assert_eq!(take(&window, &mut slow, 10), None);
    assert_eq!((window.start(0), window.start(1).is_ok()), (Err(1), true));
    assert_eq!(take(&window, &mut Cursor::after(1), 10), Some(vec![2, 3, 4]));
    assert_eq!((window.stats().events, window.reached()), (3, 4));
    // A watch from a future version gets nothing before it.
    let mut early = Cursor::after(6);
    window.extend([5, 6, 7].map(event));
    assert_eq!(take(&window, &mut early, 10), Some(vec![7]));
}

#[tokio::test(start_paused = true)]
async fn drops_old_and_large_events_but_keeps_minimum() {
    let options = WindowOptions { min_events: 2, max_bytes: 3000, ..WindowOptions::default() };
    let window = window(options);
    for revision in 1..=20 {
        let object = pod("n", "p", revision, &[], &"x".repeat(800));
        window.push(Event::put(revision, None, object));
    }
    assert_eq!(window.stats().events, 2, "each is more than a thousand bytes with its event");
    tokio::time::advance(Duration::from_secs(80)).await;
    window.push(event(21));
    assert_eq!((window.stats().events, window.oldest_start()), (2, 19));
}

#[tokio::test(start_paused = true)]
async fn evicts_only_slow_watchers() {
    let options = WindowOptions { watch_buffer: 3, ..WindowOptions::default() };
    let window = window(options);
    let (idle, quick, slow) = (window.subscribe(), window.subscribe(), window.subscribe());
    for revision in 1..=10 {
        window.push(event(revision));
        idle.waiting();
        quick.sending(0);
        if revision == 1 {
            slow.sending(1);
        }
        tokio::time::advance(Duration::from_millis(400)).await;
    }
    assert_eq!([idle.is_closed(), quick.is_closed(), slow.is_closed()], [false, false, true]);
    assert_eq!((window.stats().watchers, window.stats().evicted), (3, 1));
    drop(slow);
    let late = window.subscribe();
    assert_eq!((window.stats().watchers, late.is_closed()), (3, false));
    window.close_watches();
    assert!(idle.is_closed() && quick.is_closed() && late.is_closed());
    drop((idle, quick, late));
    assert_eq!(window.stats().watchers, 0);
}

#[tokio::test(start_paused = true)]
async fn every_event_wakes() {
    let window = window(WindowOptions::default());
    let watcher = window.subscribe();
    let mut woken = 0;
    for revision in 1..=3 {
        let next = std::future::poll_fn(|cx| {
            watcher.register(cx.waker());
            if window.reached() >= revision { Poll::Ready(()) } else { Poll::Pending }
        });
        let mut next = Box::pin(next);
        assert!(next.as_mut().poll(&mut Context::from_waker(&noop_waker())).is_pending());
        let (_, ()) = tokio::join!(next, async { window.push(event(revision)) });
        woken += 1;
    }
    assert_eq!(woken, 3);
}

#[tokio::test(start_paused = true)]
async fn watch_starts_only_at_ends_of_gap() {
    let window = window(WindowOptions::default());
    window.extend([1, 2].map(event));
    window.extend_gap([12, 15].map(event), 20);
    window.push(event(25));
    assert_eq!(
        [2, 3, 15, 19, 20, 22].map(|at| window.start(at).err()),
        [None, Some(20), Some(20), Some(20), None, None]
    );
    let mut cursor = window.start(2).unwrap();
    let events = window.read(&cursor, None, 10).unwrap();
    assert_eq!(events.iter().map(|event| event.is_from_gap()).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(take(&window, &mut cursor, 10), Some(vec![12, 15, 25]));
    for gap in 0..200 {
        window.extend_gap([], 30 + 2 * gap);
    }
    assert!(window.start(25).is_err(), "too many gaps to be kept apart");
    assert_eq!([428, 427, 426].map(|at| window.start(at).err()), [None, Some(428), None]);
}

#[tokio::test(start_paused = true)]
async fn cursor_started_ahead_into_gap_expires() {
    let window = window(WindowOptions::default());
    window.extend([1, 2].map(event));
    let mut behind = window.start(1).unwrap();
    let mut ahead = [2, 10, 20, 25].map(|at| window.start(at).unwrap());
    window.reach(&mut ahead[1], 12);
    window.extend_gap([15].map(event), 20);
    window.push(event(30));
    // Objects that this client knows from elsewhere may have been deleted before the end of the gap, and no event can say so.
    assert_eq!(take(&window, &mut ahead[1], 10), None);
    assert_eq!(take(&window, &mut behind, 10), Some(vec![2, 15, 30]));
    let others = [0, 2, 3].map(|place| take(&window, &mut ahead[place], 10).unwrap());
    assert_eq!(others, [vec![15, 30], vec![30], vec![30]]);
    // Those that came to where there is a gap afterwards continue.
    let mut inside = window.start(30).unwrap();
    window.reach(&mut inside, 35);
    window.extend_gap([40].map(event), 45);
    assert_eq!(take(&window, &mut inside, 10), Some(vec![40]));
}

#[tokio::test(start_paused = true)]
async fn broken_history_closes_watches_and_restarts() {
    let window = window(WindowOptions::default());
    window.extend([1, 2].map(event));
    let watcher = window.subscribe();
    window.restart(100);
    assert!(watcher.is_closed() && watcher.is_expired());
    assert_eq!((window.start(2), window.reached(), window.stats().events), (Err(100), 100, 0));
    assert!(window.start(100).is_ok());
    window.advance(90);
    assert_eq!(window.reached(), 100);
}

#[tokio::test(start_paused = true)]
async fn rejects_start_at_revision_of_broken_history() {
    let window = window(WindowOptions::default());
    window.extend([60, 100].map(event));
    let watcher = window.subscribe();
    window.restart(60);
    assert!(watcher.is_closed() && watcher.is_expired());
    let starts = |at: [u64; 6]| at.map(|at| window.start(at).err());
    assert_eq!(starts([59, 60, 61, 99, 100, 101]), [Some(60), None, Some(101), Some(101), Some(101), None]);
    // At revisions reached by now, a watch may be of this history.
    window.push(event(80));
    assert_eq!(starts([60, 61, 80, 81, 100, 101]), [None, None, None, Some(101), Some(101), None]);
    // The history is broken again: no revision of either old history is accepted for this one.
    window.restart(70);
    assert_eq!(starts([69, 70, 71, 81, 100, 101]), [Some(70), None, Some(101), Some(101), Some(101), None]);
    let late = window.subscribe();
    window.advance(200);
    assert_eq!(starts([70, 90, 100, 150, 200, 201]), [None; 6]);
    window.close_watches();
    assert!(late.is_closed() && !late.is_expired());
}

#[tokio::test(start_paused = true)]
async fn ended_window_closes_early_and_late_watchers() {
    let window = window(WindowOptions::default());
    let early = window.subscribe();
    window.end();
    let late = window.subscribe();
    assert!(early.is_closed() && late.is_closed());
    drop((early, late));
    assert!(window.subscribe().is_closed());
}

#[tokio::test(start_paused = true)]
async fn tidy_drops_old_events_without_new_ones() {
    let options = WindowOptions { min_events: 2, ..WindowOptions::default() };
    let window = window(options.clone());
    window.extend((1..=1000).map(event));
    let shape = FrameShape { is_protobuf: false, layout: Layout::Full, version: "v1" };
    for event in window.read(&Cursor::after(0), None, 1000).unwrap() {
        window.frame(&event, EventType::Added, shape, || Bytes::from(vec![0; 1000]));
    }
    let full = window.stats();
    assert!(
        (full.events, full.bytes > 200_000, full.frame_bytes > 1_000_000) == (1000, true, true),
        "{full:?}"
    );
    window.tidy();
    assert_eq!(window.stats(), full);
    tokio::time::advance(options.keep + Duration::from_secs(1)).await;
    window.tidy();
    let left = window.stats();
    assert_eq!((left.events, window.oldest_start()), (2, 998));
    assert!(left.bytes < full.bytes / 400 && left.frame_bytes < full.frame_bytes / 400, "{left:?}");
    // The kept frame is still encoded only once.
    let last = window.read(&Cursor::after(999), None, 1).unwrap();
    window.frame(&last[0], EventType::Added, shape, || unreachable!("it is there"));
    window.extend((1001..=1100).map(event));
    assert_eq!(window.stats().events, 100);
}

/// Returns an event of about a thousand bytes, including its overhead.
fn large(revision: u64) -> Event<Object> {
    sized(revision, 800)
}

fn sized(revision: u64, bytes: usize) -> Event<Object> {
    Event::put(revision, None, pod("n", "p", revision, &[], &"x".repeat(bytes)))
}

/// Creates windows that share `most` bytes of events, and as many of frames.
fn sharing(most: usize, count: usize) -> (WindowOptions, Vec<Arc<Window<Object>>>) {
    let mut options = WindowOptions { min_events: 2, ..WindowOptions::default() };
    options.budget = MemoryBudget::new(most);
    options.frame_budget = MemoryBudget::new(most);
    let windows = (0..count).map(|_| window(options.clone())).collect();
    (options, windows)
}

#[tokio::test(start_paused = true)]
async fn windows_together_stay_within_shared_budget() {
    for count in [1, 10, 100] {
        let (options, windows) = sharing(100_000, count);
        let mut revision = 0;
        for round in 0..20 {
            for window in &windows {
                revision += 1;
                window.push(large(revision));
                assert!(options.budget.used() <= 100_000, "{count} windows: {:?}", options.budget);
            }
            // Sometimes all of it is young.
            tokio::time::advance(Duration::from_millis(400 * (round % 3))).await;
        }
        let held = |window: &Arc<Window<Object>>| window.stats().bytes;
        let all: usize = windows.iter().map(held).sum();
        assert_eq!(all, options.budget.used());
        assert!(count == 1 || all > 90_000, "{count} windows hold only {all}");
        windows[0].restart(revision);
        assert_eq!(windows.iter().map(held).sum::<usize>(), options.budget.used());
        // If no events are kept, a client that has read all can still continue.
        for window in &windows {
            assert!(window.start(window.reached()).is_ok());
        }
        drop(windows);
        assert_eq!(options.budget.used(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_window_costs_a_quiet_one_nothing() {
    let (_, windows) = sharing(100_000, 2);
    let [busy, quiet] = &windows[..] else { unreachable!("there are two") };
    quiet.extend((1..=20).map(large));
    tokio::time::advance(Duration::from_secs(30)).await;
    let mut read = Cursor::after(0);
    for round in 0..100 {
        busy.extend((1 + 10 * round..=10 + 10 * round).map(large));
        let seen =
            take(busy, &mut read, 20).unwrap_or_else(|| panic!("lost what it had no time to read: {round}"));
        assert_eq!(seen.len(), 10);
        tokio::time::advance(Duration::from_millis(200)).await;
    }
    assert_eq!(take(quiet, &mut Cursor::after(0), 100).map(|seen| seen.len()), Some(20));
    // The busy window gives up its own events, not those of others.
    quiet.push(large(21));
    assert_eq!(quiet.stats().events, 21);
    // If there is no room for the events of one second, the quiet watcher is still not ended.
    let mut waits = Cursor::after(20);
    busy.extend((1001..=2000).map(large));
    assert_eq!(take(busy, &mut read, 1), None);
    assert_eq!(take(quiet, &mut waits, 100), Some(vec![21]));
}

#[tokio::test(start_paused = true)]
async fn evicts_older_events_before_unread_recent_ones() {
    let (options, windows) = sharing(100_000, 11);
    for window in &windows[..10] {
        window.extend((1..=8).map(large));
    }
    tokio::time::advance(Duration::from_secs(2)).await;
    // It holds more than any other, and is needed more.
    let late = &windows[10];
    late.push(sized(1, 60_000));
    assert!(options.budget.used() <= 100_000);
    assert_eq!(take(late, &mut Cursor::after(0), 10), Some(vec![1]));
    // Once read, it is evicted like others.
    tokio::time::advance(Duration::from_secs(2)).await;
    windows[0].extend((9..=40).map(large));
    assert_eq!((late.stats().events, late.start(1).is_ok()), (0, true));
}

#[tokio::test(start_paused = true)]
async fn frame_budget_is_shared_and_keeps_newest_frames() {
    let (options, windows) = sharing(100_000, 50);
    let shape = FrameShape { is_protobuf: false, layout: Layout::Full, version: "v1" };
    let get = |window: &Window<Object>, make: &dyn Fn() -> Bytes| {
        let event = window.read(&Cursor::after(window.reached() - 1), None, 1).unwrap().remove(0);
        window.frame(&event, EventType::Added, shape, make);
    };
    for revision in 1..=10 {
        for window in &windows {
            window.push(event(revision));
            get(window, &|| Bytes::from(vec![0; 4000]));
            get(window, &|| unreachable!("it was made for another"));
            assert!(options.frame_budget.used() <= 100_000, "{:?}", options.frame_budget);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        tokio::time::advance(Duration::from_secs(2)).await;
    }
    let all: usize = windows.iter().map(|window| window.stats().frame_bytes).sum();
    assert_eq!(all, options.frame_budget.used());
    assert!(all > 80_000, "{all}");
    // The newest frame is kept even if it is much larger than those of other windows.
    windows[0].push(event(11));
    get(&windows[0], &|| Bytes::from(vec![0; 90_000]));
    get(&windows[0], &|| unreachable!("it is the newest"));
    drop(windows);
    assert_eq!(options.frame_budget.used(), 0);
}

/// Checks windows of one budget that threads fill at the same time.
#[test]
fn threads_that_share_an_allowance_keep_to_it() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (options, windows) = runtime.block_on(async { sharing(100_000, 4) });
    let shape = FrameShape { is_protobuf: false, layout: Layout::Full, version: "v1" };
    std::thread::scope(|threads| {
        for window in &windows {
            threads.spawn(|| {
                for revision in 1..=300 {
                    window.push(large(revision));
                    for event in window.read(&Cursor::after(revision - 1), None, 1).unwrap_or_default() {
                        window.frame(&event, EventType::Added, shape, || Bytes::from(vec![0; 1000]));
                    }
                }
            });
        }
    });
    for (budget, held) in [
        (&options.budget, windows.iter().map(|window| window.stats().bytes).sum::<usize>()),
        (&options.frame_budget, windows.iter().map(|window| window.stats().frame_bytes).sum()),
    ] {
        assert_eq!(budget.used(), held);
        assert!(held <= 100_000, "{held}");
    }
}

#[tokio::test(start_paused = true)]
async fn event_counts_old_and_new_object_bytes() {
    let window = window(WindowOptions::default());
    let object = |revision| pod("n", "p", revision, &[], &"x".repeat(5000));
    window.push(Event::put(1, None, object(1)));
    let one = window.stats().bytes;
    window.push(Event::put(2, Some(object(1)), object(2)));
    assert!(window.stats().bytes >= 2 * one + 5000, "{one}");
    window.roll_back(0);
    assert_eq!(window.stats().bytes, 0);
}
