//! Validation of custom resources by their OpenAPI schema: types, required fields, enumerations, bounds.

use serde_json::Value;
use skopos_wire::FieldError;

/// Adds the problems of `object` to `errors`.
pub(super) fn check(schema: &Value, object: &Value, errors: &mut Vec<FieldError>) {
    value(schema, object, "", errors);
}

fn value(schema: &Value, value_: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if value_.is_null() && schema["nullable"] == true || path == "metadata" {
        return;
    }
    if let Some(expected) = schema["type"].as_str()
        && !has_type(value_, expected)
        && schema["x-kubernetes-int-or-string"] != true
    {
        let found = type_of(value_);
        let problem = format!("{path} in body must be of type {expected}: {found:?}");
        errors.push(FieldError::invalid(path, found, problem));
        return;
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value_)
    {
        let allowed: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
        errors.push(FieldError::not_supported(path, value_.as_str().unwrap_or_default(), &allowed));
    }
    match value_ {
        Value::Object(_) => object(schema, value_, path, errors),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                value(&schema["items"], item, &format!("{path}[{index}]"), errors);
            }
            bounds(schema, items.len() as f64, "Items", value_, path, errors);
        }
        Value::String(text) => bounds(schema, text.chars().count() as f64, "Length", value_, path, errors),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(0.0);
            if let Some(min) = schema["minimum"].as_f64().filter(|min| number < *min) {
                let problem = format!("{path} in body should be greater than or equal to {min}");
                errors.push(FieldError::invalid_literal(path, value_, problem));
            }
            if let Some(max) = schema["maximum"].as_f64().filter(|max| number > *max) {
                let problem = format!("{path} in body should be less than or equal to {max}");
                errors.push(FieldError::invalid_literal(path, value_, problem));
            }
        }
        _ => {}
    }
}

fn object(schema: &Value, map: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if map.get(name).is_none() {
            errors.push(FieldError::required(below(name), ""));
        }
    }
    for (name, inner) in map.as_object().into_iter().flatten() {
        let property = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
        if let Some(property) = property.filter(|property| property.is_object()) {
            value(property, inner, &below(name), errors);
        }
    }
}

fn bounds(schema: &Value, size: f64, what: &str, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let unit = if what == "Items" { "items" } else { "chars long" };
    if let Some(min) = schema[format!("min{what}")].as_f64().filter(|min| size < *min) {
        errors.push(FieldError::invalid_literal(
            path,
            value,
            format!("{path} in body should be at least {min} {unit}"),
        ));
    }
    if let Some(max) = schema[format!("max{what}")].as_f64().filter(|max| size > *max) {
        errors.push(FieldError::invalid_literal(
            path,
            value,
            format!("{path} in body should be at most {max} {unit}"),
        ));
    }
}

fn has_type(value: &Value, expected: &str) -> bool {
    match expected {
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0),
        "number" => value.is_number(),
        other => type_of(value) == other,
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
