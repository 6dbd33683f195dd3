//! The position of the content in the server's history.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use skopos_wire::{ObjectKey, ResourceVersion};

use crate::Time;

/// The RV of the content, with the state that tells new events from applied ones.
#[derive(Debug)]
pub(super) struct Position {
    resource_version: ResourceVersion,
    /// The keys whose events had exactly this RV. Several keys can share one: etcd deletes all keys of an expired lease
    /// (Events with a TTL) in one revision.
    keys_at_version: HashSet<ObjectKey>,
    /// True if all changes at this RV are known to be applied: it came from a list. If not, a watch after this RV would
    /// omit the rest permanently. A bookmark does not tell: kube-apiserver's watch cache sends one event after the
    /// other, and a bookmark with the last RV whenever its time has come.
    complete: bool,
    /// True if a stream that was open here for a moment has ended in order: it left no change at this RV.
    settled: bool,
    /// The time at which we reached this RV.
    since: Time,
    /// The past RVs and their times, latest last.
    history: VecDeque<(Time, ResourceVersion)>,
}

/// The relation of an event to a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Not applied yet.
    New,
    /// Applied before.
    Duplicate,
}

/// The minimum step between entries of the history...
const MIN_HISTORY_STEP: Duration = Duration::from_millis(200);
/// ... and the maximum number of entries: more than the longest probe takes.
const MAX_HISTORY: usize = 256;
/// The maximum number of keys remembered at one RV; more are not accepted. kube-apiserver attaches at most 1000 keys to a lease.
const MAX_KEYS: usize = 10_000;
/// The number of keys whose memory is kept.
const RETAINED_CAPACITY: usize = 64;

impl Position {
    /// Makes a position after everything up to this RV.
    pub(super) fn new(resource_version: ResourceVersion, now: Time) -> Self {
        let history = VecDeque::from([(now, resource_version.clone())]);
        Position {
            resource_version,
            keys_at_version: HashSet::new(),
            complete: true,
            settled: false,
            since: now,
            history,
        }
    }

    /// Makes a position for content kept at this RV. It is unknown whether the content has all changes that share the RV.
    pub(super) fn from_checkpoint(resource_version: ResourceVersion, now: Time) -> Self {
        Position { complete: false, ..Position::new(resource_version, now) }
    }

    pub(super) fn resource_version(&self) -> &ResourceVersion {
        &self.resource_version
    }

    /// Returns the RV after which a watch brings all changes that were not applied: those after our RV and, if some at
    /// our RV may be missing, those at it.
    pub(super) fn resume_after(&self) -> ResourceVersion {
        match self.resource_version.as_u64() {
            // 0 would mean any RV.
            Some(ours @ 2..) if !self.complete => (ours - 1).into(),
            _ => self.resource_version.clone(),
        }
    }

    /// Returns whether everything up to this RV was applied, except changes in transit. `stream_open`: a stream is open
    /// for long enough to have brought the changes that were due at once.
    pub(super) fn covers(&self, resource_version: &ResourceVersion, stream_open: bool) -> bool {
        use std::cmp::Ordering::*;
        match resource_version.cmp(&self.resource_version) {
            Less => true,
            // A lost stream took with it the changes that it had not delivered.
            Equal => self.complete || self.settled || stream_open,
            Greater => false,
        }
    }

    /// Returns whether an event of this key and RV is new, or was applied before.
    pub(super) fn admit(&self, key: &ObjectKey, resource_version: &ResourceVersion) -> Admission {
        use std::cmp::Ordering::*;
        match resource_version.cmp(&self.resource_version) {
            Greater => Admission::New,
            Equal if !self.complete && !self.keys_at_version.contains(key) => Admission::New,
            Equal | Less => Admission::Duplicate,
        }
    }

    /// Returns whether too many changes share our RV to remember them: new changes at it cannot be distinguished from applied
    /// ones.
    pub(super) fn is_at_key_limit(&self) -> bool {
        self.keys_at_version.len() >= MAX_KEYS
    }

    /// Records an admitted event as applied.
    pub(super) fn mark_applied(&mut self, key: &ObjectKey, resource_version: &ResourceVersion, now: Time) {
        if *resource_version != self.resource_version {
            self.move_to(resource_version, now);
        }
        self.complete = false;
        self.settled = false;
        self.keys_at_version.insert(key.clone());
    }

    /// Records that a stream that was open here for a moment has ended in order.
    pub(super) fn settle(&mut self) {
        self.settled = true;
    }

    /// Records that everything before this RV was applied, and at it the changes due so far. Returns false if that was known.
    pub(super) fn advance(&mut self, resource_version: &ResourceVersion, now: Time) -> bool {
        if *resource_version < self.resource_version {
            return false;
        }
        let moves = *resource_version > self.resource_version;
        if moves {
            self.move_to(resource_version, now);
            self.complete = false;
        }
        moves
    }

    /// Returns an RV that was reached by that moment, if still known: a later consistent read cannot find a lower one,
    /// unless history was rolled back.
    pub(super) fn reached_by(&self, moment: Time) -> Option<&ResourceVersion> {
        if self.since <= moment {
            return Some(&self.resource_version);
        }
        self.history.iter().rev().find(|(at, _)| *at <= moment).map(|(_, resource_version)| resource_version)
    }

    fn move_to(&mut self, resource_version: &ResourceVersion, now: Time) {
        self.resource_version = resource_version.clone();
        self.since = now;
        self.settled = false;
        // Clearing takes time in proportion to the capacity.
        match self.keys_at_version.capacity() > RETAINED_CAPACITY {
            true => self.keys_at_version = HashSet::new(),
            false => self.keys_at_version.clear(),
        }
        let due = self.history.back().is_none_or(|(at, _)| now.since(*at) >= MIN_HISTORY_STEP);
        if due {
            if self.history.len() == MAX_HISTORY {
                self.history.pop_front();
            }
            self.history.push_back((now, resource_version.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::after_origin(Duration::from_millis(millis))
    }

    #[test]
    fn keys_that_share_an_rv_are_all_admitted_once() {
        let (a, b) = (ObjectKey::cluster("a"), ObjectKey::cluster("b"));
        let mut position = Position::new(5.into(), at(0));
        assert_eq!(position.admit(&a, &5.into()), Admission::Duplicate, "the list had it");
        assert_eq!(position.admit(&a, &6.into()), Admission::New);
        position.mark_applied(&a, &6.into(), at(1));
        assert_eq!(position.admit(&a, &6.into()), Admission::Duplicate);
        assert_eq!(position.admit(&b, &6.into()), Admission::New);
        position.mark_applied(&b, &6.into(), at(1));
        assert!(!position.advance(&6.into(), at(2)));
        let c = ObjectKey::cluster("c");
        assert_eq!(position.admit(&c, &6.into()), Admission::New, "a bookmark may come between two of them");
        assert_eq!(position.admit(&b, &6.into()), Admission::Duplicate);
        assert!(position.advance(&8.into(), at(2)));
        assert_eq!(position.admit(&c, &6.into()), Admission::Duplicate);
        assert_eq!(position.admit(&c, &8.into()), Admission::New, "and before the first of them");
        assert!(!position.advance(&4.into(), at(2)), "never back");
        assert_eq!(position.resource_version(), &ResourceVersion::from(8));
    }

    #[test]
    fn resume_after_covers_rest_of_last_version() {
        let mut position = Position::new(5.into(), at(0));
        assert_eq!(position.resume_after(), 5.into(), "the list had everything");
        position.mark_applied(&ObjectKey::cluster("a"), &8.into(), at(1));
        assert_eq!(position.resume_after(), 7.into());
        position.advance(&9.into(), at(2));
        assert_eq!(position.resume_after(), 8.into());
        position.mark_applied(&ObjectKey::cluster("a"), &"99999999999999999999".parse().unwrap(), at(3));
        assert_eq!(position.resume_after(), "99999999999999999999".parse().unwrap(), "etcd has none such");
        let mut position = Position::new(1.into(), at(0));
        position.mark_applied(&ObjectKey::cluster("a"), &1.into(), at(1));
        assert_eq!(position.resume_after(), 1.into(), "never 0");
    }

    #[test]
    fn history_gives_a_lower_bound() {
        let mut position = Position::new(5.into(), at(0));
        position.advance(&7.into(), at(1000));
        position.advance(&8.into(), at(1100));
        assert_eq!(position.reached_by(at(1100)), Some(&8.into()), "where we stand is always known");
        position.advance(&9.into(), at(5000));
        assert_eq!(position.reached_by(at(999)), Some(&5.into()));
        assert_eq!(position.reached_by(at(4000)), Some(&7.into()), "a lower bound, not the exact RV");
        assert_eq!(position.reached_by(at(5000)), Some(&9.into()));
        for n in 0..10_000u64 {
            position.advance(&(10 + n).into(), at(6000 + 1000 * n));
        }
        assert_eq!(position.reached_by(at(5000)), None, "forgotten");
        assert!(position.history.len() <= MAX_HISTORY);
    }
}
