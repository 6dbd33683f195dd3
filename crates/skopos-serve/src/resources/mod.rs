//! Served resources: the built-in ones, and those that CustomResourceDefinitions add at run time.
//!
//! A [`ResourceType`] is one served version of one resource (`apps/v1 deployments`). A [`Registry`] contains all of them and
//! looks them up by path or kind.

mod builtin;
mod crd;
mod registry;

use std::fmt;

use serde_json::Value;

pub use self::crd::InvalidCrd;
pub use self::registry::{Registry, UnknownResource};
use crate::table::ColumnCache;

/// One served version of one resource: the endpoint `/apis/GROUP/VERSION/PLURAL`.
///
/// [`ResourceType::new`] creates a namespaced resource with all verbs and a status subresource. The fields are public so that the
/// caller can change the rest.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ResourceType {
    /// API group; empty for the core group.
    pub group: String,
    /// Version, for example `v1`.
    pub version: String,
    /// Name in paths, for example `deployments`.
    pub plural: String,
    /// Singular name that kubectl accepts, for example `deployment`.
    pub singular: String,
    /// Kind of the objects, for example `Deployment`.
    pub kind: String,
    /// Kind of the lists, for example `DeploymentList`.
    pub list_kind: String,
    /// True if the resource is namespaced.
    pub namespaced: bool,
    /// Abbreviations that kubectl accepts, for example `deploy`.
    pub short_names: Vec<String>,
    /// Supported verbs.
    pub verbs: Vec<Verb>,
    /// Supported subresources.
    pub subresources: Vec<Subresource>,
    /// Categories of the resource, for example `all` as in `kubectl get all`.
    pub categories: Vec<String>,
    /// Printer columns of a CustomResourceDefinition. Built-in kinds have theirs in code and none here.
    pub columns: Vec<PrinterColumn>,
    /// OpenAPI schema of a CustomResourceDefinition.
    pub schema: Option<Value>,
    /// Version in which objects are stored. They are served in any version with only `apiVersion` changed, as with the conversion
    /// strategy `None` of a CustomResourceDefinition.
    pub storage_version: String,
    /// True if a CustomResourceDefinition defines the resource.
    pub custom: bool,
    /// Warning to clients of this version, if its CustomResourceDefinition deprecates it.
    pub deprecation: Option<String>,
    pub(crate) column_cache: ColumnCache,
}

/// Verb of a resource, as named in discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// POST to the collection.
    Create,
    /// DELETE of one object.
    Delete,
    /// DELETE of the collection.
    DeleteCollection,
    /// GET of one object.
    Get,
    /// GET of the collection.
    List,
    /// PATCH of one object.
    Patch,
    /// PUT of one object.
    Update,
    /// GET of the collection as a stream.
    Watch,
}

/// Subresource of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subresource {
    /// `status`: reads the object, writes only its status.
    Status,
    /// `scale`: an `autoscaling/v1` Scale that reads and writes the replica count.
    Scale(ScalePaths),
    /// `eviction` of pods: deletes the pod.
    Eviction,
    /// `binding` of pods: sets the node.
    Binding,
    /// `log` of pods: a short fixed text.
    Log,
    /// `token` of service accounts.
    Token,
}

/// Paths of a scale subresource's fields, as simple JSON paths (`.spec.replicas`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// Path of the desired number of replicas.
    pub spec_replicas: String,
    /// Path of the observed number of replicas.
    pub status_replicas: String,
    /// Path of the label selector: a string, or an object in the form of `LabelSelector`.
    pub selector: Option<String>,
}

/// Column of a table, as in `additionalPrinterColumns` of a CustomResourceDefinition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PrinterColumn {
    /// Heading.
    pub name: String,
    /// Type: `string`, `integer`, `number`, `boolean` or `date`.
    pub r#type: String,
    /// Format of the type, for example `int32`; may be empty.
    pub format: String,
    /// Description; may be empty.
    pub description: String,
    /// Priority: 0 is always shown; kubectl shows higher ones with `-o wide` only.
    pub priority: i64,
    /// Path of the value, as a JSONPath such as `.spec.size`.
    pub json_path: String,
}

impl ResourceType {
    /// Creates a namespaced resource with all verbs, a status subresource, and names derived from its kind.
    ///
    /// `group` is empty for the core group.
    pub fn new(group: &str, version: &str, plural: &str, kind: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            kind: kind.to_owned(),
            list_kind: format!("{kind}List"),
            namespaced: true,
            short_names: Vec::new(),
            verbs: Verb::ALL.to_vec(),
            subresources: vec![Subresource::Status],
            categories: Vec::new(),
            columns: Vec::new(),
            schema: None,
            storage_version: version.to_owned(),
            custom: false,
            deprecation: None,
            column_cache: ColumnCache::default(),
        }
    }

    /// Makes the resource cluster-scoped.
    #[must_use]
    pub fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    /// Returns `GROUP/VERSION`, or `VERSION` for the core group, as in an object's `apiVersion`.
    pub fn api_version(&self) -> String {
        group_version(&self.group, &self.version)
    }

    /// Returns `PLURAL.GROUP`, or `PLURAL` for the core group: the resource's name in the API server's messages, equal for all
    /// versions.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Returns `KIND.GROUP`, or `KIND` for the core group: the kind's name in validation messages.
    pub fn group_kind(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// Returns whether the resource supports `verb`.
    pub fn allows(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }

    /// Returns the subresource of that name, if it exists.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name() == name)
    }

    /// Returns the path of the collection, in a namespace or (with `None`) in the whole cluster.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        match namespace {
            Some(namespace) => format!("{root}/{}/namespaces/{namespace}/{}", self.version, self.plural),
            None => format!("{root}/{}/{}", self.version, self.plural),
        }
    }
}

impl fmt::Display for ResourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.api_version(), self.plural)
    }
}

impl Verb {
    /// All verbs, in discovery's order.
    pub const ALL: [Self; 8] = [
        Self::Create,
        Self::Delete,
        Self::DeleteCollection,
        Self::Get,
        Self::List,
        Self::Patch,
        Self::Update,
        Self::Watch,
    ];

    /// Returns the verb's name in discovery documents and in authorization.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Get => "get",
            Self::List => "list",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Watch => "watch",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Subresource {
    /// Returns the last segment of the path.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Scale(_) => "scale",
            Self::Eviction => "eviction",
            Self::Binding => "binding",
            Self::Log => "log",
            Self::Token => "token",
        }
    }

    /// Returns the supported verbs.
    pub fn verbs(&self) -> &'static [Verb] {
        match self {
            Self::Status | Self::Scale(_) => &[Verb::Get, Verb::Patch, Verb::Update],
            Self::Eviction | Self::Binding | Self::Token => &[Verb::Create],
            Self::Log => &[Verb::Get],
        }
    }

    /// Returns the scale subresource of the workloads of `apps/v1`.
    pub fn workload_scale() -> Self {
        Self::Scale(ScalePaths {
            spec_replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            selector: Some(".spec.selector".to_owned()),
        })
    }
}

/// Returns `GROUP/VERSION`, or `VERSION` for the core group.
pub fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Splits an `apiVersion` into group (empty for core) and version.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_follow_api_group() {
        let pods = ResourceType::new("", "v1", "pods", "Pod");
        assert_eq!(pods.api_version(), "v1");
        assert_eq!(pods.group_resource(), "pods");
        assert_eq!(pods.path(Some("a")), "/api/v1/namespaces/a/pods");
        let deployments = ResourceType::new("apps", "v1", "deployments", "Deployment");
        assert_eq!(deployments.group_resource(), "deployments.apps");
        assert_eq!(deployments.group_kind(), "Deployment.apps");
        assert_eq!(deployments.path(None), "/apis/apps/v1/deployments");
        assert_eq!(deployments.to_string(), "apps/v1 deployments");
    }
}
