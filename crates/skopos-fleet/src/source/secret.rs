//! Secrets in a host cluster that hold kubeconfigs: Cluster API's, and plain ones with a label.

use std::collections::BTreeMap;
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
/// Each is a cluster `NAME.NAMESPACE`: whoever may write Secrets in one namespace takes no name of another. Of several with one
/// name the first that was there counts, while it is there. The cluster's labels are the Secret's. Their kubeconfigs are read as
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
            follower.trouble = found.trouble;
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
    /// Where each cluster was from.
    origins: BTreeMap<ClusterId, Option<Arc<str>>>,
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
    pub(super) trouble: Option<Arc<str>>,
}

impl Known {
    /// What is listed, by `read`, which is asked about what is new or changed. A name stays with the Secret that has it; where
    /// none has, it goes to the oldest, since nobody can make one that is older.
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
        let (mut clusters, mut doubles) = (BTreeMap::new(), Vec::new());
        for (id, mut entries) in by_name {
            let origin = self.origins.get(&id);
            entries.sort_by_key(|entry| (Some(&entry.listed.origin) != origin, entry.made));
            let mut entries = entries.into_iter().map(|entry| entry.listed);
            clusters.extend(entries.next().map(|first| (id, first)));
            doubles.extend(entries.filter_map(|other| other.origin));
        }
        self.origins = clusters.iter().map(|(id, listed)| (id.clone(), listed.origin.clone())).collect();
        let trouble = (!doubles.is_empty()).then(|| {
            let some = &doubles[..doubles.len().min(5)];
            format!("{} Secrets have names of clusters that other Secrets have: {some:?}", doubles.len())
                .into()
        });
        Found { clusters, trouble }
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
    Some((id, Listed { spec, labels: Arc::new(labels), standing: Standing::Up, origin }))
}

/// `NAME.NAMESPACE`. A namespace has no dots, so that this is the name of no other.
pub(super) fn id(name: &str, object: &RawObject) -> Option<ClusterId> {
    ClusterId::nearest(format!("{name}.{}", object.namespace()?)).ok()
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
