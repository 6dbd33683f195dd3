//! Tests of concurrent steps in many orders: the work queue, the store, the handlers' queues and the factory's registry, on
//! the model of `crate::sync`. Only `cargo xtask threads` runs them.
//!
//! The model is shuttle. Loom would try every order, and those of weak memory too, but is limited to a few dozen steps.
//! Here tasks, wakers and locks take hundreds, and the only state that is shared without a lock is one pointer, of
//! `arc-swap`. Shuttle draws orders at random, half of them uniformly and half with few but deep preemptions (PCT), so that
//! more runs find more. A failing order is printed as a schedule; a task that never wakes is found as a deadlock.

mod factory;
mod handlers;
mod store;
mod workqueue;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

/// Runs `test` in `SKOPOS_SCHEDULES` orders (300), drawn with `SKOPOS_SEED` (0).
fn explore(test: impl Fn() + Send + Sync + 'static) {
    let runs = usize::try_from(number("SKOPOS_SCHEDULES", 300)).unwrap();
    let seed = number("SKOPOS_SEED", 0);
    // Only its clock is used, by the model; no task ever runs in it.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let _entered = runtime.enter();
    let test = Arc::new(test);
    run(RandomScheduler::new_from_seed(seed, runs.div_ceil(2)), test.clone());
    run(PctScheduler::new_from_seed(seed, DEPTH, runs / 2), test);
}

/// The number of preemptions that PCT makes at relevant steps.
const DEPTH: usize = 3;

fn run(scheduler: impl Scheduler + 'static, test: Arc<impl Fn() + Send + Sync + 'static>) {
    let mut config = Config::new();
    config.stack_size = 512 * 1024;
    config.max_steps = shuttle::MaxSteps::FailAfter(100_000);
    Runner::new(scheduler, config).run(move || test());
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

/// A counter, over all runs, of the event that a test is about, to prove that it did happen.
#[derive(Clone, Default)]
struct Happened(Arc<AtomicUsize>);

impl Happened {
    fn note(&self, times: impl TryInto<usize>) {
        self.0.fetch_add(times.try_into().unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    #[track_caller]
    fn check(&self, what: &str) {
        assert!(self.0.load(Ordering::Relaxed) > 0, "{what} never happened: the test shows nothing");
    }
}
