//! Messages to a DNS server.

use std::net::IpAddr;

use domain::base::iana::{Class, Opcode, Rtype};
use domain::base::message_builder::{AdditionalBuilder, AnswerBuilder, PushError};
use domain::base::name::FromStrError;
use domain::base::rdata::UnknownRecordData;
use domain::base::{Message, MessageBuilder, Name as DomainName, ParsedName, Ttl};
use domain::rdata::AllRecordData;

use super::records::{MARK, Zone, ZoneData, ZoneRecord};
use crate::entry::{EntryName, EntryOwner, EntryValue};

type WireName = DomainName<Vec<u8>>;
/// Records of any type, each with its data as bytes.
type RecordOf<'a> = (&'a WireName, Class, Ttl, UnknownRecordData<Vec<u8>>);

/// A change of one name, in one message: the server does all of it, or nothing.
pub(super) struct Update<'a> {
    pub(super) name: &'a EntryName,
    pub(super) fence: FenceCheck<'a>,
    /// The mark that must exist; `None`: the name must not be in use.
    pub(super) before: Option<&'a EntryOwner>,
    /// The new owner and values; `None` removes the name.
    pub(super) after: Option<(&'a EntryOwner, Vec<&'a EntryValue>)>,
}

/// The fence that a write requires, and that the server compares.
#[derive(Clone, Copy, Debug)]
pub(super) struct FenceCheck<'a> {
    /// The name of the record.
    pub(super) at: &'a str,
    /// Its text; `None`: there must be no record.
    pub(super) text: Option<&'a str>,
}

/// An error of building a message.
#[derive(Debug, thiserror::Error)]
pub(super) enum BuildError {
    #[error("not a domain name: {0}")]
    Name(#[from] FromStrError),
    #[error("too large for a message")]
    TooLarge,
}

impl From<PushError> for BuildError {
    fn from(_: PushError) -> Self {
        Self::TooLarge
    }
}

impl Update<'_> {
    /// Writes the message of RFC 2136: the zone, the prerequisites, the changes.
    pub(super) fn build(&self, zone: &Zone<'_>) -> Result<AdditionalBuilder<Vec<u8>>, BuildError> {
        let (host, marked) = (name(self.name.as_str())?, name(&format!("{MARK}.{}", self.name))?);
        let mut message = update(zone.origin)?;
        self.fence.push(&mut message)?;
        match self.before {
            Some(mark) => message.push(text(&marked, Ttl::ZERO, &zone.mark(mark))?)?,
            None => {
                message.push(empty(&host, Class::NONE, Rtype::ANY)?)?;
                message.push(empty(&marked, Class::NONE, Rtype::ANY)?)?;
            }
        }
        let mut message = message.authority();
        let ttl = Ttl::from_secs(u32::try_from(zone.ttl.as_secs()).unwrap_or(u32::MAX));
        // In this order the name always has an address.
        for rtype in [Rtype::A, Rtype::AAAA, Rtype::CNAME] {
            message.push(empty(&host, Class::ANY, rtype)?)?;
        }
        for value in self.after.iter().flat_map(|(_, values)| values) {
            let (rtype, data) = match value.parse() {
                Ok(IpAddr::V4(address)) => (Rtype::A, address.octets().to_vec()),
                Ok(IpAddr::V6(address)) => (Rtype::AAAA, address.octets().to_vec()),
                Err(_) => (Rtype::CNAME, name(value)?.as_slice().to_vec()),
            };
            message.push(record(&host, Class::IN, ttl, rtype, data)?)?;
        }
        message.push(empty(&marked, Class::ANY, Rtype::TXT)?)?;
        if let Some((owner, _)) = &self.after {
            message.push(text(&marked, ttl, &zone.mark(owner))?)?;
        }
        Ok(message.additional())
    }
}

impl FenceCheck<'_> {
    /// Writes the prerequisite.
    fn push(&self, message: &mut AnswerBuilder<Vec<u8>>) -> Result<(), BuildError> {
        let at = name(self.at)?;
        match self.text {
            Some(value) => message.push(text(&at, Ttl::ZERO, value)?)?,
            None => message.push(empty(&at, Class::NONE, Rtype::TXT)?)?,
        }
        Ok(())
    }
}

/// Replaces a fence, if it is still as it was read. `None` removes it.
pub(super) fn replace_fence(
    zone: &Zone<'_>,
    before: FenceCheck<'_>,
    after: Option<&str>,
) -> Result<AdditionalBuilder<Vec<u8>>, BuildError> {
    let at = name(before.at)?;
    let mut message = update(zone.origin)?;
    before.push(&mut message)?;
    let mut message = message.authority();
    message.push(empty(&at, Class::ANY, Rtype::TXT)?)?;
    if let Some(after) = after {
        // The record must not be cached.
        message.push(text(&at, Ttl::ZERO, after)?)?;
    }
    Ok(message.additional())
}

/// Builds an update that changes nothing: the answer shows whether the server accepts updates of the zone.
pub(super) fn probe(zone: &str) -> Result<AdditionalBuilder<Vec<u8>>, BuildError> {
    Ok(update(zone)?.additional())
}

/// Begins a message of RFC 2136.
fn update(zone: &str) -> Result<AnswerBuilder<Vec<u8>>, BuildError> {
    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_opcode(Opcode::UPDATE);
    message.header_mut().set_id(fastrand::u16(..));
    let mut message = message.question();
    message.push((name(zone)?, Rtype::SOA, Class::IN))?;
    Ok(message.answer())
}

/// Builds a request for the whole zone.
pub(super) fn transfer(zone: &str) -> Result<AdditionalBuilder<Vec<u8>>, BuildError> {
    question(zone, Rtype::AXFR)
}

/// Builds a request for records of one type.
pub(super) fn question(of: &str, rtype: Rtype) -> Result<AdditionalBuilder<Vec<u8>>, BuildError> {
    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_id(fastrand::u16(..));
    let mut message = message.question();
    message.push((name(of)?, rtype, Class::IN))?;
    Ok(message.additional())
}

/// Returns the name of a name's mark.
pub(super) fn mark_of(name: &EntryName) -> String {
    format!("{MARK}.{name}")
}

/// Reads the records of the answer. `Err` if one cannot be read: then nothing is concluded from the others.
pub(super) fn records(message: &Message<Vec<u8>>) -> Result<Vec<ZoneRecord>, String> {
    let broken = |error: &dyn std::fmt::Display| format!("a record cannot be read: {error}");
    let mut records = Vec::new();
    for record in message.answer().map_err(|error| broken(&error))? {
        let record = record.map_err(|error| broken(&error))?;
        let record =
            record.into_any_record::<AllRecordData<_, ParsedName<_>>>().map_err(|error| broken(&error))?;
        let data = match record.data() {
            AllRecordData::A(address) => ZoneData::Value(address.addr().to_string()),
            AllRecordData::Aaaa(address) => ZoneData::Value(address.addr().to_string()),
            AllRecordData::Cname(target) => ZoneData::Value(plain(target.cname())),
            AllRecordData::Txt(text) => {
                ZoneData::Text(String::from_utf8_lossy(&text.text::<Vec<u8>>()).into_owned())
            }
            AllRecordData::Soa(soa) => ZoneData::Serial(soa.serial()),
            _ => ZoneData::Other,
        };
        records.push(ZoneRecord { name: plain(record.owner()), ttl: record.ttl().as_secs(), data });
    }
    Ok(records)
}

pub(super) fn name(text: &str) -> Result<WireName, FromStrError> {
    DomainName::vec_from_str(text)
}

fn plain(name: &dyn std::fmt::Display) -> String {
    name.to_string().trim_end_matches('.').to_ascii_lowercase()
}

fn empty(name: &WireName, class: Class, rtype: Rtype) -> Result<RecordOf<'_>, BuildError> {
    record(name, class, Ttl::ZERO, rtype, Vec::new())
}

fn text<'a>(name: &'a WireName, ttl: Ttl, text: &str) -> Result<RecordOf<'a>, BuildError> {
    // A string of a TXT record has at most 255 bytes (RFC 1035 3.3).
    let strings = text
        .as_bytes()
        .chunks(255)
        .flat_map(|part| std::iter::once(part.len() as u8).chain(part.iter().copied()));
    record(name, Class::IN, ttl, Rtype::TXT, strings.collect())
}

fn record(
    name: &WireName,
    class: Class,
    ttl: Ttl,
    rtype: Rtype,
    data: Vec<u8>,
) -> Result<RecordOf<'_>, BuildError> {
    let data = UnknownRecordData::from_octets(rtype, data).map_err(|_| BuildError::TooLarge)?;
    Ok((name, class, ttl, data))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns the prerequisites of a message, as `name class type data`.
    fn prerequisites(message: AdditionalBuilder<Vec<u8>>) -> Vec<String> {
        let message = Message::from_octets(message.finish()).unwrap();
        let records = message.answer().unwrap().map(|record| {
            let record = record.unwrap().into_any_record::<AllRecordData<_, ParsedName<_>>>().unwrap();
            format!("{} {} {} {}", record.owner(), record.class(), record.rtype(), record.data())
        });
        records.collect()
    }

    #[test]
    fn every_write_requires_fence() {
        let zone = Zone { origin: "z.test", owner: "us", ttl: Duration::from_secs(30) };
        let (host, at) = (EntryName::from("web.z.test"), "us._skopos-fence.z.test");
        let mark = EntryOwner::parse("service/ns/web", "u").unwrap();
        for before in [None, Some(&mark)] {
            let write = |text| {
                let fence = FenceCheck { at, text };
                let update = Update { name: &host, fence, before, after: None };
                prerequisites(update.build(&zone).unwrap())
            };
            assert_eq!(write(Some("term=42"))[0], "us._skopos-fence.z.test IN TXT \"term=42\"");
            assert!(write(None)[0].starts_with("us._skopos-fence.z.test NONE TXT"), "there must be none");
        }
        let taken = replace_fence(&zone, FenceCheck { at, text: Some("term=41") }, Some("term=42")).unwrap();
        assert_eq!(prerequisites(taken), ["us._skopos-fence.z.test IN TXT \"term=41\""]);
        assert_eq!(prerequisites(probe("z.test").unwrap()), [""; 0]);
    }
}
