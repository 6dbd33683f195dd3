use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use skopos_reflect::Time;

use crate::entry::{EntryName, EntryValue};

/// A value or name that should no longer be outside.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Removal {
    /// The name.
    pub name: EntryName,
    /// The value behind it, or the whole name.
    pub value: Option<EntryValue>,
}

/// Evidence that missing values are gone.
///
/// A change that was seen is strong evidence. A value that is merely missing after a list, or no longer matches a selector, is
/// confirmed by a second list that was begun later.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    missing: BTreeMap<Removal, Missing>,
}

#[derive(Debug)]
struct Missing {
    since: Time,
    sure: bool,
}

/// Strength of the evidence for a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strength {
    /// It was seen, or confirmed by a list.
    Sure,
    /// It waits for a list that is begun at this time or later.
    ListFrom(Time),
}

impl Evidence {
    /// Records a change that removed the value.
    pub(super) fn saw(&mut self, now: Time, removal: Removal) {
        self.missing.entry(removal).or_insert(Missing { since: now, sure: true }).sure = true;
    }

    /// Records that the view lacks the value. Returns the time since which it does, and the strength of the evidence.
    pub(super) fn missing(&mut self, now: Time, removal: &Removal, confirm: Duration) -> (Time, Strength) {
        let missing = match self.missing.get(removal) {
            Some(missing) => missing,
            None => self.missing.entry(removal.clone()).or_insert(Missing { since: now, sure: false }),
        };
        let strength =
            if missing.sure { Strength::Sure } else { Strength::ListFrom(missing.since + confirm) };
        (missing.since, strength)
    }

    /// Records a list that was begun at `began` and agreed with the view.
    pub(super) fn listed(&mut self, began: Time, confirm: Duration) {
        for missing in self.missing.values_mut() {
            missing.sure |= missing.since + confirm <= began;
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.missing.len()
    }

    /// Forgets values that have come back, or are no longer outside.
    pub(super) fn retain(&mut self, is_missing: impl Fn(&Removal) -> bool) {
        self.missing.retain(|removal, _| is_missing(removal));
    }
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{value} of {}", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}
