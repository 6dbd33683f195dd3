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
use super::in_order::InOrder;
use super::schema::TypeMeta;
use super::special::lossy;
use super::value::{Element, Elements, Entries, Object, Value};
use super::view::{Position, View};

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

/// An object that is being read.
pub(crate) struct ObjectDeserializer<'a> {
    object: Object<'a>,
    types: Option<TypeMeta<'a>>,
}

impl<'a> ObjectDeserializer<'a> {
    /// Reads an object, to whose members `kind` and `apiVersion` belong if they are given.
    pub(crate) fn new(object: Object<'a>, types: Option<TypeMeta<'a>>) -> Self {
        Self { object, types }
    }
}

fn visit_object<'a, V: Visitor<'a>>(
    object: &Object<'a>,
    types: Option<TypeMeta<'a>>,
    visitor: V,
) -> Result<V::Value, Error> {
    let view;
    let source = match InOrder::read(object)? {
        Some(members) => Source::InOrder(members),
        None => {
            view = View::read(object)?;
            Source::View(&view, Position::default())
        }
    };
    let types = types
        .map_or([None, None], |types| [Some(("apiVersion", types.api_version)), Some(("kind", types.kind))]);
    visitor.visit_map(Members { source, types, value: Value::Null })
}

impl<'de> Deserializer<'de> for ObjectDeserializer<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visit_object(&self.object, self.types, visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier enum ignored_any
    }
}

/// A value that is being read. It stays where it is, because serde passes a deserializer on several times.
struct ValueDeserializer<'v, 'a>(&'v mut Value<'a>);

impl<'de> Deserializer<'de> for ValueDeserializer<'_, 'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Double(number) => match whole(*number) {
                Some(number) => visitor.visit_i64(number),
                None => visitor.visit_f64(*number),
            },
            Value::Text(Cow::Borrowed(text)) => visitor.visit_borrowed_str(text),
            Value::Text(Cow::Owned(text)) => visitor.visit_string(std::mem::take(text)),
            Value::BrokenText(bytes) => visitor.visit_string(lossy(bytes).into_owned()),
            // As text, so that serde_json need not check the UTF-8 of each string.
            Value::Raw(json) => match std::str::from_utf8(json) {
                Ok(json) => serde_json::Deserializer::from_str(json)
                    .deserialize_any(visitor)
                    .map_err(|error| Error(error.to_string())),
                Err(error) => Err(Error(error.to_string())),
            },
            Value::Object(object) => visit_object(object, None, visitor),
            Value::List(elements) => visitor.visit_seq(ListElements { rest: elements, value: Value::Null }),
            Value::Map(entries) => visitor.visit_map(MapEntries { rest: entries, value: None }),
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
            Value::Text(text) => visitor.visit_enum(UnitVariant(std::mem::take(text))),
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
    source: Source<'v, 'a>,
    /// `kind` and `apiVersion`, as far as they are left.
    types: [Option<(&'static str, &'a str)>; 2],
    value: Value<'a>,
}

enum Source<'v, 'a> {
    InOrder(InOrder<'a>),
    View(&'v View<'a>, Position),
}

impl<'a> Members<'_, 'a> {
    /// Reads the value of the next member, and returns the name.
    fn advance(&mut self) -> Result<Option<&'static str>, Error> {
        if let Some((name, text)) = self.types.iter_mut().find_map(Option::take) {
            self.value = Value::Text(text.into());
            return Ok(Some(name));
        }
        Ok(match &mut self.source {
            Source::InOrder(members) => members.next_member(&mut self.value)?,
            Source::View(view, position) => view.next_member(position, &mut self.value)?,
        })
    }
}

impl<'a> MapAccess<'a> for Members<'_, 'a> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(name) = self.advance()? else { return Ok(None) };
        seed.deserialize(StrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(ValueDeserializer(&mut self.value))
    }
}

struct MapEntries<'v, 'a> {
    rest: &'v mut Entries<'a>,
    value: Option<Element<'a>>,
}

impl<'a> MapAccess<'a> for MapEntries<'_, 'a> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some(value);
        match lossy(key) {
            Cow::Borrowed(key) => seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some),
            Cow::Owned(key) => seed.deserialize(key.into_deserializer()).map(Some),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let mut value = self.value.take().map_or(Ok(Value::Null), Element::read)?;
        seed.deserialize(ValueDeserializer(&mut value))
    }
}

struct ListElements<'v, 'a> {
    rest: &'v mut Elements<'a>,
    value: Value<'a>,
}

impl<'a> SeqAccess<'a> for ListElements<'_, 'a> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(element) = self.rest.next() else { return Ok(None) };
        self.value = element.read()?;
        seed.deserialize(ValueDeserializer(&mut self.value)).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
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
