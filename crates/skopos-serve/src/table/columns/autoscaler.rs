//! Columns of HorizontalPodAutoscalers, of both versions of their API.

use serde_json::Value;

use super::super::row::{AGE, BuiltinColumn, NAME, NONE, TableRow, UNKNOWN, UNSET, first_few, list};
use super::storage::quantity;

pub(super) fn columns(kind: &str) -> Option<&'static [BuiltinColumn]> {
    Some(match kind {
        "HorizontalPodAutoscaler" => AUTOSCALER,
        "Scale" => SCALE,
        _ => return None,
    })
}

const AUTOSCALER: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Reference", "string", |row| {
        let target = |field: &str| row.text(&["spec", "scaleTargetRef", field]);
        format!("{}/{}", target("kind"), target("name")).into()
    }),
    BuiltinColumn::new("Targets", "string", targets),
    BuiltinColumn::new("MinPods", "string", |row| match row.get(&["spec", "minReplicas"]) {
        Value::Number(number) => number.to_string().into(),
        _ => UNSET.into(),
    }),
    BuiltinColumn::new("MaxPods", "string", |row| row.number(&["spec", "maxReplicas"]).into()),
    BuiltinColumn::new("Replicas", "string", |row| row.number(&["status", "currentReplicas"]).into()),
    AGE,
];

const SCALE: &[BuiltinColumn] = &[
    BuiltinColumn::new("Name", "string", |row| row.name()),
    BuiltinColumn::new("Desired", "integer", |row| row.number(&["spec", "replicas"]).into()),
    BuiltinColumn::new("Available", "integer", |row| row.number(&["status", "replicas"]).into()),
    AGE,
];

/// Number of metrics that are shown.
const MAX_SHOWN: usize = 2;

fn targets(row: &TableRow<'_>) -> Value {
    let mut all: Vec<String> = Vec::new();
    // autoscaling/v1 has a field for its only metric and stores the others in annotations.
    if let Some(target) = row.get(&["spec", "targetCPUUtilizationPercentage"]).as_i64() {
        let current = row.get(&["status", "currentCPUUtilizationPercentage"]).as_i64();
        all.push(format!("cpu: {}/{target}%", current.map_or(UNKNOWN.to_owned(), |now| format!("{now}%"))));
    }
    let (specs, statuses) = (metrics(row, "metrics"), metrics(row, "current-metrics"));
    for (index, spec) in list(&specs).enumerate() {
        all.push(metric(spec, &statuses[index]));
    }
    if all.is_empty() { NONE.into() } else { first_few(&all, MAX_SHOWN, ", ").into() }
}

/// Returns the metrics or their statuses, from the object's fields or else from its annotations.
fn metrics(row: &TableRow<'_>, what: &str) -> Value {
    let fields = if what == "metrics" { ["spec", "metrics"] } else { ["status", "currentMetrics"] };
    match row.get(&fields) {
        Value::Null => {
            let key = format!("autoscaling.alpha.kubernetes.io/{what}");
            serde_json::from_str(row.text(&["metadata", "annotations", &key])).unwrap_or_default()
        }
        metrics => metrics.clone(),
    }
}

fn metric(spec: &Value, status: &Value) -> String {
    let (field, is_named) = match spec["type"].as_str().unwrap_or_default() {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let (spec, status) =
        (Metric { value: &spec[field], ends: "target" }, Metric { value: &status[field], ends: "current" });
    let name = if is_named {
        format!("{}: ", spec.value["name"].as_str().unwrap_or_default())
    } else {
        String::new()
    };
    let target = spec.quantity("averageValue", "targetAverageValue");
    match (field, target) {
        ("pods", target) => {
            let target = target.unwrap_or_else(|| "0".to_owned());
            format!("{}/{target}", status.quantity_if_there("averageValue", "currentAverageValue"))
        }
        ("resource" | "containerResource", Some(target)) => {
            format!("{name}{}/{target}", status.quantity_if_there("averageValue", "currentAverageValue"))
        }
        ("resource" | "containerResource", None) => {
            let percent = |metric: &Metric<'_>, old: &str| {
                metric.get("averageUtilization", old).as_i64().map(|percent| format!("{percent}%"))
            };
            let current = percent(&status, "currentAverageUtilization").unwrap_or_else(|| UNKNOWN.to_owned());
            let target = percent(&spec, "targetAverageUtilization").unwrap_or_else(|| "<auto>".to_owned());
            format!("{name}{current}/{target}")
        }
        (_, Some(target)) => {
            let current = status.quantity("averageValue", "currentAverageValue");
            format!("{}/{target} (avg)", current.unwrap_or_else(|| UNKNOWN.to_owned()))
        }
        (_, None) => {
            let target = spec.quantity("value", "targetValue").unwrap_or_else(|| "0".to_owned());
            format!("{}/{target}", status.quantity_if_there("value", "currentValue"))
        }
    }
}

/// A metric or its status.
struct Metric<'a> {
    value: &'a Value,
    /// Field with the numbers in autoscaling/v2; autoscaling/v1 has them in the metric itself.
    ends: &'static str,
}

impl<'a> Metric<'a> {
    fn get(&self, field: &str, old: &str) -> &'a Value {
        match &self.value[self.ends][field] {
            Value::Null => &self.value[old],
            value => value,
        }
    }

    fn quantity(&self, field: &str, old: &str) -> Option<String> {
        let value = self.get(field, old);
        if value.is_null() { None } else { quantity(value).as_str().map(str::to_owned) }
    }

    /// Returns the quantity, `0` if the status lacks it, and `<unknown>` if there is no status.
    fn quantity_if_there(&self, field: &str, old: &str) -> String {
        match self.value {
            Value::Null => UNKNOWN.to_owned(),
            _ => self.quantity(field, old).unwrap_or_else(|| NO_QUANTITY.to_owned()),
        }
    }
}

/// Go's text of a missing quantity.
const NO_QUANTITY: &str = "<nil>";
