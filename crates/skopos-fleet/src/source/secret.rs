//! Secrets in a host cluster that hold kubeconfigs: Cluster API's, and plain ones with a label.

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

use super::host::{Follower, Wanted};
use super::{Listed, Roster, Source, Standing};
use crate::cluster::Cluster;
use crate::id::ClusterId;
use crate::kubeconfig::{Kubeconfig, KubeconfigPolicy};
use crate::spec::{ClusterSpec, SpecError};

/// Which Secrets hold kubeconfigs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SecretFlavour {
    /// Cluster API's: `NAME-kubeconfig` with label `cluster.x-k8s.io/cluster-name=NAME`, in key `value`.
    ClusterApi,
    /// Those with label `skopos.dev/cluster`, whose value is the name (that of the Secret if it is empty), in key `kubeconfig`
    /// or `value`.
    Plain,
}

/// Secrets in a host cluster that hold kubeconfigs.
///
/// Each is a cluster `NAME.NAMESPACE`: those who may write Secrets in one namespace take no name of another. Of several with one
/// name the first one has it, and the others get a hash of their namespace and name behind it. The cluster's labels are the Secret's. Their kubeconfigs are read as
/// those of strangers, by the policy that is given.
pub struct SecretSource {
    host: Cluster,
    flavour: SecretFlavour,
    policy: KubeconfigPolicy,
    namespaces: Vec<String>,
}

/// On plain Secrets: the cluster's name.
pub(super) const CLUSTER_LABEL: &str = "skopos.dev/cluster";

/// On Cluster API's Secrets: the cluster's name.
const CLUSTER_API_LABEL: &str = "cluster.x-k8s.io/cluster-name";

impl SecretSource {
    /// The Secrets of all namespaces. [`KubeconfigPolicy::hostile`] is right for most.
    pub fn new(host: Cluster, flavour: SecretFlavour, policy: KubeconfigPolicy) -> Self {
        Self { host, flavour, policy, namespaces: Vec::new() }
    }

    /// Of these namespaces only, with rights for no more; all if there are none.
    pub fn namespaces<S: Into<String>>(mut self, namespaces: impl IntoIterator<Item = S>) -> Self {
        self.namespaces = namespaces.into_iter().map(Into::into).collect();
        self
    }

    async fn follow(self, roster: Roster) {
        let wanted = [Wanted::new("", "Secret", "secrets", self.flavour.label(), true)];
        let mut follower = Follower::new(&self.host, &self.namespaces, &wanted, &roster);
        let mut known = Known::default();
        loop {
            let view = follower.next().await;
            let Some(Some(secrets)) = view.into_iter().next() else { continue };
            let (flavour, policy) = (self.flavour, self.policy.clone());
            // What strangers wrote is parsed where it holds up nobody.
            let listing = tokio::task::spawn_blocking(move || {
                let read = |secret: &Object<RawObject>| read(secret.raw(), flavour, &policy);
                let found = known.list(secrets.iter(), read);
                (known, found)
            });
            let Ok((back, found)) = listing.await else { return };
            known = back;
            roster.publish(found.clusters);
        }
    }
}

impl SecretFlavour {
    fn label(self) -> &'static str {
        match self {
            Self::ClusterApi => CLUSTER_API_LABEL,
            Self::Plain => CLUSTER_LABEL,
        }
    }

    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::ClusterApi => &["value"],
            Self::Plain => &["kubeconfig", "value"],
        }
    }

    /// The name of the cluster whose kubeconfig the Secret holds; `None` if it holds something else.
    fn name(self, secret: &RawObject) -> Option<&str> {
        let label = secret.label(self.label())?;
        match self {
            // Certificates and tokens have the label, too.
            Self::ClusterApi => {
                let name = secret.name().strip_suffix("-kubeconfig")?;
                (name == label).then_some(name)
            }
            Self::Plain if label.is_empty() => Some(secret.name()),
            Self::Plain => Some(label),
        }
    }
}

/// What was made of each version of a Secret: nothing is parsed twice.
#[derive(Default)]
pub(super) struct Known {
    by_object: BTreeMap<(String, String), Option<Entry>>,
    /// The name that each place asked for, and the one that it has: it keeps that for as long as it is there.
    names: BTreeMap<Arc<str>, (ClusterId, ClusterId)>,
}

/// What a Secret says.
#[derive(Clone)]
struct Entry {
    id: ClusterId,
    listed: Listed,
    made: Timestamp,
}

/// What all Secrets say.
pub(super) struct Found {
    pub(super) clusters: BTreeMap<ClusterId, Listed>,
}

impl Known {
    /// Returns what is listed, by `read`, which is called for what is new or changed. A name stays with the Secret that has
    /// it; where none has, it goes to the oldest, since no one can create an older one. The others get a name of their own.
    pub(super) fn list(
        &mut self,
        objects: impl Iterator<Item = Object<RawObject>>,
        read: impl Fn(&Object<RawObject>) -> Option<(ClusterId, Listed)>,
    ) -> Found {
        let mut before = std::mem::take(&mut self.by_object);
        let mut by_name: BTreeMap<ClusterId, Vec<Entry>> = BTreeMap::new();
        for object in objects {
            let version = (object.uid().to_owned(), object.resource_version().to_string());
            let entry = before.remove(&version).unwrap_or_else(|| {
                let (id, listed) = read(&object)?;
                Some(Entry { id, listed, made: made(object.raw()) })
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
                false => Listed { name: Some(wanted.as_str().into()), ..listed },
            };
            self.names_of_new(&wanted, &id, &listed);
            clusters.insert(id, listed);
        }
        let there: BTreeSet<&Arc<str>> =
            clusters.values().filter_map(|listed| listed.origin.as_ref()).collect();
        self.names.retain(|origin, _| there.contains(origin));
        Found { clusters }
    }

    fn names_of_new(&mut self, wanted: &ClusterId, id: &ClusterId, listed: &Listed) {
        if let Some(origin) = &listed.origin {
            self.names.insert(origin.clone(), (wanted.clone(), id.clone()));
        }
    }
}

/// When it was made, by the host's clock.
fn made(object: &RawObject) -> Timestamp {
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
) -> Option<(ClusterId, Listed)> {
    let id = id(flavour.name(secret)?, secret)?;
    let labels = secret.labels().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let spec = spec(secret, flavour.keys(), policy);
    let origin = Some(secret.key().to_string().into());
    let labels = Arc::new(labels);
    Some((id, Listed { spec, labels, standing: Standing::Up, origin, name: None, kubeconfig: None }))
}

/// `NAME.NAMESPACE`. A namespace has no dots, so that this is the name of no other.
pub(super) fn id(name: &str, object: &RawObject) -> Option<ClusterId> {
    Some(ClusterId::from_name(format!("{name}.{}", object.namespace()?)))
}

/// How the cluster is reached whose kubeconfig is in one of these keys.
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

#[derive(Deserialize)]
struct Secret {
    data: Option<BTreeMap<String, SecretString>>,
}

impl Source for SecretSource {
    fn name(&self) -> String {
        let what = match self.flavour {
            SecretFlavour::ClusterApi => "Cluster API Secrets",
            SecretFlavour::Plain => "Secrets",
        };
        format!("{what} in {}", self.host.id())
    }

    fn run(self: Box<Self>, roster: Roster, _: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.follow(roster))
    }
}
