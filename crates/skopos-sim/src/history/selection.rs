//! Selectors as data: written in Kubernetes' notation for the client, and evaluated here independently for the oracle.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use skopos_wire::ObjectKey;

/// Selection of a resource's objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Selection {
    /// Only these namespaces, in order; empty: all.
    pub namespaces: Vec<String>,
    /// Requirements on labels.
    pub labels: Vec<Term>,
    /// Requirements on fields, for which servers support only [`Term::Is`] and [`Term::IsNot`].
    pub fields: Vec<Term>,
}

/// One requirement of a selector.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Term {
    /// `name=value`
    Is(String, String),
    /// `name!=value`; also matches objects without this label.
    IsNot(String, String),
    /// `name in (a,b)`
    In(String, Vec<String>),
    /// `name notin (a,b)`; also matches objects without this label.
    NotIn(String, Vec<String>),
    /// `name`
    Has(String),
    /// `!name`
    HasNot(String),
}

/// The parts of an object that selectors match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// Its labels, except the stamp.
    pub labels: BTreeMap<String, String>,
    /// Its fields for selectors, except `metadata.name` and `metadata.namespace`.
    pub fields: BTreeMap<String, String>,
}

/// Target of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// The plural name.
    pub resource: String,
    /// The namespace in the path.
    pub namespace: Option<String>,
    /// The label selector, as it was sent.
    pub labels: String,
    /// The field selector, as it was sent.
    pub fields: String,
}

impl Selection {
    /// Selects everything.
    pub fn all() -> Self {
        Self::default()
    }

    /// Returns the label selector in Kubernetes' notation.
    pub fn label_selector(&self) -> String {
        notation(&self.labels)
    }

    /// Returns the field selector in Kubernetes' notation.
    pub fn field_selector(&self) -> String {
        notation(&self.fields)
    }

    /// Returns whether it selects an object of this key and shape.
    pub fn matches(&self, key: &ObjectKey, shape: &Shape) -> bool {
        let here = |namespace: &String| key.namespace() == Some(namespace);
        (self.namespaces.is_empty() || self.namespaces.iter().any(here))
            && self.labels.iter().all(|term| term.holds(|name| shape.labels.get(name).map(String::as_str)))
            && self.fields.iter().all(|term| {
                // An unset field is the empty text.
                term.holds(|name| match name {
                    "metadata.name" => Some(key.name()),
                    "metadata.namespace" => Some(key.namespace().unwrap_or_default()),
                    name => Some(shape.fields.get(name).map_or("", String::as_str)),
                })
            })
    }
}

impl Term {
    fn holds<'a>(&self, value: impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Term::Is(name, wanted) => value(name) == Some(wanted),
            Term::IsNot(name, unwanted) => value(name) != Some(unwanted),
            Term::In(name, wanted) => value(name).is_some_and(|value| wanted.iter().any(|one| one == value)),
            Term::NotIn(name, unwanted) => {
                !value(name).is_some_and(|value| unwanted.iter().any(|one| one == value))
            }
            Term::Has(name) => value(name).is_some(),
            Term::HasNot(name) => value(name).is_none(),
        }
    }
}

fn notation(terms: &[Term]) -> String {
    terms.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Term::Is(name, value) => write!(f, "{name}={value}"),
            Term::IsNot(name, value) => write!(f, "{name}!={value}"),
            Term::In(name, values) => write!(f, "{name} in ({})", values.join(",")),
            Term::NotIn(name, values) => write!(f, "{name} notin ({})", values.join(",")),
            Term::Has(name) => f.write_str(name),
            Term::HasNot(name) => write!(f, "!{name}"),
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if !self.namespaces.is_empty() {
            parts.push(format!("in {}", self.namespaces.join(",")));
        }
        parts.extend(
            [self.label_selector(), self.field_selector()].into_iter().filter(|text| !text.is_empty()),
        );
        f.write_str(if parts.is_empty() { "all" } else { "" })?;
        f.write_str(&parts.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_match_as_in_kubernetes() {
        let shape = Shape {
            labels: [("app".to_owned(), "web".to_owned())].into(),
            fields: [("status.phase".to_owned(), "Running".to_owned())].into(),
        };
        let key = ObjectKey::namespaced("a", "x");
        let is = |labels: Vec<Term>, fields: Vec<Term>, namespaces: Vec<String>| {
            Selection { labels, fields, namespaces }.matches(&key, &shape)
        };
        let s = str::to_owned;
        assert!(is(vec![], vec![], vec![]));
        assert!(is(vec![Term::Is(s("app"), s("web"))], vec![], vec![s("a")]));
        assert!(!is(vec![], vec![], vec![s("b")]));
        assert!(!is(vec![Term::IsNot(s("app"), s("web"))], vec![], vec![]));
        assert!(is(vec![Term::IsNot(s("tier"), s("web")), Term::HasNot(s("tier"))], vec![], vec![]));
        assert!(is(vec![Term::NotIn(s("tier"), vec![s("x")]), Term::Has(s("app"))], vec![], vec![]));
        assert!(!is(vec![Term::In(s("app"), vec![s("x"), s("y")])], vec![], vec![]));
        assert!(is(vec![], vec![Term::Is(s("status.phase"), s("Running"))], vec![]));
        assert!(is(vec![], vec![Term::Is(s("metadata.name"), s("x"))], vec![]));
        assert!(
            is(vec![], vec![Term::Is(s("spec.nodeName"), s(""))], vec![]),
            "a field that is not set is empty"
        );
    }

    #[test]
    fn client_parses_selector_notation() {
        let s = str::to_owned;
        let labels = vec![
            Term::Is(s("app"), s("web")),
            Term::NotIn(s("tier"), vec![s("a"), s("b")]),
            Term::HasNot(s("canary")),
        ];
        let selection = Selection { labels, ..Selection::default() };
        assert_eq!(selection.label_selector(), "app=web,tier notin (a,b),!canary");
        skopos_wire::LabelSelector::parse(&selection.label_selector()).expect("a selector");
    }
}
