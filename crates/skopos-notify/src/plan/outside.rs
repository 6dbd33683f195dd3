use std::collections::BTreeMap;

use super::names::differing;
use super::view::DesiredEntries;
use crate::entry::{DesiredEntry, EntryName, Readiness};
use crate::inserts::Inserts;
use crate::packed::Packed;
use crate::sink::{EntryMark, Observed, ObservedEntry, ObservedMember};

/// The outside as it was last read, with its counts.
#[derive(Debug, Default)]
pub(super) struct Outside {
    entries: BTreeMap<EntryName, PackedEntry>,
    new: Inserts,
    serving: usize,
    ours: usize,
}

/// An observed entry, packed. Mostly the outside is as wanted, and then needs no copy of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PackedEntry {
    /// It is what the first of these owners wants: made by [`pack`] alone, so there is an owner.
    Wanted(Packed<Vec<DesiredEntry>>),
    /// It is something else.
    Other(Packed<ObservedEntry>),
}

impl Outside {
    /// Returns the entry of a name.
    pub(super) fn get(&self, name: &EntryName) -> Option<ObservedEntry> {
        self.entries.get(name).map(PackedEntry::unpack)
    }

    /// Returns whether a name is outside.
    pub(super) fn contains(&self, name: &EntryName) -> bool {
        self.entries.contains_key(name)
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
        entry: Option<&ObservedEntry>,
        wanted: &DesiredEntries,
    ) -> Option<ObservedEntry> {
        let before = self.get(name);
        match entry {
            Some(entry) => {
                let (name, entry) = pack(name.clone(), entry, wanted);
                self.entries.insert(name, entry);
                self.new.add();
            }
            None => drop(self.entries.remove(name)),
        }
        let (serving, ours) = entry.map_or((0, 0), numbers);
        let (served, were_ours) = before.as_ref().map_or((0, 0), numbers);
        (self.serving, self.ours) = (self.serving + serving - served, self.ours + ours - were_ours);
        before
    }

    /// Frees unused memory, if there is much.
    pub(super) fn pack(&mut self) {
        self.new.pack(self.entries.len(), &mut self.entries);
    }

    /// Replaces everything, and returns the names that differ in more than their numbers of connections, as they were before.
    pub(super) fn replace(
        &mut self,
        observed: Observed,
        wanted: &DesiredEntries,
    ) -> Vec<(EntryName, Option<ObservedEntry>)> {
        let add = |(serving, ours), (more, more_ours)| (serving + more, ours + more_ours);
        (self.serving, self.ours) = observed.entries.values().map(numbers).fold((0, 0), add);
        let entries = observed.entries.into_iter().map(|(name, entry)| pack(name, &entry, wanted)).collect();
        let before = std::mem::replace(&mut self.entries, entries);
        self.new.reset();
        let is_alike = |before: &PackedEntry, after: &PackedEntry| {
            before == after || is_alike(&before.unpack(), &after.unpack())
        };
        let names = differing(&before, &self.entries, is_alike);
        names.map(|name| (name.clone(), before.get(name).map(PackedEntry::unpack))).collect()
    }
}

impl PackedEntry {
    fn unpack(&self) -> ObservedEntry {
        match self {
            Self::Wanted(wanted) => as_wanted(&wanted.unpack()),
            Self::Other(entry) => Some(entry.unpack()),
        }
        .expect("an entry that was as wanted when it was packed")
    }
}

/// Packs an observed entry, and shares what it can with the wanted entry of the same name.
fn pack(name: EntryName, entry: &ObservedEntry, wanted: &DesiredEntries) -> (EntryName, PackedEntry) {
    let other = || PackedEntry::Other(Packed::new(entry));
    let Some((wanted_name, wanted)) = wanted.get_key_value(&name) else { return (name, other()) };
    let is_as_wanted = as_wanted(&wanted.unpack()).as_ref() == Some(entry);
    let packed = if is_as_wanted { PackedEntry::Wanted(wanted.clone()) } else { other() };
    (wanted_name.clone(), packed)
}

/// Returns the entry that a sink without connections has when the first owner got what it wants.
fn as_wanted(wanted: &[DesiredEntry]) -> Option<ObservedEntry> {
    let first = wanted.first()?;
    let ready = first.members.iter().filter(|(_, readiness)| **readiness == Readiness::Ready);
    Some(ObservedEntry {
        mark: EntryMark::Ours(Some(first.owner.clone())),
        members: ready.map(|(value, _)| (value.clone(), ObservedMember::default())).collect(),
        tidy: true,
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::EntryOwner;

    fn desired(value: &str, readiness: Readiness) -> DesiredEntry {
        let owner = EntryOwner::parse("service/default/web", "uid").expect("an owner").into();
        DesiredEntry { owner, members: BTreeMap::from([(value.into(), readiness)]) }
    }

    fn observed(value: &str, connections: u32) -> ObservedEntry {
        let member = ObservedMember { draining: false, connections };
        let mark = EntryMark::Ours(Some(desired("a", Readiness::Ready).owner));
        ObservedEntry { mark, members: BTreeMap::from([(value.into(), member)]), tidy: true }
    }

    #[test]
    fn entry_as_wanted_takes_no_memory_of_its_own() {
        let name = EntryName::from("web");
        let wanted = BTreeMap::from([(name.clone(), Packed::new(&vec![desired("a", Readiness::Ready)]))]);
        let mut outside = Outside::default();
        for (entry, is_shared) in
            [(observed("a", 0), true), (observed("b", 0), false), (observed("a", 1), false)]
        {
            outside.set(&name, Some(&entry), &wanted);
            assert_eq!(outside.get(&name), Some(entry.clone()));
            assert_eq!(matches!(outside.entries[&name], PackedEntry::Wanted(_)), is_shared, "{entry:?}");
        }
        let packed = Packed::new(&vec![desired("10.200.0.1", Readiness::Ready)]);
        assert!(packed.len() <= 64, "{} bytes", packed.len());
    }
}
