use serde::{Deserialize, Serialize};
use skopos_wire::ResourceVersion;

use super::clock::WallTime;
use super::error::{CheckpointError, IdentityMismatch};
use crate::informer::resource::{ResourceId, Scope};

/// The header of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) identity: ContentIdentity,
    pub(super) written: WallTime,
    /// The only part, or one for each namespace of a set, in its order.
    pub(super) parts: Vec<HeaderPart>,
}

/// The position of a part of the content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeaderPart {
    pub(super) namespace: Option<String>,
    pub(super) resource_version: ResourceVersion,
    pub(super) epoch: u64,
    /// The last moment at which the part was proven to hold all that the server had.
    pub(super) proven: Option<WallTime>,
}

/// The identity of content. Only content with the same identity may replace it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContentIdentity {
    pub(crate) cluster: Option<String>,
    pub(crate) resource: ResourceId,
    pub(crate) metadata_only: bool,
    pub(crate) scope: Scope,
    pub(crate) labels: String,
    pub(crate) fields: String,
    pub(crate) transform: String,
}

impl ContentIdentity {
    /// Refuses content with another identity.
    pub(crate) fn expect(&self, found: &ContentIdentity) -> Result<(), IdentityMismatch> {
        let named = |cluster: &Option<String>| cluster.clone().unwrap_or_else(|| "no name".to_owned());
        let api = |resource: &ResourceId| format!("{resource} {} {}", resource.version, resource.kind);
        let form = |metadata_only: bool| if metadata_only { "metadata" } else { "whole objects" }.to_owned();
        let scope = |scope: &Scope| format!("{scope:?}");
        let pairs = [
            ("cluster", named(&self.cluster), named(&found.cluster)),
            ("kind of object", api(&self.resource), api(&found.resource)),
            ("form", form(self.metadata_only), form(found.metadata_only)),
            ("scope", scope(&self.scope), scope(&found.scope)),
            ("label selector", self.labels.clone(), found.labels.clone()),
            ("field selector", self.fields.clone(), found.fields.clone()),
            ("transform", self.transform.clone(), found.transform.clone()),
        ];
        match pairs.into_iter().find(|(_, expected, found)| expected != found) {
            Some((what, expected, found)) => Err(IdentityMismatch { what, expected, found }),
            None => Ok(()),
        }
    }
}

impl Header {
    pub(super) fn to_json(&self) -> Vec<u8> {
        let ContentIdentity { cluster, resource, metadata_only, scope, labels, fields, transform } =
            &self.identity;
        let part = |part: &HeaderPart| PartForm {
            namespace: part.namespace.clone(),
            resource_version: part.resource_version.to_string(),
            epoch: part.epoch,
            proven: part.proven.clone(),
        };
        let form = HeaderForm {
            cluster: cluster.clone(),
            group: resource.group.clone(),
            version: resource.version.clone(),
            plural: resource.plural.clone(),
            kind: resource.kind.clone(),
            metadata_only: *metadata_only,
            namespaces: match scope {
                Scope::All => None,
                Scope::Namespaces(namespaces) => Some(namespaces.clone()),
            },
            labels: labels.clone(),
            fields: fields.clone(),
            transform: transform.clone(),
            written: self.written.clone(),
            parts: self.parts.iter().map(part).collect(),
        };
        serde_json::to_vec(&form).expect("texts and numbers always become JSON")
    }

    pub(super) fn from_json(json: &[u8]) -> Result<Self, CheckpointError> {
        let malformed = |what: &dyn ToString| CheckpointError::Malformed { what: what.to_string() };
        let form: HeaderForm = serde_json::from_slice(json).map_err(|error| malformed(&error))?;
        let scope = form.namespaces.map_or(Scope::All, Scope::Namespaces);
        let part = |part: PartForm| {
            Ok(HeaderPart {
                resource_version: part.resource_version.parse().map_err(|error| malformed(&error))?,
                namespace: part.namespace,
                epoch: part.epoch,
                proven: part.proven,
            })
        };
        let parts = form.parts.into_iter().map(part).collect::<Result<Vec<HeaderPart>, CheckpointError>>()?;
        let namespaces = parts.iter().map(|part| part.namespace.as_ref());
        let fits = match &scope {
            Scope::All => namespaces.eq([None]),
            Scope::Namespaces(expected) => {
                namespaces.eq(expected.iter().map(Some)) && expected.is_sorted_by(|a, b| a < b)
            }
        };
        if !fits {
            return Err(malformed(&"its parts are not those of its namespaces"));
        }
        let identity = ContentIdentity {
            cluster: form.cluster,
            resource: ResourceId {
                group: form.group,
                version: form.version,
                plural: form.plural,
                kind: form.kind,
            },
            metadata_only: form.metadata_only,
            scope,
            labels: form.labels,
            fields: form.fields,
            transform: form.transform,
        };
        Ok(Self { identity, written: form.written, parts })
    }
}

/// The header as it is serialized. A change of its form needs a new version of the file format.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderForm {
    cluster: Option<String>,
    group: String,
    version: String,
    plural: String,
    kind: String,
    metadata_only: bool,
    namespaces: Option<Vec<String>>,
    labels: String,
    fields: String,
    transform: String,
    written: WallTime,
    parts: Vec<PartForm>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PartForm {
    namespace: Option<String>,
    resource_version: String,
    epoch: u64,
    proven: Option<WallTime>,
}
