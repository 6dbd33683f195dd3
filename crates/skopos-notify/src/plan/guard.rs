use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use skopos_reflect::Time;

use super::evidence::Removal;
use super::options::PlanOptions;
use crate::entry::{EntryName, EntryValue};
use crate::sink::ObservedEntry;

/// Reason for which a removal waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HoldReason {
    /// Another cluster answers than before.
    AnotherCluster,
    /// The view is too old.
    Stale,
    /// It is missing, but its removal was not seen: a later list must agree.
    Unconfirmed,
    /// Too much would be lost at once.
    Fraction,
    /// It is the last value of a name that is still asked for.
    LastOne,
    /// Too many were removed within this minute.
    Rate,
}

/// Removals that wait, all for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldRemovals {
    /// The digest of the removals. An approval covers these and no others.
    pub id: String,
    /// The reason.
    pub reason: HoldReason,
    /// The removals.
    pub removals: BTreeSet<Removal>,
}

/// Limits on losses: per ten minutes and per minute.
#[derive(Debug, Default)]
pub(super) struct RemovalGuard {
    /// Numbers of serving values at some moments of the last ten minutes.
    history: VecDeque<(Time, usize)>,
    /// Times of the losses within the last minute.
    recent: VecDeque<Time>,
    /// Times within the last ten minutes at which a name gained values beside others. Replaced values are no loss.
    gains: BTreeMap<EntryName, VecDeque<Time>>,
}

/// Time over which losses are counted.
const WINDOW: Duration = Duration::from_secs(600);
const MINUTE: Duration = Duration::from_secs(60);
/// Resolution of the history.
const GRAIN: Duration = Duration::from_secs(10);

impl RemovalGuard {
    /// Records the number of serving values. Values that were added beside others do not count, because the others may go.
    pub(super) fn serving(&mut self, now: Time, count: usize) {
        let gained: usize = self.gains.values().map(VecDeque::len).sum();
        let count = count.saturating_sub(gained);
        while self.history.front().is_some_and(|(at, _)| now.since(*at) > WINDOW) {
            self.history.pop_front();
        }
        match self.history.back_mut() {
            Some((at, most)) if now.since(*at) < GRAIN => *most = (*most).max(count),
            _ => self.history.push_back((now, count)),
        }
    }

    /// Returns whether the number of serving values may fall to `after`.
    pub(super) fn allows(&self, after: usize, options: &PlanOptions) -> bool {
        let peak = self.history.iter().map(|(_, count)| *count).max().unwrap_or(0);
        let lost = peak.saturating_sub(after);
        lost <= options.at_least || lost as f64 <= options.fraction * peak as f64
    }

    /// Returns the number of values that may lose their traffic now, and the time when more may.
    pub(super) fn left(&mut self, now: Time, options: &PlanOptions) -> (usize, Option<Time>) {
        while self.recent.front().is_some_and(|at| now.since(*at) >= MINUTE) {
            self.recent.pop_front();
        }
        self.gains.retain(|_, gains| {
            while gains.front().is_some_and(|at| now.since(*at) >= WINDOW) {
                gains.pop_front();
            }
            !gains.is_empty()
        });
        let left = (options.per_minute as usize).saturating_sub(self.recent.len());
        (left, self.recent.front().map(|at| *at + MINUTE))
    }

    /// Records losses.
    pub(super) fn lose(&mut self, now: Time, count: usize) {
        self.recent.extend(std::iter::repeat_n(now, count));
    }

    /// Records the change of a name outside: values that it gained beside others, and values that it lost.
    pub(super) fn moved(
        &mut self,
        now: Time,
        name: &EntryName,
        before: Option<&ObservedEntry>,
        after: Option<&ObservedEntry>,
    ) {
        let serving = |entry: Option<&'_ ObservedEntry>| -> BTreeSet<EntryValue> {
            entry.into_iter().flat_map(ObservedEntry::serving).cloned().collect()
        };
        let (before, after) = (serving(before), serving(after));
        if before.is_empty() {
            return;
        }
        let gained = after.difference(&before).count();
        let lost = before.difference(&after).count();
        let gains = self.gains.entry(name.clone()).or_default();
        gains.extend(std::iter::repeat_n(now, gained));
        gains.drain(..lost.min(gains.len()));
        if gains.is_empty() {
            self.gains.remove(name);
        }
    }

    /// Returns the number of values that a name may lose because others have replaced them.
    pub(super) fn replaceable(&self, name: &EntryName) -> usize {
        self.gains.get(name).map_or(0, VecDeque::len)
    }

    /// Forgets the history, so that approved removals are not held again.
    pub(super) fn reset(&mut self) {
        self.history.clear();
    }
}

impl HeldRemovals {
    pub(crate) fn new(reason: HoldReason, removals: BTreeSet<Removal>) -> Self {
        let mut digest = Sha256::new();
        digest.update(reason.as_str());
        for removal in &removals {
            digest.update([0]);
            digest.update(removal.name.as_str());
            digest.update([1]);
            digest.update(removal.value.as_deref().unwrap_or_default());
        }
        let id = digest.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        Self { id, reason, removals }
    }
}

impl HoldReason {
    /// Returns the reason as metrics and commands name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AnotherCluster => "anotherCluster",
            Self::Stale => "stale",
            Self::Unconfirmed => "unconfirmed",
            Self::Fraction => "fraction",
            Self::LastOne => "lastOne",
            Self::Rate => "rate",
        }
    }

    /// Returns all reasons.
    pub fn all() -> [Self; 6] {
        [Self::AnotherCluster, Self::Stale, Self::Unconfirmed, Self::Fraction, Self::LastOne, Self::Rate]
    }
}

impl fmt::Display for HoldReason {
    /// Says what happened and what to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AnotherCluster => "another cluster answers at this address; if that is right, approve it",
            Self::Stale => "the view of the cluster is too old to remove anything; it resumes when the API server answers again",
            Self::Unconfirmed => "it is missing, but was not seen to be deleted; it resumes when a later list agrees",
            Self::Fraction => "too much would be removed within ten minutes; if that is right, approve it",
            Self::LastOne => "it is the last one behind a name that is still wanted; it goes when another one is ready, or by approval",
            Self::Rate => "the limit of removals per minute is reached; it resumes within a minute",
        })
    }
}
