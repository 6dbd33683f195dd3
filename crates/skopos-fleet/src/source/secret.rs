//! Clusters from Secrets in a host cluster: kubeconfigs of Cluster API, labelled kubeconfigs, and clusters of Argo CD.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use skopos::{Object, RawObject};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::discovered::{DiscoveredCluster, PowerState};
use super::host::{Follower, Wanted};
use super::publish::ClusterSink;
use super::{Source, argo_cd};
use crate::cluster::Cluster;
use crate::id::ClusterId;
use crate::kubeconfig::{Kubeconfig, KubeconfigPolicy};
use crate::spec::ClusterSpec;
use crate::spec_error::SpecError;

/// Kind of Secrets that hold clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SecretFlavour {
    /// Cluster API's: `NAME-kubeconfig` with label `cluster.x-k8s.io/cluster-name=NAME`, in key `value`.
    ClusterApi,
    /// Secrets with label `skopos.dev/cluster`, whose value is the cluster's name (the Secret's own name if it is
    /// empty). The kubeconfig is in key `kubeconfig` or `value`.
    Plain,
    /// Argo CD's: label `argocd.argoproj.io/secret-type=cluster`, and keys `name`, `server` and `config`. A cluster without
    /// `name` has the Secret's own name.
    ArgoCd,
}

/// Secrets in a host cluster that hold clusters, as kubeconfigs or in the format of Argo CD.
///
/// Each is a cluster `NAME.NAMESPACE`, so that writers of Secrets in one namespace cannot take a name of another. Of
/// several Secrets with one name the first one has it; the others get a hash of their namespace and name appended. The
/// cluster's labels are those of the Secret. The kubeconfigs are untrusted and restricted by the given policy.
pub struct SecretSource {
    host: Cluster,
    flavour: SecretFlavour,
    policy: KubeconfigPolicy,
    namespaces: Vec<String>,
}

/// The label with the cluster's name, on plain Secrets.
pub(super) const CLUSTER_LABEL: &str = "skopos.dev/cluster";

/// The label with the cluster's name, on Cluster API's Secrets.
const CLUSTER_API_LABEL: &str = "cluster.x-k8s.io/cluster-name";

impl SecretSource {
    /// Creates a source of the Secrets of all namespaces. [`KubeconfigPolicy::hostile`] is right for most.
    pub fn new(host: Cluster, flavour: SecretFlavour, policy: KubeconfigPolicy) -> Self {
        Self { host, flavour, policy, namespaces: Vec::new() }
    }

    /// Restricts the source to these namespaces, so that it needs no rights elsewhere; an empty list means all.
    #[must_use]
    pub fn namespaces<S: Into<String>>(mut self, namespaces: impl IntoIterator<Item = S>) -> Self {
        self.namespaces = namespaces.into_iter().map(Into::into).collect();
        self
    }

    async fn follow(self, sink: ClusterSink) {
        let wanted = [Wanted::new("", "Secret", "secrets", self.flavour.selector(), true)];
        let mut follower = Follower::new(&self.host, &self.namespaces, &wanted, &sink);
        let mut known = Known::default();
        loop {
            let view = follower.next().await;
            let Some(Some(secrets)) = view.into_iter().next() else { continue };
            let (flavour, policy) = (self.flavour, self.policy.clone());
            // Untrusted content is parsed in a blocking thread, where it holds up nothing else.
            let listing = tokio::task::spawn_blocking(move || {
                let read = |secret: &Object<RawObject>| read(secret.raw(), flavour, &policy);
                let found = known.list(secrets.iter(), own_version, read);
                (known, found)
            });
            let Ok((back, found)) = listing.await else { return };
            known = back;
            sink.publish(found.clusters);
        }
    }
}

impl SecretFlavour {
    /// Returns the label selector of these Secrets.
    fn selector(self) -> &'static str {
        match self {
            Self::ClusterApi => CLUSTER_API_LABEL,
            Self::Plain => CLUSTER_LABEL,
            Self::ArgoCd => argo_cd::SELECTOR,
        }
    }

    /// Returns the cluster that the Secret holds: its name, and its connection settings. `None` if it holds something
    /// else.
    fn read(
        self,
        secret: &RawObject,
        policy: &KubeconfigPolicy,
    ) -> Option<(ClusterId, Result<ClusterSpec, SpecError>)> {
        match self {
            // Cluster API's certificates and tokens have the label, too.
            Self::ClusterApi => {
                let name = secret.name().strip_suffix("-kubeconfig")?;
                let is_kubeconfig = secret.label(CLUSTER_API_LABEL) == Some(name);
                let id = id(name, secret).filter(|_| is_kubeconfig)?;
                Some((id, spec(secret, &["value"], policy)))
            }
            Self::Plain => {
                let label = secret.label(CLUSTER_LABEL)?;
                let name = if label.is_empty() { secret.name() } else { label };
                Some((id(name, secret)?, spec(secret, &["kubeconfig", "value"], policy)))
            }
            Self::ArgoCd => {
                let cluster = argo_cd::read(secret, policy);
                let name = cluster.name.as_deref().unwrap_or(secret.name());
                Some((id(name, secret)?, cluster.spec))
            }
        }
    }
}

/// Parsed versions of objects, so that no version is parsed twice.
#[derive(Default)]
pub(super) struct Known {
    by_object: BTreeMap<(String, String), Option<SecretEntry>>,
    /// The requested and the assigned name of each place. A place keeps its assigned name while it exists.
    names: BTreeMap<Arc<str>, (ClusterId, ClusterId)>,
}

/// Parsed content of a Secret.
#[derive(Clone)]
struct SecretEntry {
    id: ClusterId,
    listed: DiscoveredCluster,
    made: Timestamp,
}

/// Parsed content of all Secrets.
pub(super) struct Found {
    pub(super) clusters: BTreeMap<ClusterId, DiscoveredCluster>,
}

impl Known {
    /// Returns the listed clusters; calls `read` for objects that are new or have another `version`. A name stays with the
    /// object that has it. A free name goes to the oldest object, because an older one cannot be created later. The others
    /// get distinct names.
    pub(super) fn list(
        &mut self,
        objects: impl Iterator<Item = Object<RawObject>>,
        version: impl Fn(&Object<RawObject>) -> String,
        read: impl Fn(&Object<RawObject>) -> Option<(ClusterId, DiscoveredCluster)>,
    ) -> Found {
        let mut before = std::mem::take(&mut self.by_object);
        let mut by_name: BTreeMap<ClusterId, Vec<SecretEntry>> = BTreeMap::new();
        for object in objects {
            let version = (object.uid().to_owned(), version(&object));
            let entry = before.remove(&version).unwrap_or_else(|| {
                let (id, listed) = read(&object)?;
                Some(SecretEntry { id, listed, made: creation_time(object.raw()) })
            });
            if let Some(entry) = &entry {
                by_name.entry(entry.id.clone()).or_default().push(entry.clone());
            }
            self.by_object.insert(version, entry);
        }
        let mut clusters = BTreeMap::new();
        let mut new = Vec::new();
        for (wanted, mut entries) in by_name {
            entries.sort_by_key(|entry| entry.made);
            for entry in entries {
                let before = entry.listed.origin.as_ref().and_then(|origin| self.names.get(origin));
                match before.filter(|(had, _)| *had == wanted) {
                    Some((_, id)) => _ = clusters.insert(id.clone(), entry.listed),
                    None => new.push((wanted.clone(), entry.listed)),
                }
            }
        }
        for (wanted, listed) in new {
            let origin = listed.origin.clone().unwrap_or_default();
            let others = wanted.alternatives(wanted.as_str(), &origin);
            let free = std::iter::once(wanted.clone()).chain(others).find(|id| !clusters.contains_key(id));
            let Some(id) = free else { continue };
            let listed = match id == wanted {
                true => listed,
                false => DiscoveredCluster { name: Some(wanted.as_str().into()), ..listed },
            };
            self.names_of_new(&wanted, &id, &listed);
            clusters.insert(id, listed);
        }
        let there: BTreeSet<&Arc<str>> =
            clusters.values().filter_map(|listed| listed.origin.as_ref()).collect();
        self.names.retain(|origin, _| there.contains(origin));
        Found { clusters }
    }

    fn names_of_new(&mut self, wanted: &ClusterId, id: &ClusterId, listed: &DiscoveredCluster) {
        if let Some(origin) = &listed.origin {
            self.names.insert(origin.clone(), (wanted.clone(), id.clone()));
        }
    }
}

/// Returns the version of an object that is read alone.
pub(super) fn own_version(object: &Object<RawObject>) -> String {
    object.resource_version().to_string()
}

/// Returns the creation time, by the host's clock.
fn creation_time(object: &RawObject) -> Timestamp {
    #[derive(Deserialize)]
    struct Made {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(rename = "creationTimestamp")]
        at: Option<Timestamp>,
    }
    object.decode().ok().and_then(|made: Made| made.metadata.at).unwrap_or(Timestamp::MAX)
}

fn read(
    secret: &RawObject,
    flavour: SecretFlavour,
    policy: &KubeconfigPolicy,
) -> Option<(ClusterId, DiscoveredCluster)> {
    let (id, spec) = flavour.read(secret, policy)?;
    let labels = secret.labels().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let origin = Some(secret.key().to_string().into());
    let labels = Arc::new(labels);
    Some((
        id,
        DiscoveredCluster { spec, labels, power_state: PowerState::Up, origin, name: None, kubeconfig: None },
    ))
}

/// Returns the name `NAME.NAMESPACE`. A namespace has no dots, so it is unambiguous.
pub(super) fn id(name: &str, object: &RawObject) -> Option<ClusterId> {
    Some(ClusterId::from_name(format!("{name}.{}", object.namespace()?)))
}

/// Returns the connection settings from a kubeconfig in one of these keys.
pub(super) fn spec(
    secret: &RawObject,
    keys: &[&str],
    policy: &KubeconfigPolicy,
) -> Result<ClusterSpec, SpecError> {
    let place = || format!("Secret {}, key {}", secret.key(), keys.join(" or "));
    let unreadable = |reason: &str| SpecError::Unreadable { place: place(), reason: reason.to_owned() };
    let data: Secret = secret.decode().map_err(|_| unreadable("it is no Secret"))?;
    let data = data.data.unwrap_or_default();
    let value = keys.iter().find_map(|key| data.get(*key)).map(|value| value.expose_secret());
    let value = value.filter(|value| !value.is_empty());
    let value = value.ok_or_else(|| SpecError::NoKubeconfig { place: place() })?;
    let decoded = STANDARD.decode(value).map(Zeroizing::new).map_err(|_| unreadable("it is not base64"))?;
    Ok(Kubeconfig::parse(&decoded, policy)?.cluster(None)?)
}

/// A Secret with its data in base64.
#[derive(Deserialize)]
pub(super) struct Secret {
    data: Option<BTreeMap<String, SecretString>>,
}

/// Error of a value that is not base64 of a text.
pub(super) struct NotText;

impl Secret {
    /// Returns the text of a key, without white space around it; empty if the key is missing.
    pub(super) fn text(&self, key: &str) -> Result<Zeroizing<String>, NotText> {
        let encoded = self.data.as_ref().and_then(|data| data.get(key));
        let encoded = encoded.map(|value| value.expose_secret()).unwrap_or_default();
        let decoded = STANDARD.decode(encoded).map(Zeroizing::new).map_err(|_| NotText)?;
        let text = std::str::from_utf8(&decoded).map_err(|_| NotText)?;
        Ok(Zeroizing::new(text.trim().to_owned()))
    }
}

impl Source for SecretSource {
    fn name(&self) -> String {
        let what = match self.flavour {
            SecretFlavour::ClusterApi => "Cluster API Secrets",
            SecretFlavour::Plain => "Secrets",
            SecretFlavour::ArgoCd => "Argo CD Secrets",
        };
        format!("{what} in {}", self.host.id())
    }

    fn run(self: Box<Self>, sink: ClusterSink, _: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.follow(sink))
    }
}
