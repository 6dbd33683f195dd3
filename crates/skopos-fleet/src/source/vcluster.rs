//! Clusters from the virtual clusters of a host cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use skopos::{Object, RawObject, Snapshot};
use tokio_util::sync::CancellationToken;

use super::Source;
use super::discovered::{DiscoveredCluster, PowerState};
use super::host::{Follower, Wanted};
use super::publish::ClusterSink;
use super::secret::{Known, id, own_version};
use crate::cluster::Cluster;
use crate::id::ClusterId;
use crate::kubeconfig::{Kubeconfig, KubeconfigPolicy};
use crate::pause::{Paused, PausedBy};
use crate::port_forward::PortForward;
use crate::spec::{ClusterSpec, Endpoint};
use crate::spec_error::SpecError;
use crate::vcluster::{KubeconfigSecret, Off, Part, Workload, WorkloadKind, names};

/// The virtual clusters (vcluster) of a host cluster.
///
/// Each is a cluster `NAME.NAMESPACE`, discovered by its StatefulSet or Deployment and reached with the kubeconfig that
/// its syncer writes into Secret `vc-NAME`. It is paused while its workload is annotated by the vcluster CLI, put to
/// sleep by its platform, or scaled to zero. It is starting until one of its pods is ready. Labels:
/// [`VclusterSource::NAME_LABEL`], [`VclusterSource::NAMESPACE_LABEL`], [`VclusterSource::HOST_LABEL`].
pub struct VclusterSource {
    host: Cluster,
    policy: KubeconfigPolicy,
    namespaces: Vec<String>,
    dial: VclusterDial,
}

/// Address at which a virtual cluster is reached. The address in its Secret is usually meant for port forwarding.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum VclusterDial {
    /// As [`VclusterDial::Service`] where the Service's name resolves, which it does for processes that run in the host; else
    /// as [`VclusterDial::PortForward`]. Neither if the Secret names another machine than `localhost`
    /// (`exportKubeConfig.server`).
    #[default]
    Automatic,
    /// The Service in the host.
    Service,
    /// A pod of the virtual cluster, through the API server of the host, as `vcluster connect` does.
    PortForward,
    /// The result of this function for name and namespace; if that is `None`, as [`VclusterDial::Automatic`].
    Custom(Arc<DialFn>),
}

/// The function of [`VclusterDial::Custom`].
pub type DialFn = dyn Fn(&str, &str) -> Option<Endpoint> + Send + Sync;

impl VclusterSource {
    /// The label with the virtual cluster's name, on each cluster of this source.
    pub const NAME_LABEL: &str = "skopos.dev/vcluster";
    /// The label with the namespace in which it runs.
    pub const NAMESPACE_LABEL: &str = "skopos.dev/namespace";
    /// The label with the host cluster's name.
    pub const HOST_LABEL: &str = "skopos.dev/host";

    /// Creates a source of the virtual clusters of all namespaces. [`KubeconfigPolicy::hostile`] is right for most; it
    /// admits the addresses of Services unless they are denied.
    pub fn new(host: Cluster, policy: KubeconfigPolicy) -> Self {
        Self { host, policy, namespaces: Vec::new(), dial: VclusterDial::default() }
    }

    /// Restricts the source to these namespaces, so that it needs no rights elsewhere; an empty list means all.
    #[must_use]
    pub fn namespaces<S: Into<String>>(mut self, namespaces: impl IntoIterator<Item = S>) -> Self {
        self.namespaces = namespaces.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the address at which the clusters are reached.
    #[must_use]
    pub fn dial(mut self, dial: VclusterDial) -> Self {
        self.dial = dial;
        self
    }

    async fn follow(self, sink: ClusterSink) {
        let wanted = [
            Wanted::new("", "Secret", "secrets", names::SELECTOR, true),
            Wanted::new("apps", "StatefulSet", "statefulsets", names::SELECTOR, false),
            Wanted::new("apps", "Deployment", "deployments", names::SELECTOR, false),
        ];
        let mut follower = Follower::new(&self.host, &self.namespaces, &wanted, &sink);
        let mut known = Known::default();
        loop {
            let mut view = follower.next().await.into_iter();
            let (Some(Some(secrets)), stateful_sets, deployments) =
                (view.next(), view.next().flatten(), view.next().flatten())
            else {
                continue;
            };
            let workloads = workloads(stateful_sets, deployments);
            let reader =
                Reader { host: self.host.clone(), policy: self.policy.clone(), dial: self.dial.clone() };
            // Untrusted content is parsed in a blocking thread, where it holds up nothing else.
            let listing = tokio::task::spawn_blocking(move || {
                let mut found = known.list(secrets.iter(), own_version, |secret| reader.read(secret.raw()));
                if let Some(workloads) = workloads {
                    found.clusters = reader.combine(found.clusters, &workloads);
                }
                (known, found)
            });
            let Ok((back, found)) = listing.await else { return };
            known = back;
            sink.publish(found.clusters);
        }
    }
}

/// Returns the control planes; `None` if the host refuses both kinds.
fn workloads(
    stateful_sets: Option<Snapshot<RawObject>>,
    deployments: Option<Snapshot<RawObject>>,
) -> Option<Vec<Workload>> {
    let kinds = [(WorkloadKind::StatefulSet, stateful_sets), (WorkloadKind::Deployment, deployments)];
    if kinds.iter().all(|(_, snapshot)| snapshot.is_none()) {
        return None;
    }
    let parse = |kind, object: &Object<RawObject>| match Workload::parse(kind, &object.raw().json()) {
        Ok(workload) => workload,
        Err(error) => {
            tracing::warn!(key = %object.key(), %error, "a workload of a virtual cluster cannot be read");
            None
        }
    };
    let all = kinds.into_iter().filter_map(|(kind, snapshot)| Some((kind, snapshot?)));
    let all = all.flat_map(|(kind, snapshot)| {
        snapshot.iter().filter_map(|object| parse(kind, &object)).collect::<Vec<_>>()
    });
    Some(all.filter(|workload| workload.part == Part::ControlPlane).collect())
}

/// Converter from objects of the host to entries of the source.
struct Reader {
    host: Cluster,
    policy: KubeconfigPolicy,
    dial: VclusterDial,
}

impl Reader {
    fn read(&self, secret: &RawObject) -> Option<(ClusterId, DiscoveredCluster)> {
        let place = || format!("Secret {}", secret.key());
        let (name, spec) = match KubeconfigSecret::parse(&secret.json()) {
            Ok(None) => return None,
            Ok(Some(found)) => (found.name.clone(), self.spec(&found)),
            // Without a label the unreadable Secret cannot be attributed to a cluster.
            Err(error) => {
                let name = secret.label("vcluster-name")?.to_owned();
                (name, Err(SpecError::Unreadable { place: place(), reason: error.to_string() }))
            }
        };
        let labels = self.labels(&name, secret.namespace()?);
        let origin = Some(origin(&name, secret.namespace()?));
        Some((
            id(&name, secret)?,
            DiscoveredCluster {
                spec,
                labels,
                power_state: PowerState::Up,
                origin,
                name: None,
                kubeconfig: None,
            },
        ))
    }

    fn spec(&self, secret: &KubeconfigSecret) -> Result<ClusterSpec, SpecError> {
        let spec = Kubeconfig::parse(secret.config(), &self.policy)?.cluster(None)?;
        let service = || {
            secret.endpoint().map_err(|error| SpecError::Unreadable {
                place: format!("the name of vcluster {}/{}", secret.namespace, secret.name),
                reason: error.to_string(),
            })
        };
        let forward =
            || PortForward::to_vcluster(self.host.clone(), &secret.namespace, &secret.name).into_via();
        let custom = match &self.dial {
            VclusterDial::Custom(dial) => dial(&secret.name, &secret.namespace),
            VclusterDial::Service => Some(service()?),
            VclusterDial::PortForward => {
                return Ok(spec.with_endpoint(service()?).with_via(forward().only()));
            }
            VclusterDial::Automatic => None,
        };
        match custom {
            Some(endpoint) => Ok(spec.with_endpoint(endpoint)),
            None if is_loopback(spec.server()) => Ok(spec.with_endpoint(service()?).with_via(forward())),
            None => Ok(spec),
        }
    }

    fn labels(&self, name: &str, namespace: &str) -> Arc<BTreeMap<String, String>> {
        let labels = [
            (VclusterSource::NAME_LABEL, name),
            (VclusterSource::NAMESPACE_LABEL, namespace),
            (VclusterSource::HOST_LABEL, self.host.id().as_str()),
        ];
        Arc::new(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
    }

    /// Drops entries without a workload, and adds the power state to the others.
    fn combine(
        &self,
        mut listed: BTreeMap<ClusterId, DiscoveredCluster>,
        workloads: &[Workload],
    ) -> BTreeMap<ClusterId, DiscoveredCluster> {
        let mut there = BTreeSet::new();
        for workload in workloads {
            let (name, namespace) = (&workload.release, &workload.namespace);
            let id = ClusterId::from_name(format!("{name}.{namespace}"));
            // If a StatefulSet and a Deployment have the same name, as after a migration, the StatefulSet wins.
            if !there.insert(id.clone()) {
                continue;
            }
            let missing = || DiscoveredCluster {
                spec: Err(SpecError::NoKubeconfig { place: format!("Secret {}", origin(name, namespace)) }),
                labels: self.labels(name, namespace),
                power_state: PowerState::Up,
                origin: Some(origin(name, namespace)),
                name: None,
                kubeconfig: None,
            };
            listed.entry(id).or_insert_with(missing).power_state = power_state(workload);
        }
        listed.retain(|id, _| there.contains(id));
        listed
    }
}

/// Returns the key of the Secret that exists or should exist.
fn origin(name: &str, namespace: &str) -> Arc<str> {
    format!("{namespace}/{}", names::kubeconfig_secret(name)).into()
}

fn power_state(workload: &Workload) -> PowerState {
    let by = match workload.off_reason() {
        Some(Off::Paused) => PausedBy::Annotation,
        Some(Off::Sleeping) => PausedBy::Sleep,
        Some(Off::ScaledDown) => PausedBy::ScaledDown,
        None if workload.ready == 0 => return PowerState::Starting,
        None => return PowerState::Up,
    };
    // The annotation has the time of the pause in the local time of an unknown machine.
    PowerState::Paused(Paused { by, since: None })
}

/// Returns whether the address is a loopback address.
fn is_loopback(server: &http::Uri) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

impl Source for VclusterSource {
    fn name(&self) -> String {
        format!("vclusters in {}", self.host.id())
    }

    fn run(self: Box<Self>, sink: ClusterSink, _: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.follow(sink))
    }
}

impl fmt::Debug for VclusterDial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Automatic => "Automatic",
            Self::Service => "Service",
            Self::PortForward => "PortForward",
            Self::Custom(_) => "Custom",
        })
    }
}
