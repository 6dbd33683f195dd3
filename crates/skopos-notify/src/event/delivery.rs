//! One message to a receiver, and its outcome.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use skopos::{ObjectKey, RawObject, ResourceVersion};

/// Key of an object of any resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventKey {
    /// The resource as kubectl writes it, such as `deployments.apps`.
    pub resource: Arc<str>,
    /// Its namespace and name.
    pub object: ObjectKey,
}

/// The state of an object that the receiver has acknowledged, as the ledger keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The uid of the object.
    pub uid: Arc<str>,
    /// The version that was acknowledged last; `0` if none was.
    pub version: ResourceVersion,
    /// The content that was acknowledged last; `None` if none was.
    pub digest: Option<[u8; 16]>,
    /// A newer state was sent, and it is unknown whether it arrived.
    pub unsure: bool,
}

/// The kind of a change.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// The receiver has acknowledged no state of this object.
    Created,
    /// The receiver has acknowledged another state of it.
    Updated,
    /// The object is gone, or no longer selected.
    Deleted,
}

/// One message to a receiver. The same message has the same ID after a retry, after a restart, and from another replica.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The `webhook-id`.
    pub id: Arc<str>,
    /// The object.
    pub key: EventKey,
    /// The kind of the change.
    pub kind: ChangeKind,
    /// The uid of the object.
    pub uid: Arc<str>,
    /// The version that the message reports. For a deletion: that of the deletion, or of a list without the object.
    pub version: ResourceVersion,
    /// The object, where there is one.
    pub object: Option<RawObject>,
    /// True if the object is still there and its labels no longer match the source.
    pub deselected: bool,
    /// The epoch in which versions are comparable. It rises when a cluster was restored from a backup.
    pub epoch: u64,
}

/// A message that the receiver rejected for good.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DeadLetter {
    /// The ID of the message.
    pub id: Arc<str>,
    /// The kind of the change.
    pub kind: ChangeKind,
    /// The answer of the receiver.
    pub problem: String,
}

/// Result of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The receiver acknowledged it.
    Delivered,
    /// The receiver reported a failure: this message is tried again later.
    Failed {
        /// The answer, for people.
        problem: String,
        /// The pause that the receiver asked for.
        retry_after: Option<Duration>,
    },
    /// The receiver is overloaded or down behind its proxy: nothing is sent for a while.
    Throttled {
        /// The answer, for people.
        problem: String,
        /// The pause that the receiver asked for.
        retry_after: Option<Duration>,
    },
    /// Nothing was sent: the receiver cannot be reached.
    Unreachable(String),
    /// No answer came in time, so it may have arrived or not.
    Unknown(String),
    /// The receiver will never take this message. It becomes a dead letter.
    Rejected(String),
    /// The receiver wants no more messages at all.
    Disabled(String),
}

impl ChangeKind {
    /// Returns the kind as one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
        }
    }
}

impl Delivery {
    /// Returns the ID of a message: a hash of everything that distinguishes it.
    pub(super) fn id(
        scope: [&str; 2],
        key: &EventKey,
        uid: &str,
        version: &ResourceVersion,
        digest: Option<[u8; 16]>,
        kind: ChangeKind,
    ) -> Arc<str> {
        let mut hash = Sha256::new();
        let version = version.to_string();
        let parts: [&[u8]; 8] = [
            scope[0].as_bytes(),
            scope[1].as_bytes(),
            key.resource.as_bytes(),
            key.object.sort_bytes(),
            uid.as_bytes(),
            version.as_bytes(),
            digest.as_ref().map_or(&[][..], |digest| &digest[..]),
            kind.as_str().as_bytes(),
        ];
        for part in parts {
            // The length prefix keeps the parts of different messages apart.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let hex: String = hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("msg_{hex}").into()
    }
}

impl DeliveryOutcome {
    /// Returns the result as one word, for metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Failed { .. } => "failed",
            Self::Throttled { .. } => "throttled",
            Self::Unreachable(_) => "unreachable",
            Self::Unknown(_) => "unknown",
            Self::Rejected(_) => "rejected",
            Self::Disabled(_) => "disabled",
        }
    }

    /// Returns the problem, for people.
    pub fn problem(&self) -> Option<&str> {
        match self {
            Self::Delivered => None,
            Self::Failed { problem, .. } | Self::Throttled { problem, .. } => Some(problem),
            Self::Unreachable(problem)
            | Self::Unknown(problem)
            | Self::Rejected(problem)
            | Self::Disabled(problem) => Some(problem),
        }
    }
}

impl fmt::Display for EventKey {
    /// Writes `deployments.apps shop/web`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.resource, self.object)
    }
}
