//! What happens where threads meet, in many orders of their steps: the work queue, the store, the handlers' queues and the
//! factory's registry, on the model of `crate::sync`. `cargo xtask threads` runs these, and nothing else does.
//!
//! The model is shuttle. Loom would try every order, and those of weak memory too, but is done only for a few dozen steps; here
//! tasks, wakers and locks take hundreds, and the only thing that is shared without a lock is one pointer, of `arc-swap`.
//! Shuttle draws orders by chance, half of them uniformly and half with few but deep preemptions (PCT), so that more runs find
//! more. One that fails is printed as a schedule; a task that waits for ever is found as a deadlock.

mod factory;
mod handlers;
mod store;
mod workqueue;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

/// Runs `test` in as many orders as `SKOPOS_SCHEDULES` says (300), drawn with `SKOPOS_SEED` (0).
fn explore(test: impl Fn() + Send + Sync + 'static) {
    let runs = usize::try_from(number("SKOPOS_SCHEDULES", 300)).unwrap();
    let seed = number("SKOPOS_SEED", 0);
    // Its clock is the model's; nothing ever runs in it.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let _entered = runtime.enter();
    let test = Arc::new(test);
    run(RandomScheduler::new_from_seed(seed, runs.div_ceil(2)), test.clone());
    run(PctScheduler::new_from_seed(seed, DEPTH, runs / 2), test);
}

/// How many preemptions PCT makes at places that matter.
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

/// Counts, over all runs, that what a test is about did happen in one.
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
