//! Publication of the clusters of a source.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use super::discovered::DiscoveredCluster;
use crate::id::ClusterId;

/// The handle by which a source publishes its clusters.
#[derive(Clone)]
pub struct ClusterSink {
    fleet: Weak<dyn Publish>,
    number: SourceNumber,
}

/// Number of a source in one fleet. Lower numbers choose names first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourceNumber(pub(crate) usize);

/// Recipient of what sources publish: the fleet.
pub(crate) trait Publish: Send + Sync {
    /// Applies the complete list of clusters of a source.
    fn publish(self: Arc<Self>, number: SourceNumber, listed: BTreeMap<ClusterId, DiscoveredCluster>);

    /// Applies the settings of a cluster whose name this process itself chose.
    fn publish_own(self: Arc<Self>, id: &ClusterId, listed: DiscoveredCluster);

    /// Records why a source cannot list its clusters. `None`: it can again.
    fn trouble(self: Arc<Self>, number: SourceNumber, trouble: Option<Arc<str>>);
}

impl ClusterSink {
    pub(crate) fn new(fleet: Weak<dyn Publish>, number: SourceNumber) -> Self {
        Self { fleet, number }
    }

    /// Publishes the complete list of clusters. Clusters that are no longer listed leave the fleet.
    pub fn publish(&self, clusters: BTreeMap<ClusterId, DiscoveredCluster>) {
        if let Some(fleet) = self.fleet.upgrade() {
            fleet.publish(self.number, clusters);
        }
    }

    /// Publishes the settings of a cluster whose name this process itself chose. The source has no other cluster.
    pub(crate) fn publish_own(&self, id: &ClusterId, listed: DiscoveredCluster) {
        if let Some(fleet) = self.fleet.upgrade() {
            fleet.clone().publish_own(id, listed);
            fleet.publish(self.number, BTreeMap::new());
        }
    }

    /// Reports why the source cannot list its clusters now: its last list stays in effect. `None`: it can again.
    pub fn trouble(&self, trouble: Option<Arc<str>>) {
        if let Some(fleet) = self.fleet.upgrade() {
            fleet.trouble(self.number, trouble);
        }
    }
}
