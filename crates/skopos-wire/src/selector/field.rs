//! Field selectors.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::ParseError;
use crate::RawObject;

/// A field selector, such as `spec.nodeName=n1,status.phase!=Running`. Objects must meet all requirements.
///
/// In values `\`, `,` and `=` are escaped with a backslash. An absent field has the empty value.
///
/// ```
/// # use skopos_wire::FieldSelector;
/// let selector = FieldSelector::parse(r"metadata.name==a\=b")?;
/// assert_eq!(selector.exact("metadata.name"), Some("a=b"));
/// assert_eq!(selector.to_string(), r"metadata.name=a\=b");
/// # Ok::<(), skopos_wire::ParseError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

/// One requirement of a [`FieldSelector`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldRequirement {
    field: Box<str>,
    value: Box<str>,
    equal: bool,
}

/// A source of field values.
pub trait FieldSource {
    /// Returns the text of the field, if present.
    fn field(&self, path: &str) -> Option<Cow<'_, str>>;
}

impl<T: FieldSource + ?Sized> FieldSource for Arc<T> {
    fn field(&self, path: &str) -> Option<Cow<'_, str>> {
        (**self).field(path)
    }
}

impl FieldSelector {
    /// Parses a selector. An empty text selects everything.
    ///
    /// # Errors
    /// If the text is invalid, with the API server's message.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut terms = split_terms(text);
        // The server sorts the terms before it parses them, which decides the error that it reports among several.
        terms.sort_unstable();
        let terms = terms.into_iter().filter(|term| !term.is_empty());
        let requirements = terms.map(|term| FieldRequirement::parse(term, text));
        let mut requirements: Vec<_> = requirements.collect::<Result<_, _>>()?;
        // A lone operator of any kind requires nothing.
        requirements.retain(|requirement| !(requirement.field.is_empty() && requirement.value.is_empty()));
        Ok(Self { requirements })
    }

    /// Returns whether the selector selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns whether the fields meet all requirements.
    pub fn matches(&self, fields: &(impl FieldSource + ?Sized)) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = fields.field(&requirement.field).unwrap_or_default();
            (value == *requirement.value) == requirement.equal
        })
    }

    /// Returns the value that the selector requires of the field, if any.
    pub fn exact(&self, field: &str) -> Option<&str> {
        let demand =
            self.requirements.iter().find(|requirement| requirement.equal && *requirement.field == *field);
        demand.map(|requirement| &*requirement.value)
    }

    /// Returns the requirements.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }
}

impl FieldRequirement {
    /// Creates a requirement that the field has the value or, if not `equal`, does not have it.
    ///
    /// # Errors
    /// If the field's name contains a comma, or an operator, which cannot be escaped.
    pub fn new(
        field: impl Into<Box<str>>,
        equal: bool,
        value: impl Into<Box<str>>,
    ) -> Result<Self, ParseError> {
        let requirement = Self { field: field.into(), value: value.into(), equal };
        match FieldSelector::parse(&requirement.to_string()) {
            Ok(selector) if selector.requirements == [requirement.clone()] => Ok(requirement),
            _ => Err(ParseError::new(format!("invalid field name: '{}'", requirement.field))),
        }
    }

    /// Returns the path of the field.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Returns the required or excluded value.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns whether the value is required, not excluded.
    pub fn is_equal(&self) -> bool {
        self.equal
    }

    fn parse(term: &str, selector: &str) -> Result<Self, ParseError> {
        let (at, operator) = term
            .char_indices()
            .find_map(|(at, _)| OPERATORS.iter().find(|op| term[at..].starts_with(**op)).map(|op| (at, *op)))
            .ok_or_else(|| {
                ParseError::new(format!("invalid selector: '{selector}'; can't understand '{term}'"))
            })?;
        let value = unescape(&term[at + operator.len()..])?;
        Ok(Self { field: term[..at].into(), value: value.into(), equal: operator != "!=" })
    }
}

/// The operators; the first match wins.
const OPERATORS: [&str; 3] = ["!=", "==", "="];

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn unescape(text: &str) -> Result<String, ParseError> {
    let invalid = |sequence: &str| {
        ParseError::new(format!("invalid field selector: invalid escape sequence: {sequence}"))
    };
    let mut value = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => value.push(c),
                Some(c) => return Err(invalid(&format!("\\{c}"))),
                None => return Err(invalid("\\")),
            },
            // The server's message has the number of the character.
            ',' | '=' => {
                let message = format!("invalid field selector: unescaped character in value: {}", c as u32);
                return Err(ParseError::new(message));
            }
            c => value.push(c),
        }
    }
    Ok(value)
}

impl FromStr for FieldSelector {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}

impl FromIterator<FieldRequirement> for FieldSelector {
    fn from_iter<I: IntoIterator<Item = FieldRequirement>>(requirements: I) -> Self {
        Self { requirements: requirements.into_iter().collect() }
    }
}

/// Writes the selector as the API server does; the text parses to the same requirements.
impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for FieldRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field)?;
        f.write_str(if self.equal { "=" } else { "!=" })?;
        for c in self.value.chars() {
            if matches!(c, '\\' | ',' | '=') {
                f.write_str("\\")?;
            }
            write!(f, "{c}")?;
        }
        Ok(())
    }
}

impl FieldSource for RawObject {
    fn field(&self, path: &str) -> Option<Cow<'_, str>> {
        self.field_text(path)
    }
}

impl<K: Ord + std::borrow::Borrow<str>, V: AsRef<str>> FieldSource for BTreeMap<K, V> {
    fn field(&self, path: &str) -> Option<Cow<'_, str>> {
        self.get(path).map(|value| value.as_ref().into())
    }
}

/// The fields of an object that is a JSON tree.
impl FieldSource for serde_json::Value {
    fn field(&self, path: &str) -> Option<Cow<'_, str>> {
        use serde_json::Value;
        match path.split('.').try_fold(self, |value, segment| value.as_object()?.get(segment))? {
            Value::String(text) => Some(text.into()),
            Value::Null | Value::Object(_) | Value::Array(_) => None,
            scalar => Some(scalar.to_string().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        FieldSelector::parse(text).expect_err(text).to_string()
    }

    #[test]
    fn matches_with_absent_as_empty() {
        let fields = BTreeMap::from([("metadata.name", "a,b"), ("status.phase", "Running")]);
        let cases = [
            ("", true),
            ("status.phase=Running", true),
            ("status.phase==Running", true),
            ("status.phase!=Running", false),
            ("spec.nodeName=", true),
            ("spec.nodeName!=", false),
            (r"metadata.name=a\,b,status.phase!=Failed", true),
            (",,status.phase=Running,", true),
        ];
        for (text, expected) in cases {
            assert_eq!(FieldSelector::parse(text).unwrap().matches(&fields), expected, "{text}");
        }
    }

    #[test]
    fn rejects_with_api_server_messages() {
        assert_eq!(error("a"), "invalid selector: 'a'; can't understand 'a'");
        assert_eq!(error("b=1,a"), "invalid selector: 'b=1,a'; can't understand 'a'");
        assert_eq!(error("a=b=c"), "invalid field selector: unescaped character in value: 61");
        assert_eq!(error(r"a=\x"), r"invalid field selector: invalid escape sequence: \x");
        assert_eq!(error(r"a=b\"), r"invalid field selector: invalid escape sequence: \");
    }

    #[test]
    fn printed_selector_parses_back() {
        let selector = FieldSelector::parse(r"b==1,a!=x\\y\=z\,").unwrap();
        assert_eq!(selector.to_string(), r"a!=x\\y\=z\,,b=1");
        assert_eq!(FieldSelector::parse(&selector.to_string()).unwrap(), selector);
        assert_eq!(selector.exact("b"), Some("1"));
        assert_eq!(selector.exact("a"), None);
        assert!(FieldRequirement::new("a=b", true, "c").is_err());
        assert!(FieldRequirement::new("a", false, "c=,").is_ok());
    }
}
