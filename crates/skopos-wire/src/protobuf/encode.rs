//! Protobuf of an object's JSON, as Go's encoder writes it: fields by number, and values that cannot be nil even if empty.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::schema::{Field, FieldPlace, Kind, MessageId, MessageType, Shape, Type};
use super::value::MAX_DEPTH;
use super::{parse, write};
use crate::json::{Cursor, DEPTH_CAP, RawStr, SyntaxError};

/// JSON that has no protobuf. The caller is at fault: it chose JSON of another kind, or of another shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A kind that is not a built-in one: custom resources have no protobuf.
    #[error("{api_version} {kind} has no protobuf, because it is not a built-in kind")]
    UnknownKind {
        /// `apiVersion`.
        api_version: Box<str>,
        /// `kind`.
        kind: Box<str>,
    },
    /// A text that is not JSON.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// A member of another type than the kind has.
    #[error("{member} of {message} is not {expected}")]
    WrongType {
        /// The message, such as `core/v1.PodSpec`.
        message: &'static str,
        /// The member's name in JSON.
        member: &'static str,
        /// The expected type.
        expected: &'static str,
    },
    /// A member that the kind does not have, as far as the table of built-in kinds knows it: a newer server may have added it.
    /// It would be lost.
    #[error("{message} has no {member:?}, as far as its protobuf is known")]
    UnknownMember {
        /// The message, such as `core/v1.PodSpec`.
        message: &'static str,
        /// The member's name in JSON.
        member: Box<str>,
    },
    /// JSON that nests too deep.
    #[error("{message} nests too deep")]
    TooDeep {
        /// The message at the limit.
        message: &'static str,
    },
}

/// The members of an object's JSON, by their index; absent ones and nulls are `None`.
type Members<'a> = Vec<Option<&'a [u8]>>;

/// The members that protobuf has outside of the message.
const TYPES: [&str; 2] = ["apiVersion", "kind"];

/// Encodes an object, which must have `apiVersion` and `kind`, with its envelope.
pub(crate) fn with_envelope(json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    let mut types = [None, None];
    Cursor::new(json, DEPTH_CAP).members::<SyntaxError>(|cursor, key| {
        let at = TYPES.iter().position(|name| key.is(name));
        match at {
            Some(at) if cursor.peek() == Some(b'"') => types[at] = cursor.string()?.text(),
            _ => {
                cursor.skip_value()?;
            }
        }
        Ok(())
    })?;
    let [api_version, kind] = types.map(Option::unwrap_or_default);
    let Some(found) = Kind::find(&api_version, &kind) else {
        return Err(EncodeError::UnknownKind {
            api_version: api_version.into_owned().into(),
            kind: kind.into_owned().into(),
        });
    };
    Ok(write::envelope(&api_version, &kind, &message(found.message, json)?))
}

/// Encodes a message.
pub(crate) fn message(message: MessageId, json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    let mut bytes = Vec::with_capacity(json.len() / 2);
    object(message, Some(json), 0, &mut bytes)?;
    Ok(bytes)
}

fn object(
    message: MessageId,
    json: Option<&[u8]>,
    depth: usize,
    bytes: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let message = message.get();
    if depth > MAX_DEPTH {
        return Err(EncodeError::TooDeep { message: message.name });
    }
    let members = match json {
        Some(json) => members(message, json)?,
        None => vec![None; message.members.len()],
    };
    fields(message, message, 0, &members, depth, bytes)
}

fn members<'a>(message: &MessageType, json: &'a [u8]) -> Result<Members<'a>, EncodeError> {
    let mut members = vec![None; message.members.len()];
    // Servers write members in their order, so the next one is mostly the one after the last.
    let mut expected = 0;
    Cursor::new(json, DEPTH_CAP).members::<EncodeError>(|cursor, key| {
        let is_null = cursor.peek() == Some(b'n');
        let range = cursor.skip_value()?;
        let all = message.members.iter().enumerate();
        let (before, after) = (all.clone().take(expected), all.skip(expected));
        if let Some((at, _)) = after.chain(before).find(|(_, field)| key.is(field.name)) {
            expected = at + 1;
            members[at] = (!is_null).then(|| cursor.slice(range));
        } else if !is_null && !TYPES.iter().any(|name| key.is(name)) {
            return Err(EncodeError::UnknownMember { message: message.name, member: own_text(key).into() });
        }
        Ok(())
    })?;
    Ok(members)
}

/// Writes the fields of `message`, whose members are those of `whole` from `base` on.
fn fields(
    whole: &MessageType,
    message: &MessageType,
    base: usize,
    members: &Members<'_>,
    depth: usize,
    bytes: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    for encoded in &message.encoded {
        match encoded.place {
            FieldPlace::Inline(inner, at) => write::nested(encoded.number, bytes, |bytes| {
                fields(whole, inner.get(), base + usize::from(at), members, depth, bytes)
            })?,
            FieldPlace::Member(at) => {
                let at = base + usize::from(at);
                let (Some(field), Some(json)) = (whole.members.get(at), members.get(at)) else { continue };
                let writer = FieldWriter { message: whole.name, field, number: encoded.number, depth };
                writer.write(*json, bytes)?;
            }
        }
    }
    Ok(())
}

/// A writer of one field.
#[derive(Clone, Copy)]
struct FieldWriter<'a> {
    message: &'static str,
    field: &'a Field,
    number: u32,
    depth: usize,
}

impl FieldWriter<'_> {
    fn write(self, json: Option<&[u8]>, bytes: &mut Vec<u8>) -> Result<(), EncodeError> {
        match (self.field.shape, json) {
            (Shape::Pointer | Shape::List | Shape::Map, None) => Ok(()),
            (Shape::List, Some(json)) => {
                let mut cursor = Cursor::new(json, DEPTH_CAP);
                self.expect(cursor.eat(b'['), "an array")?;
                if cursor.eat(b']') {
                    return Ok(());
                }
                loop {
                    let is_null = cursor.peek() == Some(b'n');
                    let range = cursor.skip_value()?;
                    self.value(self.number, (!is_null).then(|| cursor.slice(range)), bytes)?;
                    if !cursor.eat(b',') {
                        return Ok(());
                    }
                }
            }
            (Shape::Map, Some(json)) => {
                let mut entries = Vec::new();
                let mut cursor = Cursor::new(json, DEPTH_CAP);
                self.expect(cursor.peek() == Some(b'{'), "an object")?;
                cursor.members::<SyntaxError>(|cursor, key| {
                    let is_null = cursor.peek() == Some(b'n');
                    let range = cursor.skip_value()?;
                    entries.push((own_text(key), (!is_null).then(|| cursor.slice(range))));
                    Ok(())
                })?;
                entries.sort_by(|(a, _), (b, _)| a.cmp(b));
                for (key, value) in entries {
                    write::nested(self.number, bytes, |bytes| {
                        write::bytes(1, key.as_bytes(), bytes);
                        // A map of bytes has an empty value where JSON has null.
                        let value = value.or((self.field.r#type == Type::Bytes).then_some(b"\"\""));
                        self.value(2, value, bytes)
                    })?;
                }
                Ok(())
            }
            (Shape::Value | Shape::Pointer | Shape::Inline, json) => self.value(self.number, json, bytes),
        }
    }

    /// Writes one value as the field `number`.
    fn value(self, number: u32, json: Option<&[u8]>, bytes: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self.field.r#type {
            Type::String => write::bytes(number, self.text(json)?.as_bytes(), bytes),
            Type::Bool => write::number(number, u64::from(self.bool(json)?), bytes),
            Type::Int32 | Type::Int64 => write::number(number, self.integer(json)?.cast_unsigned(), bytes),
            Type::Double => write::double(number, self.double(json)?, bytes),
            Type::Bytes => {
                if let Some(json) = json {
                    write::bytes(number, &self.base64(json)?, bytes);
                }
            }
            Type::Message(message) => {
                return write::nested(number, bytes, |bytes| object(message, json, self.depth + 1, bytes));
            }
            Type::Strings if json.is_none() => {}
            r#type => return write::nested(number, bytes, |bytes| self.special(r#type, json, bytes)),
        }
        Ok(())
    }

    /// Writes the content of a type whose JSON is not that of its fields.
    fn special(self, r#type: Type, json: Option<&[u8]>, bytes: &mut Vec<u8>) -> Result<(), EncodeError> {
        match (r#type, json) {
            (Type::Time | Type::MicroTime, Some(_)) => {
                let text = self.text(json)?;
                let (seconds, nanos) = parse::time(&text).ok_or(self.wrong("a time in RFC 3339"))?;
                if (seconds, nanos) != (super::special::ZERO_TIME, 0) {
                    let nanos = if r#type == Type::Time { 0 } else { nanos / 1000 * 1000 };
                    write::number(1, seconds.cast_unsigned(), bytes);
                    write::number(2, nanos.into(), bytes);
                }
            }
            (Type::Duration, _) => {
                let text = self.text(json)?;
                let nanos = if text.is_empty() { Some(0) } else { parse::duration(&text) };
                write::number(1, nanos.ok_or(self.wrong("a duration"))?.cast_unsigned(), bytes);
            }
            (Type::Quantity, _) => {
                let text = self.quantity(json)?;
                write::bytes(1, text.as_bytes(), bytes);
            }
            (Type::IntOrString, json) => {
                let is_text = json.is_some_and(|json| json.starts_with(b"\""));
                let (text, number) = match is_text {
                    true => (self.text(json)?, 0),
                    false => (Cow::Borrowed(""), self.integer(json)?),
                };
                write::number(1, is_text.into(), bytes);
                write::number(2, number.cast_unsigned(), bytes);
                write::bytes(3, text.as_bytes(), bytes);
            }
            (Type::Raw, Some(json)) => write::bytes(1, json, bytes),
            (Type::Strings, Some(json)) => self.all(1, json, bytes)?,
            (Type::OrBool(_), json) => match json {
                Some(schema) if schema.starts_with(b"{") => {
                    write::number(1, 1, bytes);
                    self.schema(2, schema, bytes)?;
                }
                json => write::number(1, u64::from(self.bool(json)?), bytes),
            },
            (Type::OrArray(_), Some(json)) if json.starts_with(b"[") => self.all(2, json, bytes)?,
            (Type::OrStrings(_), Some(json)) if json.starts_with(b"[") => self.all(2, json, bytes)?,
            (Type::OrArray(_) | Type::OrStrings(_), Some(json)) => self.schema(1, json, bytes)?,
            _ => {}
        }
        Ok(())
    }

    /// Writes the elements of an array: strings, or schemas.
    fn all(self, number: u32, json: &[u8], bytes: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut cursor = Cursor::new(json, DEPTH_CAP);
        self.expect(cursor.eat(b'['), "an array")?;
        if cursor.eat(b']') {
            return Ok(());
        }
        loop {
            let range = cursor.skip_value()?;
            let element = cursor.slice(range);
            match self.field.r#type {
                Type::OrArray(_) => self.schema(number, element, bytes)?,
                _ => write::bytes(number, self.text(Some(element))?.as_bytes(), bytes),
            }
            if !cursor.eat(b',') {
                return Ok(());
            }
        }
    }

    /// Writes the schema of one of the types of apiextensions that have one.
    fn schema(self, number: u32, json: &[u8], bytes: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (Type::OrBool(own) | Type::OrArray(own) | Type::OrStrings(own)) = self.field.r#type else {
            return Ok(());
        };
        let schema = own.get().members.iter().find_map(|field| match field.r#type {
            Type::Message(schema) => Some(schema),
            _ => None,
        });
        let Some(schema) = schema else { return Ok(()) };
        write::nested(number, bytes, |bytes| object(schema, Some(json), self.depth + 1, bytes))
    }

    fn text<'a>(self, json: Option<&'a [u8]>) -> Result<Cow<'a, str>, EncodeError> {
        let Some(json) = json else { return Ok(Cow::Borrowed("")) };
        let text = Cursor::new(json, 1).string().map_err(|_| self.wrong("a string"))?;
        Ok(own_text(text))
    }

    fn quantity<'a>(self, json: Option<&'a [u8]>) -> Result<Cow<'a, str>, EncodeError> {
        let text = match json {
            None => return Ok("0".into()),
            Some(json) if json.starts_with(b"\"") => self.text(Some(json))?,
            // A number, which Kubernetes accepts as well.
            Some(json) => std::str::from_utf8(json).unwrap_or_default().into(),
        };
        Ok(super::quantity::canonical(&text).map_or(text, Cow::Owned))
    }

    fn bool(self, json: Option<&[u8]>) -> Result<bool, EncodeError> {
        match json {
            None | Some(b"false") => Ok(false),
            Some(b"true") => Ok(true),
            Some(_) => Err(self.wrong("a boolean")),
        }
    }

    fn integer(self, json: Option<&[u8]>) -> Result<i64, EncodeError> {
        let Some(json) = json else { return Ok(0) };
        let text = std::str::from_utf8(json).unwrap_or_default();
        let whole = || {
            let number: f64 = text.parse().ok()?;
            // Beyond 2^53 a float is not exact, and there are no such numbers with a point or an exponent.
            (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i64)
        };
        text.parse().ok().or_else(whole).ok_or(self.wrong("an integer"))
    }

    fn double(self, json: Option<&[u8]>) -> Result<f64, EncodeError> {
        let Some(json) = json else { return Ok(0.0) };
        let number = std::str::from_utf8(json).ok().and_then(|text| text.parse().ok());
        number.ok_or(self.wrong("a number"))
    }

    fn base64(self, json: &[u8]) -> Result<Vec<u8>, EncodeError> {
        let text = self.text(Some(json))?;
        let text: Cow<'_, str> =
            if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], "").into() } else { text };
        STANDARD.decode(text.as_bytes()).map_err(|_| self.wrong("base64"))
    }

    fn expect(self, condition: bool, expected: &'static str) -> Result<(), EncodeError> {
        if condition { Ok(()) } else { Err(self.wrong(expected)) }
    }

    fn wrong(self, expected: &'static str) -> EncodeError {
        EncodeError::WrongType { message: self.message, member: self.field.name, expected }
    }
}

fn own_text(text: RawStr<'_>) -> Cow<'_, str> {
    text.text().unwrap_or_else(|| {
        // Half a surrogate pair, which Go replaces.
        text.plain().map_or(Cow::Borrowed("\u{fffd}"), String::from_utf8_lossy)
    })
}
