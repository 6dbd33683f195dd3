//! Tests of the state machine against a model of its guarantees, under random sequences of calls.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::limit::RateLimit;
use super::*;
use crate::testing::cases;

/// A step of a test. Times are in milliseconds.
#[derive(Clone, Debug)]
enum Step {
    Add(u8),
    AddAfter(u8, u64),
    AddRateLimited(u8),
    Forget(u8),
    Take,
    /// Ends the work on one of the keys that workers hold.
    Finish(usize, WorkOutcome),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0_u8..6;
    let outcome = prop_oneof![
        Just(WorkOutcome::Done),
        Just(WorkOutcome::Retry),
        (0_u64..40).prop_map(|ms| WorkOutcome::Again(Duration::from_millis(ms))),
    ];
    prop_oneof![
        3 => key().prop_map(Step::Add),
        2 => (key(), 0_u64..60).prop_map(|(key, ms)| Step::AddAfter(key, ms)),
        1 => key().prop_map(Step::AddRateLimited),
        1 => key().prop_map(Step::Forget),
        4 => Just(Step::Take),
        4 => (0_usize..4, outcome).prop_map(|(which, outcome)| Step::Finish(which, outcome)),
        2 => (0_u64..30).prop_map(Step::Pass),
    ]
}

/// The pending keys of the model, and the keys that workers hold.
#[derive(Default)]
struct Promises {
    /// The keys that must be handed out, with the times from which on; each at least once after the latest time that has
    /// passed.
    owed: BTreeMap<u8, BTreeSet<Instant>>,
    processing: Vec<u8>,
}

impl Promises {
    fn owe(&mut self, key: u8, from: Instant) {
        self.owed.entry(key).or_default().insert(from);
    }

    fn handed_out(&mut self, key: u8, now: Instant) {
        assert!(!self.processing.contains(&key), "{key} is in two workers' hands");
        self.processing.push(key);
        let owed = self.owed.get_mut(&key).expect("nobody asked for it");
        let later = owed.split_off(&(now + Duration::from_nanos(1)));
        assert!(!owed.is_empty(), "{key} was handed out before its time");
        *owed = later;
    }

    fn is_due(&self, key: u8, now: Instant) -> bool {
        self.owed.get(&key).is_some_and(|owed| owed.iter().any(|from| *from <= now))
    }
}

const CAPACITY: usize = 5;

fn core() -> WorkQueueCore<u8> {
    let ms = Duration::from_millis;
    let rate_limit = RateLimit::Exponential { first: ms(5), longest: ms(50) };
    WorkQueueCore::new(&WorkQueueOptions::default().capacity(CAPACITY).rate_limit(rate_limit))
}

/// Returns the wait of a key after this number of failures.
fn wait(failures: u32) -> Duration {
    Duration::from_millis((5 << failures.min(10)).min(50))
}

/// Plays these steps, checks the guarantees after each, and works everything off at the end.
fn play(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut now = Instant::now();
    let mut core = core();
    let mut promises = Promises::default();
    for step in steps {
        match step {
            Step::Add(key) => {
                if core.add(key, Priority::Normal, now).is_ok() {
                    promises.owe(key, now);
                }
            }
            Step::AddAfter(key, ms) => {
                let delay = Duration::from_millis(ms);
                if core.add_after(key, delay, now).is_ok() {
                    promises.delay(key, now + delay, now);
                }
            }
            Step::AddRateLimited(key) => {
                let failures = core.failures(&key);
                if core.add_rate_limited(key, now).is_ok() {
                    promises.delay(key, now + wait(failures), now);
                    prop_assert_eq!(core.failures(&key), failures + 1);
                }
            }
            Step::Forget(key) => {
                core.forget(&key);
                prop_assert_eq!(core.failures(&key), 0);
            }
            Step::Take => match core.take(now) {
                NextKey::Key(key, _) => promises.handed_out(key, now),
                NextKey::Nothing { until } => {
                    let waits = |key| !promises.processing.contains(key) && promises.is_due(*key, now);
                    prop_assert!(!promises.owed.keys().any(waits), "a key waits and was not handed out");
                    let delayed = promises.owed.values().flatten().filter(|from| **from > now).min();
                    prop_assert_eq!(until, delayed.copied());
                }
                NextKey::Ended => prop_assert!(false, "it was not shut down"),
            },
            Step::Finish(which, outcome) => {
                if promises.processing.is_empty() {
                    continue;
                }
                let key = promises.processing.remove(which % promises.processing.len());
                let (failures, added) = (core.failures(&key), promises.is_due(key, now));
                core.finish(&key, outcome, now);
                match outcome {
                    WorkOutcome::Done => prop_assert_eq!(core.failures(&key), 0),
                    WorkOutcome::Again(delay) => promises.delay(key, now + delay, now),
                    WorkOutcome::Retry => {
                        // A key that was added meanwhile comes at once.
                        if !added {
                            promises.delay(key, now + wait(failures), now);
                        }
                        prop_assert_eq!(core.failures(&key), failures + 1);
                    }
                }
            }
            Step::Pass(ms) => now += Duration::from_millis(ms),
        }
        check(&mut core, &promises, now)?;
    }
    work_off(core, promises, now)
}

impl Promises {
    /// Delays a key; of its times in the future only the earliest counts.
    fn delay(&mut self, key: u8, at: Instant, now: Instant) {
        if at <= now {
            return self.owe(key, at);
        }
        let owed = self.owed.entry(key).or_default();
        let future = owed.split_off(&(now + Duration::from_nanos(1)));
        owed.insert(future.into_iter().chain([at]).min().unwrap_or(at));
    }
}

fn check(core: &mut WorkQueueCore<u8>, promises: &Promises, now: Instant) -> Result<(), TestCaseError> {
    let stats = core.stats(now);
    prop_assert!(core.keys.len() <= CAPACITY);
    prop_assert_eq!(stats.processing, promises.processing.len());
    let waiting = promises
        .owed
        .keys()
        .filter(|key| promises.is_due(**key, now) && !promises.processing.contains(key))
        .count();
    prop_assert_eq!(stats.depth, waiting);
    // Exactly the keys that must be stored are stored.
    let known = promises.owed.iter().filter(|(_, owed)| !owed.is_empty()).map(|(key, _)| *key);
    let known: BTreeSet<u8> = known.chain(promises.processing.iter().copied()).collect();
    prop_assert_eq!(core.keys.keys().copied().collect::<BTreeSet<_>>(), known);
    Ok(())
}

fn work_off(
    mut core: WorkQueueCore<u8>,
    mut promises: Promises,
    mut now: Instant,
) -> Result<(), TestCaseError> {
    for _ in 0..1000 {
        match core.take(now) {
            NextKey::Key(key, _) => promises.handed_out(key, now),
            NextKey::Nothing { until: Some(until) } => now = until,
            NextKey::Nothing { until: None } if promises.processing.is_empty() => {
                prop_assert!(promises.owed.values().all(BTreeSet::is_empty));
                prop_assert!(core.keys.is_empty());
                return Ok(());
            }
            NextKey::Nothing { until: None } => {
                for key in std::mem::take(&mut promises.processing) {
                    core.finish(&key, WorkOutcome::Done, now);
                }
            }
            NextKey::Ended => prop_assert!(false, "it was not shut down"),
        }
    }
    prop_assert!(false, "it never ends");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(300)))]

    #[test]
    fn due_key_reaches_exactly_one_worker(steps in prop::collection::vec(step(), 0..80)) {
        play(steps)?;
    }
}
