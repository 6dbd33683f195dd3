//! Sources of clusters.
//!
//! A source repeatedly publishes its complete list of clusters ([`ClusterSink::publish`]), and the fleet applies the
//! differences. An unusable entry is a [`SourceProblem`](crate::SourceProblem) of that one cluster.

mod argo_cd;
mod cluster_profile;
mod discovered;
mod file;
mod files;
mod folder;
mod generated;
mod host;
mod publish;
mod secret;
mod vcluster;
mod watched;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

pub use self::cluster_profile::{
    AccessCredentials, AccessPlugin, AccessProvider, ClusterProfileSource, TokenSecret,
};
pub use self::discovered::{DiscoveredCluster, PowerState};
pub use self::file::KubeconfigFile;
pub use self::folder::KubeconfigFolder;
pub use self::publish::ClusterSink;
pub(crate) use self::publish::{Publish, SourceNumber};
pub use self::secret::{SecretFlavour, SecretSource};
pub use self::vcluster::{DialFn, VclusterDial, VclusterSource};

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
    fn run(self: Box<Self>, sink: ClusterSink, stop: CancellationToken) -> BoxFuture<'static, ()>;
}
