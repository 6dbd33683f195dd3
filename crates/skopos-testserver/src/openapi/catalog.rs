//! Catalog of the built-in kinds' fields, parsed once from `fields.txt`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use skopos_serve::ResourceType;

/// Definitions by full name, such as `io.k8s.api.core.v1.Pod`.
pub(crate) struct Catalog {
    definitions: BTreeMap<String, Definition>,
}

/// Definition of an object with known fields.
#[derive(Debug, Default)]
pub(crate) struct Definition {
    pub(crate) description: &'static str,
    pub(crate) fields: Vec<Field>,
}

/// Field of a definition.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) required: bool,
    pub(crate) r#type: FieldType,
    pub(crate) description: &'static str,
}

/// Type of a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FieldType {
    /// A simple type: `string`, `integer`, `number`, `boolean`, `bytes`, `time`, `microtime`, `quantity`, `intstr` or `any`.
    Simple(&'static str),
    /// Another definition, by its full name.
    Definition(String),
    /// A list.
    List(Box<FieldType>),
    /// A map from strings.
    Map(Box<FieldType>),
}

/// Returns the catalog of the built-in kinds.
pub(crate) fn catalog() -> &'static Catalog {
    static CATALOG: LazyLock<Catalog> = LazyLock::new(|| Catalog::parse(include_str!("fields.txt")));
    &CATALOG
}

/// Returns the full name of the definition of a resource's kind, whether or not the catalog has it.
pub(crate) fn definition_name(resource: &ResourceType) -> String {
    if resource.custom {
        let reversed: Vec<&str> = resource.group.rsplit('.').collect();
        return format!("{}.{}.{}", reversed.join("."), resource.version, resource.kind);
    }
    builtin_name(&resource.group, &resource.version, &resource.kind)
}

/// Returns the full name of the definition of a built-in kind.
pub(crate) fn builtin_name(group: &str, version: &str, kind: &str) -> String {
    let package = match group {
        // Every group has its own alias of these options.
        _ if kind == "DeleteOptions" => {
            return "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions".to_owned();
        }
        "" => "io.k8s.api.core".to_owned(),
        "apiextensions.k8s.io" => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions".to_owned(),
        group => format!("io.k8s.api.{}", group.split('.').next().unwrap_or_default()),
    };
    format!("{package}.{version}.{kind}")
}

impl Catalog {
    /// Returns the definition of that full name.
    pub(crate) fn get(&self, name: &str) -> Option<&Definition> {
        self.definitions.get(name)
    }

    fn parse(text: &'static str) -> Self {
        let lines = || text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let packages: BTreeMap<&str, &str> =
            lines().filter_map(|line| line.strip_prefix('[')?.strip_suffix(']')?.split_once(' ')).collect();
        let mut definitions: BTreeMap<String, Definition> = BTreeMap::new();
        let (mut package, mut current) = ("", String::new());
        for line in lines() {
            if let Some(section) = line.strip_prefix('[') {
                package = section.trim_end_matches(']').split_once(' ').map_or("", |(_, package)| package);
                continue;
            }
            let (head, description) = line.split_once(" -- ").unwrap_or((line, ""));
            match head.strip_prefix("  ").and_then(|field| field.split_once(' ')) {
                None => {
                    current = format!("{package}.{head}");
                    definitions.insert(current.clone(), Definition { description, fields: Vec::new() });
                }
                Some((name, r#type)) => {
                    let field = Field {
                        name: name.trim_end_matches('!'),
                        required: name.ends_with('!'),
                        r#type: FieldType::parse(r#type, package, &packages),
                        description,
                    };
                    definitions.entry(current.clone()).or_default().fields.push(field);
                }
            }
        }
        Self { definitions }
    }
}

impl Definition {
    /// Returns the field of that name.
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl FieldType {
    fn parse(text: &'static str, package: &str, packages: &BTreeMap<&str, &str>) -> Self {
        if let Some(item) = text.strip_prefix("[]") {
            return Self::List(Box::new(Self::parse(item, package, packages)));
        }
        if let Some(value) = text.strip_prefix("{}") {
            return Self::Map(Box::new(Self::parse(value, package, packages)));
        }
        match text.split_once(':') {
            Some((alias, name)) => {
                Self::Definition(format!("{}.{name}", packages.get(alias).copied().unwrap_or(alias)))
            }
            None if text.starts_with(|c: char| c.is_ascii_uppercase()) => {
                Self::Definition(format!("{package}.{text}"))
            }
            None => Self::Simple(text),
        }
    }

    /// Returns the name of the definition that it refers to, if any.
    pub(crate) fn definition(&self) -> Option<&str> {
        match self {
            Self::Simple(_) => None,
            Self::Definition(name) => Some(name),
            Self::List(inner) | Self::Map(inner) => inner.definition(),
        }
    }
}

#[cfg(test)]
mod tests {
    use skopos_serve::Registry;

    use super::*;

    #[test]
    fn references_resolve_and_simple_types_are_known() {
        const SIMPLE: [&str; 10] = [
            "string",
            "integer",
            "number",
            "boolean",
            "bytes",
            "time",
            "microtime",
            "quantity",
            "intstr",
            "any",
        ];
        fn check(r#type: &FieldType, at: &str) {
            match r#type {
                FieldType::Simple(name) => assert!(SIMPLE.contains(name), "{at}: {name}"),
                FieldType::Definition(name) => assert!(catalog().get(name).is_some(), "{at}: {name}"),
                FieldType::List(inner) | FieldType::Map(inner) => check(inner, at),
            }
        }
        assert!(catalog().definitions.len() > 300);
        for (name, definition) in &catalog().definitions {
            for field in &definition.fields {
                check(&field.r#type, &format!("{name}.{}", field.name));
            }
        }
    }

    #[test]
    fn all_kinds_are_described() {
        for resource in Registry::builtin().all().iter() {
            assert!(catalog().get(&definition_name(resource)).is_some(), "{resource}");
        }
        let spec = catalog().get("io.k8s.api.core.v1.PodSpec").unwrap();
        let containers = spec.field("containers").unwrap();
        assert!(containers.required);
        assert_eq!(containers.r#type.definition(), Some("io.k8s.api.core.v1.Container"));
    }
}
