//! A model of the outside: a zone of names with values and a mark, with the observed behavior of real DNS servers, and a receiver of
//! messages.
//!
//! * A write is atomic, and done only if the mark is the one that the sender expects.
//! * A message that was sent arrives, even if its sender ends.
//! * A server that was frozen executes all messages in order when it wakes, also those that no sender waits for any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use skopos_notify::sink::{EntryMark, Observed, ObservedEntry, ObservedMember, SinkStep, StepAction};
use skopos_notify::{EntryName, EntryOwner, EntryValue};
use tokio::sync::oneshot;

use crate::history::{
    Address, AtOutside, Fact, KeyId, MessageId, ObjectState, Record, Recorder, Trouble, Written,
};
use crate::plan::Edit;

/// The zone. Clones share it.
#[derive(Clone)]
pub(super) struct Zone {
    recorder: Recorder,
    inside: Arc<Mutex<Inside>>,
}

#[derive(Default)]
struct Inside {
    records: BTreeMap<EntryName, Entry>,
    troubles: BTreeSet<Trouble>,
    /// Messages that arrived while it was frozen.
    held: Vec<Message>,
    /// Messages whose answers never arrive.
    lost: Vec<Message>,
}

/// A record.
#[derive(Clone)]
struct Entry {
    mark: Option<Arc<EntryOwner>>,
    values: BTreeSet<Address>,
}

/// A message that has arrived.
pub(super) enum Message {
    Write { message: MessageId, name: KeyId, step: SinkStep, answer: oneshot::Sender<Written> },
    Read { answer: oneshot::Sender<Option<Observed>> },
    Notify { message: MessageId, state: ObjectState, answer: oneshot::Sender<Written> },
}

/// The value that people add. No Service has it.
const BY_HAND: Address = Address(u32::from_be_bytes([10, 9, 9, 9]));

impl Zone {
    pub(super) fn new(recorder: Recorder) -> Self {
        Self { recorder, inside: Arc::default() }
    }

    /// Returns whether this process can connect.
    pub(super) fn can_connect(&self, process: u8) -> bool {
        let inside = self.inside.lock();
        !inside.has(Trouble::Down) && !inside.has(Trouble::Cut(process))
    }

    /// Receives a message.
    pub(super) fn arrive(&self, message: Message) {
        let mut inside = self.inside.lock();
        if inside.has(Trouble::Frozen) {
            inside.held.push(message);
        } else {
            self.take(&mut inside, message);
        }
    }

    pub(super) fn begin(&self, what: Trouble) {
        self.recorder.record(Fact::Outside(AtOutside::TroubleBegan { what }));
        self.inside.lock().troubles.insert(what);
    }

    pub(super) fn end(&self, what: Trouble) {
        let mut inside = self.inside.lock();
        inside.troubles.remove(&what);
        self.recorder.record(Fact::Outside(AtOutside::TroubleEnded { what }));
        for message in std::mem::take(&mut inside.held) {
            self.take(&mut inside, message);
        }
    }

    /// Changes a name as a person does.
    pub(super) fn edit(&self, name: &EntryName, key: KeyId, edit: Edit) {
        let mut inside = self.inside.lock();
        let known = inside.records.get(name).cloned();
        let foreign = known.as_ref().is_some_and(|entry| entry.mark.is_none());
        let after = match (edit, known) {
            (Edit::Claim, _) => Some(Entry { mark: None, values: BTreeSet::from([BY_HAND]) }),
            (Edit::Yield, known) => known.filter(|_| !foreign),
            (Edit::Add, known) => known.map(|mut entry| {
                entry.values.insert(BY_HAND);
                entry
            }),
            (Edit::Remove, known) => known.and_then(|mut entry| {
                entry.values.pop_first();
                (!entry.values.is_empty()).then_some(entry)
            }),
            (Edit::Wipe, _) => None,
        };
        let after = inside.set(name, after);
        let after = after.map(|entry| self.record(&entry));
        self.recorder.record(Fact::Outside(AtOutside::Edited { name: key, after }));
    }

    fn take(&self, inside: &mut Inside, message: Message) {
        let mute = inside.has(Trouble::Mute);
        match message {
            Message::Write { message, name, step, answer } => {
                let written = self.write(inside, message, name, &step);
                if mute {
                    inside.lost.push(Message::Write { message, name, step, answer });
                } else {
                    // The sender may have given up.
                    let _ = answer.send(written);
                }
            }
            Message::Notify { message, state, answer } => {
                let received = self.receive(inside, message, state);
                if mute {
                    inside.lost.push(Message::Notify { message, state, answer });
                } else {
                    let _ = answer.send(received);
                }
            }
            Message::Read { answer } if mute => inside.lost.push(Message::Read { answer }),
            Message::Read { answer } => {
                let observed = (!inside.has(Trouble::Torn)).then(|| inside.observed());
                let _ = answer.send(observed);
            }
        }
    }

    fn write(&self, inside: &mut Inside, message: MessageId, name: KeyId, step: &SinkStep) -> Written {
        if inside.has(Trouble::Refuses) {
            return Written::Refused;
        }
        let known = inside.records.get(&step.name).cloned();
        let expected = step.before.as_ref().map(|entry| mark_of(&entry.mark));
        if known.as_ref().map(|entry| entry.mark.clone()) != expected {
            return Written::Conflict;
        }
        let after = match &step.action {
            StepAction::Put { owner, members } if !members.is_empty() => {
                let values = members.keys().filter_map(|value| address_of(value)).collect();
                Some(Entry { mark: Some(owner.clone()), values })
            }
            StepAction::Put { .. } | StepAction::Delete => None,
        };
        let before = known.map(|entry| self.record(&entry));
        let after = inside.set(&step.name, after).map(|entry| self.record(&entry));
        self.recorder.record(Fact::Outside(AtOutside::Applied { message, name, before, after }));
        Written::Done
    }

    fn receive(&self, inside: &Inside, message: MessageId, state: ObjectState) -> Written {
        if inside.has(Trouble::Refuses) {
            return Written::Refused;
        }
        if inside.has(Trouble::Torn) {
            return Written::Unavailable;
        }
        self.recorder.record(Fact::Outside(AtOutside::Received { message, state }));
        Written::Done
    }

    fn record(&self, entry: &Entry) -> Record {
        let owner = entry.mark.as_ref().map(|mark| self.recorder.uid(&mark.uid));
        Record { owner, values: entry.values.iter().copied().collect() }
    }
}

impl Inside {
    fn has(&self, what: Trouble) -> bool {
        self.troubles.contains(&what)
    }

    fn set(&mut self, name: &EntryName, entry: Option<Entry>) -> Option<Entry> {
        match entry.clone() {
            Some(entry) => drop(self.records.insert(name.clone(), entry)),
            None => drop(self.records.remove(name)),
        }
        entry
    }

    fn observed(&self) -> Observed {
        let entry = |entry: &Entry| {
            let mark = entry.mark.clone();
            let value =
                |address: &Address| (EntryValue::from(address.to_string()), ObservedMember::default());
            ObservedEntry {
                mark: mark.map_or(EntryMark::Foreign, |mark| EntryMark::Ours(Some(mark))),
                members: entry.values.iter().map(value).collect(),
                tidy: true,
            }
        };
        Observed { entries: self.records.iter().map(|(name, known)| (name.clone(), entry(known))).collect() }
    }
}

/// Returns the mark that a step expects; `None`: no mark of ours.
fn mark_of(mark: &EntryMark) -> Option<Arc<EntryOwner>> {
    match mark {
        EntryMark::Ours(mark) => mark.clone(),
        EntryMark::Foreign => None,
    }
}

/// Parses a value.
pub(super) fn address_of(value: &str) -> Option<Address> {
    value.parse().ok().map(|address: std::net::Ipv4Addr| Address(address.into()))
}
