//! What a cluster serves: built-in kinds as everybody knows them, others by their CustomResourceDefinitions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use skopos::{ObjectKey, ResourceId};
use skopos_fleet::{Cluster, DocumentRequest};
use skopos_serve::{Registry, ResourceType, Verb};
use skopos_wire::Status;

use crate::clusters::status_of;

/// What a cluster says that it serves.
#[derive(Debug)]
pub struct Catalog {
    types: Vec<Arc<ResourceType>>,
    by_name: BTreeMap<(String, String, String), usize>,
    age: Duration,
}

/// What `cluster` serves, within `within`: from its discovery documents, which are there while it is down, too. Columns of
/// custom kinds are not in them: see [`resolve`].
///
/// # Errors
/// When the documents cannot be had.
pub async fn of(cluster: &Cluster, within: Duration) -> Result<Arc<Catalog>, Status> {
    let mut catalog = Catalog { types: Vec::new(), by_name: BTreeMap::new(), age: Duration::ZERO };
    for request in DocumentRequest::discovery() {
        let document = cluster.document(&request, within).await.map_err(|error| status_of(&error))?;
        let listed: Value = serde_json::from_slice(&document.body).map_err(|error| {
            Status::internal_error(format!("the discovery document of {}: {error}", cluster.id()))
        })?;
        catalog.age = catalog.age.max(document.age());
        catalog.add(&listed);
    }
    Ok(Arc::new(catalog))
}

/// One resource of `cluster`, with its columns; `None` if it is neither built in nor defined in the cluster, or its
/// definition cannot be read within `within`.
pub async fn resolve(
    cluster: &Cluster,
    group: &str,
    version: &str,
    plural: &str,
    within: Duration,
) -> Option<Arc<ResourceType>> {
    if let Some(known) = BUILTIN.with(|builtin| builtin.resolve(group, version, plural)) {
        return Some(known);
    }
    if !group.contains('.') {
        return None;
    }
    let definitions = cluster.kind(&definitions(), within).await.ok()?;
    let key = ObjectKey::checked(None, &format!("{plural}.{group}")).ok()?;
    let definition = definitions.informer().snapshot().get(&key)?;
    let definition: Value = serde_json::from_slice(definition.raw().bytes()).ok()?;
    let versions = ResourceType::from_crd(&definition).ok()?;
    versions.into_iter().find(|resource| resource.version == version).map(Arc::new)
}

std::thread_local! {
    /// A copy for each thread: reading it locks nothing that others wait for.
    static BUILTIN: Registry = Registry::builtin();
}

fn definitions() -> ResourceId {
    ResourceId {
        group: "apiextensions.k8s.io".into(),
        version: "v1".into(),
        plural: "customresourcedefinitions".into(),
        kind: "CustomResourceDefinition".into(),
    }
}

// === impl Catalog ===

impl Catalog {
    /// All of them.
    #[must_use]
    pub fn types(&self) -> &[Arc<ResourceType>] {
        &self.types
    }

    /// The one with these names.
    #[must_use]
    pub fn resolve(&self, group: &str, version: &str, plural: &str) -> Option<Arc<ResourceType>> {
        let at = self.by_name.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))?;
        self.types.get(*at).cloned()
    }

    /// How old it is, at most.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.age
    }

    fn add(&mut self, listed: &Value) {
        for group in members(&listed["items"]) {
            let name = text(&group["metadata"], "name");
            for version in members(&group["versions"]) {
                for resource in members(&version["resources"]) {
                    self.add_one(&read(&name, &text(version, "version"), resource));
                }
            }
        }
    }

    fn add_one(&mut self, resource: &ResourceType) {
        let builtin =
            BUILTIN.with(|builtin| builtin.resolve(&resource.group, &resource.version, &resource.plural));
        let name = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
        self.by_name.insert(name, self.types.len());
        self.types.push(builtin.unwrap_or_else(|| Arc::new(resource.clone())));
    }
}

/// A resource as discovery describes it.
fn read(group: &str, version: &str, described: &Value) -> ResourceType {
    let kind = text(&described["responseKind"], "kind");
    let mut resource = ResourceType::new(group, version, &text(described, "resource"), &kind);
    resource.singular = text(described, "singularResource");
    resource.namespaced = described["scope"] == "Namespaced";
    resource.short_names = texts(&described["shortNames"]);
    resource.categories = texts(&described["categories"]);
    let verbs = texts(&described["verbs"]);
    resource.verbs = Verb::ALL.into_iter().filter(|verb| verbs.iter().any(|v| v == verb.as_str())).collect();
    resource.subresources = Vec::new();
    resource.custom = true;
    resource
}

fn members(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    members(value).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::Lab;

    const LIMIT: Duration = Duration::from_secs(5);

    fn crd() -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "boats.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"plural": "boats", "singular": "boat", "kind": "Boat"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                    "additionalPrinterColumns": [{"name": "Sails", "type": "integer", "jsonPath": ".spec.sails"}],
                }],
            },
        })
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_what_discovery_says_also_while_the_cluster_is_down() {
        let lab = Lab::trusting(&["a"]);
        lab.member("a").create(crd()).unwrap();
        let cluster = lab.services.fleet.cluster("a").unwrap();
        let catalog = of(&cluster, LIMIT).await.unwrap();
        assert_eq!(catalog.resolve("apps", "v1", "deployments").unwrap().kind, "Deployment");
        let boats = catalog.resolve("example.com", "v1", "boats").unwrap();
        assert!(boats.custom && boats.namespaced && boats.allows(Verb::Watch));
        assert!(catalog.resolve("example.com", "v2", "boats").is_none());
        assert_eq!(
            resolve(&cluster, "example.com", "v1", "boats", LIMIT).await.unwrap().columns[0].name,
            "Sails"
        );

        lab.member("a").pause().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let later = of(&cluster, LIMIT).await.unwrap();
        assert_eq!(later.types().len(), catalog.types().len());
        assert!(later.age() >= Duration::from_secs(60));
        assert!(resolve(&cluster, "example.com", "v1", "boats", LIMIT).await.is_some());
        assert!(resolve(&cluster, "example.com", "v1", "cars", LIMIT).await.is_none());
    }
}
