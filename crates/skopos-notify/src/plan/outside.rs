use std::collections::BTreeMap;

use super::names::differing;
use super::view::DesiredEntries;
use crate::entry::{EntryName, EntryValue, exact_members};
use crate::sink::{EntryMark, Observed, ObservedEntry};

/// The outside as it was last read, with its counts.
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

    /// Returns the number of our values that get traffic.
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
    pub(super) fn set(
        &mut self,
        name: &EntryName,
        entry: Option<ObservedEntry>,
        wanted: &DesiredEntries,
    ) -> Option<ObservedEntry> {
        let entry = entry.map(|entry| share(name.clone(), entry, wanted).1);
        let (serving, ours) = entry.as_ref().map_or((0, 0), numbers);
        let before = match entry {
            Some(entry) => self.entries.insert(name.clone(), entry),
            None => self.entries.remove(name),
        };
        let (served, were_ours) = before.as_ref().map_or((0, 0), numbers);
        (self.serving, self.ours) = (self.serving + serving - served, self.ours + ours - were_ours);
        before
    }

    /// Replaces everything, and returns the names that differ in more than their numbers of connections, as they were before.
    pub(super) fn replace(
        &mut self,
        observed: Observed,
        wanted: &DesiredEntries,
    ) -> Vec<(EntryName, Option<ObservedEntry>)> {
        let entries = observed.entries.into_iter().map(|(name, entry)| share(name, entry, wanted)).collect();
        let before = std::mem::replace(&mut self.entries, entries);
        let add = |(serving, ours), (more, more_ours)| (serving + more, ours + more_ours);
        (self.serving, self.ours) = self.entries.values().map(numbers).fold((0, 0), add);
        let names = differing(&before, &self.entries, is_alike);
        names.map(|name| (name.clone(), before.get(name).cloned())).collect()
    }
}

/// Shares the strings of the wanted entry of the same name with an observed entry. Mostly the outside is as wanted, and then
/// needs no second copy.
fn share(name: EntryName, mut entry: ObservedEntry, wanted: &DesiredEntries) -> (EntryName, ObservedEntry) {
    let Some((wanted_name, wanted)) = wanted.get_key_value(&name) else { return (name, entry) };
    let text = |value: EntryValue| {
        let known = wanted.iter().find_map(|wanted| {
            let index = wanted.members.find_index(&value).ok()?;
            wanted.members.get_indexed(index).map(|(known, _)| known.clone())
        });
        known.unwrap_or(value)
    };
    let members = entry.members.into_tuple_vec().into_iter();
    entry.members = exact_members(members.map(|(value, member)| (text(value), member)));
    if let EntryMark::Ours(Some(mark)) = &mut entry.mark
        && let Some(wanted) = wanted.iter().find(|wanted| wanted.owner == *mark)
    {
        *mark = wanted.owner.clone();
    }
    (wanted_name.clone(), entry)
}

/// Counts the values of an entry that get traffic, and the entry itself, if it is ours.
fn numbers(entry: &ObservedEntry) -> (usize, usize) {
    (entry.serving().count(), usize::from(entry.mark != EntryMark::Foreign))
}

fn is_alike(before: &ObservedEntry, after: &ObservedEntry) -> bool {
    let draining = |entry: &ObservedEntry| {
        entry.members.iter().map(|(value, member)| (value.clone(), member.draining)).collect::<Vec<_>>()
    };
    before.mark == after.mark && before.tidy == after.tidy && draining(before) == draining(after)
}
