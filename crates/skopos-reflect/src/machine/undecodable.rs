//! Frames that cannot be decoded. The change in such a frame exists: continuing would lose it, and the RV of the next
//! event would hide that permanently. So the stream ends there and the RV stays.
//!
//! ```text
//!   broken frame ─▶ watch again at the same RV, on another connection (perhaps the bytes were damaged on their way)
//!   the same one again ─▶ key and RV are known? ─no, and a third time──▶ list everything; what is broken there is quarantined
//!                              │
//!                             yes
//!                              ├─ the third such one in a row ──▶ list everything
//!                              ├─ a deletion ──▶ the key is gone, at that RV
//!                              └─ read the object: of that very RV ─▶ apply it
//!                                                  newer, or gone ──▶ its own event will follow: quarantine the key until then
//!                                                  broken as well ──▶ quarantine the key
//!                                                  another object ──▶ no answer: read again
//! ```
//!
//! A quarantined key keeps its old content, the reflector reports `Degraded`, and further broken frames of the key are
//! skipped, except deletions. The first good event of the key, or a list that can read it, ends that. If the key's
//! event was skipped, none may come, so the key is also read again (`quarantine`).

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;

use skopos_wire::{BrokenFrame, ObjectKey, RawObject};

use super::position::Admission;
use super::*;

/// The frames and objects that could not be decoded.
#[derive(Debug, Default)]
pub(super) struct Undecodable {
    /// The frame that stopped the last stream. If it names its object, a change is known to be missing until its event comes.
    suspect: Option<SuspectFrame>,
    /// The number of named frames accepted as broken since the last stream that was open for a while.
    accepted: u32,
    /// The quarantined keys.
    keys: BTreeSet<ObjectKey>,
    /// Objects of the last list that can be neither decoded nor named.
    nameless: usize,
}

/// A broken frame that stopped a stream.
#[derive(Clone, Debug)]
pub(super) struct SuspectFrame {
    key: Option<ObjectKey>,
    resource_version: Option<ResourceVersion>,
    deletion: bool,
    reason: Reason,
    /// Our RV at that moment.
    at_version: Option<ResourceVersion>,
    /// The number of times it came in a row.
    times: u32,
    /// The number of failed reads of the object.
    failed_reads: u32,
}

/// A read of one object in progress.
#[derive(Debug)]
pub(super) struct Fetching {
    pub(super) id: RequestId,
    pub(super) deadline: Time,
    suspect: SuspectFrame,
}

/// The number of times after which a frame that names its object is accepted as broken...
const NAMED_ATTEMPTS: u32 = 2;
/// ... and that of one without a name: only a list can get past it, which costs more.
const NAMELESS_ATTEMPTS: u32 = 3;
/// The number of consecutive named frames that are taken as the first of many. Each costs two streams and a read, which
/// may take a minute; a list gets past all of them.
const MAX_CONSECUTIVE_NAMED: u32 = 3;
/// The number of failed reads of the object after which everything is listed.
const MAX_READ_ATTEMPTS: u32 = 3;

impl Undecodable {
    pub(super) fn count(&self) -> usize {
        self.keys.len() + self.nameless + usize::from(self.pending_key().is_some())
    }

    /// Returns the key whose change came broken once. The change is due again after our RV; if the frame was damaged on
    /// its way, there may be no such change.
    fn pending_key(&self) -> Option<&ObjectKey> {
        let suspect = self.suspect.as_ref().filter(|suspect| suspect.is_named())?;
        suspect.key.as_ref().filter(|key| !self.keys.contains(*key))
    }

    pub(super) fn degradation(&self) -> Option<Degradation> {
        let count = self.count();
        let key = || self.keys.first().or(self.pending_key()).cloned();
        (count > 0).then(|| Degradation::Undecodable { key: key(), count })
    }

    /// Records a list that replaced everything.
    pub(super) fn record_list(&mut self, unreadable: Vec<ObjectKey>, nameless: usize) {
        self.suspect = None;
        self.accepted = 0;
        self.keys = unreadable.into_iter().collect();
        self.nameless = nameless;
    }

    /// Returns whether a change of the key is missing, or may be.
    pub(super) fn may_miss(&self, key: &ObjectKey) -> bool {
        self.keys.contains(key) || self.pending_key() == Some(key)
    }

    /// Returns the next key after this one, and the first after the last. `None` if objects without names are missing:
    /// they come first.
    pub(super) fn next_key(&self, key: Option<&ObjectKey>) -> Option<&ObjectKey> {
        if self.nameless > 0 {
            return None;
        }
        let later = key.and_then(|key| self.keys.range((Bound::Excluded(key), Bound::Unbounded)).next());
        later.or_else(|| self.keys.first()).or_else(|| self.pending_key())
    }

    /// Records a good event of the key.
    pub(super) fn mark_readable(&mut self, key: &ObjectKey) {
        if !self.keys.is_empty() {
            self.keys.remove(key);
        }
        if self.suspect.as_ref().is_some_and(|suspect| suspect.key.as_ref() == Some(key)) {
            self.suspect = None;
        }
    }
}

impl SuspectFrame {
    fn is_named(&self) -> bool {
        self.key.is_some() && self.resource_version.is_some()
    }

    fn is_same_as(&self, other: &SuspectFrame) -> bool {
        if self.is_named() {
            self.key == other.key && self.resource_version == other.resource_version
        } else {
            self.at_version == other.at_version
        }
    }
}

impl Machine {
    /// Returns whether a broken frame must end the stream. If not, the frame has been handled.
    pub(super) fn stops_stream(&mut self, frame: &BrokenFrame, sink: &mut dyn Sink) -> bool {
        self.stats.undecodable += 1;
        let (Some(key), Some(resource_version), Some(position)) =
            (&frame.key, &frame.resource_version, &mut self.position)
        else {
            return true;
        };
        if position.admit(key, resource_version) == Admission::Duplicate {
            self.stats.duplicates += 1;
            return false;
        }
        if !self.undecodable.keys.contains(key) {
            return true;
        }
        position.mark_applied(key, resource_version, self.now);
        if is_deletion(frame) && self.options.content == Content::Objects {
            // Nothing more about it is needed, and no later event may report the deletion.
            self.undecodable.mark_readable(key);
            self.stats.changes += 1;
            let (key, resource_version) = (key.clone(), resource_version.clone());
            self.changes.push(Change::Gone { key, resource_version });
        } else {
            sink.skipped(key, resource_version);
        }
        false
    }

    /// Handles the frame that stopped the stream.
    pub(super) fn on_broken_frame(&mut self, frame: &BrokenFrame, sink: &mut dyn Sink) {
        self.on_suspect_frame(
            SuspectFrame {
                key: frame.key.clone(),
                resource_version: frame.resource_version.clone(),
                deletion: is_deletion(frame),
                reason: Reason::new(Cause::Unusable, frame.to_string()),
                at_version: self.resource_version().cloned(),
                times: 1,
                failed_reads: 0,
            },
            sink,
        );
    }

    /// Handles a stream that cannot be split into frames any more.
    pub(super) fn on_broken_stream(&mut self, verdict: Verdict, sink: &mut dyn Sink) {
        self.on_suspect_frame(
            SuspectFrame {
                key: None,
                resource_version: None,
                deletion: false,
                reason: verdict.reason,
                at_version: self.resource_version().cloned(),
                times: 1,
                failed_reads: 0,
            },
            sink,
        );
    }

    fn on_suspect_frame(&mut self, mut suspect: SuspectFrame, sink: &mut dyn Sink) {
        if let Some(last) = self.undecodable.suspect.take().filter(|last| last.is_same_as(&suspect)) {
            suspect.times = last.times.saturating_add(1);
        }
        if matches!(&self.state, State::Watching(watching) if watching.was_stable(self.now)) {
            self.undecodable.accepted = 0;
        }
        let attempts = if suspect.is_named() { NAMED_ATTEMPTS } else { NAMELESS_ATTEMPTS };
        if suspect.times < attempts {
            let reason = suspect.reason.clone();
            let verdict = Verdict { meaning: Meaning::Malformed, reason, retry_after: None };
            self.undecodable.suspect = Some(suspect);
            return self.retry_watch(verdict, sink);
        }
        let (Some(key), Some(resource_version)) = (suspect.key.clone(), suspect.resource_version.clone())
        else {
            return self.relist(ListPlan::undecodable(), suspect.reason, sink);
        };
        self.undecodable.accepted = self.undecodable.accepted.saturating_add(1);
        // A sink of changes would lose those that a list skips.
        if self.undecodable.accepted >= MAX_CONSECUTIVE_NAMED && self.options.content == Content::Objects {
            return self.relist(ListPlan::undecodable(), suspect.reason, sink);
        }
        self.cancel_verification();
        if suspect.deletion {
            let gone = Change::Gone { key, resource_version: resource_version.clone() };
            self.repair(gone, &resource_version, sink);
        } else {
            self.start_get(suspect);
        }
    }

    pub(super) fn start_get(&mut self, suspect: SuspectFrame) {
        let Some(key) = suspect.key.clone() else { return self.start_watch(None, false) };
        let until = self.affordable_at(1);
        if until > self.now {
            return self.wait_for_budget(until, Next::Fetch(suspect));
        }
        let id = self.new_id();
        self.stats.get_requests += 1;
        self.requests.spend(self.now);
        self.actions.push_back(Action::Get(GetRequest {
            id,
            key,
            avoid: None,
            wait_for_connection: self.outage,
        }));
        self.state =
            State::Fetching(Fetching { id, deadline: self.now + self.options.list_timeout, suspect });
    }

    pub(super) fn on_got(&mut self, object: Result<Option<RawObject>, BrokenItem>, sink: &mut dyn Sink) {
        let State::Fetching(Fetching { suspect, .. }) = &self.state else { return };
        let suspect = suspect.clone();
        let (Some(key), Some(resource_version)) = (suspect.key, suspect.resource_version) else { return };
        match object {
            Ok(Some(object)) if *object.key() != key => {
                let reason = format!("the read of {key} was answered with {}", object.key());
                self.on_get_failed(Verdict::new(Meaning::Malformed, reason), sink);
            }
            Ok(Some(object)) => match object.resource_version().cmp(&resource_version) {
                Ordering::Equal => self.repair(Change::Put(object), &resource_version, sink),
                // The frame's RV was never the object's: nothing in the frame can be trusted.
                Ordering::Less => self.relist(ListPlan::undecodable(), suspect.reason, sink),
                // The event that made it so is still to come.
                Ordering::Greater => self.quarantine_key(key, &resource_version, sink),
            },
            // Gone: that event is still to come. Or broken.
            Ok(None) | Err(_) => self.quarantine_key(key, &resource_version, sink),
        }
    }

    pub(super) fn on_get_failed(&mut self, verdict: Verdict, sink: &mut dyn Sink) {
        let State::Fetching(Fetching { suspect, .. }) = &self.state else { return };
        let mut suspect = suspect.clone();
        suspect.failed_reads += 1;
        if suspect.failed_reads >= MAX_READ_ATTEMPTS
            && !matches!(verdict.meaning, Meaning::CannotConnect { .. })
        {
            self.relist(ListPlan::undecodable(), suspect.reason, sink);
        } else {
            self.fail(verdict, Next::Fetch(suspect), sink);
        }
    }

    /// Applies the change of a broken frame, known from another source.
    fn repair(&mut self, change: Change, resource_version: &ResourceVersion, sink: &mut dyn Sink) {
        let before = self.resource_version().cloned();
        if let Some(position) = &mut self.position {
            position.mark_applied(change.key(), resource_version, self.now);
        }
        self.undecodable.mark_readable(change.key());
        if self.reflector.condition.is_watching() {
            self.set_watching();
        }
        self.stats.changes += 1;
        self.changes.push(change);
        self.flush(before, sink);
        self.start_watch(None, false);
    }

    /// Quarantines the key of a broken frame: the reflector continues past it, and reports it.
    fn quarantine_key(&mut self, key: ObjectKey, resource_version: &ResourceVersion, sink: &mut dyn Sink) {
        let before = self.resource_version().cloned();
        if let Some(position) = &mut self.position {
            position.mark_applied(&key, resource_version, self.now);
        }
        sink.skipped(&key, resource_version);
        self.undecodable.keys.insert(key);
        self.report_undecodable(self.undecodable.count(), sink);
        self.flush(before, sink);
        self.start_watch(None, false);
    }

    /// Reports how many objects the content will lack, before the RV moves. A reader that looks between the new RV and
    /// the next open watch must not take the content as complete.
    pub(super) fn report_undecodable(&mut self, count: usize, sink: &mut dyn Sink) {
        if self.reflector.condition.is_watching() {
            self.set_watching();
        }
        self.reflector.undecodable = count;
        self.link_changed = false;
        sink.state(&self.reflector);
    }
}

fn is_deletion(frame: &BrokenFrame) -> bool {
    frame.event_type.as_deref() == Some("DELETED")
}
