use std::collections::BTreeSet;
use std::time::Duration;

use skopos_reflect::{Time, exponential_delay};

use super::decision::MemberTimes;
use crate::entry::EntryValue;

/// Work and pauses of one name. A name without either has no state.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NameState {
    pub(super) since: MemberTimes,
    /// Time since which the outside differs from the view.
    pub(super) behind_since: Option<Time>,
    pub(super) in_flight: bool,
    /// True if the outside was equal to the view in the last plan, and nothing was held.
    pub(super) is_equal: bool,
    /// True if it was written, or may have been. Only reading it back shows the result.
    pub(super) unverified: bool,
    /// The values of a write that was not read back: they may be outside, whatever was last seen.
    pub(super) sent: BTreeSet<EntryValue>,
    /// Failures since it was last equal.
    pub(super) failures: u32,
    pub(super) not_before: Option<Time>,
    pub(super) problem: Option<String>,
    pub(super) repairs: Vec<Time>,
}

/// The first and the last pause after a failure; it doubles with each.
pub(super) type Pauses = (Duration, Duration);

/// Pauses after a refusal. The refusal ends when a person changes something.
pub(super) const REFUSED: Pauses = (Duration::from_secs(5), Duration::from_secs(600));
/// Pauses after a conflict. The conflict ends with the next read, unless another program writes all the time.
pub(super) const CONFLICT: Pauses = (Duration::from_secs(1), Duration::from_secs(600));
/// Pauses after a write that may have been done. A failing sink gets a probe every ten seconds, like an unreachable one.
pub(super) const UNKNOWN: Pauses = (Duration::from_secs(1), Duration::from_secs(10));
/// Maximum number of repairs of other programs' changes within a minute.
const REPAIRS_PER_MINUTE: usize = 3;
const MINUTE: Duration = Duration::from_secs(60);

impl NameState {
    /// Records that the name was read back.
    pub(super) fn verified(&mut self) {
        self.unverified = false;
        self.sent.clear();
    }

    /// Records a failure; the pause doubles with each.
    pub(super) fn failed(&mut self, now: Time, problem: String, (first, last): Pauses) {
        let pause = exponential_delay(first, last, self.failures);
        self.failures += 1;
        (self.problem, self.not_before) = (Some(problem), Some(now + pause));
    }

    /// Records a change by another program, which is repaired.
    pub(super) fn repaired(&mut self, now: Time) {
        self.repairs.retain(|at| now.since(*at) < MINUTE);
        self.repairs.push(now);
    }

    /// Returns the end of the pause: after a failure, or because another program keeps changing the name.
    pub(super) fn waits_until(&self, now: Time) -> Option<Time> {
        let fought =
            self.repairs.len().checked_sub(REPAIRS_PER_MINUTE + 1).map(|index| self.repairs[index] + MINUTE);
        [self.not_before, fought].into_iter().flatten().filter(|at| *at > now).max()
    }

    /// Records that the outside is as wanted.
    pub(super) fn settled(&mut self, now: Time) {
        (self.failures, self.not_before, self.problem) = (0, None, None);
        self.repairs.retain(|at| now.since(*at) < MINUTE);
    }
}
