//! Resource types of a CustomResourceDefinition.

use serde_json::Value;
use thiserror::Error;

use super::{PrinterColumn, ResourceType, ScalePaths, Subresource};
use crate::discovery::by_stability;

/// A CustomResourceDefinition that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {problem}")]
pub struct InvalidCrd {
    /// Path of the invalid field, for example `spec.names.plural`.
    pub field: String,
    /// Problem, as the API server's validation words it.
    pub problem: String,
}

impl ResourceType {
    /// Returns the served versions of an `apiextensions.k8s.io/v1` CustomResourceDefinition.
    ///
    /// # Errors
    /// When a required field is missing, when no version or more than one is the storage version, or when
    /// `metadata.name` is not `PLURAL.GROUP`.
    pub fn from_crd(crd: &Value) -> Result<Vec<Self>, InvalidCrd> {
        let spec = &crd["spec"];
        let group = required(spec, "group", "spec.group")?;
        let plural = required(&spec["names"], "plural", "spec.names.plural")?;
        let kind = required(&spec["names"], "kind", "spec.names.kind")?;
        let namespaced = match required(spec, "scope", "spec.scope")? {
            "Namespaced" => true,
            "Cluster" => false,
            other => {
                let problem =
                    format!("Unsupported value: {other:?}: supported values: \"Cluster\", \"Namespaced\"");
                return Err(invalid("spec.scope", problem));
            }
        };
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        if name != format!("{plural}.{group}") {
            let problem = format!("Invalid value: {name:?}: must be spec.names.plural+\".\"+spec.group");
            return Err(invalid("metadata.name", problem));
        }
        let versions = spec["versions"].as_array().filter(|versions| !versions.is_empty());
        let versions = versions.ok_or_else(|| invalid("spec.versions", "Required value"))?;
        let storage_version = storage_version(versions)?;

        let names = &spec["names"];
        let base = Self {
            namespaced,
            storage_version,
            custom: true,
            singular: text(names, "singular").unwrap_or_else(|| kind.to_lowercase()),
            list_kind: text(names, "listKind").unwrap_or_else(|| format!("{kind}List")),
            short_names: strings(&names["shortNames"]),
            categories: strings(&names["categories"]),
            ..Self::new(group, "", plural, kind)
        };
        let served = versions.iter().filter(|version| version["served"].as_bool() == Some(true));
        served.map(|version| base.with_version(version, versions)).collect()
    }

    fn with_version(&self, version: &Value, all: &[Value]) -> Result<Self, InvalidCrd> {
        let name = required(version, "name", "spec.versions[].name")?;
        Ok(Self {
            version: name.to_owned(),
            deprecation: is_deprecated(version).then(|| {
                let own = text(version, "deprecationWarning");
                own.unwrap_or_else(|| deprecation(&self.group, name, &self.kind, all))
            }),
            subresources: subresources(&version["subresources"]),
            columns: columns(&version["additionalPrinterColumns"]),
            schema: version["schema"].get("openAPIV3Schema").cloned(),
            ..self.clone()
        })
    }
}

fn is_deprecated(version: &Value) -> bool {
    version["deprecated"].as_bool() == Some(true)
}

/// Returns kube-apiserver's warning of a deprecated version. It suggests the newest version that is served and not deprecated, if
/// that is newer.
fn deprecation(group: &str, version: &str, kind: &str, all: &[Value]) -> String {
    let candidates =
        all.iter().filter(|other| other["served"].as_bool() == Some(true) && !is_deprecated(other));
    let names = candidates.filter_map(|other| other["name"].as_str());
    let newest = names.filter(|other| by_stability(other, version).is_lt()).min_by(|a, b| by_stability(a, b));
    let instead = newest.map(|newest| format!("; use {group}/{newest} {kind}")).unwrap_or_default();
    format!("{group}/{version} {kind} is deprecated{instead}")
}

fn storage_version(versions: &[Value]) -> Result<String, InvalidCrd> {
    let mut stored = versions.iter().filter(|version| version["storage"].as_bool() == Some(true));
    match (stored.next(), stored.next()) {
        (Some(version), None) => Ok(required(version, "name", "spec.versions[].name")?.to_owned()),
        _ => Err(invalid(
            "spec.versions",
            "Invalid value: must have exactly one version marked as storage version",
        )),
    }
}

fn subresources(declared: &Value) -> Vec<Subresource> {
    let status = declared.get("status").filter(|v| !v.is_null()).map(|_| Subresource::Status);
    let scale = declared.get("scale").filter(|v| !v.is_null()).map(|scale| {
        Subresource::Scale(ScalePaths {
            spec_replicas: text(scale, "specReplicasPath").unwrap_or_else(|| ".spec.replicas".to_owned()),
            status_replicas: text(scale, "statusReplicasPath")
                .unwrap_or_else(|| ".status.replicas".to_owned()),
            selector: text(scale, "labelSelectorPath"),
        })
    });
    status.into_iter().chain(scale).collect()
}

fn columns(declared: &Value) -> Vec<PrinterColumn> {
    let column = |column: &Value| {
        Some(PrinterColumn {
            name: text(column, "name")?,
            r#type: text(column, "type").unwrap_or_else(|| "string".to_owned()),
            format: text(column, "format").unwrap_or_default(),
            description: text(column, "description").unwrap_or_default(),
            priority: column["priority"].as_i64().unwrap_or(0),
            json_path: text(column, "jsonPath")?,
        })
    };
    declared.as_array().into_iter().flatten().filter_map(column).collect()
}

fn required<'a>(object: &'a Value, key: &str, path: &str) -> Result<&'a str, InvalidCrd> {
    object[key].as_str().filter(|text| !text.is_empty()).ok_or_else(|| invalid(path, "Required value"))
}

fn invalid(field: &str, problem: impl Into<String>) -> InvalidCrd {
    InvalidCrd { field: field.to_owned(), problem: problem.into() }
}

fn text(object: &Value, key: &str) -> Option<String> {
    object[key].as_str().map(str::to_owned)
}

fn strings(array: &Value) -> Vec<String> {
    array.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::Verb;

    fn widgets() -> Value {
        json!({
            "metadata": {"name": "widgets.demo.example"},
            "spec": {
                "group": "demo.example", "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
                "versions": [
                    {"name": "v1", "served": true, "storage": true,
                     "schema": {"openAPIV3Schema": {"type": "object"}},
                     "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n"}},
                     "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]},
                    {"name": "v1beta1", "served": true, "storage": false},
                    {"name": "v1alpha1", "served": false, "storage": false},
                ],
            },
        })
    }

    #[test]
    fn a_definition_gives_its_served_versions() {
        let versions = ResourceType::from_crd(&widgets()).unwrap();
        assert_eq!(versions.iter().map(|r| r.version.as_str()).collect::<Vec<_>>(), ["v1", "v1beta1"]);
        let v1 = &versions[0];
        assert_eq!((v1.singular.as_str(), v1.list_kind.as_str()), ("widget", "WidgetList"));
        assert!(v1.allows(Verb::Watch) && v1.subresource("scale").is_some() && v1.custom);
        assert_eq!(v1.columns[0].json_path, ".spec.size");
        assert!(versions[1].subresources.is_empty());
        assert_eq!(versions[1].storage_version, "v1");
    }

    #[test]
    fn a_deprecated_version_has_a_warning() {
        let mut crd = widgets();
        crd["spec"]["versions"][1]["deprecated"] = json!(true);
        let warnings = |crd: &Value| -> Vec<Option<String>> {
            ResourceType::from_crd(crd).unwrap().into_iter().map(|resource| resource.deprecation).collect()
        };
        let text = "demo.example/v1beta1 Widget is deprecated; use demo.example/v1 Widget";
        assert_eq!(warnings(&crd), [None, Some(text.to_owned())]);
        crd["spec"]["versions"][0]["deprecated"] = json!(true);
        crd["spec"]["versions"][1]["deprecationWarning"] = json!("gone soon");
        let text = "demo.example/v1 Widget is deprecated";
        assert_eq!(warnings(&crd), [Some(text.to_owned()), Some("gone soon".to_owned())]);
    }

    #[test]
    fn crd_error_names_offending_field() {
        let mut crd = widgets();
        crd["spec"]["versions"][1]["storage"] = json!(true);
        assert_eq!(ResourceType::from_crd(&crd).unwrap_err().field, "spec.versions");
        let mut crd = widgets();
        crd["metadata"]["name"] = json!("widget");
        assert_eq!(ResourceType::from_crd(&crd).unwrap_err().field, "metadata.name");
        crd["spec"]["names"] = json!({});
        assert_eq!(ResourceType::from_crd(&crd).unwrap_err().field, "spec.names.plural");
    }
}
