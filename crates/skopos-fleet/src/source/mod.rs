//! Where the clusters of a fleet come from.
//!
//! A source says again and again what it has now, all of it ([`Roster::publish`]), and the fleet does what differs from
//! before. What of it cannot be used is a [`SourceProblem`](crate::SourceProblem) of that one cluster.

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

/// Something that knows of clusters.
pub trait Source: Send + 'static {
    /// What people call it, such as `folder /etc/clusters`.
    fn name(&self) -> String;

    /// Whether it says what whoever runs this process has said: then its clusters may be asked about what is not their own, such as
    /// whose a token is ([`Fleet::trusted`](crate::Fleet::trusted)).
    fn is_trusted(&self) -> bool {
        false
    }

    /// Publishes what it has, and what it has after each change, until it is told to stop. It is dropped then if it does
    /// not end by itself.
    fn run(self: Box<Self>, roster: Roster, stop: CancellationToken) -> BoxFuture<'static, ()>;
}

/// Where a source says what it has.
#[derive(Clone)]
pub struct Roster {
    core: Weak<Core>,
    number: SourceNumber,
}

/// A cluster as a source lists it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// How it is reached, or why that cannot be said. A cluster that could be reached stays as it is while it cannot be said.
    pub spec: Result<ClusterSpec, SpecError>,
    /// Its labels.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Whether it is switched on.
    pub standing: Standing,
    /// Where the source has it from: a Secret, a context, a file. From elsewhere a name is another cluster's, unless it leads to the
    /// same server in the same way. `None`: the source is one place.
    pub origin: Option<Arc<str>>,
    /// The name that the source itself uses, such as the kubeconfig's context; `None`: the cluster's name.
    pub name: Option<Arc<str>>,
    /// The kubeconfig that [`Listed::name`] is a context of, if the cluster is one of the operator's own kubeconfigs.
    pub kubeconfig: Option<Arc<KubeconfigPaths>>,
}

/// Whether a cluster is switched on, as far as a source knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is, or nothing else is known.
    Up,
    /// It was switched on, and its server does not serve yet.
    Starting,
    /// It is not.
    Paused(Paused),
}

impl Roster {
    pub(crate) fn new(core: Weak<Core>, number: SourceNumber) -> Self {
        Self { core, number }
    }

    /// All that the source has now. What it had before and does not any more leaves the fleet.
    pub fn publish(&self, clusters: BTreeMap<ClusterId, Listed>) {
        if let Some(core) = self.core.upgrade() {
            core.publish(self.number, clusters);
        }
    }

    /// A cluster that this process names itself is reached so from now on. The source has no other.
    pub(crate) fn publish_own(&self, id: &ClusterId, listed: Listed) {
        if let Some(core) = self.core.upgrade() {
            core.publish_own(id, listed);
            core.publish(self.number, BTreeMap::new());
        }
    }

    /// Why the source cannot say at the moment what it has: what it said last counts. `None`: it can again.
    pub fn trouble(&self, trouble: Option<Arc<str>>) {
        if let Some(core) = self.core.upgrade() {
            core.trouble(self.number, trouble);
        }
    }
}

impl Listed {
    /// A cluster that is switched on, with the labels of its spec.
    pub fn up(spec: ClusterSpec) -> Self {
        let labels = spec.labels().clone();
        Self { spec: Ok(spec), labels, standing: Standing::Up, origin: None, name: None, kubeconfig: None }
    }

    /// Whether nothing follows from the difference.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let spec = match (&self.spec, &other.spec) {
            (Err(one), Err(another)) => one == another,
            _ => self.leads_where(other),
        };
        let called = (&self.name, &self.kubeconfig) == (&other.name, &other.kubeconfig);
        spec && called && self.labels == other.labels && self.standing == other.standing
    }

    /// Returns whether both are one context of the same kubeconfigs.
    pub(crate) fn is_same_context(&self, other: &Self) -> bool {
        self.kubeconfig.is_some() && (&self.kubeconfig, &self.name) == (&other.kubeconfig, &other.name)
    }

    /// Whether both are known to lead to one server, in the same way.
    pub(crate) fn leads_where(&self, other: &Self) -> bool {
        matches!((&self.spec, &other.spec), (Ok(one), Ok(another)) if one.connects_as(another))
    }
}
