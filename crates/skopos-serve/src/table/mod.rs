//! Tables for kubectl: `meta.k8s.io/v1 Table`, with kubectl's columns for built-in kinds and `additionalPrinterColumns` for
//! custom ones.

mod age;
mod columns;
mod custom;
mod jsonpath;
mod row;
mod selector;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub use self::age::human_duration;
pub(crate) use self::custom::ColumnCache;
use self::custom::CustomColumns;
pub use self::jsonpath::{InvalidJsonPath, JsonPath, PathValue};
use self::row::{BuiltinColumn, TableRow};
pub use self::selector::printed_selector;
use crate::resources::{PrinterColumn, ResourceType};

/// Content of a row besides its cells (parameter `includeObject`).
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

/// Converter of the objects of one resource into table rows.
#[derive(Debug)]
pub struct TableWriter {
    leading: Vec<LeadingColumn>,
    columns: Columns,
    /// True if rows may have conditions.
    has_conditions: bool,
    identity: u64,
    include: IncludeObject,
}

/// Column before those of the resource: the cluster, if there are many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadingColumn {
    /// Heading, which kubectl prints in capitals.
    pub name: &'static str,
    /// Description.
    pub description: &'static str,
}

#[derive(Debug)]
enum Columns {
    Builtin(&'static [BuiltinColumn]),
    Custom(Arc<CustomColumns>),
}

impl IncludeObject {
    /// Parses the `includeObject` query parameter; `None` if the value is invalid.
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
    /// Creates a writer for `resource`.
    pub fn new(resource: &ResourceType, include: IncludeObject) -> Self {
        let columns = if resource.custom {
            Columns::Custom(CustomColumns::for_resource(resource))
        } else {
            Columns::Builtin(columns::for_kind(&resource.group, &resource.kind))
        };
        let kind = (resource.custom, &resource.group, &resource.kind);
        let identity = IDENTITIES.hash_one((kind, &resource.columns));
        let has_conditions = kind == (false, &String::new(), &"Pod".to_owned());
        Self { leading: Vec::new(), columns, has_conditions, identity, include }
    }

    /// Puts columns before all others.
    pub fn set_leading_columns(&mut self, columns: &[LeadingColumn]) {
        self.leading = columns.to_vec();
    }

    /// Returns the content of a row besides its cells.
    pub(crate) fn include(&self) -> IncludeObject {
        self.include
    }

    /// Returns a hash that differs if the resource's columns differ. Rows written for one identity are not valid for another.
    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }

    /// Returns a whole table. `list_metadata` is the metadata of the list (or of the single object). With `definitions` false,
    /// the column definitions are omitted, as in all watch events but the first.
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

    /// Returns the row of one object, with the cells of the leading columns; ages are those at `now`.
    pub fn row(&self, object: &Value, leading: Vec<Value>, now: Timestamp) -> Value {
        let mut row = Map::new();
        row.insert("cells".into(), self.cells(object, leading, now));
        if let Some(conditions) = self.conditions(object) {
            row.insert("conditions".into(), conditions);
        }
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

    /// Returns the cells of one object alone.
    pub(crate) fn cells(&self, object: &Value, leading: Vec<Value>, now: Timestamp) -> Value {
        let mut cells = leading;
        cells.resize(self.leading.len(), Value::Null);
        match &self.columns {
            Columns::Builtin(columns) => {
                let row = TableRow::new(object, now);
                cells.extend(columns.iter().map(|column| (column.cell)(&row)));
            }
            Columns::Custom(columns) => {
                cells.push(object["metadata"]["name"].clone());
                cells.extend(columns.cells(object, now));
            }
        }
        Value::Array(cells)
    }

    /// Returns the conditions of an object's row, which only pods have.
    pub(crate) fn conditions(&self, object: &Value) -> Option<Value> {
        if self.has_conditions { columns::pod_conditions(object) } else { None }
    }

    /// Returns the `columnDefinitions` of this writer's tables.
    pub fn definitions(&self) -> Value {
        let definition = |name: &str, kind: &str, format: &str, description: &str, priority: i64| json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority});
        let builtin = |column: &BuiltinColumn| {
            definition(column.name, column.r#type, column.format, column.name, column.priority)
        };
        let leading = self.leading.iter().map(|c| definition(c.name, "string", "", c.description, 0));
        let mut all: Vec<Value> = leading.collect();
        match &self.columns {
            Columns::Builtin(columns) => all.extend(columns.iter().map(builtin)),
            Columns::Custom(columns) => {
                all.push(definition("Name", "string", "name", "Name of the object", 0));
                let described = |c: &PrinterColumn| match c.description.as_str() {
                    "" => format!("Custom resource definition column (in JSONPath format): {}", c.json_path),
                    description => description.to_owned(),
                };
                all.extend(
                    columns
                        .columns()
                        .map(|c| definition(&c.name, &c.r#type, &c.format, &described(c), c.priority)),
                );
            }
        }
        Value::Array(all)
    }
}

/// Randomly seeded: a client that defines columns cannot predict their hashes, so it cannot provoke a collision.
static IDENTITIES: LazyLock<RandomState> = LazyLock::new(RandomState::new);
