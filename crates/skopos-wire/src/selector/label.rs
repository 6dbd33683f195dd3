//! Label selectors.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::BuildHasher;
use std::str::FromStr;
use std::sync::Arc;

use super::ParseError;
use super::label_parser::Parser;
use super::validation::{label_key_problems, label_value_problems};
use crate::RawObject;
use crate::status::{FieldError, aggregate};

/// A label selector, such as `app=web,tier in (front,back),!legacy`. Objects must meet all requirements.
///
/// ```
/// # use std::collections::BTreeMap;
/// # use skopos_wire::LabelSelector;
/// let selector = LabelSelector::parse("tier notin (db), app")?;
/// assert!(selector.matches(&BTreeMap::from([("app", "web")])));
/// assert_eq!(selector.to_string(), "app,tier notin (db)");
/// # Ok::<(), skopos_wire::ParseError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    requirements: Vec<LabelRequirement>,
}

/// One requirement of a [`LabelSelector`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LabelRequirement {
    key: Box<str>,
    operator: LabelOperator,
    /// The values, sorted and without duplicates.
    values: Vec<Box<str>>,
}

/// The operator of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LabelOperator {
    /// `key in (a,b)`
    In,
    /// `key notin (a,b)`; also true without the label.
    NotIn,
    /// `key=a`
    Equals,
    /// `key==a`, a synonym of `key=a`.
    DoubleEquals,
    /// `key!=a`; also true without the label.
    NotEquals,
    /// `key`
    Exists,
    /// `!key`
    DoesNotExist,
    /// `key>1`, as integers.
    GreaterThan,
    /// `key<1`, as integers.
    LessThan,
}

/// A source of label values.
pub trait LabelSource {
    /// Returns the value of the label, if present.
    fn label(&self, key: &str) -> Option<&str>;
}

impl<T: LabelSource + ?Sized> LabelSource for Arc<T> {
    fn label(&self, key: &str) -> Option<&str> {
        (**self).label(key)
    }
}

impl LabelSelector {
    /// Parses a selector. An empty text selects everything.
    ///
    /// # Errors
    /// If the text is invalid, with the API server's message.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut requirements = Parser::new(text).parse()?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements })
    }

    /// Returns whether the selector selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns whether the labels meet all requirements.
    pub fn matches(&self, labels: &(impl LabelSource + ?Sized)) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(labels))
    }

    /// Returns the requirements, sorted by key.
    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.requirements
    }
}

impl LabelRequirement {
    /// Creates a requirement after checking its key and values.
    ///
    /// # Errors
    /// If the key or values are not valid for a label, or the operator takes another number of values, with the API
    /// server's message.
    pub fn new<V: Into<Box<str>>>(
        key: impl Into<Box<str>>,
        operator: LabelOperator,
        values: impl IntoIterator<Item = V>,
    ) -> Result<Self, ParseError> {
        let mut values: Vec<Box<str>> = values.into_iter().map(Into::into).collect();
        values.sort_unstable();
        values.dedup();
        let requirement = Self { key: key.into(), operator, values };
        match requirement.problems().as_slice() {
            [] => Ok(requirement),
            problems => Err(ParseError::new(aggregate(problems))),
        }
    }

    /// Returns the label's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the operator.
    pub fn operator(&self) -> LabelOperator {
        self.operator
    }

    /// Returns the values, sorted.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|value| &**value)
    }

    fn matches(&self, labels: &(impl LabelSource + ?Sized)) -> bool {
        use LabelOperator::*;
        let found = labels.label(&self.key);
        let listed = || found.is_some_and(|value| self.values().any(|own| own == value));
        match self.operator {
            In | Equals | DoubleEquals => listed(),
            NotIn | NotEquals => !listed(),
            Exists => found.is_some(),
            DoesNotExist => found.is_none(),
            GreaterThan => self.compares(found, |label, bound| label > bound),
            LessThan => self.compares(found, |label, bound| label < bound),
        }
    }

    fn compares(&self, found: Option<&str>, holds: impl Fn(i64, i64) -> bool) -> bool {
        let label = found.and_then(parse_int);
        let bound = self.values.first().and_then(|value| parse_int(value));
        label.zip(bound).is_some_and(|(label, bound)| holds(label, bound))
    }

    fn problems(&self) -> Vec<FieldError> {
        use LabelOperator::*;
        let shown = || {
            format!("{{{}}}", self.values().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(", "))
        };
        let invalid =
            |detail: &str| FieldError::invalid_literal("values", format!("[]string{}", shown()), detail);
        let mut problems = Vec::new();
        if let Some(problem) = key_problem(&self.key, "key") {
            problems.push(problem);
        }
        match self.operator {
            In | NotIn if self.values.is_empty() => {
                problems.push(invalid("for 'in', 'notin' operators, values set can't be empty"));
            }
            Equals | DoubleEquals | NotEquals if self.values.len() != 1 => {
                problems.push(invalid("exact-match compatibility requires one single value"));
            }
            Exists | DoesNotExist if !self.values.is_empty() => {
                problems.push(invalid("values set must be empty for exists and does not exist"));
            }
            GreaterThan | LessThan => {
                if self.values.len() != 1 {
                    problems.push(invalid("for 'Gt', 'Lt' operators, exactly one value is required"));
                }
                for (i, value) in self.values().enumerate().filter(|(_, value)| parse_int(value).is_none()) {
                    let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                    problems.push(FieldError::invalid(format!("values[{i}]"), value, detail));
                }
            }
            _ => {}
        }
        for (i, value) in self.values().enumerate() {
            let found = label_value_problems(value);
            if !found.is_empty() {
                problems.push(FieldError::invalid(
                    format!("values[{i}][{}]", self.key),
                    value,
                    found.join("; "),
                ));
            }
        }
        problems
    }
}

/// Returns the problem of the key, reported for the field `path`.
pub(super) fn key_problem(key: &str, path: &str) -> Option<FieldError> {
    let problems = label_key_problems(key);
    (!problems.is_empty()).then(|| FieldError::invalid(path, key, problems.join("; ")))
}

/// Parses as Go's `strconv.ParseInt(_, 10, 64)` does.
fn parse_int(text: &str) -> Option<i64> {
    text.parse().ok()
}

impl FromStr for LabelSelector {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}

impl FromIterator<LabelRequirement> for LabelSelector {
    fn from_iter<I: IntoIterator<Item = LabelRequirement>>(requirements: I) -> Self {
        let mut requirements: Vec<_> = requirements.into_iter().collect();
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements }
    }
}

/// Writes the selector as the API server does; the text parses to the same selector.
impl fmt::Display for LabelSelector {
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

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use LabelOperator::*;
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            In => write!(f, "{key} in ({values})"),
            NotIn => write!(f, "{key} notin ({values})"),
            Equals => write!(f, "{key}={values}"),
            DoubleEquals => write!(f, "{key}=={values}"),
            NotEquals => write!(f, "{key}!={values}"),
            Exists => f.write_str(key),
            DoesNotExist => write!(f, "!{key}"),
            GreaterThan => write!(f, "{key}>{values}"),
            LessThan => write!(f, "{key}<{values}"),
        }
    }
}

impl LabelSource for RawObject {
    fn label(&self, key: &str) -> Option<&str> {
        RawObject::label(self, key)
    }
}

impl<K: Ord + std::borrow::Borrow<str>, V: AsRef<str>> LabelSource for BTreeMap<K, V> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).map(AsRef::as_ref)
    }
}

impl<K: Eq + std::hash::Hash + std::borrow::Borrow<str>, V: AsRef<str>, S: BuildHasher> LabelSource
    for HashMap<K, V, S>
{
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).map(AsRef::as_ref)
    }
}

impl<K: AsRef<str>, V: AsRef<str>> LabelSource for [(K, V)] {
    fn label(&self, key: &str) -> Option<&str> {
        self.iter().find_map(|(own, value)| (own.as_ref() == key).then_some(value.as_ref()))
    }
}

/// The `metadata.labels` of an object that is a JSON tree.
impl LabelSource for serde_json::Value {
    fn label(&self, key: &str) -> Option<&str> {
        self.get("metadata")?.get("labels")?.get(key)?.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> LabelSelector {
        LabelSelector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn error(text: &str) -> String {
        LabelSelector::parse(text).expect_err(text).to_string()
    }

    #[test]
    fn matches_labels_as_api_server_does() {
        let labels = BTreeMap::from([("app", "web"), ("rev", "7"), ("empty", "")]);
        let cases = [
            ("", true),
            ("app=web", true),
            ("app==db", false),
            ("app!=db", true),
            ("none!=db", true),
            ("none=db", false),
            ("app in (db,web)", true),
            ("app notin (db,web)", false),
            ("none notin (a)", true),
            ("app", true),
            ("!app", false),
            ("!none", true),
            ("rev>6", true),
            ("rev>7", false),
            ("rev<10", true),
            ("app>1", false),
            ("none<1", false),
            ("empty=", true),
            ("empty in ()", true),
            ("app=web,rev=8", false),
            ("app=web,rev=7", true),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).matches(&labels), expected, "{text}");
        }
    }

    #[test]
    fn prints_canonically() {
        let cases = [
            (" x = a , y in ( c, b,b ) ", "x=a,y in (b,c)"),
            ("z,a", "a,z"),
            ("x in (),y", "x in (),y"),
            ("x in (,a)", "x in (,a)"),
            ("x in (a,)", "x in (,a)"),
            ("x in (a,,b)", "x in (,a,b)"),
            ("! x", "!x"),
            ("in in (in,notin)", "in in (in,notin)"),
            ("notin=in", "notin=in"),
            ("a.io/b!=c", "a.io/b!=c"),
            ("x==1", "x==1"),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).to_string(), expected, "{text}");
            assert_eq!(parse(expected), parse(text), "{text}");
        }
    }

    #[test]
    fn rejects_with_api_server_messages() {
        let cases = [
            ("x=a y", "found 'y', expected: ',' or 'end of string'"),
            ("x==a==b", "found '==', expected: ',' or 'end of string'"),
            ("!x=a", "found '=', expected: ',' or 'end of string'"),
            ("x=a,", "found '', expected: identifier after ','"),
            (",x", "found ',', expected: !, identifier, or 'end of string'"),
            ("=", "found '=', expected: !, identifier, or 'end of string'"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            ("x foo", "unable to parse requirement: found 'foo', expected: in, notin, =, ==, !=, gt, lt"),
            ("x in a", "unable to parse requirement: found 'a' expected: '('"),
            ("x in (a", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("x in (a b)", "unable to parse requirement: found 'b', expected: ',' or ')'"),
            ("x in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
            ("x in (a,=)", "unable to parse requirement: found '=', expected: ',', or identifier"),
            ("x=(a)", "unable to parse requirement: found '(', expected: identifier"),
            (
                "x>a",
                "unable to parse requirement: values[0]: Invalid value: \"a\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
            (
                "-x",
                "unable to parse requirement: <nil>: Invalid value: \"-x\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            ),
            (
                "x=a@b",
                "unable to parse requirement: values[0][x]: Invalid value: \"a@b\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ),
            (
                "/x",
                "unable to parse requirement: <nil>: Invalid value: \"/x\": prefix part must be non-empty",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(error(text), expected, "{text}");
        }
        let long = "a".repeat(64);
        assert!(error(&long).contains("name part must be no more than 63 bytes"));
        assert!(error(&format!("x={long}")).contains("must be no more than 63 bytes"));
        assert!(error("A.b/x").contains("prefix part a lowercase RFC 1123 subdomain must consist of"));
        // A value may not start with '-', so there are no negative bounds.
        assert!(error("x>-5").contains("values[0][x]: Invalid value: \"-5\": a valid label must be"));
        assert!(error("a/b/c").contains("a valid label key must consist of"));
    }
}
