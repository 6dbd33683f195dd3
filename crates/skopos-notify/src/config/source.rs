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
    /// Services with their names in an annotation.
    pub services: Option<ServicesConfig>,
    /// The endpoints of Services.
    pub endpoints: Option<EndpointsConfig>,
    /// For inventories: pods.
    pub pods: Option<PodsConfig>,
    /// For webhooks: objects of any resource.
    pub objects: Option<ObjectsConfig>,
}

/// Services with their names in an annotation.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServicesConfig {
    /// The annotation. Its value is a name, or for IPVS virtual addresses; several are separated by commas. Default `external-dns.alpha.kubernetes.io/hostname`, as in
    /// external-dns, and `skopos.dev/vip` for IPVS.
    pub annotation: Option<String>,
    /// For DNS: types of Services: `LoadBalancer`, `ClusterIP`, `NodePort` and `ExternalName`. Default: all.
    #[serde(default)]
    pub types: Vec<String>,
    /// Required labels; `*` is any value. Default: none.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// The endpoints of Services.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointsConfig {
    /// `true`: only of headless Services. `false`: only of others. Default: both.
    pub headless: Option<bool>,
    /// Required labels of the Service; `*` is any value. Default: none.
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
    /// Required labels; `*` is any value. Default: none.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Only ready pods have an item; otherwise all pods with an address. Default true.
    pub ready: Option<bool>,
}

/// Objects of a resource, for webhooks.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectsConfig {
    /// The resource, as in API paths: `apps/v1/deployments`, or `v1/pods`.
    pub kind: String,
    /// Namespaces. Default: all, and objects without a namespace.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// Required labels; `*` is any value. Default: none.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Kinds of changes to send. Default: all.
    #[serde(default)]
    pub changes: BTreeSet<ChangeKind>,
    /// Fields to send, such as `spec.replicas`. Changes of other fields are not sent. Default: the whole object without `managedFields`.
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
