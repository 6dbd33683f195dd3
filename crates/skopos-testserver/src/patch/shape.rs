//! Structure of lists and maps: keyed lists, sets, and fields that are replaced as a whole.
//!
//! For built-in kinds this is a small table, by the names of a field and its parent field. The names in the Kubernetes API are
//! regular enough that no whole schema is needed. For custom resources it comes from the `x-kubernetes-*` extensions of their
//! schema.

use serde_json::Value;
use skopos_serve::ResourceType;

/// Position in an object, to look up the structure of its value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PatchShape<'a> {
    /// In a built-in kind: the field that contains the value (or the list that contains the item), and its parent.
    Builtin { parent: &'a str, field: &'a str },
    /// In a custom resource: the schema of the value, if any.
    Schema { schema: Option<&'a Value>, root: bool },
}

/// Structure of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListShape<'a> {
    /// One value, replaced as a whole.
    Atomic,
    /// Set of scalars.
    Set,
    /// Objects identified by these fields.
    Keyed(Vec<&'a str>),
}

impl<'a> PatchShape<'a> {
    /// Returns the root of an object of a built-in kind.
    pub(crate) fn builtin() -> Self {
        Self::Builtin { parent: "", field: "" }
    }

    /// Returns the root of an object of `resource`.
    pub(crate) fn root(resource: &'a ResourceType) -> Self {
        if resource.custom {
            Self::Schema { schema: resource.schema.as_ref(), root: true }
        } else {
            Self::builtin()
        }
    }

    /// Returns the position of a field of the object at this position.
    pub(crate) fn field(self, name: &'a str) -> Self {
        match self {
            Self::Builtin { field, .. } => Self::Builtin { parent: field, field: name },
            Self::Schema { root: true, .. } if name == "metadata" => {
                Self::Builtin { parent: "", field: name }
            }
            Self::Schema { schema, .. } => {
                let property = schema.and_then(|s| s.get("properties")).and_then(|p| p.get(name));
                let additional = || schema.and_then(|s| s.get("additionalProperties"));
                Self::Schema { schema: property.or_else(additional), root: false }
            }
        }
    }

    /// Returns the position of the items of the list at this position.
    pub(crate) fn item(self) -> Self {
        match self {
            Self::Builtin { .. } => self,
            Self::Schema { schema, .. } => {
                Self::Schema { schema: schema.and_then(|s| s.get("items")), root: false }
            }
        }
    }

    /// Returns the structure of a list at this position for server-side apply.
    pub(crate) fn list(self) -> ListShape<'a> {
        match self {
            Self::Builtin { parent, field } => match row(parent, field) {
                Some((_, _, "")) => ListShape::Set,
                Some((_, _, keys)) => ListShape::Keyed(keys.split(' ').collect()),
                None => ListShape::Atomic,
            },
            Self::Schema { schema: Some(schema), .. } => match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => ListShape::Set,
                Some("map") => {
                    let keys = schema["x-kubernetes-list-map-keys"].as_array();
                    ListShape::Keyed(keys.into_iter().flatten().filter_map(Value::as_str).collect())
                }
                _ => ListShape::Atomic,
            },
            Self::Schema { schema: None, .. } => ListShape::Atomic,
        }
    }

    /// Returns the structure for strategic merge patch: as [`PatchShape::list`], with the first key only.
    pub(crate) fn strategic_list(self) -> ListShape<'a> {
        match self.list() {
            ListShape::Keyed(mut keys) => {
                keys.truncate(1);
                ListShape::Keyed(keys)
            }
            other => other,
        }
    }

    /// Returns whether an object at this position is atomic, thus replaced as a whole.
    pub(crate) fn is_atomic_map(self) -> bool {
        match self {
            Self::Builtin { parent, field } => {
                ATOMIC_MAPS.iter().any(|(p, f)| *f == field && (p.is_empty() || *p == parent))
            }
            Self::Schema { schema, .. } => {
                schema.is_some_and(|s| s["x-kubernetes-map-type"].as_str() == Some("atomic"))
            }
        }
    }

    /// Returns the API server's default for an omitted list key.
    pub(crate) fn default_key(key: &str) -> Option<Value> {
        (key == "protocol").then(|| Value::from("TCP"))
    }
}

fn row(parent: &str, field: &str) -> Option<(&'static str, &'static str, &'static str)> {
    LISTS.iter().find(|(p, f, _)| *p == parent && *f == field).copied()
}

/// Merged lists: `(parent field, field, keys)`. No keys: a set of scalars. The first key is the merge key of strategic merge
/// patch.
const LISTS: &[(&str, &str, &str)] = &[
    ("", "secrets", "name"),
    ("", "webhooks", "name"),
    ("metadata", "finalizers", ""),
    ("metadata", "ownerReferences", "uid"),
    ("spec", "containers", "name"),
    ("spec", "drivers", "name"),
    ("spec", "ephemeralContainers", "name"),
    ("spec", "hostAliases", "ip"),
    ("spec", "imagePullSecrets", "name"),
    ("spec", "initContainers", "name"),
    ("spec", "podCIDRs", ""),
    ("spec", "ports", "port protocol"),
    ("spec", "resourceClaims", "name"),
    ("spec", "schedulingGates", "name"),
    ("spec", "topologySpreadConstraints", "topologyKey whenUnsatisfiable"),
    ("spec", "volumes", "name"),
    ("containers", "env", "name"),
    ("containers", "ports", "containerPort protocol"),
    ("containers", "volumeDevices", "devicePath"),
    ("containers", "volumeMounts", "mountPath"),
    ("ephemeralContainers", "env", "name"),
    ("ephemeralContainers", "ports", "containerPort protocol"),
    ("ephemeralContainers", "volumeDevices", "devicePath"),
    ("ephemeralContainers", "volumeMounts", "mountPath"),
    ("initContainers", "env", "name"),
    ("initContainers", "ports", "containerPort protocol"),
    ("initContainers", "volumeDevices", "devicePath"),
    ("initContainers", "volumeMounts", "mountPath"),
    ("status", "addresses", "type"),
    ("status", "conditions", "type"),
    ("status", "podIPs", "ip"),
];

/// Atomic objects of server-side apply: `(parent field or any, field)`.
const ATOMIC_MAPS: &[(&str, &str)] = &[
    ("", "configMapKeyRef"),
    ("", "configMapRef"),
    ("", "fieldRef"),
    ("", "labelSelector"),
    ("", "namespaceSelector"),
    ("", "nodeSelector"),
    ("", "ownerReferences"),
    ("", "podSelector"),
    ("", "resourceFieldRef"),
    ("", "roleRef"),
    ("", "secretKeyRef"),
    ("", "secretRef"),
    ("spec", "selector"),
];
