//! Tables as kubectl asks for them: `meta.k8s.io/v1 Table`, with kubectl's columns for built-in kinds and
//! `additionalPrinterColumns` for custom ones.

mod age;
mod cluster;
mod jsonpath;
mod pod;
mod workload;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub use self::age::human_duration;
pub use self::jsonpath::JsonPath;
use crate::resources::{PrinterColumn, ResourceType};

/// What goes into a row beside its cells, as the `includeObject` parameter says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// The metadata, as `PartialObjectMetadata`: the default.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

/// Turns objects of one resource into rows.
#[derive(Debug)]
pub struct TableWriter {
    leading: Vec<LeadingColumn>,
    columns: Columns,
    identity: u64,
    include: IncludeObject,
}

/// A column that stands before those of the resource: the cluster, where there are many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadingColumn {
    /// The heading, which kubectl prints in capitals.
    pub name: &'static str,
    /// What it means.
    pub description: &'static str,
}

#[derive(Debug)]
enum Columns {
    Builtin(&'static [Column]),
    Custom(Vec<(PrinterColumn, Option<JsonPath>)>),
}

/// A column of a built-in kind.
#[derive(Debug)]
struct Column {
    name: &'static str,
    r#type: &'static str,
    /// 1: shown with `-o wide` only.
    priority: i64,
    cell: fn(&Row<'_>) -> Value,
}

/// What a cell is made of.
struct Row<'a> {
    object: &'a Value,
    now: Timestamp,
}

impl IncludeObject {
    /// The value of the `includeObject` query parameter; `None` when there is no such value.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "None" => Self::None,
            "" | "Metadata" => Self::Metadata,
            "Object" => Self::Object,
            _ => return None,
        })
    }
}

impl TableWriter {
    /// A writer for `resource`.
    #[must_use]
    pub fn new(resource: &ResourceType, include: IncludeObject) -> Self {
        let columns = if resource.custom {
            Columns::Custom(
                resource.columns.iter().map(|c| (c.clone(), JsonPath::parse(&c.json_path))).collect(),
            )
        } else {
            Columns::Builtin(columns_of(&resource.kind))
        };
        let identity = IDENTITIES.hash_one((resource.custom, &resource.kind, &resource.columns));
        Self { leading: Vec::new(), columns, identity, include }
    }

    /// Puts columns before all others.
    pub fn lead(&mut self, columns: &[LeadingColumn]) {
        self.leading = columns.to_vec();
    }

    /// What goes into a row beside its cells.
    pub(crate) fn include(&self) -> IncludeObject {
        self.include
    }

    /// Differs where the columns of the resource differ: rows that were written for one are no rows for the other.
    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }

    /// A whole table. `list_metadata` is the metadata of the list (or of the single object); with `definitions` false
    /// the columns are left out, as in all watch events but the first.
    #[must_use]
    pub fn table(&self, list_metadata: Value, rows: Vec<Value>, definitions: bool) -> Value {
        let definitions = if definitions { self.definitions() } else { Value::Null };
        json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": list_metadata,
            "columnDefinitions": definitions,
            "rows": rows,
        })
    }

    /// The row of one object, with the cells of the leading columns; ages are those at `now`.
    #[must_use]
    pub fn row(&self, object: &Value, leading: Vec<Value>, now: Timestamp) -> Value {
        let mut row = Map::new();
        row.insert("cells".into(), self.cells(object, leading, now));
        match self.include {
            IncludeObject::None => {
                row.insert("object".into(), Value::Null);
            }
            IncludeObject::Metadata => {
                let partial = json!({
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": object["metadata"],
                });
                row.insert("object".into(), partial);
            }
            IncludeObject::Object => {
                row.insert("object".into(), object.clone());
            }
        }
        Value::Object(row)
    }

    /// The cells of one object alone.
    pub(crate) fn cells(&self, object: &Value, leading: Vec<Value>, now: Timestamp) -> Value {
        let row = Row { object, now };
        let mut cells = leading;
        cells.resize(self.leading.len(), Value::Null);
        match &self.columns {
            Columns::Builtin(columns) => cells.extend(columns.iter().map(|column| (column.cell)(&row))),
            Columns::Custom(columns) => {
                cells.push(row.name());
                if columns.is_empty() {
                    cells.push(row.age());
                }
                cells.extend(columns.iter().map(|(column, path)| row.custom(column, path.as_ref())));
            }
        }
        Value::Array(cells)
    }

    /// What the columns are.
    pub(crate) fn definitions(&self) -> Value {
        let definition = |name: &str, kind: &str, format: &str, description: &str, priority: i64| json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority});
        let builtin = |column: &Column| {
            let format = if column.name == "Name" { "name" } else { "" };
            definition(column.name, column.r#type, format, column.name, column.priority)
        };
        let leading = self.leading.iter().map(|c| definition(c.name, "string", "", c.description, 0));
        let mut all: Vec<Value> = leading.collect();
        match &self.columns {
            Columns::Builtin(columns) => all.extend(columns.iter().map(builtin)),
            Columns::Custom(columns) => {
                all.push(definition("Name", "string", "name", "Name of the object", 0));
                if columns.is_empty() {
                    all.push(definition("Age", "date", "", "Time since the object was created", 0));
                }
                all.extend(
                    columns
                        .iter()
                        .map(|(c, _)| definition(&c.name, &c.r#type, &c.format, &c.description, c.priority)),
                );
            }
        }
        Value::Array(all)
    }
}

/// Whoever defines columns cannot know what they hash to, so two that hash to the same are not to be feared.
static IDENTITIES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

fn columns_of(kind: &str) -> &'static [Column] {
    pod::columns(kind)
        .or_else(|| workload::columns(kind))
        .or_else(|| cluster::columns(kind))
        .unwrap_or(DEFAULT)
}

/// The columns of kinds that have none of their own.
const DEFAULT: &[Column] =
    &[NAME, Column::new("Created At", "date", |row| row.at(&["metadata", "creationTimestamp"]))];

const NAME: Column = Column::new("Name", "string", |row| row.name());
const AGE: Column = Column::new("Age", "string", |row| row.age());

impl Column {
    const fn new(name: &'static str, r#type: &'static str, cell: fn(&Row<'_>) -> Value) -> Self {
        Self { name, r#type, priority: 0, cell }
    }

    const fn wide(name: &'static str, r#type: &'static str, cell: fn(&Row<'_>) -> Value) -> Self {
        Self { name, r#type, priority: 1, cell }
    }
}

impl<'a> Row<'a> {
    fn name(&self) -> Value {
        self.at(&["metadata", "name"])
    }

    fn age(&self) -> Value {
        self.since(&["metadata", "creationTimestamp"]).into()
    }

    /// The value at a path, or null.
    fn at(&self, path: &[&str]) -> Value {
        self.get(path).clone()
    }

    fn get(&self, path: &[&str]) -> &'a Value {
        path.iter().fold(self.object, |value, key| &value[*key])
    }

    fn text(&self, path: &[&str]) -> &'a str {
        self.get(path).as_str().unwrap_or_default()
    }

    /// The text at a path, or `otherwise` where there is none.
    fn text_or(&self, path: &[&str], otherwise: &str) -> Value {
        match self.text(path) {
            "" => otherwise.into(),
            text => text.into(),
        }
    }

    fn number(&self, path: &[&str]) -> i64 {
        self.get(path).as_i64().unwrap_or(0)
    }

    fn count(&self, path: &[&str]) -> usize {
        let value = self.get(path);
        value.as_array().map(Vec::len).or_else(|| value.as_object().map(Map::len)).unwrap_or(0)
    }

    fn items(&self, path: &[&str]) -> impl Iterator<Item = &'a Value> + use<'a> {
        self.get(path).as_array().into_iter().flatten()
    }

    /// How long ago the time at a path was, or `<unknown>`.
    fn since(&self, path: &[&str]) -> String {
        self.since_text(self.text(path))
    }

    fn since_text(&self, time: &str) -> String {
        match time.parse::<Timestamp>() {
            Ok(time) => human_duration(self.now.duration_since(time).as_secs()),
            Err(_) => "<unknown>".to_owned(),
        }
    }

    fn custom(&self, column: &PrinterColumn, path: Option<&JsonPath>) -> Value {
        let Some(value) = path.and_then(|path| path.first(self.object)) else { return Value::Null };
        match (column.r#type.as_str(), value) {
            ("integer" | "number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
            ("integer", Value::String(text)) => text.parse::<i64>().map_or(Value::Null, Value::from),
            ("date", Value::String(time)) => self.since_text(time).into(),
            ("string", Value::String(_)) => value.clone(),
            ("string", Value::Null) => Value::Null,
            ("string", other) => other.to_string().into(),
            _ => Value::Null,
        }
    }
}

/// Joins texts with commas, or gives `otherwise` where there are none.
fn joined(items: impl IntoIterator<Item = String>, otherwise: &str) -> Value {
    let text = items.into_iter().collect::<Vec<_>>().join(",");
    if text.is_empty() { otherwise.into() } else { text.into() }
}

/// A label selector of a map of labels, or of a `LabelSelector`, as kubectl prints it.
#[must_use]
pub fn printed_selector(selector: &Value) -> String {
    let equal = |labels: &Value| -> Vec<String> {
        let labels = labels.as_object().into_iter().flatten();
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect()
    };
    if selector.get("matchLabels").is_none() && selector.get("matchExpressions").is_none() {
        return or_none(equal(selector));
    }
    let mut parts = equal(&selector["matchLabels"]);
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let values = values.collect::<Vec<_>>().join(",");
        parts.push(match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    or_none(parts)
}

fn or_none(parts: Vec<String>) -> String {
    if parts.is_empty() { "<none>".to_owned() } else { parts.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::Registry;

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_kind_without_own_columns_shows_when_it_was_created() {
        let registry = Registry::builtin();
        let crd = registry.lookup("crd").unwrap();
        let writer = TableWriter::new(&crd, IncludeObject::None);
        let object = json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(
            writer.row(&object, vec![], now()),
            json!({"cells": ["x", "2026-01-01T00:00:00Z"], "object": null})
        );
    }

    #[test]
    fn every_builtin_kind_gives_as_many_cells_as_columns_even_for_an_empty_object() {
        for resource in Registry::builtin().all().iter() {
            let writer = TableWriter::new(resource, IncludeObject::Object);
            let table = writer.table(json!({}), vec![writer.row(&json!({}), vec![], now())], true);
            let cells = table["rows"][0]["cells"].as_array().map(Vec::len);
            assert_eq!(cells, table["columnDefinitions"].as_array().map(Vec::len), "{resource}");
        }
    }

    #[test]
    fn custom_columns_are_read_by_their_paths() {
        let mut resource = ResourceType::new("demo.example", "v1", "widgets", "Widget");
        resource.custom = true;
        let writer = TableWriter::new(&resource, IncludeObject::Metadata);
        let object = json!({"metadata": {"name": "w", "creationTimestamp": "2026-01-01T00:58:00Z"},
                            "spec": {"size": 3, "tags": ["a"]}});
        assert_eq!(writer.row(&object, vec![], now())["cells"], json!(["w", "2m"]));
        let column = |name: &str, kind: &str, path: &str| PrinterColumn {
            name: name.into(),
            r#type: kind.into(),
            format: String::new(),
            description: String::new(),
            priority: 0,
            json_path: path.into(),
        };
        resource.columns = vec![
            column("Size", "integer", ".spec.size"),
            column("Tags", "string", ".spec.tags"),
            column("Age", "date", ".metadata.creationTimestamp"),
            column("Missing", "string", ".spec.missing"),
        ];
        let writer = TableWriter::new(&resource, IncludeObject::Metadata);
        assert_eq!(writer.row(&object, vec![], now())["cells"], json!(["w", 3, "[\"a\"]", "2m", null]));
    }

    #[test]
    fn leading_columns_stand_before_all_others_even_without_cells() {
        let cluster = LeadingColumn { name: "Cluster", description: "Where it is" };
        let pods = Registry::builtin().lookup("pods").unwrap();
        let mut writer = TableWriter::new(&pods, IncludeObject::None);
        writer.lead(&[cluster]);
        let pod = json!({"metadata": {"name": "a"}});
        let rows = vec![writer.row(&pod, vec![json!("east")], now()), writer.row(&pod, vec![], now())];
        let table = writer.table(json!({}), rows, true);
        let names: Vec<_> =
            table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].clone()).collect();
        assert_eq!(names[..2], [json!("Cluster"), json!("Name")]);
        assert_eq!(table["rows"][0]["cells"][0], "east");
        assert_eq!(table["rows"][1]["cells"][0], Value::Null);
        assert_eq!(table["rows"][1]["cells"].as_array().map(Vec::len), Some(names.len()));
    }

    #[test]
    fn selectors_print_as_kubectl_does() {
        assert_eq!(printed_selector(&json!({"app": "web", "x": "y"})), "app=web,x=y");
        let full = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "k", "operator": "In", "values": ["1", "2"]}, {"key": "e", "operator": "DoesNotExist"}]});
        assert_eq!(printed_selector(&full), "a=b,k in (1,2),!e");
        assert_eq!(printed_selector(&Value::Null), "<none>");
    }
}
