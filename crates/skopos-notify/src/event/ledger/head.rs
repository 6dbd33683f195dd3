use std::io::Read as _;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::changes::LedgerChanges;

/// The object of a ledger that says who writes it, and what has changed since its base.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Head {
    /// The process that has opened it last: random.
    pub(super) owner: String,
    /// The number of the write; it rises.
    pub(super) number: u64,
    /// Everything before the changes; `None` if there is nothing.
    pub(super) base: Option<Base>,
    pub(super) changes: LedgerChanges,
}

/// An object with everything up to some write.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Base {
    pub(super) name: String,
    bytes: usize,
}

/// An object that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It is not as it was written.
    Damaged(String),
    /// It is of another version of the program, or too large for this one. It stays.
    Foreign(String),
}

/// The first line of each object.
const FORMAT: &str = "skopos ledger 1\n";
/// The line of any version.
const ANY_FORMAT: &str = "skopos ledger ";

/// Bytes of changes that are written with the head in any case.
const MIN_CHANGES: usize = 32 << 10;

/// Limit on the bytes of the JSON of an object: millions of states.
const MAX_JSON: u64 = 1 << 30;

impl Head {
    /// Returns whether the changes should be merged into the base, where the head has this many bytes.
    ///
    /// Each write has the whole head, and each merge the whole base. With an eighth both cost about the same.
    pub(super) fn is_large(&self, bytes: usize) -> bool {
        bytes > MIN_CHANGES.max(self.base.as_ref().map_or(0, |base| base.bytes / 8))
    }

    /// Replaces the changes by a base. Returns the name of the one before.
    pub(super) fn rebase(&mut self, name: String, bytes: usize) -> Option<String> {
        self.changes = LedgerChanges::default();
        self.base.replace(Base { name, bytes }).map(|base| base.name)
    }
}

/// Writes an object: a line with the format, and JSON that is compressed and has a checksum.
pub(super) fn encode(value: &impl Serialize) -> std::io::Result<Vec<u8>> {
    let mut writer = zstd::Encoder::new(FORMAT.as_bytes().to_vec(), 1)?;
    writer.include_checksum(true)?;
    serde_json::to_writer(&mut writer, value)?;
    writer.finish()
}

/// Reads an object.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unreadable> {
    let Some(packed) = bytes.strip_prefix(FORMAT.as_bytes()) else {
        return Err(match bytes.starts_with(ANY_FORMAT.as_bytes()) {
            true => Unreadable::Foreign("it was written by another version of skopos".into()),
            false => Unreadable::Damaged(format!("it does not begin with {ANY_FORMAT:?}")),
        });
    };
    let damaged = |error: &dyn std::fmt::Display| Unreadable::Damaged(error.to_string());
    let mut json = Vec::new();
    let reader = zstd::Decoder::new(packed).map_err(|error| damaged(&error))?;
    reader.take(MAX_JSON + 1).read_to_end(&mut json).map_err(|error| damaged(&error))?;
    if json.len() as u64 > MAX_JSON {
        return Err(Unreadable::Foreign(format!("it has more than {MAX_JSON} bytes")));
    }
    serde_json::from_slice(&json).map_err(|error| damaged(&error))
}

#[cfg(test)]
mod tests {
    use skopos::{ObjectKey, ResourceVersion};

    use super::*;
    use crate::event::delivery::{EventKey, Recorded};
    use crate::event::ledger::LedgerChange;

    #[test]
    fn a_damaged_object_is_noticed() {
        let bytes = encode(&Head { owner: "me".into(), number: 7, ..Head::default() }).unwrap();
        assert_eq!(decode::<Head>(&bytes).unwrap().number, 7);
        for cut in 0..bytes.len() {
            assert!(decode::<Head>(&bytes[..cut]).is_err(), "{cut}");
        }
        for at in ANY_FORMAT.len()..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            // A bit that has no meaning changes nothing.
            let is_same = |head: Head| head.owner == "me" && head.number == 7;
            assert!(decode::<Head>(&changed).map_or(true, is_same), "{at}");
        }
        assert!(matches!(decode::<Head>(b"skopos ledger 2\nx"), Err(Unreadable::Foreign(_))));
    }

    #[test]
    fn a_base_takes_less_than_a_hundred_bytes_for_each_object() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut changes = LedgerChanges::default();
        for number in 0..10_000_u32 {
            let object = ObjectKey::namespaced(format!("team-{}", number % 50), format!("service-{number}"));
            let bits = random.u128(..);
            let recorded = Recorded {
                uid: format!(
                    "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
                    bits as u32,
                    bits >> 32 & 0xffff,
                    bits >> 48 & 0xfff,
                    bits >> 60 & 0xfff,
                    bits >> 72 & 0xffff_ffff_ffff
                )
                .into(),
                version: ResourceVersion::from(random.u64(1_000_000..2_000_000)),
                digest: Some(random.u128(..).to_be_bytes()),
                unsure: false,
            };
            let key = EventKey { resource: "services".into(), object };
            changes.apply(&LedgerChange::Recorded(key, Some(recorded)));
        }
        let bytes = encode(&changes).unwrap();
        assert!(bytes.len() < 100 * 10_000, "{} bytes", bytes.len());
        assert_eq!(decode::<LedgerChanges>(&bytes).unwrap(), changes);
    }
}
