//! The JSON schema of the file, and the check of the file against it: every problem at once.

use std::collections::BTreeSet;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value as Json};
use serde_saphyr::Location;
use strsim::levenshtein;

use crate::tree::{Node, Value, problem_at};
use crate::values::{ByteSize, Span};
use crate::{Configuration, Problem};

/// Returns the JSON schema of a configuration file, for editors.
pub fn json_schema<T: Configuration>() -> Json {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    schema.insert("title".into(), T::TITLE.into());
    schema.into()
}

/// Finds everything in the file that the schema does not allow: unknown words, missing ones, wrong types and forms.
pub(crate) fn check(root: &Json, file: &Node) -> Vec<Problem> {
    let mut checker = Checker { root, problems: Vec::new() };
    checker.value(root, file, "");
    checker.problems
}

/// A walk over file and schema side by side. It supports the schema keywords that [`Configuration`]s generate, and no others.
struct Checker<'a> {
    root: &'a Json,
    problems: Vec<Problem>,
}

impl<'a> Checker<'a> {
    fn value(&mut self, schema: &'a Json, node: &Node, field: &str) {
        let schema = self.resolve(schema);
        if matches!(node.value, Value::Null) && self.may_be_null(schema) {
            return;
        }
        let schema = self.without_null(schema);
        if let Some(words) = choices(schema) {
            return self.choice(&words, node, field);
        }
        match (type_of(schema), &node.value) {
            (Some("object"), Value::Map(entries)) => self.object(schema, entries, node, field),
            (Some("array"), Value::List(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(&schema["items"], item, &format!("{field}[{index}]"));
                }
            }
            (Some("string"), Value::Text(text)) => self.text(schema, text, node, field),
            (Some("boolean"), Value::Bool) => {}
            (Some("integer"), Value::Integer(number)) => self.integer(schema, *number, node, field),
            (None, _) => {}
            (Some(wanted), found) => {
                let text = match (schema["format"].as_str(), found) {
                    (Some(Span::FORMAT), Value::Integer(_) | Value::Float) => {
                        "write a duration with a unit: 30s".to_owned()
                    }
                    (Some(ByteSize::FORMAT), Value::Integer(_)) => {
                        "write a size in quotes or with a unit: 512Mi".to_owned()
                    }
                    _ => format!("must be {}, and is {}", wanted_kind(wanted), found.kind()),
                };
                self.problems.push(node.problem(field, text));
            }
        }
    }

    fn object(
        &mut self,
        schema: &'a Json,
        entries: &[(serde_saphyr::Spanned<String>, Node)],
        node: &Node,
        field: &str,
    ) {
        let none = Map::new();
        let known = schema["properties"].as_object();
        let others = &schema["additionalProperties"];
        let mut found = BTreeSet::new();
        for (key, value) in entries {
            let inner = join(field, &key.value);
            let name = known.map_or(&*key.value, |known| name_of(&key.value, known));
            if !found.insert(name) {
                self.problem(key.referenced, field, format!("{name:?} is given twice: remove one"));
            }
            match known.and_then(|known| known.get(name)) {
                Some(schema) => self.value(schema, value, &inner),
                None if others.is_object() => self.value(others, value, &inner),
                None => {
                    let text = unknown(&key.value, known.unwrap_or(&none));
                    self.problem(key.referenced, field, text);
                }
            }
        }
        for required in schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str) {
            if !found.contains(required) {
                self.problems.push(node.problem(field, format!("{required:?} is missing")));
            }
        }
    }

    fn text(&mut self, schema: &Json, text: &str, node: &Node, field: &str) {
        let wrong = match schema["format"].as_str() {
            Some(Span::FORMAT) => Span::parse(text).err(),
            Some(ByteSize::FORMAT) => ByteSize::parse(text).err(),
            Some("maybe-empty") => None,
            _ if text.is_empty() => Some("must not be empty".to_owned()),
            _ => None,
        };
        if let Some(wrong) = wrong {
            self.problems.push(node.problem(field, wrong));
        }
    }

    fn integer(&mut self, schema: &Json, number: i128, node: &Node, field: &str) {
        let bound = |name: &str| schema[name].as_i64().map(i128::from);
        let low = bound("minimum").filter(|low| number < *low);
        let high = bound("maximum").filter(|high| number > *high);
        if let Some(low) = low {
            self.problems.push(node.problem(field, format!("must be at least {low}, and is {number}")));
        }
        if let Some(high) = high {
            self.problems.push(node.problem(field, format!("must be at most {high}, and is {number}")));
        }
    }

    fn choice(&mut self, words: &[&str], node: &Node, field: &str) {
        match &node.value {
            Value::Text(text) if words.contains(&text.as_str()) => {}
            Value::Text(text) => {
                let text = format!("{text:?} must be one of {}", words.join(", "));
                self.problems.push(node.problem(field, text));
            }
            other => {
                let text = format!("must be one of {}, and is {}", words.join(", "), other.kind());
                self.problems.push(node.problem(field, text));
            }
        }
    }

    fn problem(&mut self, at: Location, field: &str, text: String) {
        self.problems.push(problem_at(at, field, text));
    }

    fn resolve(&self, schema: &'a Json) -> &'a Json {
        match schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#')) {
            Some(pointer) => self.root.pointer(pointer).unwrap_or(schema),
            None => schema,
        }
    }

    fn may_be_null(&self, schema: &Json) -> bool {
        let typed = schema["type"].as_array().is_some_and(|types| types.iter().any(|t| t == "null"));
        typed || schema["anyOf"].as_array().is_some_and(|any| any.iter().any(|s| s["type"] == "null"))
    }

    /// Returns the schema X of `anyOf: [X, null]`.
    fn without_null(&self, schema: &'a Json) -> &'a Json {
        let some = schema["anyOf"].as_array().and_then(|any| any.iter().find(|s| s["type"] != "null"));
        some.map_or(schema, |some| self.resolve(some))
    }
}

fn type_of(schema: &Json) -> Option<&str> {
    match &schema["type"] {
        Json::String(one) => Some(one),
        Json::Array(several) => several.iter().filter_map(Json::as_str).find(|t| *t != "null"),
        _ => None,
    }
}

/// Returns the words of an enumeration, with or without a description each.
fn choices(schema: &Json) -> Option<Vec<&str>> {
    if let Some(words) = schema["enum"].as_array() {
        return Some(words.iter().filter_map(Json::as_str).collect());
    }
    let mut words = Vec::new();
    for one in schema["oneOf"].as_array()? {
        match (one["const"].as_str(), one["enum"].as_array()) {
            (Some(word), _) => words.push(word),
            (None, Some(several)) => words.extend(several.iter().filter_map(Json::as_str)),
            (None, None) => return None,
        }
    }
    Some(words)
}

fn wanted_kind(wanted: &str) -> &str {
    match wanted {
        "object" => "a map",
        "array" => "a list",
        "string" => "a text",
        "boolean" => "true or false",
        "integer" => "a whole number",
        other => other,
    }
}

/// Returns the name of a field, which may be written as its alias.
fn name_of<'a>(key: &'a str, known: &'a Map<String, Json>) -> &'a str {
    let is_alias = |(_, schema): &(&String, &Json)| schema["x-alias"].as_str() == Some(key);
    match known.iter().find(is_alias) {
        Some((name, _)) if !known.contains_key(key) => name,
        _ => key,
    }
}

/// Returns the message for an unknown word, with the word that is probably meant.
fn unknown(key: &str, known: &Map<String, Json>) -> String {
    let near = known.keys().map(|word| (levenshtein(&key.to_lowercase(), &word.to_lowercase()), word)).min();
    match near {
        Some((distance, word)) if distance <= 2 => format!("{key:?} is not known; {word:?} is"),
        _ => {
            let words: Vec<&str> = known.keys().map(String::as_str).collect();
            format!("{key:?} is not known; there is {}", words.join(", "))
        }
    }
}

fn join(field: &str, key: &str) -> String {
    match field {
        "" => key.to_owned(),
        field => format!("{field}.{key}"),
    }
}
