//! Check of a whole message, once, so that everything read from it later is valid.

use super::InvalidProtobuf;
use super::reader::{BadEncoding, Reader, TOO_DEEP, WRONG_WIRE_TYPE, WireValue};
use super::schema::{Field, FieldPlace, MessageId, Shape, Type};
use super::value::MAX_DEPTH;
use crate::json::{Cursor, DEPTH_CAP};

const INVALID_JSON: BadEncoding = "a field that holds JSON holds something else";
const NOT_FINITE: BadEncoding = "a number is not one that JSON has";

/// Checks the encoding of a message and of all messages in it. Fields that the table does not know are skipped.
pub(crate) fn check(message: MessageId, bytes: &[u8]) -> Result<(), InvalidProtobuf> {
    nested(message, bytes, 0)
}

fn nested(message: MessageId, bytes: &[u8], depth: usize) -> Result<(), InvalidProtobuf> {
    let message = message.get();
    let invalid = InvalidProtobuf::in_message(message.name);
    if depth > MAX_DEPTH {
        return Err(invalid(TOO_DEEP));
    }
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.next().map_err(&invalid)? {
        match message.field(number) {
            None => {}
            Some(FieldPlace::Inline(inner, _)) => {
                nested(inner, content(value).map_err(&invalid)?, depth + 1)?
            }
            Some(FieldPlace::Member(at)) => {
                let Some(field) = message.members.get(usize::from(at)) else { continue };
                if let (Type::Message(inner), Shape::Value | Shape::Pointer | Shape::List) =
                    (field.r#type, field.shape)
                {
                    nested(inner, content(value).map_err(&invalid)?, depth + 1)?;
                } else {
                    member(field, value, depth).map_err(|problem| match problem {
                        Defect::Here(problem) => invalid(problem),
                        Defect::Inside(error) => error,
                    })?;
                }
            }
        }
    }
    Ok(())
}

enum Defect {
    Here(BadEncoding),
    Inside(InvalidProtobuf),
}

impl From<BadEncoding> for Defect {
    fn from(problem: BadEncoding) -> Self {
        Self::Here(problem)
    }
}

fn member(field: &Field, value: WireValue<'_>, depth: usize) -> Result<(), Defect> {
    match field.shape {
        Shape::Map => {
            let mut reader = Reader::new(content(value)?);
            while let Some(entry) = reader.next()? {
                match entry {
                    (1, WireValue::Bytes(_)) => {}
                    (1, _) => return Err(WRONG_WIRE_TYPE.into()),
                    (2, value) => element(field.r#type, value, depth)?,
                    _ => {}
                }
            }
            Ok(())
        }
        Shape::List => match (field.r#type, value) {
            (Type::Int32 | Type::Int64 | Type::Bool, WireValue::Bytes(packed)) => {
                let mut reader = Reader::new(packed);
                while !reader.rest().is_empty() {
                    reader.varint()?;
                }
                Ok(())
            }
            (r#type, value) => element(r#type, value, depth),
        },
        Shape::Value | Shape::Pointer | Shape::Inline => element(field.r#type, value, depth),
    }
}

fn element(r#type: Type, value: WireValue<'_>, depth: usize) -> Result<(), Defect> {
    match (r#type, value) {
        (Type::String | Type::Bytes, WireValue::Bytes(_)) => Ok(()),
        (Type::Bool | Type::Int32 | Type::Int64, WireValue::Varint(_)) => Ok(()),
        (Type::Double, WireValue::Fixed64(bits)) if f64::from_bits(bits).is_finite() => Ok(()),
        (Type::Double, WireValue::Fixed64(_)) => Err(NOT_FINITE.into()),
        (Type::Message(inner), WireValue::Bytes(bytes)) => {
            nested(inner, bytes, depth + 1).map_err(Defect::Inside)
        }
        (Type::Raw, WireValue::Bytes(bytes)) => raw(bytes),
        (Type::Time | Type::MicroTime, WireValue::Bytes(bytes)) => {
            fields(bytes, |number, value| number > 2 || matches!(value, WireValue::Varint(_)))
        }
        (Type::Duration, WireValue::Bytes(bytes)) => {
            fields(bytes, |number, value| number > 1 || matches!(value, WireValue::Varint(_)))
        }
        (Type::Quantity | Type::Strings, WireValue::Bytes(bytes)) => {
            fields(bytes, |number, value| number > 1 || matches!(value, WireValue::Bytes(_)))
        }
        (Type::IntOrString, WireValue::Bytes(bytes)) => fields(bytes, |number, value| match number {
            1 | 2 => matches!(value, WireValue::Varint(_)),
            3 => matches!(value, WireValue::Bytes(_)),
            _ => true,
        }),
        (Type::OrBool(own) | Type::OrArray(own) | Type::OrStrings(own), WireValue::Bytes(bytes)) => {
            nested(own, bytes, depth + 1).map_err(Defect::Inside)
        }
        _ => Err(WRONG_WIRE_TYPE.into()),
    }
}

fn raw(bytes: &[u8]) -> Result<(), Defect> {
    let Some(json) = super::special::first_bytes(bytes)?.filter(|json| !json.is_empty()) else {
        return Ok(());
    };
    let mut cursor = Cursor::new(json, DEPTH_CAP / 4);
    let is_json = cursor.skip_value().and_then(|_| cursor.end()).is_ok();
    if is_json && std::str::from_utf8(json).is_ok() { Ok(()) } else { Err(INVALID_JSON.into()) }
}

fn fields(bytes: &[u8], is_valid: impl Fn(u32, WireValue<'_>) -> bool) -> Result<(), Defect> {
    let mut reader = Reader::new(bytes);
    while let Some((number, value)) = reader.next()? {
        if !is_valid(number, value) {
            return Err(WRONG_WIRE_TYPE.into());
        }
    }
    Ok(())
}

fn content(value: WireValue<'_>) -> Result<&[u8], BadEncoding> {
    match value {
        WireValue::Bytes(bytes) => Ok(bytes),
        _ => Err(WRONG_WIRE_TYPE),
    }
}
