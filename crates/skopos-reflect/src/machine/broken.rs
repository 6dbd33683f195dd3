//! Frames that cannot be decoded. The change in such a frame exists: continuing would lose it, and the RV of the next
//! event would hide that permanently. So the stream ends there and the RV stays.
//!
//! ```text
//!   broken frame ─▶ watch again at the same RV, on another connection (perhaps the bytes were damaged on their way)
//!   the same one again ─▶ key and RV are known? ─no, and a third time──▶ list everything; what is broken there is set aside
//!                              │
//!                             yes
//!                              ├─ the third such one in a row ──▶ list everything
//!                              ├─ a deletion ──▶ the key is gone, at that RV
//!                              └─ read the object: of that very RV ─▶ apply it
//!                                                  newer, or gone ──▶ its own event will follow: set the key aside until then
//!                                                  broken as well ──▶ set the key aside
//!                                                  another object ──▶ no answer: read again
//! ```
//!
//! A key that is set aside keeps its old content, the link reports `Degraded`, and further broken frames of the key are
//! skipped, except deletions. The first good event of the key, or a list that can read it, ends that. If the key's
//! event was skipped, none may come, so the key is also read again (`again`).

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;

use skopos_wire::{BrokenFrame, ObjectKey, RawObject};

use super::position::Admission;
use super::*;

/// The frames and objects that could not be decoded.
#[derive(Debug, Default)]
pub(super) struct Broken {
    /// The frame that stopped the last stream. If it names its object, a change is known to be missing until its event comes.
    suspect: Option<Suspect>,
    /// The number of named frames accepted as broken since the last stream that was open for a while.
    believed: u32,
    /// The keys that are set aside.
    keys: BTreeSet<ObjectKey>,
    /// Objects of the last list that can be neither decoded nor named.
    nameless: usize,
}

/// A broken frame that stopped a stream.
#[derive(Clone, Debug)]
pub(super) struct Suspect {
    key: Option<ObjectKey>,
    resource_version: Option<ResourceVersion>,
    deletion: bool,
    reason: Reason,
    /// Our RV at that moment.
    stood_at: Option<ResourceVersion>,
    /// The number of times it came in a row.
    times: u32,
    /// The number of failed reads of the object.
    failed_reads: u32,
}

/// A read of one object in progress.
#[derive(Debug)]
pub(super) struct Resolving {
    pub(super) id: RequestId,
    pub(super) patience: Time,
    suspect: Suspect,
}

/// The number of times after which a frame that names its object is accepted as broken...
const NAMED_TIMES: u32 = 2;
/// ... and that of one without a name: only a list can get past it, which costs more.
const NAMELESS_TIMES: u32 = 3;
/// The number of consecutive named frames that are taken as the first of many. Each costs two streams and a read, which
/// may take a minute; a list gets past all of them.
const MANY: u32 = 3;
/// The number of failed reads of the object after which everything is listed.
const READ_ATTEMPTS: u32 = 3;

impl Broken {
    pub(super) fn count(&self) -> usize {
        self.keys.len() + self.nameless + usize::from(self.awaited().is_some())
    }

    /// Returns the key whose change came broken once. The change is due again after our RV; if the frame was damaged on
    /// its way, there may be no such change.
    fn awaited(&self) -> Option<&ObjectKey> {
        let suspect = self.suspect.as_ref().filter(|suspect| suspect.is_named())?;
        suspect.key.as_ref().filter(|key| !self.keys.contains(*key))
    }

    pub(super) fn degradation(&self) -> Option<Degradation> {
        let count = self.count();
        let key = || self.keys.first().or(self.awaited()).cloned();
        (count > 0).then(|| Degradation::Undecodable { key: key(), count })
    }

    /// Records a list that replaced everything.
    pub(super) fn listed(&mut self, unreadable: Vec<ObjectKey>, nameless: usize) {
        self.suspect = None;
        self.believed = 0;
        self.keys = unreadable.into_iter().collect();
        self.nameless = nameless;
    }

    /// Returns whether a change of the key is missing, or may be.
    pub(super) fn awaits(&self, key: &ObjectKey) -> bool {
        self.keys.contains(key) || self.awaited() == Some(key)
    }

    /// Returns the next key after this one, and the first after the last. `None` if objects without names are missing:
    /// they come first.
    pub(super) fn after(&self, key: Option<&ObjectKey>) -> Option<&ObjectKey> {
        if self.nameless > 0 {
            return None;
        }
        let later = key.and_then(|key| self.keys.range((Bound::Excluded(key), Bound::Unbounded)).next());
        later.or_else(|| self.keys.first()).or_else(|| self.awaited())
    }

    /// Records a good event of the key.
    pub(super) fn readable(&mut self, key: &ObjectKey) {
        if !self.keys.is_empty() {
            self.keys.remove(key);
        }
        if self.suspect.as_ref().is_some_and(|suspect| suspect.key.as_ref() == Some(key)) {
            self.suspect = None;
        }
    }
}

impl Suspect {
    fn is_named(&self) -> bool {
        self.key.is_some() && self.resource_version.is_some()
    }

    fn is_same_as(&self, other: &Suspect) -> bool {
        if self.is_named() {
            self.key == other.key && self.resource_version == other.resource_version
        } else {
            self.stood_at == other.stood_at
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
        if !self.broken.keys.contains(key) {
            return true;
        }
        position.applied(key, resource_version, self.now);
        if is_deletion(frame) && self.options.content == Content::Objects {
            // Nothing more about it is needed, and no later event may report the deletion.
            self.broken.readable(key);
            self.stats.changes += 1;
            let (key, resource_version) = (key.clone(), resource_version.clone());
            self.changes.push(Change::Gone { key, resource_version });
        } else {
            sink.passed_over(key, resource_version);
        }
        false
    }

    /// Handles the frame that stopped the stream.
    pub(super) fn on_broken_frame(&mut self, frame: &BrokenFrame, sink: &mut dyn Sink) {
        self.on_suspect(
            Suspect {
                key: frame.key.clone(),
                resource_version: frame.resource_version.clone(),
                deletion: is_deletion(frame),
                reason: Reason::new(Cause::Unusable, frame.to_string()),
                stood_at: self.resource_version().cloned(),
                times: 1,
                failed_reads: 0,
            },
            sink,
        );
    }

    /// Handles a stream that cannot be split into frames any more.
    pub(super) fn on_broken_stream(&mut self, verdict: Verdict, sink: &mut dyn Sink) {
        self.on_suspect(
            Suspect {
                key: None,
                resource_version: None,
                deletion: false,
                reason: verdict.reason,
                stood_at: self.resource_version().cloned(),
                times: 1,
                failed_reads: 0,
            },
            sink,
        );
    }

    fn on_suspect(&mut self, mut suspect: Suspect, sink: &mut dyn Sink) {
        if let Some(last) = self.broken.suspect.take().filter(|last| last.is_same_as(&suspect)) {
            suspect.times = last.times.saturating_add(1);
        }
        if matches!(&self.state, State::Watching(watching) if watching.has_stood(self.now)) {
            self.broken.believed = 0;
        }
        let believed_after = if suspect.is_named() { NAMED_TIMES } else { NAMELESS_TIMES };
        if suspect.times < believed_after {
            let reason = suspect.reason.clone();
            let verdict = Verdict { meaning: Meaning::Malformed, reason, retry_after: None };
            self.broken.suspect = Some(suspect);
            return self.wait_to_watch(verdict, sink);
        }
        let (Some(key), Some(resource_version)) = (suspect.key.clone(), suspect.resource_version.clone())
        else {
            return self.relist(ListPlan::undecodable(), suspect.reason, sink);
        };
        self.broken.believed = self.broken.believed.saturating_add(1);
        // A sink of changes would lose those that a list skips.
        if self.broken.believed >= MANY && self.options.content == Content::Objects {
            return self.relist(ListPlan::undecodable(), suspect.reason, sink);
        }
        self.cancel_look();
        if suspect.deletion {
            let gone = Change::Gone { key, resource_version: resource_version.clone() };
            self.repair(gone, &resource_version, sink);
        } else {
            self.start_get(suspect);
        }
    }

    pub(super) fn start_get(&mut self, suspect: Suspect) {
        let Some(key) = suspect.key.clone() else { return self.start_watch(None, false) };
        let until = self.affordable_at(1);
        if until > self.now {
            return self.put_off(until, Next::Resolve(suspect));
        }
        let id = self.new_id();
        self.stats.get_requests += 1;
        self.requests.spend(self.now);
        self.actions.push_back(Action::Get(GetRequest { id, key, avoid: None, patient: self.outage }));
        self.state =
            State::Resolving(Resolving { id, patience: self.now + self.options.list_patience, suspect });
    }

    pub(super) fn on_got(&mut self, object: Result<Option<RawObject>, BrokenItem>, sink: &mut dyn Sink) {
        let State::Resolving(Resolving { suspect, .. }) = &self.state else { return };
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
                Ordering::Greater => self.set_aside(key, &resource_version, sink),
            },
            // Gone: that event is still to come. Or broken.
            Ok(None) | Err(_) => self.set_aside(key, &resource_version, sink),
        }
    }

    pub(super) fn on_get_failed(&mut self, verdict: Verdict, sink: &mut dyn Sink) {
        let State::Resolving(Resolving { suspect, .. }) = &self.state else { return };
        let mut suspect = suspect.clone();
        suspect.failed_reads += 1;
        if suspect.failed_reads >= READ_ATTEMPTS && !matches!(verdict.meaning, Meaning::CannotConnect { .. })
        {
            self.relist(ListPlan::undecodable(), suspect.reason, sink);
        } else {
            self.fail(verdict, Next::Resolve(suspect), sink);
        }
    }

    /// Applies the change of a broken frame, known from another source.
    fn repair(&mut self, change: Change, resource_version: &ResourceVersion, sink: &mut dyn Sink) {
        let before = self.resource_version().cloned();
        if let Some(position) = &mut self.position {
            position.applied(change.key(), resource_version, self.now);
        }
        self.broken.readable(change.key());
        if self.link.condition.is_watching() {
            self.set_standing();
        }
        self.stats.changes += 1;
        self.changes.push(change);
        self.flush(before, sink);
        self.start_watch(None, false);
    }

    /// Sets the key of a broken frame aside: the link continues past it, and reports it.
    fn set_aside(&mut self, key: ObjectKey, resource_version: &ResourceVersion, sink: &mut dyn Sink) {
        let before = self.resource_version().cloned();
        if let Some(position) = &mut self.position {
            position.applied(&key, resource_version, self.now);
        }
        sink.passed_over(&key, resource_version);
        self.broken.keys.insert(key);
        self.say_what_is_missing(self.broken.count(), sink);
        self.flush(before, sink);
        self.start_watch(None, false);
    }

    /// Reports how many objects the content will lack, before the RV moves. A reader that looks between the new RV and
    /// the next open watch must not take the content as complete.
    pub(super) fn say_what_is_missing(&mut self, count: usize, sink: &mut dyn Sink) {
        if self.link.condition.is_watching() {
            self.set_standing();
        }
        self.link.undecodable = count;
        self.link_changed = false;
        sink.state(&self.link);
    }
}

fn is_deletion(frame: &BrokenFrame) -> bool {
    frame.event_type.as_deref() == Some("DELETED")
}
