//! The members of a message whose fields come in the order of their numbers, as Go's encoder writes them: they are read in
//! one pass, and nothing is collected.

use super::InvalidProtobuf;
use super::reader::{Reader, WRONG_WIRE_TYPE, WireValue};
use super::run::Run;
use super::schema::{Field, FieldPlace, MessageType};
use super::value::{Object, Owner, Value, member, single};

/// The members that were not read yet: those that the bytes have, and then those that the JSON has without.
pub(crate) struct InOrder<'a> {
    owner: Owner,
    level: Level<'a>,
    /// The level around a message whose members JSON flattens.
    outer: Option<Level<'a>>,
    /// By member, a bit for each that the JSON may have although the bytes lack it.
    absent: u128,
}

/// The fields of one message.
#[derive(Clone, Copy)]
struct Level<'a> {
    message: &'static MessageType,
    /// The index of its first member.
    base: u16,
    fields: Reader<'a>,
}

impl<'a> InOrder<'a> {
    /// Reads the members of a message; `None` if its fields come in another order.
    pub(crate) fn read(object: &Object<'a>) -> Result<Option<Self>, InvalidProtobuf> {
        let owner = object.owner()?;
        let mut parts = object.parts();
        let fields = Reader::new(parts.next().unwrap_or_default());
        let level = Level { message: owner.message, base: 0, fields };
        let is_whole = parts.next().is_none();
        let members = Self { owner, level, outer: None, absent: owner.message.shown };
        Ok((is_whole && level.is_in_order(true)).then_some(members))
    }

    /// Reads the value of the next member, and returns its name.
    pub(crate) fn next_member(
        &mut self,
        value: &mut Value<'a>,
    ) -> Result<Option<&'static str>, InvalidProtobuf> {
        let invalid = self.owner.invalid();
        loop {
            let Level { message, base, fields } = self.level;
            let Some((number, encoded)) = self.level.fields.next().map_err(&invalid)? else {
                let Some(outer) = self.outer.take() else { return self.next_absent(value) };
                self.level = outer;
                continue;
            };
            match message.field(number) {
                // A newer server's.
                None => {}
                Some(FieldPlace::Inline(inner, at)) => {
                    let WireValue::Bytes(bytes) = encoded else { return Err(invalid(WRONG_WIRE_TYPE)) };
                    let inner = Level { message: inner.get(), base: base + at, fields: Reader::new(bytes) };
                    self.outer = Some(std::mem::replace(&mut self.level, inner));
                }
                Some(FieldPlace::Member(at)) => {
                    let at = usize::from(base + at);
                    let Some(field) = self.owner.message.members.get(at) else { continue };
                    self.absent &= !(1 << at);
                    let is_shown = if field.is_repeated() {
                        let count = 1 + self.level.skip(number).map_err(&invalid)?;
                        member(self.owner, field, Run::Fields(fields, count), value)?
                    } else {
                        single(self.owner, field, Some(encoded), value)?
                    };
                    if is_shown {
                        return Ok(Some(field.name));
                    }
                }
            }
        }
    }

    /// Reads the next member that the JSON has although the bytes lack it.
    fn next_absent(&mut self, value: &mut Value<'a>) -> Result<Option<&'static str>, InvalidProtobuf> {
        while self.absent != 0 {
            let at = self.absent.trailing_zeros() as usize;
            self.absent &= self.absent - 1;
            let Some(field) = self.owner.message.members.get(at) else { continue };
            if member(self.owner, field, Run::Absent, value)? {
                return Ok(Some(field.name));
            }
        }
        Ok(None)
    }
}

impl Level<'_> {
    /// Returns whether the fields come in the order of their numbers, and only lists and maps several times.
    fn is_in_order(mut self, may_flatten: bool) -> bool {
        let mut last = 0;
        while let Ok(next) = self.fields.next() {
            let Some((number, value)) = next else { return true };
            let is_ordered = match self.message.field(number) {
                // A newer server's, which may be a list; it must not part a list of ours.
                None => number >= last,
                Some(FieldPlace::Inline(inner, _)) => match value {
                    WireValue::Bytes(bytes) if may_flatten && number > last => {
                        let fields = Reader::new(bytes);
                        Level { message: inner.get(), base: 0, fields }.is_in_order(false)
                    }
                    _ => false,
                },
                Some(FieldPlace::Member(at)) => {
                    let is_repeated =
                        |at| self.message.members.get(usize::from(at)).is_some_and(Field::is_repeated);
                    number > last || (number == last && is_repeated(at))
                }
            };
            if !is_ordered {
                return false;
            }
            last = number;
        }
        false
    }

    /// Skips the fields with this number that come next, and returns their count.
    fn skip(&mut self, number: u32) -> Result<usize, &'static str> {
        let mut count = 0;
        let mut ahead = self.fields;
        while let Some((own, _)) = ahead.next()? {
            if own != number {
                break;
            }
            self.fields = ahead;
            count += 1;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::Value as Json;

    use super::*;
    use crate::protobuf::schema::{Kind, Shape, Type};
    use crate::protobuf::{Envelope, decode_object};

    /// Writes the fields of a message, and of all messages in it, with the highest number first.
    fn reversed(message: &MessageType, bytes: &[u8]) -> Vec<u8> {
        let mut by_number = BTreeMap::<u32, Vec<u8>>::new();
        let mut fields = Reader::new(bytes);
        loop {
            let before = fields.rest();
            let Some((number, value)) = fields.next().expect("the vectors are valid") else { break };
            let inner = match message.field(number) {
                Some(FieldPlace::Inline(inner, _)) => Some(inner),
                Some(FieldPlace::Member(at)) => match &message.members[usize::from(at)] {
                    Field { r#type: Type::Message(inner), shape, .. } if *shape != Shape::Map => Some(*inner),
                    _ => None,
                },
                None => None,
            };
            let own = by_number.entry(number).or_default();
            match (inner, value) {
                (Some(inner), WireValue::Bytes(bytes)) => {
                    crate::protobuf::write_bytes(number, &reversed(inner.get(), bytes), own);
                }
                _ => own.extend_from_slice(&before[..before.len() - fields.rest().len()]),
            }
        }
        by_number.into_values().rev().flatten().collect()
    }

    #[test]
    fn order_of_fields_does_not_change_value_of_any_kind() {
        let packed: &[u8] = include_bytes!("../../tests/vectors/protobuf.jsonl.gz");
        let mut lines = String::new();
        flate2::read::GzDecoder::new(packed).read_to_string(&mut lines).expect("the file is gzip");
        let (mut in_order, mut other) = (0, 0);
        for line in lines.lines() {
            let vector: Json = serde_json::from_str(line).expect("each line is JSON");
            let body = STANDARD.decode(vector["pb"].as_str().unwrap_or_default()).expect("pb is base64");
            let Some(envelope) = Envelope::read(&body) else { continue };
            let Some(kind) = Kind::find(envelope.api_version, envelope.kind) else { continue };
            let turned = reversed(kind.message.get(), envelope.object);
            let decode = |bytes| decode_object::<Json>(Object::new(kind.message, bytes), None);
            assert_eq!(decode(envelope.object), decode(&turned), "{}: {}", kind.kind, vector["what"]);
            let is_in_order = |bytes| InOrder::read(&Object::new(kind.message, bytes)).unwrap().is_some();
            in_order += usize::from(is_in_order(envelope.object));
            other += usize::from(!is_in_order(&turned));
        }
        assert!(in_order > 1_300 && other > 1_000, "{in_order}, {other}");
    }

    #[test]
    fn field_of_newer_server_within_list_does_not_part_it() {
        let kind = Kind::find("v1", "ConfigMap").unwrap();
        let bytes = |number, content: &[u8]| {
            let mut field = Vec::new();
            crate::protobuf::write_bytes(number, content, &mut field);
            field
        };
        // `finalizers`, around a field that the table does not have.
        for unknown in [15, 99] {
            let metadata = [bytes(14, b"a"), bytes(unknown, b"new"), bytes(14, b"b")].concat();
            let message = bytes(1, &metadata);
            let decoded = decode_object::<Json>(Object::new(kind.message, &message), None).unwrap();
            assert_eq!(decoded["metadata"]["finalizers"], serde_json::json!(["a", "b"]), "{unknown}");
        }
    }
}
