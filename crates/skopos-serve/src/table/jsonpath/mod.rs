//! JSONPath of printer columns, as kubectl and kube-apiserver evaluate it (`k8s.io/client-go/util/jsonpath`).
//!
//! ```text
//!  text ──▶ parser: nodes ──▶ eval: what they find in an object ──▶ print: Go's text of it
//! ```
//!
//! `peers/tables` records the results of Go's own package for some 900 paths; the tests here compare with them.

mod eval;
mod parser;
mod print;
mod syntax;

use serde_json::Value;
use thiserror::Error;

pub use self::eval::PathValue;
use self::syntax::Section;

/// A parsed path such as `.status.conditions[?(@.type=="Ready")].status`.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    sections: Vec<Section>,
    /// Field names, if the path consists of fields only: most do, and need no search.
    fields: Option<Vec<String>>,
}

/// An invalid path.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{path:?} is not a valid JSONPath: {problem}")]
pub struct InvalidJsonPath {
    /// Path.
    pub path: String,
    /// Problem, in the words of Kubernetes' parser.
    pub problem: String,
}

impl JsonPath {
    /// Parses a path as in a CustomResourceDefinition: without braces around it.
    ///
    /// # Errors
    /// When Kubernetes' parser rejects it.
    pub fn parse(path: &str) -> Result<Self, InvalidJsonPath> {
        let sections = parser::parse(&format!("{{{path}}}"))
            .map_err(|problem| InvalidJsonPath { path: path.to_owned(), problem })?;
        let fields = parser::fields(&sections);
        Ok(Self { sections, fields })
    }

    /// Returns the first value that the path finds. A path that cannot be evaluated on the object finds nothing.
    pub fn first<'a>(&'a self, object: &'a Value) -> Option<PathValue<'a>> {
        match &self.fields {
            Some(fields) => {
                fields.iter().try_fold(object, |value, name| value.get(name)).map(PathValue::Value)
            }
            None => eval::first(&self.sections, object),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn jsonpath_finds_values_of_object_only() {
        let object = json!({"spec": {"list": [{"n": 1}, {"n": 2}]}});
        let find =
            |path: &str| JsonPath::parse(path).unwrap().first(&object).and_then(PathValue::value).cloned();
        assert_eq!(find(".spec.list[1].n"), Some(json!(2)));
        assert_eq!(find(".spec.list"), Some(object["spec"]["list"].clone()));
        assert_eq!(find(".spec.missing.n"), None);
        assert_eq!(find("'a text of the path'"), None);
    }

    #[test]
    fn refused_paths_are_named() {
        let error = JsonPath::parse(".spec.list[").unwrap_err();
        assert_eq!(error.to_string(), "\".spec.list[\" is not a valid JSONPath: unterminated array");
    }
}
