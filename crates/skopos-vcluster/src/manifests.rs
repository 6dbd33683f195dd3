//! Rendered manifests of the chart.

use serde_json::{Value, json};
use skopos_fleet::vcluster::{Part, Workload, WorkloadKind};

use crate::error::Error;

/// The objects of a virtual cluster, as printed by `helm template`.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifests {
    objects: Vec<Value>,
}

impl Manifests {
    /// Parses documents of YAML or JSON.
    ///
    /// # Errors
    /// If one of them is not a Kubernetes object.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| {
            Error::Manifests(error.to_string().lines().next().unwrap_or_default().to_owned())
        })?;
        Self::new(documents)
    }

    /// Creates manifests from objects; lists are flattened.
    ///
    /// # Errors
    /// If one of them is not a Kubernetes object.
    pub fn new(documents: impl IntoIterator<Item = Value>) -> Result<Self, Error> {
        let mut objects = Vec::new();
        for document in documents.into_iter().filter(|document| !document.is_null()) {
            match document {
                Value::Object(mut list) if list.get("kind").is_some_and(is_list) => {
                    match list.remove("items") {
                        Some(Value::Array(items)) => objects.extend(items),
                        _ => return Err(Error::Manifests("a List has no items".into())),
                    }
                }
                other => objects.push(other),
            }
        }
        for object in &objects {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            for field in ["/apiVersion", "/kind", "/metadata/name"] {
                if text(field).is_empty() {
                    let which = format!("{} {:?}", text("/kind"), text("/metadata/name"));
                    return Err(Error::Manifests(format!("an object ({which}) has no {}", &field[1..])));
                }
            }
        }
        objects.sort_by_key(rank);
        Ok(Self { objects })
    }

    /// Returns the objects in the order in which they are applied: dependencies first, the control plane last. So a
    /// control plane proves that everything is there.
    pub fn objects(&self) -> &[Value] {
        &self.objects
    }

    /// Checks that the manifests belong to a virtual cluster of this name and namespace.
    ///
    /// # Errors
    /// If they belong to another, or to none.
    pub(crate) fn check(&self, name: &str, namespace: &str) -> Result<(), Error> {
        let parts = self.objects.iter().filter_map(workload);
        let control_planes: Vec<Workload> = parts.filter(|part| part.part == Part::ControlPlane).collect();
        let [control_plane] = control_planes.as_slice() else {
            let number = control_planes.len();
            return Err(Error::Manifests(format!(
                "they have {number} control planes (app=vcluster) instead of one"
            )));
        };
        let is_in = control_plane.namespace.as_str();
        match () {
            () if control_plane.release != name => Err(Error::Manifests(format!(
                "they are those of {:?}, not of {name:?}",
                control_plane.release
            ))),
            () if !is_in.is_empty() && is_in != namespace => {
                Err(Error::Manifests(format!("they are for namespace {is_in:?}, not for {namespace:?}")))
            }
            () => Ok(()),
        }
    }
}

fn is_list(kind: &Value) -> bool {
    kind == &json!("List")
}

fn workload(object: &Value) -> Option<Workload> {
    let kind = match object["kind"].as_str()? {
        "StatefulSet" => WorkloadKind::StatefulSet,
        "Deployment" => WorkloadKind::Deployment,
        _ => return None,
    };
    Workload::parse(kind, object.to_string().as_bytes()).ok().flatten()
}

fn rank(object: &Value) -> usize {
    const FIRST: [&str; 13] = [
        "Namespace",
        "CustomResourceDefinition",
        "PriorityClass",
        "ServiceAccount",
        "Secret",
        "ConfigMap",
        "PersistentVolumeClaim",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "Service",
        "NetworkPolicy",
    ];
    let kind = object["kind"].as_str().unwrap_or_default();
    let first = FIRST.iter().position(|known| *known == kind).unwrap_or(FIRST.len());
    match workload(object) {
        Some(Workload { part: Part::ControlPlane, .. }) => FIRST.len() + 2,
        Some(_) => FIRST.len() + 1,
        None => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: shop, labels: {app: vcluster, release: shop}}
---
# nothing
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: shop}}
- {apiVersion: apps/v1, kind: StatefulSet, metadata: {name: shop-etcd, labels: {app: vcluster-etcd, release: shop}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: vc-shop}
";

    #[test]
    fn control_plane_comes_last() {
        let manifests = Manifests::parse(TEXT).unwrap();
        let names: Vec<_> =
            manifests.objects().iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["vc-shop", "shop", "shop-etcd", "shop"]);
        assert_eq!(manifests.objects()[3]["kind"], "StatefulSet");
        manifests.check("shop", "team").unwrap();
        let other = manifests.check("other", "team").unwrap_err().to_string();
        assert_eq!(other, "the manifests cannot be used: they are those of \"shop\", not of \"other\"");
    }

    #[test]
    fn rejects_manifests_without_virtual_cluster() {
        for (text, why) in [
            ("a: [", ""),
            ("kind: List", "a List has no items"),
            ("17", "has no apiVersion"),
            ("{apiVersion: v1, kind: Pod, metadata: {}}", "has no metadata/name"),
        ] {
            let error = Manifests::parse(text).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains('\n'), "{error}");
        }
        let none = Manifests::parse("{apiVersion: v1, kind: Pod, metadata: {name: x}}").unwrap();
        assert!(none.check("x", "y").unwrap_err().to_string().contains("0 control planes"));
        let elsewhere = TEXT.replace("{name: shop, labels", "{name: shop, namespace: other, labels");
        assert!(Manifests::parse(&elsewhere).unwrap().check("shop", "team").is_err());
    }
}
