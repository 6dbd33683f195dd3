//! A serde deserializer over protobuf: a type of k8s-openapi, say, is read without JSON in between.
//!
//! It presents what the JSON of the object would have, so that every type that reads the JSON reads this.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::{BorrowedStrDeserializer, CowStrDeserializer, StrDeserializer};
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer as _, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::InvalidProtobuf;
use super::view::{Element, Position, Value, View};

/// An object that does not fit the type that it is read into.
#[derive(Debug)]
pub(crate) struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

impl From<InvalidProtobuf> for Error {
    fn from(error: InvalidProtobuf) -> Self {
        Self(error.to_string())
    }
}

/// A value that is being read.
pub(crate) struct ValueDeserializer<'v, 'a>(pub(crate) Value<'v, 'a>);

impl<'de> Deserializer<'de> for ValueDeserializer<'_, 'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Integer(number) => visitor.visit_i64(number),
            Value::Double(number) => match whole(number) {
                Some(number) => visitor.visit_i64(number),
                None => visitor.visit_f64(number),
            },
            Value::Text(Cow::Borrowed(text)) => visitor.visit_borrowed_str(text),
            Value::Text(Cow::Owned(text)) => visitor.visit_string(text),
            Value::BrokenText(bytes) => visitor.visit_string(String::from_utf8_lossy(bytes).into_owned()),
            Value::Raw(json) => serde_json::Deserializer::from_slice(json)
                .deserialize_any(visitor)
                .map_err(|error| Error(error.to_string())),
            Value::Object(view) => visitor.visit_map(Members::new(&view)),
            Value::List(elements) => visitor.visit_seq(List(elements.iter())),
            Value::Map(entries) => visitor.visit_map(Entries { rest: entries.into_iter(), value: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Text(text) => visitor.visit_enum(UnitVariant(text)),
            Value::Raw(json) => serde_json::Deserializer::from_slice(json)
                .deserialize_enum(name, variants, visitor)
                .map_err(|error| Error(error.to_string())),
            _ => Err(de::Error::invalid_type(Unexpected::Other("no text"), &"the name of a variant")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier
    }
}

/// Returns the integer that a number is in JSON, which does not tell 1.0 from 1.
fn whole(number: f64) -> Option<i64> {
    const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
    let is_whole =
        number.fract() == 0.0 && number.abs() <= MAX_EXACT && !(number == 0.0 && number.is_sign_negative());
    is_whole.then_some(number as i64)
}

/// The members of an object.
struct Members<'v, 'a> {
    view: &'v View<'a>,
    position: Position,
    /// `kind` and `apiVersion`, as far as they are left.
    types: Vec<(&'static str, &'a str)>,
    value: Option<Value<'v, 'a>>,
}

impl<'v, 'a> Members<'v, 'a> {
    fn new(view: &'v View<'a>) -> Self {
        let types = view.types().map(|types| vec![("apiVersion", types.api_version), ("kind", types.kind)]);
        Self { view, position: Position::default(), types: types.unwrap_or_default(), value: None }
    }
}

impl<'a> MapAccess<'a> for Members<'_, 'a> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let (name, value) = match self.types.pop() {
            Some((name, text)) => (name, Value::Text(text.into())),
            None => match self.view.next_member(&mut self.position)? {
                Some(member) => member,
                None => return Ok(None),
            },
        };
        self.value = Some(value);
        seed.deserialize(StrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(ValueDeserializer(self.value.take().unwrap_or(Value::Null)))
    }
}

struct Entries<'a> {
    rest: std::vec::IntoIter<(&'a [u8], Element<'a>)>,
    value: Option<Element<'a>>,
}

impl<'a> MapAccess<'a> for Entries<'a> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some(value);
        match String::from_utf8_lossy(key) {
            Cow::Borrowed(key) => seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some),
            Cow::Owned(key) => seed.deserialize(key.into_deserializer()).map(Some),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let value = self.value.take().map_or(Ok(Value::Null), Element::read)?;
        seed.deserialize(ValueDeserializer(value))
    }
}

struct List<I>(I);

impl<'a, I: Iterator<Item = Element<'a>>> SeqAccess<'a> for List<I> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(element) = self.0.next() else { return Ok(None) };
        seed.deserialize(ValueDeserializer(element.read()?)).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint().1
    }
}

/// A variant without content, by its name.
struct UnitVariant<'a>(Cow<'a, str>);

impl<'a> EnumAccess<'a> for UnitVariant<'a> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'a>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        let variant = seed.deserialize(CowStrDeserializer::<Error>::new(self.0))?;
        Ok((variant, UnitVariant(Cow::Borrowed(""))))
    }
}

impl<'a> VariantAccess<'a> for UnitVariant<'a> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'a>>(self, _: T) -> Result<T::Value, Error> {
        Err(de::Error::invalid_type(Unexpected::UnitVariant, &"a variant with a value"))
    }

    fn tuple_variant<V: Visitor<'a>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        Err(de::Error::invalid_type(Unexpected::UnitVariant, &visitor))
    }

    fn struct_variant<V: Visitor<'a>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        Err(de::Error::invalid_type(Unexpected::UnitVariant, &visitor))
    }
}
