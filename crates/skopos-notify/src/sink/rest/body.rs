//! Values of items: the bodies that are written, and their fields read back.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;

use crate::entry::EntryValue;

/// Fields of an item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ItemBody(pub(super) BTreeMap<String, String>);

/// Maximum length of a value.
const MAX_VALUE: usize = 16 * 1024;

impl ItemBody {
    /// Parses a JSON object of texts.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_VALUE {
            return Err(format!("a body of {} bytes is too long: at most {MAX_VALUE}", text.len()));
        }
        serde_json::from_str(text)
            .map_err(|error| format!("{text:?} is no JSON object whose fields are texts: {error}"))
    }

    /// Reads these fields of a listed item. A missing field is left out.
    pub(super) fn from_item<'a>(item: &Value, fields: impl Iterator<Item = &'a str>) -> Self {
        let field = |name: &str| {
            let value = item.get(name).filter(|value| !value.is_null())?;
            Some((name.to_owned(), plain_text(value).unwrap_or_else(|| value.to_string())))
        };
        Self(fields.filter_map(field).collect())
    }

    /// Returns its canonical spelling, with sorted keys and no white space.
    pub(super) fn canonical(&self) -> EntryValue {
        Value::from_iter(self.0.iter().map(|(name, text)| (name.as_str(), text.as_str()))).to_string().into()
    }
}

/// Returns a text, a number or a boolean as text.
pub(super) fn plain_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

impl<'de> Deserialize<'de> for ItemBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(BodyVisitor)
    }
}

/// A reader that rejects duplicate fields: a value from the cluster, inserted into a text, could bring a second one.
struct BodyVisitor;

impl<'de> Visitor<'de> for BodyVisitor {
    type Value = ItemBody;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object such as {\"ip\":\"10.0.0.1\"}")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<ItemBody, M::Error> {
        let mut fields = BTreeMap::new();
        while let Some((name, text)) = map.next_entry::<String, String>()? {
            match fields.entry(name) {
                Entry::Vacant(free) => drop(free.insert(text)),
                Entry::Occupied(taken) => {
                    return Err(M::Error::custom(format!("field {:?} is there twice", taken.key())));
                }
            }
        }
        Ok(ItemBody(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_body_has_one_spelling() {
        let body = ItemBody::parse(" {\"tree\": \"a\\u002fb\", \"ip\": \"10.0.0.1\"} ").unwrap();
        assert_eq!(&*body.canonical(), r#"{"ip":"10.0.0.1","tree":"a/b"}"#);
        assert_eq!(&*ItemBody::parse("{}").unwrap().canonical(), "{}");
    }

    #[test]
    fn rejects_invalid_body() {
        let cases = [
            ("", "EOF"),
            ("[]", "an object such as"),
            ("\"x\"", "an object such as"),
            (r#"{"ip":1}"#, "expected a string"),
            (r#"{"ip":null}"#, "expected a string"),
            (r#"{"ip":"1"} x"#, "trailing"),
            (r#"{"ip":"1","ip":"2"}"#, "twice"),
        ];
        for (text, part) in cases {
            let problem = ItemBody::parse(text).unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        }
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_VALUE));
        assert!(ItemBody::parse(&long).unwrap_err().contains("too long"));
    }

    #[test]
    fn listed_item_yields_requested_fields() {
        let item =
            json!({"ip": "10.0.0.1", "port": 80, "up": true, "none": null, "more": {"a": [1]}, "id": 7});
        let body = ItemBody::from_item(&item, ["ip", "port", "up", "none", "absent", "more"].into_iter());
        assert_eq!(&*body.canonical(), r#"{"ip":"10.0.0.1","more":"{\"a\":[1]}","port":"80","up":"true"}"#);
    }
}
