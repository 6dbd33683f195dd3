use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::delivery::ChangeKind;

/// Options of an outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutboxOptions {
    /// The name of the sink. Messages of different sinks have different IDs.
    pub sink: String,
    /// The kinds of changes that are reported. Default: all.
    pub changes: BTreeMap<Arc<str>, BTreeSet<ChangeKind>>,
    /// Minimum delay until a list may confirm a deletion that was not seen. Default 30 s.
    pub confirm: Duration,
    /// The first pause after a failure; it doubles up to `last_pause`. Default 1 s.
    pub first_pause: Duration,
    /// The longest pause after a failure. Default 10 min.
    pub last_pause: Duration,
    /// The longest pause that a receiver may ask for. Default 1 h.
    pub most_asked: Duration,
    /// The longest pause of a receiver that cannot be reached. Default 10 s.
    pub probe: Duration,
    /// Seed of the jitter of pauses.
    pub seed: u64,
}

impl Default for OutboxOptions {
    fn default() -> Self {
        Self {
            sink: String::new(),
            changes: BTreeMap::new(),
            confirm: Duration::from_secs(30),
            first_pause: Duration::from_secs(1),
            last_pause: Duration::from_secs(600),
            most_asked: Duration::from_secs(3600),
            probe: Duration::from_secs(10),
            seed: 0,
        }
    }
}

/// Evidence that an object is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The watch showed its deletion.
    Deleted,
    /// The watch showed it with labels that no longer match.
    Deselected,
    /// It is missing, but its deletion was not seen.
    Missing,
}
