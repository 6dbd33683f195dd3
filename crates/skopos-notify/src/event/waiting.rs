use skopos::{RawObject, ResourceVersion};
use skopos_reflect::Time;

/// The newest state of an object that the receiver has not acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) state: ObjectState,
    pub(super) since: Time,
    pub(super) failures: u32,
    pub(super) not_before: Time,
    pub(super) problem: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) enum ObjectState {
    Present { object: RawObject, digest: [u8; 16] },
    Gone { version: ResourceVersion, deselected: bool, confirmed: bool },
}

impl ObjectState {
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Present { object, digest }, Self::Present { object: newer, digest: of_newer }) => {
                object.uid() == newer.uid() && digest == of_newer
            }
            (Self::Gone { .. }, Self::Gone { .. }) => true,
            _ => false,
        }
    }

    /// Returns whether it is a deletion that waits for a list.
    pub(super) fn is_unconfirmed(&self) -> bool {
        matches!(self, Self::Gone { confirmed: false, .. })
    }

    /// Returns the newer state. A confirmed deletion remains confirmed.
    pub(super) fn merge(self, newer: Self) -> Self {
        match (self, newer) {
            (confirmed @ Self::Gone { confirmed: true, .. }, Self::Gone { .. }) => confirmed,
            // The message about a content has the first version with this content, also after a failure.
            (known, newer) if known.is_same(&newer) && matches!(known, Self::Present { .. }) => known,
            (_, newer) => newer,
        }
    }
}
