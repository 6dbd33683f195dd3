//! OpenAPI documents, as far as kubectl reads them: schemas, and paths with the query parameters of writes.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use skopos_serve::{ResourceType, Verb};

use super::catalog::{Definition, Field, FieldType, catalog, definition_name};
use crate::version::MINOR;

/// Version of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Swagger 2.0: one document for all.
    V2,
    /// OpenAPI 3.0: one document per group and version.
    V3,
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

impl Dialect {
    /// Returns the document of these resources.
    pub(super) fn document(self, resources: &[Arc<ResourceType>]) -> Value {
        let mut paths = Map::new();
        let mut schemas = Map::new();
        for resource in resources {
            self.add_paths(&mut paths, resource);
            self.add_schema(&mut schemas, resource);
        }
        let info = json!({"title": "Kubernetes", "version": format!("v1.{MINOR}.0")});
        match self {
            Self::V2 => json!({"swagger": "2.0", "info": info, "paths": paths, "definitions": schemas}),
            Self::V3 => {
                json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}})
            }
        }
    }

    fn add_paths(self, paths: &mut Map<String, Value>, resource: &ResourceType) {
        let collection = resource.path(resource.namespaced.then_some("{namespace}"));
        let operation =
            |verb: Verb, action: &str| resource.allows(verb).then(|| self.operation(resource, action));
        let mut add = |path: String, operations: Vec<(&str, Option<Value>)>| {
            let present = operations.into_iter().filter_map(|(method, op)| Some((method.to_owned(), op?)));
            paths.insert(path, Value::Object(present.collect()));
        };
        add(
            collection.clone(),
            vec![
                ("get", operation(Verb::List, "list")),
                ("post", operation(Verb::Create, "post")),
                ("delete", operation(Verb::DeleteCollection, "deletecollection")),
            ],
        );
        add(
            format!("{collection}/{{name}}"),
            vec![
                ("get", operation(Verb::Get, "get")),
                ("put", operation(Verb::Update, "put")),
                ("patch", operation(Verb::Patch, "patch")),
                ("delete", operation(Verb::Delete, "delete")),
            ],
        );
        if resource.namespaced {
            add(resource.path(None), vec![("get", operation(Verb::List, "list"))]);
        }
    }

    fn operation(self, resource: &ResourceType, action: &str) -> Value {
        let parameter = |name: &str| match self {
            Self::V2 => json!({"name": name, "in": "query", "type": "string"}),
            Self::V3 => json!({"name": name, "in": "query", "schema": {"type": "string"}}),
        };
        let names: &[&str] = match action {
            "post" | "put" => &["dryRun", "fieldManager", "fieldValidation"],
            "patch" => &["dryRun", "fieldManager", "fieldValidation", "force"],
            "list" => &["continue", "fieldSelector", "labelSelector", "limit", "resourceVersion", "watch"],
            _ => &[],
        };
        json!({
            "operationId": format!("{action}{}{}", resource.version, resource.kind),
            "parameters": names.iter().map(|name| parameter(name)).collect::<Vec<_>>(),
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": group_version_kind(resource),
        })
    }

    /// Adds the schema of a resource's kind, and of everything that it refers to.
    fn add_schema(self, schemas: &mut Map<String, Value>, resource: &ResourceType) {
        let name = definition_name(resource);
        let mut schema = match (&resource.schema, catalog().get(&name)) {
            (Some(schema), _) => schema.clone(),
            (None, Some(definition)) => self.definition(definition),
            (None, None) => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        };
        if let Some(map) = schema.as_object_mut() {
            map.insert("x-kubernetes-group-version-kind".into(), json!([group_version_kind(resource)]));
            let properties = map.entry("properties").or_insert_with(|| json!({}));
            properties["apiVersion"] = json!({"type": "string", "description": "The group and version that the object is written in."});
            properties["kind"] = json!({"type": "string", "description": "What kind of object it is."});
            properties["metadata"] = self.reference(OBJECT_META, "Standard metadata of the object.");
        }
        schemas.insert(name.clone(), schema);
        let mut wanted: BTreeSet<&str> = BTreeSet::from([OBJECT_META]);
        wanted.extend(catalog().get(&name).into_iter().flat_map(references));
        while let Some(name) = wanted.pop_first() {
            let Some(definition) = catalog().get(name) else { continue };
            if !schemas.contains_key(name) {
                schemas.insert(name.to_owned(), self.definition(definition));
                wanted.extend(references(definition));
            }
        }
    }

    fn definition(self, definition: &Definition) -> Value {
        let properties: Map<String, Value> =
            definition.fields.iter().map(|field| (field.name.to_owned(), self.field(field))).collect();
        let required: Vec<&str> = definition.fields.iter().filter(|f| f.required).map(|f| f.name).collect();
        let mut schema =
            json!({"type": "object", "description": definition.description, "properties": properties});
        if !required.is_empty() {
            schema["required"] = required.into();
        }
        schema
    }

    fn field(self, field: &Field) -> Value {
        if let FieldType::Definition(name) = &field.r#type {
            return self.reference(name, field.description);
        }
        let mut schema = self.r#type(&field.r#type);
        schema["description"] = field.description.into();
        schema
    }

    fn r#type(self, r#type: &FieldType) -> Value {
        match r#type {
            FieldType::Definition(name) => self.reference(name, ""),
            FieldType::List(item) => json!({"type": "array", "items": self.r#type(item)}),
            FieldType::Map(value) => json!({"type": "object", "additionalProperties": self.r#type(value)}),
            FieldType::Simple("bytes") => json!({"type": "string", "format": "byte"}),
            FieldType::Simple("time" | "microtime") => json!({"type": "string", "format": "date-time"}),
            FieldType::Simple("integer") => json!({"type": "integer", "format": "int64"}),
            FieldType::Simple("quantity") => json!({"type": "string", "format": "quantity"}),
            FieldType::Simple("intstr") => json!({"type": "string", "format": "int-or-string"}),
            FieldType::Simple("any") => {
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
            }
            FieldType::Simple(name) => json!({"type": name}),
        }
    }

    fn reference(self, name: &str, description: &str) -> Value {
        match self {
            Self::V2 => json!({"$ref": format!("#/definitions/{name}"), "description": description}),
            Self::V3 if description.is_empty() => json!({"$ref": format!("#/components/schemas/{name}")}),
            Self::V3 => {
                json!({"allOf": [{"$ref": format!("#/components/schemas/{name}")}], "description": description})
            }
        }
    }
}

fn references(definition: &Definition) -> impl Iterator<Item = &str> {
    definition.fields.iter().filter_map(|field| field.r#type.definition())
}

fn group_version_kind(resource: &ResourceType) -> Value {
    json!({"group": resource.group, "version": resource.version, "kind": resource.kind})
}
