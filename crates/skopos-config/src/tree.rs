//! The file as a tree with the line of every value.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

use crate::Problem;

/// A YAML value and its location.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) at: Location,
    pub(crate) value: Value,
}

#[derive(Debug)]
pub(crate) enum Value {
    Null,
    Bool,
    Integer(i128),
    Float,
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Spanned<String>, Node)>),
}

/// Parses a text; an empty one is an empty map.
pub(crate) fn parse(text: &str) -> Result<Node, Problem> {
    let parsed: Option<Spanned<Value>> = serde_saphyr::from_str(text).map_err(|error| problem_of(&error))?;
    Ok(match parsed {
        Some(spanned) => spanned.into(),
        None => Node { at: Location::UNKNOWN, value: Value::Map(Vec::new()) },
    })
}

/// Returns the parser's error with its location.
pub(crate) fn problem_of(error: &serde_saphyr::Error) -> Problem {
    let at = error.location().unwrap_or(Location::UNKNOWN);
    let text = error.without_snippet().to_string();
    let problem = text.lines().next().unwrap_or("not valid YAML").to_owned();
    Problem { line: at.line().max(1), column: at.column().max(1), field: String::new(), problem }
}

impl Node {
    /// Returns the deepest node on the way to `field` (as `clusters.folders[0].path`).
    pub(crate) fn nearest(&self, field: &str) -> &Node {
        let mut node = self;
        for part in field.split(['.', '[']).filter(|part| !part.is_empty()) {
            let next = match (&node.value, part.strip_suffix(']')) {
                (Value::List(items), Some(index)) => index.parse().ok().and_then(|i: usize| items.get(i)),
                (Value::Map(entries), None) => {
                    entries.iter().find(|(key, _)| key.value == part).map(|(_, node)| node)
                }
                _ => None,
            };
            match next {
                Some(next) => node = next,
                None => return node,
            }
        }
        node
    }

    pub(crate) fn problem(&self, field: &str, problem: impl Into<String>) -> Problem {
        problem_at(self.at, field, problem)
    }
}

pub(crate) fn problem_at(at: Location, field: &str, problem: impl Into<String>) -> Problem {
    Problem {
        line: at.line().max(1),
        column: at.column().max(1),
        field: field.to_owned(),
        problem: problem.into(),
    }
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Self {
        Self { at: spanned.referenced, value: spanned.value }
    }
}

impl Value {
    /// Returns the name of its type, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool => "true or false",
            Self::Integer(_) | Self::Float => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Bool)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Float)
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Spanned<Value>>()? {
            list.push(item.into());
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            map.push((key, entries.next_value::<Spanned<Value>>()?.into()));
        }
        Ok(Value::Map(map))
    }
}
