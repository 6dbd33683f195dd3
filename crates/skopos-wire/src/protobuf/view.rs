//! A message as its JSON would be: members in their order, with the values that Go's encoder writes.

use std::borrow::Cow;

use super::InvalidProtobuf;
use super::reader::{Reader, TOO_DEEP, WRONG_WIRE_TYPE, WireValue};
use super::schema::{Empty, Field, FieldPlace, MessageId, MessageType, Shape, Type};
use super::special;

/// A message whose fields were found. Nested messages are read when their value is.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    message: &'static MessageType,
    /// In the order of the members, and within a member of the bytes.
    found: Vec<Found<'a>>,
    /// `kind` and `apiVersion`, if the JSON has them.
    types: Option<TypeMeta<'a>>,
    depth: usize,
}

/// `kind` and `apiVersion`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TypeMeta<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
}

/// A field that was found, or one element of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'a> {
    /// The index of the member.
    at: u16,
    value: WireValue<'a>,
}

/// The value of a member.
#[derive(Debug)]
pub(crate) enum Value<'v, 'a> {
    Null,
    Bool(bool),
    Integer(i64),
    Double(f64),
    Text(Cow<'a, str>),
    /// A text that is not UTF-8.
    BrokenText(&'a [u8]),
    /// JSON text.
    Raw(&'a [u8]),
    Object(View<'a>),
    List(Elements<'v, 'a>),
    /// Sorted by key. Keys are texts, and mostly UTF-8.
    Map(Vec<(&'a [u8], Element<'a>)>),
}

/// The elements of a list.
#[derive(Debug)]
pub(crate) struct Elements<'v, 'a> {
    r#type: Type,
    found: Cow<'v, [Found<'a>]>,
    depth: usize,
    message: &'static MessageType,
}

/// An element of a list, or the value of an entry of a map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'a> {
    r#type: Type,
    value: Option<WireValue<'a>>,
    depth: usize,
    message: &'static MessageType,
}

/// The deepest nesting of messages, as in serde_json the deepest nesting of JSON: readers recurse.
pub(crate) const MAX_DEPTH: usize = 64;

const EMPTY: &[u8] = &[];

impl<'a> View<'a> {
    /// Finds the fields of a message.
    pub(crate) fn read(message: MessageId, bytes: &'a [u8]) -> Result<Self, InvalidProtobuf> {
        Self::merge(message, [bytes], 0)
    }

    /// Adds `kind` and `apiVersion` to the JSON.
    pub(crate) fn with_types(self, types: Option<TypeMeta<'a>>) -> Self {
        Self { types, ..self }
    }

    /// Finds the fields of a message that came in several parts.
    fn merge(
        message: MessageId,
        parts: impl IntoIterator<Item = &'a [u8]>,
        depth: usize,
    ) -> Result<Self, InvalidProtobuf> {
        let message = message.get();
        let invalid = InvalidProtobuf::in_message(message.name);
        if depth > MAX_DEPTH {
            return Err(invalid(TOO_DEEP));
        }
        let mut view = Self { message, found: Vec::with_capacity(8), types: None, depth };
        for part in parts {
            view.find(message, 0, part).map_err(&invalid)?;
        }
        if !view.found.is_sorted_by_key(|found| found.at) {
            view.found.sort_by_key(|found| found.at);
        }
        Ok(view)
    }

    /// Finds the fields of a message whose members begin at `base`.
    fn find(&mut self, message: &MessageType, base: u16, bytes: &'a [u8]) -> Result<(), &'static str> {
        let mut reader = Reader::new(bytes);
        while let Some((number, value)) = reader.next()? {
            match (message.field(number), value) {
                // A newer server's.
                (None, _) => {}
                (Some(FieldPlace::Member(at)), value) => self.found.push(Found { at: base + at, value }),
                (Some(FieldPlace::Inline(inner, at)), WireValue::Bytes(bytes)) => {
                    self.find(inner.get(), base + at, bytes)?;
                }
                (Some(FieldPlace::Inline(..)), _) => return Err(WRONG_WIRE_TYPE),
            }
        }
        Ok(())
    }

    /// Returns `kind` and `apiVersion`, if the JSON has them; they come first.
    pub(crate) fn types(&self) -> Option<TypeMeta<'a>> {
        self.types
    }

    /// Returns the next member from `position` on, and moves the position behind it.
    pub(crate) fn next_member<'v>(
        &'v self,
        position: &mut Position,
    ) -> Result<Option<(&'static str, Value<'v, 'a>)>, InvalidProtobuf> {
        loop {
            let rest = self.found.get(position.found..).unwrap_or_default();
            // Most members of most messages are absent.
            let shown = self.message.next_shown(position.member);
            let at = rest.first().map_or(shown, |found| shown.min(usize::from(found.at)));
            let Some(field) = self.message.members.get(at) else { return Ok(None) };
            position.member = at + 1;
            let count = rest.iter().take_while(|found| usize::from(found.at) == at).count();
            position.found += count;
            let found = &rest[..count];
            let value = self.value(field, found).map_err(InvalidProtobuf::in_message(self.message.name));
            match value? {
                Written::Value(value) => return Ok(Some((field.name, value))),
                Written::Message(message) => {
                    let view = self.nested(message, found)?;
                    if field.empty != Empty::ZeroOmitted || !view.is_zero()? {
                        return Ok(Some((field.name, Value::Object(view))));
                    }
                }
                Written::Nothing => {}
            }
        }
    }

    fn nested(&self, message: MessageId, found: &[Found<'a>]) -> Result<View<'a>, InvalidProtobuf> {
        let bytes = |value| match value {
            WireValue::Bytes(bytes) => Ok(bytes),
            _ => Err(InvalidProtobuf::in_message(self.message.name)(WRONG_WIRE_TYPE)),
        };
        match found {
            [] => Self::merge(message, [], self.depth + 1),
            [one] => Self::merge(message, [bytes(one.value)?], self.depth + 1),
            several => {
                let parts: Vec<_> =
                    several.iter().map(|found| bytes(found.value)).collect::<Result<_, _>>()?;
                Self::merge(message, parts, self.depth + 1)
            }
        }
    }

    fn value<'v>(&self, field: &Field, found: &'v [Found<'a>]) -> Result<Written<'v, 'a>, &'static str> {
        let last = found.last().map(|found| found.value);
        let element = Element { r#type: field.r#type, value: last, depth: self.depth, message: self.message };
        let is_omitted = field.empty != Empty::Written;
        Ok(match field.shape {
            Shape::List | Shape::Map | Shape::Pointer if last.is_none() => {
                if is_omitted {
                    Written::Nothing
                } else {
                    Written::Value(Value::Null)
                }
            }
            Shape::List => match self.elements(field.r#type, found)? {
                // Numbers may come packed, none of them too.
                elements if elements.len() > 0 => Written::Value(Value::List(elements)),
                _ if is_omitted => Written::Nothing,
                _ => Written::Value(Value::Null),
            },
            Shape::Map => Written::Value(Value::Map(self.entries(field.r#type, found)?)),
            Shape::Pointer | Shape::Value | Shape::Inline => match (field.r#type, field.shape) {
                (Type::Message(message), _) => Written::Message(message),
                (_, Shape::Value) if is_omitted && element.is_zero(field.empty)? => Written::Nothing,
                (Type::Strings, _) if found.len() > 1 => {
                    let mut all = Vec::new();
                    for found in found {
                        let part = Element { value: Some(found.value), ..element };
                        all.extend_from_slice(&part.repeated(Type::String, 1)?.found);
                    }
                    let r#type = Type::String;
                    let elements =
                        Elements { r#type, found: all.into(), depth: self.depth, message: self.message };
                    Written::Value(Value::List(elements))
                }
                _ => Written::Value(element.value()?),
            },
        })
    }

    fn elements<'v>(&self, r#type: Type, found: &'v [Found<'a>]) -> Result<Elements<'v, 'a>, &'static str> {
        let is_number = matches!(r#type, Type::Int32 | Type::Int64 | Type::Bool | Type::Double);
        let is_packed = |found: &Found<'_>| matches!(found.value, WireValue::Bytes(_));
        let found = if is_number && found.iter().any(is_packed) {
            Cow::Owned(unpack(r#type, found)?)
        } else {
            Cow::Borrowed(found)
        };
        Ok(Elements { r#type, found, depth: self.depth, message: self.message })
    }

    fn entries(
        &self,
        r#type: Type,
        found: &[Found<'a>],
    ) -> Result<Vec<(&'a [u8], Element<'a>)>, &'static str> {
        // In a map, bytes and lists without content are empty, not null.
        let empty = matches!(r#type, Type::Bytes | Type::Strings).then_some(WireValue::Bytes(EMPTY));
        let mut entries: Vec<(&'a [u8], Element<'a>)> = Vec::with_capacity(found.len());
        for found in found {
            let (key, value) = map_entry(found.value)?;
            let value = value.or(empty);
            let element = Element { r#type, value, depth: self.depth, message: self.message };
            entries.push((key, element));
        }
        // Of two entries with one key the later one counts.
        entries.reverse();
        entries.sort_by_key(|(key, _)| *key);
        entries.dedup_by(|(later, _), (earlier, _)| later == earlier);
        Ok(entries)
    }

    /// Returns whether this is what Go's encoder makes of a struct without content: it writes numbers and texts even if
    /// they are empty.
    fn is_zero(&self) -> Result<bool, InvalidProtobuf> {
        for found in &self.found {
            let Some(field) = self.message.members.get(usize::from(found.at)) else { continue };
            let is_zero = match (field.shape, field.r#type) {
                (Shape::Value, Type::Message(message)) => self.nested(message, &[*found])?.is_zero()?,
                (Shape::Value, r#type) => {
                    let value = Some(found.value);
                    let element = Element { r#type, value, depth: self.depth, message: self.message };
                    element
                        .is_zero(Empty::ZeroOmitted)
                        .map_err(InvalidProtobuf::in_message(self.message.name))?
                }
                _ => false,
            };
            if !is_zero {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A position between two members.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position {
    member: usize,
    found: usize,
}

/// The JSON of a field.
enum Written<'v, 'a> {
    Nothing,
    Value(Value<'v, 'a>),
    Message(MessageId),
}

impl<'a> Elements<'_, 'a> {
    /// Returns the elements.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Element<'a>> + '_ {
        self.found.iter().map(|found| Element {
            r#type: self.r#type,
            value: Some(found.value),
            depth: self.depth,
            message: self.message,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.found.len()
    }
}

impl<'a> Element<'a> {
    /// Reads the value.
    pub(crate) fn read(self) -> Result<Value<'a, 'a>, InvalidProtobuf> {
        match self.r#type {
            Type::Message(message) => self.nested(message, self.value).map(Value::Object),
            _ => self.value().map_err(InvalidProtobuf::in_message(self.message.name)),
        }
    }

    fn nested(self, message: MessageId, value: Option<WireValue<'a>>) -> Result<View<'a>, InvalidProtobuf> {
        match value {
            Some(WireValue::Bytes(bytes)) => View::merge(message, [bytes], self.depth + 1),
            None => View::merge(message, [], self.depth + 1),
            Some(_) => Err(InvalidProtobuf::in_message(self.message.name)(WRONG_WIRE_TYPE)),
        }
    }

    /// Reads a value that is not a message of the table.
    fn value(self) -> Result<Value<'a, 'a>, &'static str> {
        Ok(match self.r#type {
            Type::String => text(self.bytes()?),
            Type::Bool => Value::Bool(self.number()? != 0),
            Type::Int32 => Value::Integer(i64::from(low_half(self.number()?))),
            Type::Int64 => Value::Integer(self.number()?.cast_signed()),
            Type::Double => Value::Double(self.double()?),
            Type::Bytes => match self.value {
                None => Value::Null,
                Some(_) => Value::Text(special::base64(self.bytes()?).into()),
            },
            Type::Time => text_or_null(special::time(self.bytes()?)?),
            Type::MicroTime => text_or_null(special::micro_time(self.bytes()?)?),
            Type::Duration => Value::Text(special::duration(self.bytes()?)?.into()),
            Type::Quantity => Value::Text(special::quantity(self.bytes()?)?),
            Type::IntOrString => match special::int_or_string(self.bytes()?)? {
                special::IntOrString::Integer(number) => Value::Integer(number.into()),
                special::IntOrString::Text(text) => Value::Text(text),
            },
            Type::Raw => match special::first_bytes(self.bytes()?)? {
                None | Some([]) => Value::Null,
                Some(json) => Value::Raw(json),
            },
            Type::Strings => match self.value {
                None => Value::Null,
                Some(_) => Value::List(self.repeated(Type::String, 1)?),
            },
            Type::OrBool(_) | Type::OrArray(_) | Type::OrStrings(_) => self.alternative()?,
            Type::Message(_) => Value::Null,
        })
    }

    /// Reads one of the types of apiextensions that JSON has in one of two forms.
    fn alternative(self) -> Result<Value<'a, 'a>, &'static str> {
        let schema = |number| -> Result<Option<Value<'a, 'a>>, &'static str> {
            let (Type::OrBool(own) | Type::OrArray(own) | Type::OrStrings(own)) = self.r#type else {
                return Ok(None);
            };
            let inner = own.get().members.iter().find_map(|field| match field.r#type {
                Type::Message(schema) => Some(schema),
                _ => None,
            });
            let found = self.repeated(Type::Bytes, number)?;
            let (Some(inner), Some(last)) = (inner, found.found.last()) else { return Ok(None) };
            let view = self.nested(inner, Some(last.value)).map_err(|error| error.problem)?;
            Ok(Some(Value::Object(view)))
        };
        Ok(match self.r#type {
            Type::OrBool(_) => match schema(2)? {
                Some(schema) => schema,
                None => {
                    let allows = self.repeated(Type::Bool, 1)?.found.last().map(|found| found.value);
                    Element { r#type: Type::Bool, value: allows, ..self }.value()?
                }
            },
            Type::OrArray(own) => {
                let member = own.get().members.iter().find(|field| field.shape == Shape::List);
                let schemas = self.repeated(member.map_or(Type::Bytes, |field| field.r#type), 2)?;
                if schemas.len() > 0 { Value::List(schemas) } else { schema(1)?.unwrap_or(Value::Null) }
            }
            _ => {
                let strings = self.repeated(Type::String, 2)?;
                if strings.len() > 0 { Value::List(strings) } else { schema(1)?.unwrap_or(Value::Null) }
            }
        })
    }

    /// Returns the elements of a field of the message in this value.
    fn repeated(self, r#type: Type, number: u32) -> Result<Elements<'a, 'a>, &'static str> {
        let mut found = Vec::new();
        let mut reader = Reader::new(self.bytes()?);
        while let Some((own, value)) = reader.next()? {
            if own == number {
                found.push(Found { at: 0, value });
            }
        }
        Ok(Elements { r#type, found: found.into(), depth: self.depth, message: self.message })
    }

    /// Returns whether `omitempty` or `omitzero` omits the value.
    fn is_zero(self, empty: Empty) -> Result<bool, &'static str> {
        Ok(match self.r#type {
            Type::String => self.bytes()?.is_empty(),
            Type::Bytes if empty == Empty::Omitted => self.bytes()?.is_empty(),
            Type::Bytes => self.value.is_none(),
            Type::Bool | Type::Int64 => self.number()? == 0,
            Type::Int32 => low_half(self.number()?) == 0,
            Type::Double => self.double()? == 0.0,
            Type::Strings => self.repeated(Type::String, 1)?.len() == 0,
            // Structs are never empty, but they may be zero.
            _ if empty == Empty::Omitted => false,
            Type::Time => special::time(self.bytes()?)?.is_none(),
            Type::MicroTime => special::micro_time(self.bytes()?)?.is_none(),
            _ => self.bytes()?.is_empty(),
        })
    }

    fn bytes(self) -> Result<&'a [u8], &'static str> {
        match self.value {
            Some(WireValue::Bytes(bytes)) => Ok(bytes),
            None => Ok(EMPTY),
            Some(_) => Err(WRONG_WIRE_TYPE),
        }
    }

    fn number(self) -> Result<u64, &'static str> {
        match self.value {
            Some(WireValue::Varint(number)) => Ok(number),
            None => Ok(0),
            Some(_) => Err(WRONG_WIRE_TYPE),
        }
    }

    fn double(self) -> Result<f64, &'static str> {
        match self.value {
            Some(WireValue::Fixed64(bits)) => Ok(f64::from_bits(bits)),
            None => Ok(0.0),
            Some(_) => Err(WRONG_WIRE_TYPE),
        }
    }
}

/// Returns key and value of an entry of a map.
fn map_entry<'a>(entry: WireValue<'a>) -> Result<(&'a [u8], Option<WireValue<'a>>), &'static str> {
    let WireValue::Bytes(bytes) = entry else { return Err(WRONG_WIRE_TYPE) };
    let (mut key, mut value) = (EMPTY, None);
    let mut reader = Reader::new(bytes);
    while let Some(field) = reader.next()? {
        match field {
            (1, WireValue::Bytes(bytes)) => key = bytes,
            (1, _) => return Err(WRONG_WIRE_TYPE),
            (2, bytes) => value = Some(bytes),
            _ => {}
        }
    }
    Ok((key, value))
}

/// Returns numbers that came packed, one by one.
fn unpack<'a>(r#type: Type, found: &[Found<'a>]) -> Result<Vec<Found<'a>>, &'static str> {
    let mut numbers = Vec::new();
    for found in found {
        let WireValue::Bytes(bytes) = found.value else {
            numbers.push(*found);
            continue;
        };
        if r#type == Type::Double {
            let (doubles, []) = bytes.as_chunks() else { return Err(super::reader::TRUNCATED) };
            let value = |bytes: &[u8; 8]| WireValue::Fixed64(u64::from_le_bytes(*bytes));
            numbers.extend(doubles.iter().map(|bytes| Found { at: found.at, value: value(bytes) }));
            continue;
        }
        let mut reader = Reader::new(bytes);
        while !reader.rest().is_empty() {
            numbers.push(Found { at: found.at, value: WireValue::Varint(reader.varint()?) });
        }
    }
    Ok(numbers)
}

fn low_half(number: u64) -> i32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or_default().cast_signed()
}

fn text<'v, 'a>(bytes: &'a [u8]) -> Value<'v, 'a> {
    std::str::from_utf8(bytes).map_or(Value::BrokenText(bytes), |text| Value::Text(text.into()))
}

fn text_or_null<'a>(text: Option<String>) -> Value<'a, 'a> {
    text.map_or(Value::Null, |text| Value::Text(text.into()))
}
