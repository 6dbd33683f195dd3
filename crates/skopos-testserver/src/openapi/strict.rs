//! Unknown fields, for `fieldValidation`.

use serde_json::Value;
use skopos_serve::ResourceType;

use super::catalog::{Definition, FieldType, catalog, definition_name};

/// Returns the paths of all fields of `object` that its kind does not have, such as `spec.containers[0].imag`.
///
/// Kinds without a description have every field.
pub(crate) fn unknown_fields(resource: &ResourceType, object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut walker = FieldWalker { path: String::new(), found: &mut found };
    if resource.custom {
        if let Some(schema) = &resource.schema {
            walker.root(object, |walker, name, value| match name {
                "metadata" => walker.metadata(value),
                name => walker.schema_field(schema, name, value),
            });
        }
    } else if let Some(definition) = catalog().get(&definition_name(resource)) {
        walker.root(object, |walker, name, value| walker.field(definition, name, value));
    }
    found
}

/// Removes the fields of `object` that its kind does not have; returns their paths.
pub(crate) fn drop_unknown_fields(resource: &ResourceType, object: &mut Value) -> Vec<String> {
    let unknown = unknown_fields(resource, object);
    for path in &unknown {
        let pointer = path.replace('~', "~0").replace('/', "~1").replace(['.', '['], "/").replace(']', "");
        let (parent, name) = match pointer.rsplit_once('/') {
            Some((parent, name)) => (format!("/{parent}"), name),
            None => (String::new(), pointer.as_str()),
        };
        if let Some(map) = object.pointer_mut(&parent).and_then(Value::as_object_mut) {
            map.remove(&name.replace("~1", "/").replace("~0", "~"));
        }
    }
    unknown
}

struct FieldWalker<'a> {
    path: String,
    found: &'a mut Vec<String>,
}

impl FieldWalker<'_> {
    /// Visits the fields of a root object; apiVersion and kind are always known.
    fn root(&mut self, object: &Value, mut each: impl FnMut(&mut Self, &str, &Value)) {
        for (name, value) in object.as_object().into_iter().flatten() {
            if !matches!(name.as_str(), "apiVersion" | "kind") {
                self.at(name, |walker| each(walker, name, value));
            }
        }
    }

    fn metadata(&mut self, value: &Value) {
        let r#type = FieldType::Definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta".to_owned());
        self.value(&r#type, value);
    }

    fn field(&mut self, definition: &Definition, name: &str, value: &Value) {
        match definition.field(name) {
            Some(field) => self.value(&field.r#type, value),
            None => self.found.push(self.path.clone()),
        }
    }

    fn value(&mut self, r#type: &FieldType, value: &Value) {
        match (r#type, value) {
            (FieldType::Definition(name), Value::Object(map)) => {
                let Some(definition) = catalog().get(name) else { return };
                for (name, value) in map {
                    self.at(name, |walker| walker.field(definition, name, value));
                }
            }
            (FieldType::List(item), Value::Array(items)) => {
                self.items(items, |walker, value| walker.value(item, value))
            }
            (FieldType::Map(inner), Value::Object(map)) => {
                for (name, value) in map {
                    self.at(name, |walker| walker.value(inner, value));
                }
            }
            _ => {}
        }
    }

    fn schema_field(&mut self, schema: &Value, name: &str, value: &Value) {
        let property = schema.get("properties").and_then(|properties| properties.get(name));
        match property.or_else(|| schema.get("additionalProperties")) {
            Some(schema) => self.schema_value(schema, value),
            None if schema["x-kubernetes-preserve-unknown-fields"] == true => {}
            None => self.found.push(self.path.clone()),
        }
    }

    fn schema_value(&mut self, schema: &Value, value: &Value) {
        if schema["x-kubernetes-embedded-resource"] == true {
            return;
        }
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    self.at(name, |walker| walker.schema_field(schema, name, value));
                }
            }
            Value::Array(items) => {
                self.items(items, |walker, value| walker.schema_value(&schema["items"], value))
            }
            _ => {}
        }
    }

    fn items(&mut self, items: &[Value], mut each: impl FnMut(&mut Self, &Value)) {
        let length = self.path.len();
        for (index, item) in items.iter().enumerate() {
            self.path.push_str(&format!("[{index}]"));
            each(self, item);
            self.path.truncate(length);
        }
    }

    fn at(&mut self, name: &str, visit: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        visit(self);
        self.path.truncate(length);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skopos_serve::Registry;

    use super::*;

    #[test]
    fn misspelt_fields_are_found_in_builtin_kinds() {
        let pods = Registry::builtin().lookup("pods").unwrap();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "lables": {}},
            "spec": {"containers": [{"name": "c", "imag": "x", "resources": {"limits": {"any/thing": 1}}}]}});
        assert_eq!(unknown_fields(&pods, &pod), ["metadata.lables", "spec.containers[0].imag"]);
        let mut known = pod.clone();
        assert_eq!(drop_unknown_fields(&pods, &mut known).len(), 2);
        assert_eq!(unknown_fields(&pods, &known), [""; 0]);
        assert_eq!(known["spec"]["containers"][0]["name"], "c");
    }

    #[test]
    fn reports_fields_outside_custom_schema() {
        let mut resource = ResourceType::new("demo.example", "v1", "widgets", "Widget");
        resource.custom = true;
        resource.schema = Some(json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"size": {"type": "integer"}, "free": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
        }}));
        let widget = json!({"kind": "Widget", "metadata": {"x": 1}, "spec": {"size": 1, "seize": 2, "free": {"a": 1}}});
        assert_eq!(unknown_fields(&resource, &widget), ["metadata.x", "spec.seize"]);
    }
}
