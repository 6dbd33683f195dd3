use std::fmt;

use kube::core::DynamicObject;
use skopos_wire::ObjectKey;

use crate::store::object::{Object, StoredObject};

/// A change of one object, as delivered to a handler.
///
/// For each key a handler sees an unbroken story: `Added`, then any number of `Updated` whose `old` is the very object that
/// it was handed last, then `Deleted`, and only then `Added` again. An update never spans two uids: when the object of a
/// name was replaced by another, there is a `Deleted` and an `Added`, even if the server's watch never showed the deletion.
///
/// Events without a flag come in the order of their RVs. After a restored backup RVs start over: if it holds every object
/// as the handler knows it, no event says so, and the next RV may be lower than the last.
pub enum Event<K = DynamicObject> {
    /// The object is new to the handler.
    Added {
        /// The object.
        object: Object<K>,
        /// True if the object existed when the handler or its store started, and is not known to be new.
        initial: bool,
        /// The circumstances of the event.
        flags: EventFlags,
    },
    /// A known object has a new version.
    Updated {
        /// The version that was last delivered to this handler.
        old: Object<K>,
        /// The new version. Equal to `old` in a resync. A list may also find different content at the same RV, where the
        /// server was upgraded or has a new default for it.
        new: Object<K>,
        /// The circumstances of the event.
        flags: EventFlags,
    },
    /// A known object is gone: deleted, or no longer matched by the selectors.
    Deleted {
        /// Its final state with the RV of the deletion, if that is known, and otherwise the last known state.
        object: Object<K>,
        /// The version that was last delivered to this handler: equal to `object` if the final state is not known.
        old: Object<K>,
        /// True if `object` is the final state. If not, the deletion was discovered later, and the object may have changed
        /// before it.
        final_state_known: bool,
        /// The circumstances of the event.
        flags: EventFlags,
    },
}

/// The circumstances of an event. Normally none is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct EventFlags {
    /// True if the event comes from comparing two states, and the server's changes between them are unknown (a relist):
    /// there may have been more changes than this one.
    pub gap: bool,
    /// True if the handler was too slow for its queue. Changes of this key may have been merged into this event, and events
    /// of different keys come in the order of the keys instead of that of the server.
    pub coalesced: bool,
    /// True if nothing changed: the handler requested every object again from time to time.
    pub resync: bool,
}

impl<K> Event<K> {
    /// Returns the object that the event is about, in the event's newest version of it.
    pub fn object(&self) -> &Object<K> {
        match self {
            Event::Added { object, .. }
            | Event::Updated { new: object, .. }
            | Event::Deleted { object, .. } => object,
        }
    }

    /// Returns the key of the object.
    pub fn key(&self) -> &ObjectKey {
        self.object().key()
    }

    /// Returns the circumstances of the event.
    pub fn flags(&self) -> EventFlags {
        match self {
            Event::Added { flags, .. } | Event::Updated { flags, .. } | Event::Deleted { flags, .. } => {
                *flags
            }
        }
    }

    /// Returns the same event with its objects as another type.
    pub fn cast<L>(self) -> Event<L> {
        match self {
            Event::Added { object, initial, flags } => Event::Added { object: object.cast(), initial, flags },
            Event::Updated { old, new, flags } => Event::Updated { old: old.cast(), new: new.cast(), flags },
            Event::Deleted { object, old, final_state_known, flags } => {
                Event::Deleted { object: object.cast(), old: old.cast(), final_state_known, flags }
            }
        }
    }
}

impl Event {
    /// Makes a deletion whose final state is not known, only the last one.
    pub(crate) fn deleted(last: StoredObject, flags: EventFlags) -> Self {
        let object: Object = last.into();
        Event::Deleted { old: object.clone(), object, final_state_known: false, flags }
    }
}

// Not derived: that would require `K: Clone`, and the objects are shared.
impl<K> Clone for Event<K> {
    fn clone(&self) -> Self {
        match self {
            Event::Added { object, initial, flags } => {
                Event::Added { object: object.clone(), initial: *initial, flags: *flags }
            }
            Event::Updated { old, new, flags } => {
                Event::Updated { old: old.clone(), new: new.clone(), flags: *flags }
            }
            Event::Deleted { object, old, final_state_known, flags } => Event::Deleted {
                object: object.clone(),
                old: old.clone(),
                final_state_known: *final_state_known,
                flags: *flags,
            },
        }
    }
}

impl<K> fmt::Debug for Event<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = self.flags();
        match self {
            Event::Added { object, initial, .. } => write!(f, "Added({object:?}, initial={initial}")?,
            Event::Updated { old, new, .. } => {
                write!(f, "Updated({new:?}, old rv={}", old.resource_version())?
            }
            Event::Deleted { object, final_state_known, .. } => {
                write!(f, "Deleted({object:?}, final_state_known={final_state_known}")?;
            }
        }
        let names = [(flags.gap, ", gap"), (flags.coalesced, ", coalesced"), (flags.resync, ", resync")];
        names.iter().filter(|(set, _)| *set).try_for_each(|(_, name)| f.write_str(name))?;
        f.write_str(")")
    }
}
