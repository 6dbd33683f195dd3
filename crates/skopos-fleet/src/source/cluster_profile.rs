//! Clusters from the ClusterProfiles of a hub (SIG Multicluster's Cluster Inventory API, KEP-4322).
//!
//! ```text
//!  status.accessProviders[NAME].cluster ─┐
//!                                        ├─▶ a kubeconfig with one context ──▶ the policy of untrusted kubeconfigs
//!  the operator's credentials for NAME  ─┘
//! ```
//!
//! A ClusterProfile says where a cluster is, and never how to prove who the caller is: that is the caller's configuration for
//! each access provider (KEP-5339).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use skopos::{Object, ObjectKey, RawObject, Snapshot};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::discovered::{DiscoveredCluster, PowerState};
use super::host::{Follower, Wanted};
use super::publish::ClusterSink;
use super::secret::{Known, NotText, Secret, id};
use super::{Source, generated};
use crate::cluster::Cluster;
use crate::id::ClusterId;
use crate::kubeconfig::{KubeconfigError, KubeconfigPolicy};
use crate::spec::ClusterSpec;
use crate::spec_error::SpecError;

/// The ClusterProfiles (`multicluster.x-k8s.io/v1alpha1`) of a hub.
///
/// Each is a cluster `NAME.NAMESPACE` with the profile's labels. Its address and CA are those of the first of the given
/// [`AccessProvider`]s that its `status.accessProviders` names; profiles of cluster managers older than that field have
/// `status.credentialProviders`. Arguments and variables that a profile asks for a plugin are not passed on.
///
/// # Trust
/// A writer of a profile's status decides to which server the credentials of its access provider are sent. Follow only
/// namespaces that cluster managers write, and give each provider credentials that are good for its own clusters.
pub struct ClusterProfileSource {
    host: Cluster,
    policy: KubeconfigPolicy,
    namespaces: Vec<String>,
    providers: Vec<AccessProvider>,
}

/// Credentials for the clusters of one access provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessProvider {
    /// The name in `status.accessProviders`.
    pub name: String,
    /// The credentials.
    pub credentials: AccessCredentials,
}

/// Way to get the credentials for a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessCredentials {
    /// A plugin that prints an ExecCredential.
    Exec(AccessPlugin),
    /// A file with a token for all clusters of the provider; read again when it changes.
    TokenFile(PathBuf),
    /// A token in a Secret beside the profile. The source then watches all Secrets of its namespaces.
    Secret(TokenSecret),
}

/// A credential plugin, as the `exec` of a kubeconfig describes it. It has no terminal and is never asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessPlugin {
    /// The program: a path, or a name that is searched for in `PATH`.
    pub command: String,
    /// The arguments.
    pub args: Vec<String>,
    /// Variables added to the environment.
    pub env: BTreeMap<String, String>,
    /// The version of its protocol: `client.authentication.k8s.io/v1` or `v1beta1`.
    pub api_version: String,
    /// Passes address and CA of the cluster to it, with the extension `client.authentication.k8s.io/exec` of the profile.
    pub provide_cluster_info: bool,
}

/// A Secret with a token, in the namespace of the profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSecret {
    /// The text after the profile's name in the Secret's name.
    pub suffix: String,
    /// The key of the token.
    pub key: String,
}

impl ClusterProfileSource {
    /// Creates a source of the profiles of all namespaces. [`KubeconfigPolicy::hostile`] with
    /// [`KubeconfigPolicy::allow_system_roots`] is right for most: gateways of cloud providers have certificates of public CAs.
    /// The policy's switches for programs and token files do not matter: the operator names both.
    pub fn new(host: Cluster, policy: KubeconfigPolicy) -> Self {
        Self { host, policy, namespaces: Vec::new(), providers: Vec::new() }
    }

    /// Restricts the source to these namespaces, so that it needs no rights elsewhere; an empty list means all.
    #[must_use]
    pub fn namespaces<S: Into<String>>(mut self, namespaces: impl IntoIterator<Item = S>) -> Self {
        self.namespaces = namespaces.into_iter().map(Into::into).collect();
        self
    }

    /// Adds access providers, best first.
    #[must_use]
    pub fn providers(mut self, providers: impl IntoIterator<Item = AccessProvider>) -> Self {
        self.providers.extend(providers);
        self
    }

    async fn follow(self, sink: ClusterSink) {
        let profiles = Wanted::new("multicluster.x-k8s.io", "ClusterProfile", "clusterprofiles", "", true);
        let mut wanted = vec![profiles.version("v1alpha1")];
        if self.providers.iter().any(|provider| provider.secret().is_some()) {
            wanted.push(Wanted::new("", "Secret", "secrets", "", true));
        }
        let mut follower = Follower::new(&self.host, &self.namespaces, &wanted, &sink);
        let providers: Arc<[AccessProvider]> = self.providers.into();
        let mut known = Known::default();
        loop {
            let mut view = follower.next().await.into_iter();
            let Some(Some(profiles)) = view.next() else { continue };
            let reader = Reader {
                providers: providers.clone(),
                policy: self.policy.clone(),
                secrets: view.next().flatten(),
            };
            // Untrusted content is parsed in a blocking thread, where it holds up nothing else.
            let listing = tokio::task::spawn_blocking(move || {
                let version = |profile: &Object<RawObject>| reader.version(profile.raw());
                let found = known.list(profiles.iter(), version, |profile| reader.read(profile.raw()));
                (known, found)
            });
            let Ok((back, found)) = listing.await else { return };
            known = back;
            sink.publish(found.clusters);
        }
    }
}

impl AccessProvider {
    fn secret(&self) -> Option<&TokenSecret> {
        match &self.credentials {
            AccessCredentials::Secret(secret) => Some(secret),
            AccessCredentials::Exec(_) | AccessCredentials::TokenFile(_) => None,
        }
    }
}

impl TokenSecret {
    /// Returns the key of the Secret of this profile.
    fn key_for(&self, profile: &RawObject) -> Option<ObjectKey> {
        Some(ObjectKey::namespaced(profile.namespace()?, format!("{}{}", profile.name(), self.suffix)))
    }
}

/// Reader of profiles, with the Secrets that have their tokens.
struct Reader {
    providers: Arc<[AccessProvider]>,
    policy: KubeconfigPolicy,
    secrets: Option<Snapshot<RawObject>>,
}

impl Reader {
    /// Returns the version of all that is read for a profile: its own, and those of its Secrets.
    fn version(&self, profile: &RawObject) -> String {
        let secrets = self.providers.iter().filter_map(AccessProvider::secret);
        let secrets = secrets.filter_map(|secret| self.secrets.as_ref()?.get(&secret.key_for(profile)?));
        let versions = secrets.map(|secret| format!("/{}:{}", secret.uid(), secret.resource_version()));
        std::iter::once(profile.resource_version().to_string()).chain(versions).collect()
    }

    fn read(&self, profile: &RawObject) -> Option<(ClusterId, DiscoveredCluster)> {
        let labels = profile.labels().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let listed = DiscoveredCluster {
            spec: self.spec(profile),
            labels: Arc::new(labels),
            power_state: PowerState::Up,
            origin: Some(profile.key().to_string().into()),
            name: None,
            kubeconfig: None,
        };
        Some((id(profile.name(), profile)?, listed))
    }

    fn spec(&self, profile: &RawObject) -> Result<ClusterSpec, SpecError> {
        let unreadable = |reason: String| SpecError::Unreadable {
            place: format!("ClusterProfile {}", profile.key()),
            reason,
        };
        let content: Profile =
            profile.decode().map_err(|_| unreadable("it is not as the API describes it".to_owned()))?;
        let access = content.status.unwrap_or_default().access();
        let chosen = self.providers.iter().find_map(|provider| {
            let access = access.iter().find(|access| access.name == provider.name)?;
            Some((provider, access))
        });
        let (provider, access) = chosen.ok_or_else(|| unreadable(no_provider(&access)))?;
        let user = match &provider.credentials {
            AccessCredentials::Exec(plugin) => plugin.to_exec(),
            AccessCredentials::TokenFile(path) => json!({"tokenFile": path.to_string_lossy()}),
            AccessCredentials::Secret(secret) => {
                let token = self.token(secret, profile).map_err(|reason| unreadable(reason.to_owned()))?;
                json!({"token": &*token})
            }
        };
        // The operator named the plugin or the file. Everything else is the profile's.
        let policy = KubeconfigPolicy { allow_exec: true, allow_token_file: true, ..self.policy.clone() };
        let parsed = generated::spec("profile", &access.cluster, &user, &policy);
        parsed.map_err(|error| match error {
            KubeconfigError::Malformed { .. } => {
                unreadable("the cluster of its access provider is not as the API describes it".to_owned())
            }
            other => SpecError::Kubeconfig(other),
        })
    }

    /// Returns the token in the Secret of a profile.
    fn token(&self, secret: &TokenSecret, profile: &RawObject) -> Result<Zeroizing<String>, String> {
        let place = secret.key_for(profile).map(|key| key.to_string()).unwrap_or_default();
        let missing = || format!("there is no token in Secret {place}, key {}: create it", secret.key);
        let no_text = || format!("the token in Secret {place}, key {}, is not a text in base64", secret.key);
        let key = secret.key_for(profile).ok_or_else(missing)?;
        let object = self.secrets.as_ref().and_then(|secrets| secrets.get(&key)).ok_or_else(missing)?;
        let content = object.raw().decode::<Secret>().map_err(|_| missing())?;
        let text = content.text(&secret.key).map_err(|NotText| no_text())?;
        if text.is_empty() { Err(missing()) } else { Ok(text) }
    }
}

impl AccessPlugin {
    /// Returns the user of a kubeconfig with this plugin.
    fn to_exec(&self) -> Value {
        let env = self.env.iter().map(|(name, value)| json!({"name": name, "value": value}));
        json!({"exec": {
            "command": self.command,
            "args": self.args,
            "env": env.collect::<Vec<_>>(),
            "apiVersion": self.api_version,
            "interactiveMode": "Never",
            "provideClusterInfo": self.provide_cluster_info,
        }})
    }
}

/// Returns the reason why no provider can be used, with the names in the profile.
fn no_provider(access: &[Access]) -> String {
    if access.is_empty() {
        return "its status has no accessProviders yet: its cluster manager adds them".to_owned();
    }
    let names: Vec<String> = access
        .iter()
        .take(10)
        .map(|one| format!("{:?}", one.name.chars().take(100).collect::<String>()))
        .collect();
    format!("none of its access providers ({}) is configured here: configure one of them", names.join(", "))
}

/// The relevant part of a ClusterProfile.
#[derive(Deserialize)]
struct Profile {
    status: Option<ProfileStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ProfileStatus {
    access_providers: Option<Vec<Access>>,
    /// The name of the field before v0.1.0 of the API.
    credential_providers: Option<Vec<Access>>,
}

/// Access to the cluster for holders of one kind of credentials.
#[derive(Deserialize)]
struct Access {
    name: String,
    /// As the cluster in a kubeconfig.
    #[serde(default)]
    cluster: Value,
}

impl ProfileStatus {
    /// Returns all ways to the cluster; of two with one name, the newer field's comes first.
    fn access(self) -> Vec<Access> {
        let newer = self.access_providers.unwrap_or_default();
        newer.into_iter().chain(self.credential_providers.unwrap_or_default()).collect()
    }
}

impl Source for ClusterProfileSource {
    fn name(&self) -> String {
        format!("ClusterProfiles in {}", self.host.id())
    }

    fn run(self: Box<Self>, sink: ClusterSink, _: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.follow(sink))
    }
}
