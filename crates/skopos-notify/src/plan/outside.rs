use std::collections::BTreeMap;

use super::names::differing;
use crate::entry::EntryName;
use crate::sink::{EntryMark, Observed, ObservedEntry};

/// The outside as it was last read, with its numbers.
#[derive(Debug, Default)]
pub(super) struct Outside {
    entries: BTreeMap<EntryName, ObservedEntry>,
    serving: usize,
    ours: usize,
}

impl Outside {
    /// Returns the entry of a name.
    pub(super) fn get(&self, name: &EntryName) -> Option<&ObservedEntry> {
        self.entries.get(name)
    }

    /// Returns the number of values of ours that get traffic.
    pub(super) fn serving(&self) -> usize {
        self.serving
    }

    /// Returns the number of names that are ours.
    pub(super) fn ours(&self) -> usize {
        self.ours
    }

    #[cfg(test)]
    pub(super) fn names(&self) -> impl Iterator<Item = &EntryName> {
        self.entries.keys()
    }

    /// Replaces one name, and returns it as it was before.
    pub(super) fn set(&mut self, name: &EntryName, entry: Option<ObservedEntry>) -> Option<ObservedEntry> {
        if let Some(entry) = &entry {
            self.count(entry, |number, by| number + by);
        }
        let before = match entry {
            Some(entry) => self.entries.insert(name.clone(), entry),
            None => self.entries.remove(name),
        };
        if let Some(before) = &before {
            self.count(before, |number, by| number - by);
        }
        before
    }

    /// Replaces everything, and returns the names that differ in more than their numbers of connections, as they were before.
    pub(super) fn replace(&mut self, observed: Observed) -> Vec<(EntryName, Option<ObservedEntry>)> {
        let before = std::mem::replace(&mut self.entries, observed.entries);
        (self.serving, self.ours) = (0, 0);
        let entries = std::mem::take(&mut self.entries);
        entries.values().for_each(|entry| self.count(entry, |number, by| number + by));
        self.entries = entries;
        let names = differing(&before, &self.entries, is_alike);
        names.map(|name| (name.clone(), before.get(name).cloned())).collect()
    }

    fn count(&mut self, entry: &ObservedEntry, change: impl Fn(usize, usize) -> usize) {
        if entry.mark != EntryMark::Foreign {
            let serving = entry.members.values().filter(|member| !member.draining).count();
            (self.serving, self.ours) = (change(self.serving, serving), change(self.ours, 1));
        }
    }
}

fn is_alike(before: &ObservedEntry, after: &ObservedEntry) -> bool {
    let draining = |entry: &ObservedEntry| {
        entry.members.iter().map(|(value, member)| (value.clone(), member.draining)).collect::<Vec<_>>()
    };
    before.mark == after.mark && before.tidy == after.tidy && draining(before) == draining(after)
}
