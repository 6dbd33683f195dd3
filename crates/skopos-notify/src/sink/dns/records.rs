//! Records of a zone, sorted by names, and marks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use domain::base::Serial;

use crate::entry::{EntryName, EntryOwner, EntryValue};
use crate::sink::{EntryMark, Observed, ObservedEntry, ObservedMember};

/// The label of the mark of a name.
pub(super) const MARK: &str = "_skopos";

/// The label of the fences of a zone, one for each owner.
pub(super) const FENCE: &str = "_skopos-fence";

/// The zone and its writer.
pub(super) struct Zone<'a> {
    pub(super) origin: &'a str,
    pub(super) owner: &'a str,
    pub(super) ttl: Duration,
}

/// A record, reduced to what matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ZoneRecord {
    /// Name in lower case, without the final dot.
    pub(super) name: String,
    pub(super) ttl: u32,
    pub(super) data: ZoneData,
}

/// Data of a record, reduced to what matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ZoneData {
    /// An address, or the target of a CNAME.
    Value(String),
    Text(String),
    /// The serial of the zone.
    Serial(Serial),
    /// Any other type: the name is in use.
    Other,
}

impl ZoneRecord {
    /// Returns the serial, if this is the SOA.
    pub(super) fn serial(&self) -> Option<Serial> {
        match self.data {
            ZoneData::Serial(serial) => Some(serial),
            _ => None,
        }
    }
}

#[derive(Default)]
struct FoundRecords {
    values: BTreeMap<EntryValue, u32>,
    marks: BTreeSet<String>,
}

impl Zone<'_> {
    /// Sorts records by names. Records of the zone itself are left out.
    pub(super) fn observed(&self, records: Vec<ZoneRecord>) -> Observed {
        let mut found: BTreeMap<String, FoundRecords> = BTreeMap::new();
        let prefix = format!("{MARK}.");
        let fences = format!("{FENCE}.{}", self.origin);
        for ZoneRecord { name, ttl, data } in records {
            if name == self.origin || is_within(&name, &fences) {
                continue;
            }
            match (name.strip_prefix(&prefix), data) {
                (Some(marked), ZoneData::Text(text)) => {
                    found.entry(marked.to_owned()).or_default().marks.insert(text);
                }
                (_, ZoneData::Value(value)) => {
                    found.entry(name).or_default().values.insert(value.into(), ttl);
                }
                _ => {
                    found.entry(name).or_default();
                }
            }
        }
        let entries = found.into_iter().map(|(name, found)| (EntryName::from(name), self.entry(found)));
        Observed { entries: entries.collect() }
    }

    fn entry(&self, found: FoundRecords) -> ObservedEntry {
        let ours: Vec<_> = found.marks.iter().filter_map(|text| self.parse(text)).collect();
        let mark = match ours.as_slice() {
            [mark] if found.marks.len() == 1 => EntryMark::Ours(Some(Arc::new(mark.clone()))),
            _ => EntryMark::Foreign,
        };
        // Another record beside ours does not hurt addresses, and it is not ours, so the entry is still tidy.
        let tidy = found.values.values().all(|ttl| u64::from(*ttl) == self.ttl.as_secs());
        let members = found.values.into_keys().map(|value| (value, ObservedMember::default())).collect();
        ObservedEntry { mark, members, tidy }
    }

    /// Returns the mark of a name that belongs to `owner`.
    pub(super) fn mark(&self, owner: &EntryOwner) -> String {
        format!("heritage=skopos,v=1,owner={},res={owner},uid={}", self.owner, owner.uid)
    }

    /// Parses a mark; `None` if another program wrote it.
    fn parse(&self, text: &str) -> Option<EntryOwner> {
        let rest = text
            .strip_prefix("heritage=skopos,v=1,owner=")?
            .strip_prefix(self.owner)?
            .strip_prefix(",res=")?;
        let (text, uid) = rest.split_once(",uid=")?;
        EntryOwner::parse(text, uid)
    }
}

/// Returns whether a name equals `top`, or is below it.
pub(super) fn is_within(name: &str, top: &str) -> bool {
    name.strip_suffix(top).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, ttl: u32, data: ZoneData) -> ZoneRecord {
        ZoneRecord { name: name.into(), ttl, data }
    }

    #[test]
    fn only_our_mark_makes_a_name_ours() {
        let zone = Zone { origin: "example.test", owner: "us", ttl: Duration::from_secs(30) };
        let mark = |owner: &str| {
            ZoneData::Text(format!("heritage=skopos,v=1,owner={owner},res=service/d/web,uid=1"))
        };
        let value = || ZoneData::Value("10.0.0.1".into());
        let observed = zone.observed(vec![
            record("example.test", 1, ZoneData::Other),
            record("us._skopos-fence.example.test", 0, ZoneData::Text("term=1".into())),
            record("us2._skopos-fence.example.test", 0, ZoneData::Text("term=1".into())),
            record("ours.example.test", 30, value()),
            record("_skopos.ours.example.test", 30, mark("us")),
            record("theirs.example.test", 30, value()),
            record("_skopos.theirs.example.test", 30, mark("us2")),
            record("nobodys.example.test", 30, value()),
            record("twice.example.test", 31, value()),
            record("_skopos.twice.example.test", 30, mark("us")),
            record("_skopos.twice.example.test", 30, ZoneData::Text("heritage=external-dns".into())),
            record("mail.example.test", 30, ZoneData::Other),
        ]);
        let ours: Vec<_> = observed
            .entries
            .iter()
            .filter(|(_, entry)| entry.mark != EntryMark::Foreign)
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(ours, ["ours.example.test"]);
        assert_eq!(observed.entries.len(), 5);
        assert!(observed.entries["ours.example.test"].tidy);
        assert!(!observed.entries["twice.example.test"].tidy);
    }

    #[test]
    fn mark_round_trips_owner() {
        let zone = Zone { origin: "example.test", owner: "us", ttl: Duration::ZERO };
        let owner = EntryOwner {
            resource: "service".into(),
            namespace: "ns".into(),
            name: "web".into(),
            uid: "u-1".into(),
        };
        let mark = zone.parse(&zone.mark(&owner)).unwrap();
        assert_eq!(mark, owner);
    }
}
