//! Identification of objects: the resource, and the namespaces.

use std::fmt;

use kube::core::ApiResource;

/// A resource as the server's paths name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceId {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version, for example `v1`.
    pub version: String,
    /// The plural name, for example `pods`.
    pub plural: String,
    /// The kind, for example `Pod`.
    pub kind: String,
}

impl ResourceId {
    pub(crate) fn from_type<K: kube::Resource>(dynamic: &K::DynamicType) -> Self {
        Self {
            group: K::group(dynamic).into_owned(),
            version: K::version(dynamic).into_owned(),
            plural: K::plural(dynamic).into_owned(),
            kind: K::kind(dynamic).into_owned(),
        }
    }
}

impl From<&ApiResource> for ResourceId {
    fn from(resource: &ApiResource) -> Self {
        Self {
            group: resource.group.clone(),
            version: resource.version.clone(),
            plural: resource.plural.clone(),
            kind: resource.kind.clone(),
        }
    }
}

impl fmt::Display for ResourceId {
    /// Formats the resource like kubectl: `pods`, `deployments.apps`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.as_str() {
            "" => write!(f, "{}", self.plural),
            group => write!(f, "{}.{group}", self.plural),
        }
    }
}

/// The namespaces that an informer covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// All namespaces, and cluster-scoped objects.
    All,
    /// These namespaces, sorted and without duplicates.
    Namespaces(Vec<String>),
}
