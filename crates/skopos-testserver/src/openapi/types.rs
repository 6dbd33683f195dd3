//! Type check of fields: object, list or scalar. Go fails to decode a mismatch.

use serde_json::{Map, Value};
use skopos_serve::ResourceType;

use super::catalog::{FieldType, builtin_name, catalog, definition_name};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Checks that an object of a resource, and each of its object fields, is a JSON object. For custom kinds, only metadata is
/// checked here; the rest is up to their schema.
///
/// # Errors
/// The API server's message about the first mismatch, in the words of Go's JSON decoder.
pub(crate) fn check_types(resource: &ResourceType, object: &Value) -> Result<(), String> {
    if !resource.custom {
        return root(&definition_name(resource), object);
    }
    let Value::Object(map) = object else { return Err(no_object(object, "map[string]interface {}")) };
    let metadata = map.get("metadata").unwrap_or(&Value::Null);
    let checked = value(&FieldType::Definition(OBJECT_META.to_owned()), metadata);
    checked.map_err(|mismatch| mismatch.within(&resource.kind, "metadata").to_string())
}

/// Checks the Scale of an object in the same way.
pub(crate) fn check_scale_types(scale: &Value) -> Result<(), String> {
    root(&builtin_name("autoscaling", "v1", "Scale"), scale)
}

fn root(definition: &str, object: &Value) -> Result<(), String> {
    match object {
        Value::Object(map) => fields(definition, map).map_err(|mismatch| mismatch.to_string()),
        _ => Err(no_object(object, &versioned(definition))),
    }
}

fn no_object(value: &Value, wanted: &str) -> String {
    format!("json: cannot unmarshal {} into Go value of type {wanted}", json_type(value))
}

fn fields(definition: &str, map: &Map<String, Value>) -> Result<(), TypeMismatch> {
    let Some(known) = catalog().get(definition) else { return Ok(()) };
    map.iter().try_for_each(|(name, inner)| match known.field(name) {
        Some(field) => {
            value(&field.r#type, inner).map_err(|mismatch| mismatch.within(short(definition), name))
        }
        None => Ok(()),
    })
}

fn value(r#type: &FieldType, value_: &Value) -> Result<(), TypeMismatch> {
    match (r#type, value_) {
        (_, Value::Null) | (FieldType::Simple("any"), _) => Ok(()),
        (FieldType::Definition(name), Value::Object(map)) => fields(name, map),
        (FieldType::List(item), Value::Array(items)) => items.iter().try_for_each(|inner| value(item, inner)),
        (FieldType::Map(item), Value::Object(map)) => map.values().try_for_each(|inner| value(item, inner)),
        (FieldType::Simple(_), value) if !value.is_object() && !value.is_array() => Ok(()),
        _ => Err(TypeMismatch {
            found: json_type(value_),
            owner: String::new(),
            path: String::new(),
            wanted: go_type(r#type),
        }),
    }
}

/// Value that does not fit its field.
struct TypeMismatch {
    found: &'static str,
    /// Definition that has the field.
    owner: String,
    /// Path of the field, without list indices and map keys.
    path: String,
    wanted: String,
}

impl TypeMismatch {
    /// Returns the mismatch as seen from the enclosing definition.
    fn within(mut self, definition: &str, field: &str) -> Self {
        if self.path.is_empty() {
            (self.owner, self.path) = (definition.to_owned(), field.to_owned());
        } else {
            self.path = format!("{field}.{}", self.path);
        }
        self
    }
}

impl std::fmt::Display for TypeMismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { found, owner, path, wanted } = self;
        write!(f, "json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {wanted}")
    }
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn go_type(r#type: &FieldType) -> String {
    match r#type {
        FieldType::Simple("bytes") => "[]uint8".to_owned(),
        FieldType::Simple(name) => (*name).to_owned(),
        FieldType::Definition(name) => versioned(name),
        FieldType::List(item) => format!("[]{}", go_type(item)),
        FieldType::Map(item) => format!("map[string]{}", go_type(item)),
    }
}

/// Returns `Pod` for `io.k8s.api.core.v1.Pod`.
fn short(definition: &str) -> &str {
    definition.rsplit('.').next().unwrap_or(definition)
}

/// Returns `v1.Pod` for `io.k8s.api.core.v1.Pod`.
fn versioned(definition: &str) -> String {
    let mut parts = definition.rsplit('.');
    let (name, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    format!("{version}.{name}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skopos_serve::Registry;

    use super::*;

    #[test]
    fn reports_field_with_wrong_type() {
        let check = |plural: &str, object: Value| {
            check_types(&Registry::builtin().lookup(plural).unwrap(), &object).err().unwrap_or_default()
        };
        let cannot = |what: &str| format!("json: cannot unmarshal {what}");
        assert_eq!(check("pods", json!([])), cannot("array into Go value of type v1.Pod"));
        for (plural, object, what) in [
            (
                "namespaces",
                json!({"metadata": {"labels": "x"}}),
                "string into Go struct field ObjectMeta.metadata.labels of type map[string]string",
            ),
            (
                "secrets",
                json!({"data": "x"}),
                "string into Go struct field Secret.data of type map[string][]uint8",
            ),
            (
                "services",
                json!({"spec": 1}),
                "number into Go struct field Service.spec of type v1.ServiceSpec",
            ),
            (
                "pods",
                json!({"spec": {"containers": [{"name": "c"}, {"ports": {}}]}}),
                "object into Go struct field Container.spec.containers.ports of type []v1.ContainerPort",
            ),
            (
                "pods",
                json!({"metadata": {"name": ["x"]}}),
                "array into Go struct field ObjectMeta.metadata.name of type string",
            ),
        ] {
            assert_eq!(check(plural, object), cannot(what));
        }
        for fine in [
            json!({}),
            json!({"metadata": null, "spec": {"containers": [null], "no-field": []}}),
            json!({"metadata": {"labels": {"a": null}, "managedFields": [{"fieldsV1": {"f:a": {}}}]}}),
        ] {
            assert_eq!(check("pods", fine), "");
        }
    }

    #[test]
    fn of_a_custom_kind_only_metadata_has_a_type() {
        let mut widgets = ResourceType::new("demo.example", "v1", "widgets", "Widget");
        widgets.custom = true;
        let check = |object: Value| check_types(&widgets, &object).err().unwrap_or_default();
        assert_eq!(check(json!({"spec": "x", "status": []})), "");
        assert_eq!(
            check(json!({"metadata": {"finalizers": "x"}})),
            "json: cannot unmarshal string into Go struct field ObjectMeta.metadata.finalizers of type []string"
        );
        assert_eq!(
            check(json!("x")),
            "json: cannot unmarshal string into Go value of type map[string]interface {}"
        );
        assert_eq!(
            check(json!({"metadata": "x"})),
            "json: cannot unmarshal string into Go struct field Widget.metadata of type v1.ObjectMeta"
        );
    }
}
