//! The sources of sinks, as the file has them.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::desired::{ServiceSource, VirtualServiceSource};
use crate::event::{ChangeKind, EventSource};

/// Objects for a sink. It has exactly one of `services`, `endpoints`, `pods` and `objects`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SourceConfig {
    /// Services that say their names in an annotation.
    pub services: Option<ServicesConfig>,
    /// The endpoints of Services.
    pub endpoints: Option<EndpointsConfig>,
    /// For inventories: pods.
    pub pods: Option<PodsConfig>,
    /// For webhooks: objects of any resource.
    pub objects: Option<ObjectsConfig>,
}

/// Services that say their names in an annotation.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServicesConfig {
    /// The annotation. Default `external-dns.alpha.kubernetes.io/hostname`, as external-dns has it; for IPVS `skopos.dev/vip`, with the virtual addresses.
    pub annotation: Option<String>,
    /// For DNS: types, `LoadBalancer`, `ClusterIP`, `NodePort`, `ExternalName`. Default: all.
    #[serde(default)]
    pub types: Vec<String>,
    /// Labels that they have to have; `*` is any value.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// The endpoints of Services.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointsConfig {
    /// Only of headless Services, or only of others. Default: all.
    pub headless: Option<bool>,
    /// Labels of the Service; `*` is any value.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// For DNS: the name within the zone, with `{service}` and `{namespace}`. Default `{service}.{namespace}`.
    pub name: Option<String>,
}

/// Pods, for inventories.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodsConfig {
    /// Namespaces. Default: all.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// Labels that they have to have; `*` is any value.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Only pods that are ready have an item. Default true.
    pub ready: Option<bool>,
}

/// Objects of a resource, for webhooks.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectsConfig {
    /// The resource as paths of the API have it: `apps/v1/deployments`, or `v1/pods`.
    pub kind: String,
    /// Namespaces. Default: all, and objects without a namespace.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// Labels that they have to have; `*` is any value.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The kinds of changes that are told. Default: all.
    #[serde(default)]
    pub changes: BTreeSet<ChangeKind>,
    /// The fields that are told, and whose changes are, such as `spec.replicas`. Default: the whole object without managedFields.
    #[serde(default)]
    pub fields: Vec<String>,
}

/// The annotation of external-dns, so that existing Services work.
const HOSTNAME: &str = "external-dns.alpha.kubernetes.io/hostname";
pub(super) const SERVICE_TYPES: [&str; 4] = ["LoadBalancer", "ClusterIP", "NodePort", "ExternalName"];

/// The annotation with virtual addresses.
const VIRTUAL_ADDRESS: &str = "skopos.dev/vip";

impl SourceConfig {
    /// Returns the number of kinds that are named.
    pub(super) fn kinds(&self) -> usize {
        let kinds =
            [self.services.is_some(), self.endpoints.is_some(), self.pods.is_some(), self.objects.is_some()];
        kinds.into_iter().filter(|is_there| *is_there).count()
    }
}

impl ServicesConfig {
    pub(super) fn virtual_source(&self) -> Result<VirtualServiceSource, String> {
        if !self.types.is_empty() {
            return Err(
                "services of IPVS have no types: their endpoints are balanced, whatever they are".into()
            );
        }
        let annotation = self.annotation.clone().unwrap_or_else(|| VIRTUAL_ADDRESS.into());
        Ok(VirtualServiceSource { annotation, labels: self.labels.clone() })
    }

    pub(super) fn source(&self) -> ServiceSource {
        ServiceSource {
            annotation: self.annotation.clone().unwrap_or_else(|| HOSTNAME.into()),
            types: self.types.clone(),
            labels: self.labels.clone(),
        }
    }
}

impl ObjectsConfig {
    pub(super) fn source(&self) -> Result<EventSource, String> {
        let mut source = EventSource::all(self.kind.parse()?);
        source.namespaces.clone_from(&self.namespaces);
        source.labels.clone_from(&self.labels);
        source.changes.clone_from(&self.changes);
        source.fields = self.fields.iter().map(|field| field.parse()).collect::<Result<_, _>>()?;
        Ok(source)
    }
}
