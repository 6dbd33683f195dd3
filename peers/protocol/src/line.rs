use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::tally::Reconciled;
use crate::usage::Usage;

/// A line of a client's output.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Milliseconds since the client's start, monotonic.
    pub at_ms: f64,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What happened in a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum What {
    /// It started.
    Start {
        /// Whose library.
        client: String,
        /// What the process has used before it asks anything of the server.
        #[serde(flatten)]
        usage: Usage,
    },
    /// The first list is complete, in the store and in the handler.
    Synced {
        /// How many objects the store has.
        objects: u64,
        /// What the process has used.
        #[serde(flatten)]
        usage: Usage,
    },
    /// The wait for the first list ended without it.
    SyncTimeout {
        /// Why, if the library says so.
        #[serde(default)]
        reason: String,
    },
    /// The user's handler was given a change.
    Event(EventLine),
    /// The user was told that what follows, up to `replaced`, is everything there is.
    Replacing,
    /// The user was told that this was everything there is.
    Replaced,
    /// The library told its user how it stands.
    Told {
        /// `failing`, or `well`.
        state: String,
        /// Why.
        #[serde(default)]
        reason: String,
    },
    /// What the process has used.
    Usage(Usage),
    /// What a controller has done, and what its process has used.
    Reconciled(Reconciled),
    /// What the store holds.
    Digest {
        /// How many objects.
        objects: u64,
        /// The [`digest`] of them.
        hash: String,
    },
}

/// A change as a handler is given it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventLine {
    /// What sort of change.
    #[serde(rename = "type")]
    pub change: Change,
    /// Whether it belongs to the first list, as far as the library says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub initial: bool,
    /// `namespace/name`.
    pub key: String,
    /// Which object of that name.
    pub uid: String,
    /// Its version.
    pub rv: String,
    /// The object that it replaces, where the library hands it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<Version>,
}

/// A sort of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// An object that the handler does not know.
    Added,
    /// A new version of one that it knows.
    Updated,
    /// One of the two: the library does not say which.
    Applied,
    /// It is gone.
    Deleted,
}

/// An object's identity and version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Which object of its name.
    pub uid: String,
    /// Its version.
    pub rv: String,
}

/// The SHA-256 of a sorted line for each object: key, uid and resourceVersion.
pub fn digest<'a>(objects: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>) -> String {
    let line = |(key, uid, rv)| format!("{key} {uid} {rv}\n");
    let mut lines: Vec<String> = objects.into_iter().map(line).collect();
    lines.sort_unstable();
    let mut hash = Sha256::new();
    lines.iter().for_each(|line| hash.update(line));
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
