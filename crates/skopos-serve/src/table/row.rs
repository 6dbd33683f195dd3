//! Columns of the built-in kinds, and the object from which their cells are made.

use std::cell::OnceCell;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::age::{age_of, parse_time};
use super::columns::PodSummary;

/// Column of a built-in kind.
#[derive(Debug)]
pub(super) struct BuiltinColumn {
    pub(super) name: &'static str,
    pub(super) r#type: &'static str,
    pub(super) format: &'static str,
    /// Priority; 1: shown with `-o wide` only.
    pub(super) priority: i64,
    pub(super) cell: fn(&TableRow<'_>) -> Value,
}

/// Object from which cells are made.
pub(super) struct TableRow<'a> {
    pub(super) object: &'a Value,
    pub(super) now: Timestamp,
    /// Shared by several columns of pods.
    pod: OnceCell<PodSummary<'a>>,
}

pub(super) const NAME: BuiltinColumn =
    BuiltinColumn::new("Name", "string", |row| row.name()).with_format("name");
pub(super) const AGE: BuiltinColumn = BuiltinColumn::new("Age", "string", |row| row.age());
pub(super) const NONE: &str = "<none>";
pub(super) const UNSET: &str = "<unset>";
pub(super) const UNKNOWN: &str = "<unknown>";

impl BuiltinColumn {
    pub(super) const fn new(
        name: &'static str,
        r#type: &'static str,
        cell: fn(&TableRow<'_>) -> Value,
    ) -> Self {
        Self { name, r#type, format: "", priority: 0, cell }
    }

    /// Makes a column that only `-o wide` shows.
    pub(super) const fn wide(name: &'static str, cell: fn(&TableRow<'_>) -> Value) -> Self {
        Self { name, r#type: "string", format: "", priority: 1, cell }
    }

    pub(super) const fn with_format(self, format: &'static str) -> Self {
        Self { format, ..self }
    }
}

impl<'a> TableRow<'a> {
    pub(super) fn new(object: &'a Value, now: Timestamp) -> Self {
        Self { object, now, pod: OnceCell::new() }
    }

    pub(super) fn pod(&self) -> &PodSummary<'a> {
        self.pod.get_or_init(|| PodSummary::new(self.object))
    }

    pub(super) fn name(&self) -> Value {
        self.text(&["metadata", "name"]).into()
    }

    pub(super) fn age(&self) -> Value {
        self.since(&["metadata", "creationTimestamp"]).into()
    }

    /// Returns the value at a path, or null.
    pub(super) fn get(&self, path: &[&str]) -> &'a Value {
        path.iter().fold(self.object, |value, key| &value[*key])
    }

    pub(super) fn is_set(&self, path: &[&str]) -> bool {
        !self.get(path).is_null()
    }

    pub(super) fn text(&self, path: &[&str]) -> &'a str {
        self.get(path).as_str().unwrap_or_default()
    }

    pub(super) fn cell(&self, path: &[&str]) -> Value {
        self.text(path).into()
    }

    /// Returns the text at a path, or `otherwise` if it is empty.
    pub(super) fn text_or(&self, path: &[&str], otherwise: &str) -> Value {
        match self.text(path) {
            "" => otherwise.into(),
            text => text.into(),
        }
    }

    /// Returns the text at a path, or `otherwise` if it is absent.
    pub(super) fn set_or(&self, path: &[&str], otherwise: &str) -> Value {
        if self.is_set(path) { self.cell(path) } else { otherwise.into() }
    }

    pub(super) fn number(&self, path: &[&str]) -> i64 {
        self.get(path).as_i64().unwrap_or(0)
    }

    pub(super) fn flag(&self, path: &[&str]) -> Value {
        (self.get(path) == true).into()
    }

    pub(super) fn count(&self, path: &[&str]) -> usize {
        let value = self.get(path);
        value.as_array().map(Vec::len).or_else(|| value.as_object().map(Map::len)).unwrap_or(0)
    }

    pub(super) fn items(&self, path: &[&str]) -> std::slice::Iter<'a, Value> {
        list(self.get(path))
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.is_set(&["metadata", "deletionTimestamp"])
    }

    /// Returns the age of the time at a path, or `<unknown>`.
    pub(super) fn since(&self, path: &[&str]) -> String {
        self.since_text(self.text(path))
    }

    pub(super) fn since_text(&self, time: &str) -> String {
        age_of(time, self.now).unwrap_or_else(|| UNKNOWN.to_owned())
    }

    pub(super) fn time(&self, path: &[&str]) -> Option<Timestamp> {
        parse_time(self.text(path))
    }

    /// Returns the condition of that type.
    pub(super) fn condition(&self, r#type: &str) -> Option<&'a Value> {
        self.items(&["status", "conditions"]).find(|condition| condition["type"] == r#type)
    }
}

pub(super) fn list(value: &Value) -> std::slice::Iter<'_, Value> {
    value.as_array().map(|items| items.iter()).unwrap_or_default()
}

pub(super) fn texts(value: &Value) -> impl Iterator<Item = &str> {
    list(value).filter_map(Value::as_str)
}

/// Joins texts with commas.
pub(super) fn joined<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    items.into_iter().collect::<Vec<_>>().join(",")
}

pub(super) fn or(text: String, otherwise: &str) -> Value {
    if text.is_empty() { otherwise.into() } else { text.into() }
}

/// Joins the first of many, and appends the number of the rest.
pub(super) fn first_few(all: &[impl std::borrow::Borrow<str>], most: usize, separator: &str) -> String {
    let shown = all.iter().take(most).map(std::borrow::Borrow::borrow).collect::<Vec<&str>>().join(separator);
    match all.len().checked_sub(most) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} + {more} more..."),
    }
}
