//! The queue as a state machine, without a lock, a clock or I/O: events and their times go in, the next key comes out.
//!
//! A key is in at most one state, and there is one entry for it:
//!
//! | state | and also |
//! |---|---|
//! | idle | delayed, or there would be no entry |
//! | waiting, once in the line | maybe delayed |
//! | processing, held by one worker | maybe added meanwhile; maybe delayed |

use std::collections::BTreeMap;
use std::collections::hash_map::{self, HashMap};
use std::hash::Hash;
use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;

use super::limit::Limiter;
use super::lines::{LinePosition, Lines, Priority};
use super::options::WorkQueueOptions;
use super::stats::WorkQueueStats;

/// The reason why a key was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddError {
    /// The queue was shut down: the caller is late.
    #[error("the work queue was shut down")]
    ShutDown,
    /// There are too many keys: the workers are too slow, or too few.
    #[error(
        "the work queue has {capacity} keys already: wait for room with add_within, add workers, or raise its capacity"
    )]
    Full {
        /// The maximum number of keys.
        capacity: usize,
    },
}

/// The outcome of the work on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkOutcome {
    /// Done; no further work is pending.
    Done,
    /// Failed: hand it out again, when the rate limit permits it.
    Retry,
    /// Done for now: hand it out again after this delay.
    Again(Duration),
}

/// The result of a worker's request for a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextKey<K> {
    /// A key, and the number of its failed attempts.
    Key(K, u32),
    /// No key waits; a delayed key is due at `until`.
    Nothing { until: Option<Instant> },
    /// No key waits, and none will come.
    Ended,
}

pub(super) struct WorkQueueCore<K> {
    capacity: usize,
    limiter: Limiter,
    keys: HashMap<K, KeyEntry>,
    waiting: Lines<K>,
    delayed: BTreeMap<Due, K>,
    processing: usize,
    /// The number of keys being processed that were added meanwhile.
    added_meanwhile: usize,
    /// The number of delays so far, which distinguishes keys that are due at the same time.
    delays: u64,
    shut_down: bool,
    stats: WorkQueueStats,
}

/// The time at which a delayed key is due, and its number among those of the same time.
type Due = (Instant, u64);

struct KeyEntry {
    state: KeyState,
    due: Option<Due>,
    /// The number of retries since it was last done.
    failures: u32,
}

#[derive(Clone, Copy)]
enum KeyState {
    Idle,
    Waiting { since: Instant, position: LinePosition },
    Processing { since: Instant, added: Option<(Instant, Priority)> },
}

/// The maximum of delays and limits, so that no sum overflows.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

impl<K: Clone + Eq + Hash> WorkQueueCore<K> {
    pub(super) fn new(options: &WorkQueueOptions) -> Self {
        Self {
            capacity: options.capacity.max(1),
            limiter: Limiter::new(&options.rate_limit),
            keys: HashMap::new(),
            waiting: Lines::new(),
            delayed: BTreeMap::new(),
            processing: 0,
            added_meanwhile: 0,
            delays: 0,
            shut_down: false,
            stats: WorkQueueStats { name: options.name.clone(), ..WorkQueueStats::default() },
        }
    }

    /// Adds a key.
    pub(super) fn add(&mut self, key: K, priority: Priority, now: Instant) -> Result<(), AddError> {
        self.admit(&key)?;
        self.put(key, priority, now);
        Ok(())
    }

    /// Adds a key at that time, or at an earlier one that was set before.
    pub(super) fn add_after(&mut self, key: K, delay: Duration, now: Instant) -> Result<(), AddError> {
        self.admit(&key)?;
        self.delay(key, delay, now);
        Ok(())
    }

    /// Adds a key that failed, when the rate limit permits it.
    pub(super) fn add_rate_limited(&mut self, key: K, now: Instant) -> Result<(), AddError> {
        self.admit(&key)?;
        self.delay_after_failure(key, now);
        Ok(())
    }

    /// Resets the failures of the key.
    pub(super) fn forget(&mut self, key: &K) {
        if let Some(entry) = self.keys.get_mut(key) {
            entry.failures = 0;
        }
    }

    /// Returns the number of retries of the key since it was last done.
    pub(super) fn failures(&self, key: &K) -> u32 {
        self.keys.get(key).map_or(0, |entry| entry.failures)
    }

    /// Hands a key out to a worker.
    pub(super) fn take(&mut self, now: Instant) -> NextKey<K> {
        self.promote(now);
        let Some(key) = self.waiting.pop() else {
            return match self.has_ended() {
                true => NextKey::Ended,
                false => NextKey::Nothing { until: self.delayed.keys().next().map(|(at, _)| *at) },
            };
        };
        let Some(entry) = self.keys.get_mut(&key) else { unreachable!("a key that waits has an entry") };
        if let KeyState::Waiting { since, .. } = entry.state {
            self.stats.latency.add(now.saturating_duration_since(since));
        }
        entry.state = KeyState::Processing { since: now, added: None };
        self.processing += 1;
        NextKey::Key(key, entry.failures)
    }

    /// Takes a key back from a worker.
    pub(super) fn finish(&mut self, key: &K, outcome: WorkOutcome, now: Instant) {
        let Some(entry) = self.keys.get_mut(key) else { return };
        let KeyState::Processing { since, added } = entry.state else { return };
        entry.state = KeyState::Idle;
        if outcome != WorkOutcome::Retry {
            entry.failures = 0;
        }
        self.processing -= 1;
        self.stats.work.add(now.saturating_duration_since(since));
        let open = !self.shut_down;
        match outcome {
            WorkOutcome::Again(delay) if open => self.delay(key.clone(), delay, now),
            // A key that was added meanwhile comes at once: that is the next try.
            WorkOutcome::Retry if open && added.is_some() => self.count_failure(key),
            WorkOutcome::Retry if open => self.delay_after_failure(key.clone(), now),
            _ => {}
        }
        if let Some((added, priority)) = added {
            self.added_meanwhile -= 1;
            self.put(key.clone(), priority, added);
        }
        self.remove_if_idle(key);
    }

    /// Shuts the queue down: refuses additions and drops delayed keys; waiting keys are still handed out.
    pub(super) fn shut_down(&mut self) {
        self.shut_down = true;
        self.stats.abandoned += self.delayed.len() as u64;
        for key in std::mem::take(&mut self.delayed).into_values() {
            if let Some(entry) = self.keys.get_mut(&key) {
                entry.due = None;
            }
            self.remove_if_idle(&key);
        }
    }

    /// Drops all waiting keys, so that only those held by workers are left.
    pub(super) fn abandon(&mut self) {
        self.stats.abandoned += (self.waiting.len() + self.added_meanwhile) as u64;
        self.added_meanwhile = 0;
        for key in self.waiting.drain() {
            self.keys.remove(&key);
        }
        for entry in self.keys.values_mut() {
            if let KeyState::Processing { added, .. } = &mut entry.state {
                *added = None;
            }
        }
    }

    /// Returns whether no key waits or is held by a worker.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.processing == 0
    }

    /// Returns the number of waiting keys, including those that wait for the end of work on them, and of keys held by
    /// workers.
    pub(super) fn left(&self) -> (usize, usize) {
        (self.waiting.len() + self.added_meanwhile, self.processing)
    }

    pub(super) fn name(&self) -> &str {
        &self.stats.name
    }

    pub(super) fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    /// Returns whether a waiting worker has to check again, sooner or later: there is a key, or will be, or never will be.
    pub(super) fn concerns_workers(&self) -> bool {
        !self.waiting.is_empty() || !self.delayed.is_empty() || self.has_ended()
    }

    /// Returns the number of keys that wait for a worker.
    pub(super) fn len(&mut self, now: Instant) -> usize {
        self.promote(now);
        self.waiting.len()
    }

    pub(super) fn stats(&mut self, now: Instant) -> WorkQueueStats {
        self.promote(now);
        let running = self.keys.values().filter_map(|entry| match entry.state {
            KeyState::Processing { since, .. } => Some(now.saturating_duration_since(since)),
            _ => None,
        });
        let (longest_running, unfinished) = running
            .fold((None, Duration::ZERO), |(longest, sum), time| (longest.max(Some(time)), sum + time));
        WorkQueueStats {
            depth: self.waiting.len(),
            delayed: self.delayed.len(),
            processing: self.processing,
            longest_running,
            unfinished,
            shut_down: self.shut_down,
            ..self.stats.clone()
        }
    }

    fn has_ended(&self) -> bool {
        self.shut_down && self.waiting.is_empty() && self.added_meanwhile == 0
    }

    /// Checks whether the key may be added. A key that is in the queue already takes no more room.
    fn admit(&mut self, key: &K) -> Result<(), AddError> {
        if self.shut_down {
            return Err(AddError::ShutDown);
        }
        if self.keys.len() >= self.capacity && !self.keys.contains_key(key) {
            self.stats.refused += 1;
            return Err(AddError::Full { capacity: self.capacity });
        }
        Ok(())
    }

    /// Puts a key at the end of a line, unless it waits in that line or the one in front. A key that is being processed
    /// comes there when the work has ended.
    fn put(&mut self, key: K, priority: Priority, since: Instant) {
        let (entry, position) = match self.keys.entry(key) {
            hash_map::Entry::Occupied(occupied) => {
                let key = occupied.key().clone();
                let entry = occupied.into_mut();
                let position = match &mut entry.state {
                    KeyState::Processing { added: added @ None, .. } => {
                        *added = Some((since, priority));
                        self.added_meanwhile += 1;
                        return;
                    }
                    KeyState::Processing { added: Some((_, before)), .. } => {
                        *before = priority.max(*before);
                        self.stats.collapsed += 1;
                        return;
                    }
                    KeyState::Waiting { position, .. } => {
                        if position.priority < priority && self.waiting.remove(*position).is_some() {
                            *position = self.waiting.push(key, priority);
                        }
                        self.stats.collapsed += 1;
                        return;
                    }
                    KeyState::Idle => self.waiting.push(key, priority),
                };
                (entry, position)
            }
            hash_map::Entry::Vacant(vacant) => {
                let position = self.waiting.push(vacant.key().clone(), priority);
                (vacant.insert(KeyEntry { state: KeyState::Idle, due: None, failures: 0 }), position)
            }
        };
        entry.state = KeyState::Waiting { since, position };
        self.stats.adds += 1;
        self.stats.deepest = self.stats.deepest.max(self.waiting.len());
    }

    fn delay_after_failure(&mut self, key: K, now: Instant) {
        let wait = self.limiter.wait(self.failures(&key), now);
        self.delay(key.clone(), wait, now);
        self.count_failure(&key);
    }

    fn count_failure(&mut self, key: &K) {
        self.stats.retries += 1;
        if let Some(entry) = self.keys.get_mut(key) {
            entry.failures = entry.failures.saturating_add(1);
        }
    }

    fn delay(&mut self, key: K, delay: Duration, now: Instant) {
        if delay.is_zero() {
            return self.put(key, Priority::Normal, now);
        }
        let at = now + delay.min(MAX_DELAY);
        let entry = self.keys.entry(key.clone()).or_insert(KeyEntry {
            state: KeyState::Idle,
            due: None,
            failures: 0,
        });
        if let Some(due) = entry.due {
            if due.0 <= at {
                self.stats.collapsed += 1;
                return;
            }
            self.delayed.remove(&due);
        }
        self.delays += 1;
        let due = (at, self.delays);
        entry.due = Some(due);
        self.delayed.insert(due, key);
    }

    /// Adds delayed keys whose time has come.
    fn promote(&mut self, now: Instant) {
        while let Some(first) = self.delayed.first_entry().filter(|first| first.key().0 <= now) {
            let ((at, _), key) = first.remove_entry();
            if let Some(entry) = self.keys.get_mut(&key) {
                entry.due = None;
            }
            self.put(key, Priority::Normal, at);
        }
    }

    /// Drops the entry of a key that is idle.
    fn remove_if_idle(&mut self, key: &K) {
        let idle = |entry: &KeyEntry| matches!(entry.state, KeyState::Idle) && entry.due.is_none();
        if self.keys.get(key).is_some_and(idle) {
            self.keys.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
