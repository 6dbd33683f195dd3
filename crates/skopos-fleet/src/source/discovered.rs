//! Entries of sources: the clusters that they list.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::kubeconfig::KubeconfigPaths;
use crate::pause::Paused;
use crate::spec::ClusterSpec;
use crate::spec_error::SpecError;

/// A cluster as listed by a source.
#[derive(Clone, Debug)]
pub struct DiscoveredCluster {
    /// The connection settings, or the reason why they are unusable. A reachable cluster stays as it is while they are
    /// unusable.
    pub spec: Result<ClusterSpec, SpecError>,
    /// The labels.
    pub labels: Arc<BTreeMap<String, String>>,
    /// The power state of the cluster.
    pub power_state: PowerState,
    /// The place within the source: a Secret, a context, a file. The same name from another place is another cluster,
    /// unless it leads to the same server in the same way. `None`: the whole source is one place.
    pub origin: Option<Arc<str>>,
    /// The name that the source itself uses, such as the kubeconfig's context; `None`: the cluster's name.
    pub name: Option<Arc<str>>,
    /// The kubeconfig that [`DiscoveredCluster::name`] is a context of, if the cluster is one of the operator's own kubeconfigs.
    pub kubeconfig: Option<Arc<KubeconfigPaths>>,
}

/// Power state of a cluster, as far as a source knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PowerState {
    /// The cluster is switched on, or nothing else is known.
    Up,
    /// The cluster was switched on, but its server does not serve yet.
    Starting,
    /// The cluster is switched off.
    Paused(Paused),
}

impl DiscoveredCluster {
    /// Creates an entry of a cluster that is switched on, with the labels of its spec.
    pub fn up(spec: ClusterSpec) -> Self {
        let labels = spec.labels().clone();
        Self {
            spec: Ok(spec),
            labels,
            power_state: PowerState::Up,
            origin: None,
            name: None,
            kubeconfig: None,
        }
    }

    /// Returns whether both entries are equivalent.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let spec = match (&self.spec, &other.spec) {
            (Err(one), Err(another)) => one == another,
            _ => self.leads_where(other),
        };
        let called = (&self.name, &self.kubeconfig) == (&other.name, &other.kubeconfig);
        spec && called && self.labels == other.labels && self.power_state == other.power_state
    }

    /// Returns whether both are the same context of the same kubeconfigs.
    pub(crate) fn is_same_context(&self, other: &Self) -> bool {
        self.kubeconfig.is_some() && (&self.kubeconfig, &self.name) == (&other.kubeconfig, &other.name)
    }

    /// Returns whether both are known to lead to the same server in the same way.
    pub(crate) fn leads_where(&self, other: &Self) -> bool {
        matches!((&self.spec, &other.spec), (Ok(one), Ok(another)) if one.connects_as(another))
    }
}
