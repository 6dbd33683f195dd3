//! Messages whose fields the caller knows by number, and the envelope around objects.

use std::collections::BTreeMap;

use super::MAGIC;
use super::reader::{Reader, WireValue};

/// An object in its envelope (`runtime.Unknown` of k8s.io/apimachinery), as in the bodies of requests and responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// `apiVersion`, such as `apps/v1`.
    pub api_version: &'a str,
    /// `kind`.
    pub kind: &'a str,
    /// The object's message.
    pub object: &'a [u8],
}

/// The fields of a message, in the order of the bytes.
#[derive(Clone, Debug)]
pub struct Message<'a>(Vec<(u64, Field<'a>)>);

/// The value of a field, as far as the wire encodes its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// A varint, or a number of fixed width.
    Number(u64),
    /// A text, bytes, or a nested message.
    Bytes(&'a [u8]),
}

impl<'a> Envelope<'a> {
    /// Reads an envelope; returns `None` if the body is not one.
    pub fn read(body: &'a [u8]) -> Option<Self> {
        let [types, object] = first_two(body.strip_prefix(MAGIC)?)?;
        let [api_version, kind] = first_two(types?)?;
        Some(Self {
            api_version: std::str::from_utf8(api_version?).ok()?,
            kind: std::str::from_utf8(kind?).ok()?,
            object: object.unwrap_or_default(),
        })
    }
}

/// Returns the bytes of the fields 1 and 2, the last ones; `None` if the bytes are not a message. Each object has an envelope and
/// labels, so nothing is collected.
pub(crate) fn first_two(message: &[u8]) -> Option<[Option<&[u8]>; 2]> {
    let mut found = [None; 2];
    let mut reader = Reader::new(message);
    while let Some((number, value)) = reader.next().ok()? {
        if let 1 | 2 = number {
            found[number as usize - 1] = match value {
                WireValue::Bytes(bytes) => Some(bytes),
                _ => None,
            };
        }
    }
    Some(found)
}

impl<'a> Message<'a> {
    /// Reads all fields; returns `None` if the bytes are not a message.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut fields = Vec::new();
        let mut reader = Reader::new(bytes);
        while let Some((number, value)) = reader.next().ok()? {
            let value = match value {
                WireValue::Varint(number) | WireValue::Fixed64(number) => Field::Number(number),
                WireValue::Fixed32(number) => Field::Number(number.into()),
                WireValue::Bytes(bytes) => Field::Bytes(bytes),
            };
            fields.push((number.into(), value));
        }
        Some(Self(fields))
    }

    /// Returns the field with this number; the last one wins if it is repeated.
    pub fn last(&self, number: u64) -> Option<Field<'a>> {
        self.0.iter().rev().find(|(own, _)| *own == number).map(|(_, value)| *value)
    }

    /// Returns the bytes of a field.
    pub fn bytes(&self, number: u64) -> Option<&'a [u8]> {
        self.last(number)?.bytes()
    }

    /// Returns the text of a field.
    pub fn text(&self, number: u64) -> Option<&'a str> {
        std::str::from_utf8(self.bytes(number)?).ok()
    }

    /// Returns the message in a field.
    pub fn message(&self, number: u64) -> Option<Self> {
        Self::read(self.bytes(number)?)
    }

    /// Returns all values by the number of their field.
    pub fn by_number(&self) -> BTreeMap<u64, Vec<Field<'a>>> {
        let mut grouped = BTreeMap::<u64, Vec<Field<'a>>>::new();
        for (number, value) in &self.0 {
            grouped.entry(*number).or_default().push(*value);
        }
        grouped
    }
}

impl<'a> Field<'a> {
    /// Returns the bytes, or `None` for a number.
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Number(_) => None,
        }
    }

    /// Returns the number, as protobuf's `int64`.
    pub fn integer(self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(number.cast_signed()),
            Self::Bytes(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a field that holds bytes.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        bytes.extend_from_slice(content);
        bytes
    }

    #[test]
    fn reads_an_envelope_and_its_fields() {
        let metadata = [field(1, b"web"), field(6, b"17"), vec![7 << 3, 2]].concat();
        let type_meta = [field(1, b"v1"), field(2, b"Pod")].concat();
        let body = [MAGIC.to_vec(), field(1, &type_meta), field(2, &field(1, &metadata))].concat();
        let envelope = Envelope::read(&body).unwrap();
        assert_eq!((envelope.api_version, envelope.kind), ("v1", "Pod"));
        let metadata = Message::read(envelope.object).unwrap().message(1).unwrap();
        assert_eq!((metadata.text(6), metadata.last(7)), (Some("17"), Some(Field::Number(2))));
        assert_eq!(metadata.last(8), None);
    }

    #[test]
    fn rejects_malformed_protobuf() {
        for body in [&b""[..], b"rubbish", MAGIC, b"k8s\0\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"] {
            assert_eq!(Envelope::read(body), None);
        }
        assert!(Message::read(&[0x0a, 5, b'x']).is_none() && Message::read(&[0xff; 12]).is_none());
    }
}
