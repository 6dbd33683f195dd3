//! Values of the members of a message, as Go's encoder writes them.

use std::borrow::Cow;

use super::InvalidProtobuf;
use super::reader::{BadEncoding, Reader, TOO_DEEP, WRONG_WIRE_TYPE, WireValue};
use super::run::Run;
use super::schema::{Empty, Field, MessageId, MessageType, Shape, Type};
use super::special;

/// The value of a member.
#[derive(Debug)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    Integer(i64),
    Double(f64),
    Text(Cow<'a, str>),
    /// A text that is not UTF-8.
    BrokenText(&'a [u8]),
    /// JSON text.
    Raw(&'a [u8]),
    Object(Object<'a>),
    List(Elements<'a>),
    Map(Entries<'a>),
}

/// A message whose fields were not read yet.
#[derive(Clone, Debug)]
pub(crate) struct Object<'a> {
    message: MessageId,
    content: Run<'a>,
    depth: usize,
}

/// The elements of a list.
#[derive(Clone, Debug)]
pub(crate) struct Elements<'a> {
    r#type: Type,
    run: Run<'a>,
    owner: Owner,
}

/// The entries of a map, sorted by key. Keys are texts, and mostly UTF-8.
#[derive(Clone, Debug)]
pub(crate) struct Entries<'a> {
    r#type: Type,
    entries: std::vec::IntoIter<(&'a [u8], Option<WireValue<'a>>)>,
    owner: Owner,
}

/// An element of a list, or the value of an entry of a map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'a> {
    r#type: Type,
    value: Option<WireValue<'a>>,
    owner: Owner,
}

/// The message that a value is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) message: &'static MessageType,
    depth: usize,
}

/// The deepest nesting of messages, as in serde_json the deepest nesting of JSON: readers recurse.
pub(crate) const MAX_DEPTH: usize = 64;

const EMPTY: &[u8] = &[];

/// Reads a member from all occurrences of its field into `value`; returns false if the JSON lacks it.
pub(crate) fn member<'a>(
    owner: Owner,
    field: &Field,
    run: Run<'a>,
    value: &mut Value<'a>,
) -> Result<bool, InvalidProtobuf> {
    *value = match (field.shape, field.r#type) {
        (Shape::List | Shape::Map, _) if matches!(run, Run::Absent) => Value::Null,
        (Shape::List, r#type) => match Elements::new(owner, r#type, run).map_err(owner.invalid())? {
            // Numbers may come packed, none of them too.
            elements if elements.len() > 0 => Value::List(elements),
            _ => Value::Null,
        },
        (Shape::Map, r#type) => Value::Map(Entries::new(owner, r#type, run).map_err(owner.invalid())?),
        (_, Type::Message(message)) if run.len() > 1 => Value::Object(Object::within(owner, message, run)),
        (_, Type::Strings) if run.len() > 1 => {
            Value::List(Elements::joined(owner, run).map_err(owner.invalid())?)
        }
        _ => return single(owner, field, run.last(), value),
    };
    Ok(field.empty == Empty::Written || !matches!(value, Value::Null))
}

/// Reads a member whose field comes at most once, and is no list or map; returns false if the JSON lacks it. The value is
/// written where it stays: moving it would take longer than reading it.
#[inline]
pub(crate) fn single<'a>(
    owner: Owner,
    field: &Field,
    encoded: Option<WireValue<'a>>,
    value: &mut Value<'a>,
) -> Result<bool, InvalidProtobuf> {
    let is_omitted = field.empty != Empty::Written;
    match (field.shape, field.r#type, encoded) {
        (Shape::Pointer, _, None) => {
            *value = Value::Null;
            return Ok(!is_omitted);
        }
        (shape, Type::String, Some(WireValue::Bytes(bytes))) => {
            if bytes.is_empty() && is_omitted && shape == Shape::Value {
                return Ok(false);
            }
            *value = text(bytes);
        }
        (_, Type::Message(message), _) => {
            *value = Value::Object(Object::within(owner, message, encoded.into()));
        }
        (shape, r#type, _) => {
            let element = Element { r#type, value: encoded, owner };
            let may_be_omitted = is_omitted && shape == Shape::Value;
            if may_be_omitted && element.is_zero(field.empty).map_err(owner.invalid())? {
                return Ok(false);
            }
            *value = element.value().map_err(owner.invalid())?;
        }
    }
    Ok(true)
}

impl<'a> Object<'a> {
    /// Names the message of some bytes.
    pub(crate) fn new(message: MessageId, bytes: &'a [u8]) -> Self {
        Self { message, content: Run::One(WireValue::Bytes(bytes)), depth: 0 }
    }

    /// Names a message in another.
    #[inline]
    fn within(owner: Owner, message: MessageId, content: Run<'a>) -> Self {
        Self { message, content, depth: owner.depth + 1 }
    }

    /// Returns the owner of the members.
    ///
    /// # Errors
    /// If the message nests too deep, or is something else.
    pub(crate) fn owner(&self) -> Result<Owner, InvalidProtobuf> {
        let owner = Owner { message: self.message.get(), depth: self.depth };
        let is_message = |value| matches!(value, WireValue::Bytes(_));
        match () {
            () if self.depth > MAX_DEPTH => Err(owner.invalid()(TOO_DEEP)),
            () if !self.content.clone().all(is_message) => Err(owner.invalid()(WRONG_WIRE_TYPE)),
            () => Ok(owner),
        }
    }

    /// Returns the bytes, which may have come in several parts.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.content.clone().filter_map(|value| match value {
            WireValue::Bytes(bytes) => Some(bytes),
            _ => None,
        })
    }
}

impl<'a> Elements<'a> {
    fn new(owner: Owner, r#type: Type, run: Run<'a>) -> Result<Self, BadEncoding> {
        let is_number = matches!(r#type, Type::Int32 | Type::Int64 | Type::Bool | Type::Double);
        let is_packed = |value| matches!(value, WireValue::Bytes(_));
        let run = match () {
            () if !is_number || !run.clone().any(is_packed) => run,
            () if r#type == Type::Double => run.unpack_doubles()?,
            () => run.unpack_varints()?,
        };
        Ok(Self { r#type, run, owner })
    }

    /// Joins the strings of several occurrences of [`Type::Strings`].
    fn joined(owner: Owner, run: Run<'a>) -> Result<Self, BadEncoding> {
        let mut strings = Vec::new();
        for value in run {
            let element = Element { r#type: Type::Strings, value: Some(value), owner };
            strings.extend(element.repeated(Type::String, 1)?.run);
        }
        Ok(Self { r#type: Type::String, run: Run::Several(strings.into_iter()), owner })
    }

    pub(crate) fn len(&self) -> usize {
        self.run.len()
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        let value = self.run.next()?;
        Some(Element { r#type: self.r#type, value: Some(value), owner: self.owner })
    }
}

impl<'a> Entries<'a> {
    fn new(owner: Owner, r#type: Type, run: Run<'a>) -> Result<Self, BadEncoding> {
        // In a map, bytes and lists without content are empty, not null.
        let empty = matches!(r#type, Type::Bytes | Type::Strings).then_some(WireValue::Bytes(EMPTY));
        let mut entries: Vec<(&'a [u8], Option<WireValue<'a>>)> = Vec::with_capacity(run.len());
        for entry in run {
            let (key, value) = map_entry(entry)?;
            entries.push((key, value.or(empty)));
        }
        if !entries.is_sorted_by(|(a, _), (b, _)| a < b) {
            // Of two entries with one key the later one counts.
            entries.reverse();
            entries.sort_by_key(|(key, _)| *key);
            entries.dedup_by(|(later, _), (earlier, _)| later == earlier);
        }
        Ok(Self { r#type, entries: entries.into_iter(), owner })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a [u8], Element<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, value) = self.entries.next()?;
        Some((key, Element { r#type: self.r#type, value, owner: self.owner }))
    }
}

impl Owner {
    /// Returns the error of a defect in the message.
    pub(crate) fn invalid(self) -> impl Fn(BadEncoding) -> InvalidProtobuf {
        InvalidProtobuf::in_message(self.message.name)
    }
}

impl<'a> Element<'a> {
    /// Reads the value.
    pub(crate) fn read(self) -> Result<Value<'a>, InvalidProtobuf> {
        match self.r#type {
            Type::Message(message) => {
                Ok(Value::Object(Object::within(self.owner, message, self.value.into())))
            }
            _ => self.value().map_err(self.owner.invalid()),
        }
    }

    /// Reads a value that is not a message of the table.
    fn value(self) -> Result<Value<'a>, BadEncoding> {
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
    fn alternative(self) -> Result<Value<'a>, BadEncoding> {
        let schema = |number| -> Result<Option<Value<'a>>, BadEncoding> {
            let (Type::OrBool(own) | Type::OrArray(own) | Type::OrStrings(own)) = self.r#type else {
                return Ok(None);
            };
            let inner = own.get().members.iter().find_map(|field| match field.r#type {
                Type::Message(schema) => Some(schema),
                _ => None,
            });
            let last = self.repeated(Type::Bytes, number)?.run.last();
            let (Some(inner), Some(last)) = (inner, last) else { return Ok(None) };
            Ok(Some(Value::Object(Object::within(self.owner, inner, Run::One(last)))))
        };
        Ok(match self.r#type {
            Type::OrBool(_) => match schema(2)? {
                Some(schema) => schema,
                None => {
                    let value = self.repeated(Type::Bool, 1)?.run.last();
                    Element { r#type: Type::Bool, value, ..self }.value()?
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
    fn repeated(self, r#type: Type, number: u32) -> Result<Elements<'a>, BadEncoding> {
        let mut values = Vec::new();
        let mut reader = Reader::new(self.bytes()?);
        while let Some((own, value)) = reader.next()? {
            if own == number {
                values.push(value);
            }
        }
        Ok(Elements { r#type, run: Run::Several(values.into_iter()), owner: self.owner })
    }

    /// Returns whether `omitempty` or `omitzero` omits the value.
    fn is_zero(self, empty: Empty) -> Result<bool, BadEncoding> {
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

    fn bytes(self) -> Result<&'a [u8], BadEncoding> {
        match self.value {
            Some(WireValue::Bytes(bytes)) => Ok(bytes),
            None => Ok(EMPTY),
            Some(_) => Err(WRONG_WIRE_TYPE),
        }
    }

    fn number(self) -> Result<u64, BadEncoding> {
        match self.value {
            Some(WireValue::Varint(number)) => Ok(number),
            None => Ok(0),
            Some(_) => Err(WRONG_WIRE_TYPE),
        }
    }

    fn double(self) -> Result<f64, BadEncoding> {
        match self.value {
            Some(WireValue::Fixed64(bits)) => Ok(f64::from_bits(bits)),
            None => Ok(0.0),
            Some(_) => Err(WRONG_WIRE_TYPE),
        }
    }
}

/// Returns key and value of an entry of a map.
fn map_entry<'a>(entry: WireValue<'a>) -> Result<(&'a [u8], Option<WireValue<'a>>), BadEncoding> {
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

fn low_half(number: u64) -> i32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or_default().cast_signed()
}

fn text<'a>(bytes: &'a [u8]) -> Value<'a> {
    std::str::from_utf8(bytes).map_or(Value::BrokenText(bytes), |text| Value::Text(text.into()))
}

fn text_or_null<'a>(text: Option<String>) -> Value<'a> {
    text.map_or(Value::Null, |text| Value::Text(text.into()))
}
