//! Virtual clusters that run in a host cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use skopos::{Object, RawObject, Snapshot};
use tokio_util::sync::CancellationToken;

use super::host::{Follower, Wanted};
use super::secret::{Known, id};
use super::{Listed, Roster, Source, Standing};
use crate::cluster::{Cluster, Paused, PausedBy};
use crate::id::ClusterId;
use crate::kubeconfig::{Kubeconfig, KubeconfigPolicy};
use crate::spec::{ClusterSpec, Endpoint, SpecError};
use crate::vcluster::{KubeconfigSecret, Off, Part, Workload, WorkloadKind, names};

/// The virtual clusters (vcluster) of a host cluster.
///
/// Each is a cluster `NAME.NAMESPACE`, found by its StatefulSet or Deployment and reached with what its syncer wrote into Secret
/// `vc-NAME`. It is paused while the workload says so: annotated by the vcluster CLI, put to sleep by its platform, or scaled
/// to zero; and it starts until one of its pods is ready. Labels: [`VclusterSource::NAME_LABEL`],
/// [`VclusterSource::NAMESPACE_LABEL`], [`VclusterSource::HOST_LABEL`].
pub struct VclusterSource {
    host: Cluster,
    policy: KubeconfigPolicy,
    namespaces: Vec<String>,
    dial: VclusterDial,
}

/// Where a virtual cluster is connected to. What its Secret says about that is for whoever forwards a port.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum VclusterDial {
    /// Its Service in the host, unless the Secret names another machine than `localhost` (`exportKubeConfig.server`).
    #[default]
    Automatic,
    /// Its Service in the host, which resolves for processes that run there.
    Service,
    /// What this function says for name and namespace; where it says nothing, as [`VclusterDial::Automatic`].
    Custom(Arc<DialFn>),
}

/// The function of [`VclusterDial::Custom`].
pub type DialFn = dyn Fn(&str, &str) -> Option<Endpoint> + Send + Sync;

impl VclusterSource {
    /// On each cluster of this source: the virtual cluster's name.
    pub const NAME_LABEL: &str = "skopos.dev/vcluster";
    /// The namespace that it runs in.
    pub const NAMESPACE_LABEL: &str = "skopos.dev/namespace";
    /// The host cluster's name.
    pub const HOST_LABEL: &str = "skopos.dev/host";

    /// Those of all namespaces. [`KubeconfigPolicy::hostile`] is right for most; it admits the addresses of Services unless
    /// they are denied.
    pub fn new(host: Cluster, policy: KubeconfigPolicy) -> Self {
        Self { host, policy, namespaces: Vec::new(), dial: VclusterDial::default() }
    }

    /// Of these namespaces only, with rights for no more; all if there are none.
    pub fn namespaces<S: Into<String>>(mut self, namespaces: impl IntoIterator<Item = S>) -> Self {
        self.namespaces = namespaces.into_iter().map(Into::into).collect();
        self
    }

    /// Where they are connected to.
    pub fn dial(mut self, dial: VclusterDial) -> Self {
        self.dial = dial;
        self
    }

    async fn follow(self, roster: Roster) {
        let wanted = [
            Wanted::new("", "Secret", "secrets", names::SELECTOR, true),
            Wanted::new("apps", "StatefulSet", "statefulsets", names::SELECTOR, false),
            Wanted::new("apps", "Deployment", "deployments", names::SELECTOR, false),
        ];
        let mut follower = Follower::new(&self.host, &self.namespaces, &wanted, &roster);
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
                Reader { host: self.host.id().clone(), policy: self.policy.clone(), dial: self.dial.clone() };
            // What strangers wrote is parsed where it holds up nobody.
            let listing = tokio::task::spawn_blocking(move || {
                let mut found = known.list(secrets.iter(), |secret| reader.read(secret.raw()));
                if let Some(workloads) = workloads {
                    found.clusters = reader.combine(found.clusters, &workloads);
                }
                (known, found)
            });
            let Ok((back, found)) = listing.await else { return };
            known = back;
            roster.publish(found.clusters);
        }
    }
}

/// The control planes; `None` if the host lets us see neither kind.
fn workloads(
    stateful_sets: Option<Snapshot<RawObject>>,
    deployments: Option<Snapshot<RawObject>>,
) -> Option<Vec<Workload>> {
    let kinds = [(WorkloadKind::StatefulSet, stateful_sets), (WorkloadKind::Deployment, deployments)];
    if kinds.iter().all(|(_, snapshot)| snapshot.is_none()) {
        return None;
    }
    let parse = |kind, object: &Object<RawObject>| match Workload::parse(kind, object.raw().bytes()) {
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

/// Makes clusters of objects.
struct Reader {
    host: ClusterId,
    policy: KubeconfigPolicy,
    dial: VclusterDial,
}

impl Reader {
    fn read(&self, secret: &RawObject) -> Option<(ClusterId, Listed)> {
        let place = || format!("Secret {}", secret.key());
        let (name, spec) = match KubeconfigSecret::parse(secret.bytes()) {
            Ok(None) => return None,
            Ok(Some(found)) => (found.name.clone(), self.spec(&found)),
            // Of a Secret that names none, whose kubeconfig it is cannot be told.
            Err(error) => {
                let name = secret.label("vcluster-name")?.to_owned();
                (name, Err(SpecError::Unreadable { place: place(), reason: error.to_string() }))
            }
        };
        let labels = self.labels(&name, secret.namespace()?);
        let origin = Some(origin(&name, secret.namespace()?));
        Some((
            id(&name, secret)?,
            Listed { spec, labels, standing: Standing::Up, origin, name: None, kubeconfig: None },
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
        let custom = match &self.dial {
            VclusterDial::Custom(dial) => dial(&secret.name, &secret.namespace),
            VclusterDial::Service => Some(service()?),
            VclusterDial::Automatic => None,
        };
        match custom {
            Some(endpoint) => Ok(spec.with_endpoint(endpoint)),
            None if is_here(spec.server()) => Ok(spec.with_endpoint(service()?)),
            None => Ok(spec),
        }
    }

    fn labels(&self, name: &str, namespace: &str) -> Arc<BTreeMap<String, String>> {
        let labels = [
            (VclusterSource::NAME_LABEL, name),
            (VclusterSource::NAMESPACE_LABEL, namespace),
            (VclusterSource::HOST_LABEL, self.host.as_str()),
        ];
        Arc::new(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
    }

    /// What Secrets say, of those that have a workload; and how that stands.
    fn combine(
        &self,
        mut listed: BTreeMap<ClusterId, Listed>,
        workloads: &[Workload],
    ) -> BTreeMap<ClusterId, Listed> {
        let mut there = BTreeSet::new();
        for workload in workloads {
            let (name, namespace) = (&workload.release, &workload.namespace);
            let id = ClusterId::from_name(format!("{name}.{namespace}"));
            // Of a StatefulSet and a Deployment of one name, as after a migration, the StatefulSet counts.
            if !there.insert(id.clone()) {
                continue;
            }
            let missing = || Listed {
                spec: Err(SpecError::NoKubeconfig { place: format!("Secret {}", origin(name, namespace)) }),
                labels: self.labels(name, namespace),
                standing: Standing::Up,
                origin: Some(origin(name, namespace)),
                name: None,
                kubeconfig: None,
            };
            listed.entry(id).or_insert_with(missing).standing = standing(workload);
        }
        listed.retain(|id, _| there.contains(id));
        listed
    }
}

/// The Secret that is there, or should be.
fn origin(name: &str, namespace: &str) -> Arc<str> {
    format!("{namespace}/{}", names::kubeconfig_secret(name)).into()
}

fn standing(workload: &Workload) -> Standing {
    let by = match workload.off_reason() {
        Some(Off::Paused) => PausedBy::Annotation,
        Some(Off::Sleeping) => PausedBy::Sleep,
        Some(Off::ScaledDown) => PausedBy::ScaledDown,
        None if workload.ready == 0 => return Standing::Starting,
        None => return Standing::Up,
    };
    // When it was paused is annotated in local time of some machine.
    Standing::Paused(Paused { by, since: None })
}

/// Whether it is the address of whoever reads it.
fn is_here(server: &http::Uri) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

impl Source for VclusterSource {
    fn name(&self) -> String {
        format!("vclusters in {}", self.host.id())
    }

    fn run(self: Box<Self>, roster: Roster, _: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.follow(roster))
    }
}

impl fmt::Debug for VclusterDial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Automatic => "Automatic",
            Self::Service => "Service",
            Self::Custom(_) => "Custom",
        })
    }
}
