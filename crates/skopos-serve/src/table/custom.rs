//! Columns of custom resources, parsed once for each definition.

use std::fmt;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use serde_json::Value;

use super::jsonpath::JsonPath;
use crate::resources::{PrinterColumn, ResourceType};

/// Columns of a CustomResourceDefinition, with their parsed paths.
#[derive(Debug)]
pub(super) struct CustomColumns {
    /// Declarations that were parsed.
    declared: Vec<PrinterColumn>,
    columns: Vec<(PrinterColumn, JsonPath)>,
}

/// Parsed columns of a resource, made on first use. Comparisons and debug output ignore it, as it follows from the declared
/// columns.
#[derive(Clone, Default)]
pub(crate) struct ColumnCache(OnceLock<Arc<CustomColumns>>);

impl CustomColumns {
    pub(super) fn for_resource(resource: &ResourceType) -> Arc<Self> {
        let parsed = resource.column_cache.0.get_or_init(|| Arc::new(Self::new(&resource.columns)));
        // The columns may have changed since.
        if parsed.declared == resource.columns {
            parsed.clone()
        } else {
            Arc::new(Self::new(&resource.columns))
        }
    }

    /// Parses the columns as kube-apiserver does: an invalid path ends the columns, and without any the age is shown.
    fn new(declared: &[PrinterColumn]) -> Self {
        let age;
        let shown = if declared.is_empty() {
            age = [age_column()];
            &age
        } else {
            declared
        };
        let parse = |column: &PrinterColumn| Some((column.clone(), JsonPath::parse(&column.json_path).ok()?));
        Self { declared: declared.to_vec(), columns: shown.iter().map_while(parse).collect() }
    }

    pub(super) fn columns(&self) -> impl Iterator<Item = &PrinterColumn> {
        self.columns.iter().map(|(column, _)| column)
    }

    pub(super) fn cells<'a>(&'a self, object: &'a Value, now: Timestamp) -> impl Iterator<Item = Value> + 'a {
        self.columns.iter().map(move |(column, path)| {
            path.first(object).map_or(Value::Null, |found| found.cell(&column.r#type, now))
        })
    }
}

fn age_column() -> PrinterColumn {
    PrinterColumn {
        name: "Age".to_owned(),
        r#type: "date".to_owned(),
        format: String::new(),
        description: "Time since the object was created".to_owned(),
        priority: 0,
        json_path: ".metadata.creationTimestamp".to_owned(),
    }
}

impl PartialEq for ColumnCache {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for ColumnCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ColumnCache")
    }
}
