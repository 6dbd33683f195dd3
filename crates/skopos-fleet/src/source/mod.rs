//! Sources of clusters.
//!
//! A source repeatedly publishes its complete list of clusters ([`Roster::publish`]), and the fleet applies the
//! differences. An unusable entry is a [`SourceProblem`](crate::SourceProblem) of that one cluster.

mod file;
mod files;
mod folder;
mod host;
mod secret;
mod vcluster;
mod watched;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

pub use self::file::KubeconfigFile;
pub use self::folder::KubeconfigFolder;
pub use self::secret::{SecretFlavour, SecretSource};
pub use self::vcluster::{DialFn, VclusterDial, VclusterSource};
use crate::cluster::Paused;
use crate::fleet::{Core, SourceNumber};
use crate::id::ClusterId;
use crate::kubeconfig::KubeconfigPaths;
use crate::spec::{ClusterSpec, SpecError};

/// A source of clusters.
pub trait Source: Send + 'static {
    /// Returns the name for users, such as `folder /etc/clusters`.
    fn name(&self) -> String;

    /// Returns whether the operator configured the clusters of this source. Clusters of a trusted source may review
    /// tokens of other clusters ([`Fleet::trusted`](crate::Fleet::trusted)).
    fn is_trusted(&self) -> bool {
        false
    }

    /// Publishes the list of clusters, and again after each change, until `stop` is cancelled. It is dropped then if it
    /// does not return.
    fn run(self: Box<Self>, roster: Roster, stop: CancellationToken) -> BoxFuture<'static, ()>;
}

/// The handle by which a source publishes its clusters.
#[derive(Clone)]
pub struct Roster {
    core: Weak<Core>,
    number: SourceNumber,
}

/// A cluster as listed by a source.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The connection settings, or the reason why they are unusable. A reachable cluster stays as it is while they are
    /// unusable.
    pub spec: Result<ClusterSpec, SpecError>,
    /// The labels.
    pub labels: Arc<BTreeMap<String, String>>,
    /// The power state of the cluster.
    pub standing: Standing,
    /// The place within the source: a Secret, a context, a file. The same name from another place is another cluster,
    /// unless it leads to the same server in the same way. `None`: the whole source is one place.
    pub origin: Option<Arc<str>>,
    /// The name that the source itself uses, such as the kubeconfig's context; `None`: the cluster's name.
    pub name: Option<Arc<str>>,
    /// The kubeconfig that [`Listed::name`] is a context of, if the cluster is one of the operator's own kubeconfigs.
    pub kubeconfig: Option<Arc<KubeconfigPaths>>,
}

/// Power state of a cluster, as far as a source knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The cluster is switched on, or nothing else is known.
    Up,
    /// The cluster was switched on, but its server does not serve yet.
    Starting,
    /// The cluster is switched off.
    Paused(Paused),
}

impl Roster {
    pub(crate) fn new(core: Weak<Core>, number: SourceNumber) -> Self {
        Self { core, number }
    }

    /// Publishes the complete list of clusters. Clusters that are no longer listed leave the fleet.
    pub fn publish(&self, clusters: BTreeMap<ClusterId, Listed>) {
        if let Some(core) = self.core.upgrade() {
            core.publish(self.number, clusters);
        }
    }

    /// Publishes the settings of a cluster whose name this process itself chose. The source has no other cluster.
    pub(crate) fn publish_own(&self, id: &ClusterId, listed: Listed) {
        if let Some(core) = self.core.upgrade() {
            core.publish_own(id, listed);
            core.publish(self.number, BTreeMap::new());
        }
    }

    /// Reports why the source cannot list its clusters now: its last list stays in effect. `None`: it can again.
    pub fn trouble(&self, trouble: Option<Arc<str>>) {
        if let Some(core) = self.core.upgrade() {
            core.trouble(self.number, trouble);
        }
    }
}

impl Listed {
    /// Creates an entry of a cluster that is switched on, with the labels of its spec.
    pub fn up(spec: ClusterSpec) -> Self {
        let labels = spec.labels().clone();
        Self { spec: Ok(spec), labels, standing: Standing::Up, origin: None, name: None, kubeconfig: None }
    }

    /// Returns whether both entries are equivalent.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let spec = match (&self.spec, &other.spec) {
            (Err(one), Err(another)) => one == another,
            _ => self.leads_where(other),
        };
        let called = (&self.name, &self.kubeconfig) == (&other.name, &other.kubeconfig);
        spec && called && self.labels == other.labels && self.standing == other.standing
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
