//! Defaults and nulls of custom resources, by their schema (`defaulting` of apiextensions-apiserver).

use serde_json::Value;

/// Drops nulls of fields that are not nullable, unless the field has a default, which then replaces the null. Nulls in lists
/// stay, and are refused later.
pub(super) fn drop_nulls(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|name, value| match field(schema, name) {
                Some(schema) => !is_null_without_meaning(schema, value) || has_default(schema),
                None => true,
            });
            for (name, value) in map {
                drop_nulls(field(schema, name).unwrap_or(&Value::Null), value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| drop_nulls(&schema["items"], item)),
        _ => {}
    }
}

/// Sets the defaults.
pub(super) fn fill(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                let is_open = map.get(name).is_none_or(|value| is_null_without_meaning(property, value));
                if is_open && has_default(property) {
                    map.insert(name.clone(), property["default"].clone());
                }
            }
            for (name, value) in map {
                let Some(schema) = field(schema, name) else { continue };
                fill_one(schema, value);
            }
        }
        Value::Array(items) if schema["items"].is_object() => {
            items.iter_mut().for_each(|item| fill_one(&schema["items"], item));
        }
        _ => {}
    }
}

fn fill_one(schema: &Value, value: &mut Value) {
    if is_null_without_meaning(schema, value) && has_default(schema) {
        *value = schema["default"].clone();
    }
    fill(schema, value);
}

/// Returns the schema of a field: its own, or that of additional properties.
fn field<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let own = schema["properties"].get(name);
    own.or_else(|| schema.get("additionalProperties")).filter(|schema| schema.is_object())
}

fn is_null_without_meaning(schema: &Value, value: &Value) -> bool {
    value.is_null() && schema["nullable"] != true
}

fn has_default(schema: &Value) -> bool {
    schema.get("default").is_some_and(|default| !default.is_null())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn defaulted(mut value: Value) -> Value {
        let schema = json!({"properties": {
            "size": {"type": "integer", "default": 3}, "note": {"type": "string"}, "may": {"nullable": true},
            "maybe": {"nullable": true, "default": 1}, "list": {"items": {"type": "string"}},
            "filled": {"items": {"type": "integer", "default": 7}},
            "map": {"additionalProperties": {"type": "string"}},
            "nested": {"default": {}, "properties": {"deep": {"default": "x"}}}}});
        drop_nulls(&schema, &mut value);
        fill(&schema, &mut value);
        value
    }

    #[test]
    fn nulls_stay_where_they_mean_something() {
        let all = json!({"size": null, "note": null, "may": null, "maybe": null, "list": ["a", null],
            "filled": [1, null], "map": {"x": null, "y": "z"}, "nested": null, "unknown": null});
        let expected = json!({"size": 3, "may": null, "maybe": null, "list": ["a", null],
            "filled": [1, 7], "map": {"y": "z"}, "nested": {"deep": "x"}, "unknown": null});
        assert_eq!(defaulted(all), expected);
    }

    #[test]
    fn missing_fields_get_schema_defaults() {
        assert_eq!(defaulted(json!({})), json!({"size": 3, "maybe": 1, "nested": {"deep": "x"}}));
        assert_eq!(
            defaulted(json!({"nested": {"deep": "y"}, "size": 4, "maybe": 2})),
            json!({"nested": {"deep": "y"}, "size": 4, "maybe": 2})
        );
    }
}
