//! The fleet that a configuration describes.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use skopos::journal::JournalOptions;
use skopos::{Encoding, FactoryOptions, InformerOptions, ResourceId, Transform};
use skopos_fleet::checkpoint::{CheckpointKeeper, Directory, KeeperOptions, KindFilter, private_folder};
use skopos_fleet::kubeconfig::KubeconfigPolicy;
use skopos_fleet::source::{
    AccessCredentials, AccessPlugin, AccessProvider, ClusterProfileSource, KubeconfigFile, KubeconfigFolder,
    SecretFlavour, SecretSource, TokenSecret, VclusterDial, VclusterSource,
};
use skopos_fleet::{AddressPolicy, ClusterId, ClusterOptions, Fleet, FleetOptions, InformerConfig, Keeper};
use skopos_serve::Registry;
use skopos_vcluster::Helm;

use crate::config::hosts::{Hosts, kubeconfig_paths};
use crate::config::{self, Config, LoopbackTrust, ManagedFields, MemberEncoding};
use crate::merged::ResumeStorage;

/// Returns the fleet options of `config`: the content to keep, its lifetime and its bounds.
pub fn options(config: &Config) -> FleetOptions {
    let registry = Registry::builtin();
    let pinned = config.cache.kinds.iter().filter_map(|kind| {
        let known = registry.resolve(&kind.group, &kind.version, &kind.resource);
        if known.is_none() {
            tracing::warn!(
                ?kind,
                "only built-in kinds can be kept from the start: this one is kept from its first use"
            );
        }
        known.map(|known| resource_id(&known))
    });
    let kept = KeptParts::from_config(config);
    let compact_above = config.cache.compact_above.0;
    let encoding = match config.cache.encoding {
        MemberEncoding::Protobuf => Encoding::Protobuf,
        MemberEncoding::Json => Encoding::Json,
    };
    let cluster = ClusterOptions {
        kinds: pinned.collect(),
        prefetch_documents: true,
        idle_stop: Some(config.cache.idle_stop.0),
        memory_budget: Some(config.cache.bytes_per_cluster.0),
        informer: InformerConfig::new(move |_, _| {
            InformerOptions::all()
                .journal(JournalOptions::default())
                .transform(kept.transform())
                .compact_above(compact_above)
        }),
        factory: FactoryOptions { encoding, ..FactoryOptions::default() },
        ..ClusterOptions::default()
    };
    FleetOptions { cluster, retain_removed: config.clusters.retain_removed.0, ..FleetOptions::default() }
}

/// Returns whether writes go through to the clusters.
pub(crate) fn writes(config: &Config) -> bool {
    let through = config.outbound.impersonate || config.authorization.loopback == LoopbackTrust::Trusted;
    through && !config.outbound.read_only
}

/// The cache settings of the configuration in force. Cheap to clone; all clones share the same settings.
#[derive(Clone, Debug)]
pub(crate) struct CachePolicy(Arc<ArcSwap<Config>>);

impl CachePolicy {
    /// Makes the settings of `config`.
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self(Arc::new(ArcSwap::new(config)))
    }

    /// Replaces the settings by those of `config`.
    pub(crate) fn replace(&self, config: Arc<Config>) {
        self.0.store(config);
    }

    /// Returns the filter of resources that may be kept in memory and on disk.
    pub(crate) fn admits(&self) -> KindFilter {
        let cache_policy = self.0.clone();
        KindFilter::new(move |kind| cache_policy.load().cache.keeps(&kind.group, &kind.plural))
    }
}

/// The storage that outlives the process: the clusters' content, and the state from which merged views resume.
#[derive(Clone, Default)]
pub(crate) struct Storage {
    pub(crate) keeper: Option<Arc<dyn Keeper>>,
    pub(crate) resume_storage: ResumeStorage,
}

/// Opens the storage that `config` names, for the resources that `admits` permits. Connects to nothing, so an unreachable
/// bucket is noticed when it is used.
///
/// # Errors
/// If the folder cannot be used, or another gateway uses it; if the bucket cannot be used as configured.
pub(crate) fn open_storage(config: &Config, admits: KindFilter) -> io::Result<Storage> {
    let Some(checkpoints) = &config.checkpoints else { return Ok(Storage::default()) };
    let mut options = KeeperOptions::default();
    options.every = checkpoints.every.0;
    options.limits.bytes = checkpoints.kind_bytes.0;
    options.total_bytes = checkpoints.total_bytes.0;
    options.orphans = checkpoints.retain.0;
    options.admits = admits;
    let (keeper, resume_storage) = match (&checkpoints.folder, &checkpoints.bucket) {
        (Some(folder), _) => {
            let keeper = CheckpointKeeper::new(Directory::open(folder.join("clusters"))?, options);
            let merged = folder.join("merged");
            private_folder(&merged)?;
            (keeper, ResumeStorage::Folder(merged))
        }
        (None, Some(source)) => {
            let bucket = source.open().map_err(io::Error::other)?;
            let keeper = CheckpointKeeper::new(bucket.below("clusters"), options);
            // One more level, because a bucket folder has its own list.
            (keeper, ResumeStorage::Bucket { bucket: bucket.below("views"), every: checkpoints.every.0 })
        }
        (None, None) => return Ok(Storage::default()),
    };
    Ok(Storage { keeper: Some(Arc::new(keeper)), resume_storage })
}

/// The reason why a source of clusters cannot be followed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The kubeconfig of a host cluster cannot be used.
    #[error("host cluster {kubeconfig}: {problem}")]
    Host {
        /// The file, or a text in its place.
        kubeconfig: String,
        /// The reason.
        problem: String,
    },
    /// Two host clusters have the same name.
    #[error("host clusters {one} and {another} are both called {name}: give one of them a `name`")]
    SameName {
        /// The name.
        name: ClusterId,
        /// One of them.
        one: String,
        /// The other.
        another: String,
    },
    /// A network cannot be parsed.
    #[error("clusters.addresses: {0:?} is no network, such as 10.0.0.0/8")]
    Network(String),
}

/// Follows all sources of clusters in `config`; `dial` says how virtual clusters are connected to. Returns the hosts of
/// virtual clusters, with the way in which helm reaches them.
///
/// # Errors
/// If two host clusters have the same name, if the context of a kubeconfig is neither named nor readable, or if a network
/// cannot be parsed. Faults of single clusters are problems of the fleet, not errors.
pub(crate) async fn follow(
    fleet: &Fleet,
    config: &Config,
    dial: &VclusterDial,
) -> Result<BTreeMap<String, Helm>, SourceError> {
    let clusters = &config.clusters;
    let addresses = addresses(&clusters.addresses)?;
    // Hosts come first, so that a cluster from another source is never taken for one of them.
    let mut hosts = Hosts::new(fleet);
    let secret_hosts = hosts.resolve_all(clusters.secrets.iter().map(|source| &source.host)).await?;
    let profile_hosts =
        hosts.resolve_all(clusters.cluster_profiles.iter().map(|source| &source.host)).await?;
    let vcluster_hosts = hosts.resolve_all(clusters.vclusters.iter().map(|source| &source.host)).await?;
    for source in &clusters.kubeconfigs {
        let paths = kubeconfig_paths(&source.path);
        let file = KubeconfigFile::list(paths, KubeconfigPolicy::trusted()).labels(source.labels.clone());
        match &source.contexts {
            Some(contexts) => fleet.follow(file.contexts(contexts.iter().cloned())),
            None => fleet.follow(file),
        }
    }
    for source in &clusters.folders {
        let folder = KubeconfigFolder::new(&source.path, policy(source.allow, &addresses));
        fleet.follow(folder.labels(source.labels.clone()));
    }
    for (source, (host, _)) in clusters.secrets.iter().zip(secret_hosts) {
        let flavour = match source.flavour {
            config::SecretFlavour::ClusterApi => SecretFlavour::ClusterApi,
            config::SecretFlavour::Plain => SecretFlavour::Plain,
            config::SecretFlavour::ArgoCd => SecretFlavour::ArgoCd,
        };
        let secrets = SecretSource::new(host, flavour, policy(source.allow, &addresses));
        fleet.follow(secrets.namespaces(source.namespaces.iter().cloned()));
    }
    for (source, (host, _)) in clusters.cluster_profiles.iter().zip(profile_hosts) {
        let switches = config::KubeconfigSwitches {
            insecure: source.allow_insecure,
            ..config::KubeconfigSwitches::default()
        };
        let mut policy = policy(switches, &addresses);
        // Gateways of cloud providers have certificates of public CAs.
        policy.allow_system_roots = true;
        let profiles = ClusterProfileSource::new(host, policy).namespaces(source.namespaces.iter().cloned());
        fleet.follow(profiles.providers(source.providers.iter().filter_map(access_provider)));
    }
    let mut found = BTreeMap::new();
    for (source, (host, helm)) in clusters.vclusters.iter().zip(vcluster_hosts) {
        let policy = policy(config::KubeconfigSwitches::default(), &addresses);
        found.insert(host.id().to_string(), helm);
        let dial = match (dial, source.dial) {
            (VclusterDial::Automatic, config::Dial::Automatic) => VclusterDial::Automatic,
            (VclusterDial::Automatic, config::Dial::Service) => VclusterDial::Service,
            (VclusterDial::Automatic, config::Dial::PortForward) => VclusterDial::PortForward,
            (embedded, _) => embedded.clone(),
        };
        let vclusters = VclusterSource::new(host, policy).dial(dial);
        fleet.follow(vclusters.namespaces(source.namespaces.iter().cloned()));
    }
    Ok(found)
}

/// Returns the credentials for an access provider; `None` if it has none, which the check of the configuration refuses.
fn access_provider(provider: &config::AccessProvider) -> Option<AccessProvider> {
    let config::AccessProvider { name, exec, token_file, secret } = provider.clone();
    let exec = exec.map(|plugin| {
        let config::AccessPlugin { command, args, env, api_version, provide_cluster_info } = plugin;
        AccessCredentials::Exec(AccessPlugin { command, args, env, api_version, provide_cluster_info })
    });
    let secret = secret.map(|config::TokenSecret { suffix, key }| {
        AccessCredentials::Secret(TokenSecret { suffix: suffix.unwrap_or_default(), key })
    });
    let credentials = exec.or(token_file.map(AccessCredentials::TokenFile)).or(secret)?;
    Some(AccessProvider { name, credentials })
}

/// Returns the policy for kubeconfigs of an untrusted source.
fn policy(switches: config::KubeconfigSwitches, addresses: &AddressPolicy) -> KubeconfigPolicy {
    let config::KubeconfigSwitches { exec, files, insecure } = switches;
    let mut policy = KubeconfigPolicy::hostile();
    policy.allow_exec = exec;
    policy.allow_auth_provider = exec;
    policy.allow_certificate_authority_file = files;
    policy.allow_client_certificate_file = files;
    policy.allow_client_key_file = files;
    policy.allow_token_file = files;
    policy.allow_insecure_skip_tls_verify = insecure;
    policy.allow_http = insecure;
    policy.addresses = addresses.clone();
    policy
}

fn addresses(list: &config::CidrList) -> Result<AddressPolicy, SourceError> {
    let parse = |text: &String| text.parse().map_err(|_| SourceError::Network(text.clone()));
    let mut policy = AddressPolicy::outside();
    for network in &list.allow {
        policy = policy.allow(parse(network)?);
    }
    for network in &list.deny {
        policy = policy.deny(parse(network)?);
    }
    Ok(policy)
}

/// Returns the informers' ID of a resource.
pub(crate) fn resource_id(resource: &skopos_serve::ResourceType) -> ResourceId {
    ResourceId {
        group: resource.group.clone(),
        version: resource.version.clone(),
        plural: resource.plural.clone(),
        kind: resource.kind.clone(),
    }
}

/// The parts kept of an object, from the least to the most. Clients that write need the last applied configuration (`kubectl
/// apply`) and the managed fields. The Extract functions of client-go's apply configurations read the latter, and the next
/// apply removes fields that they do not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KeptParts {
    /// Without managed fields and the last applied configuration, which may contain content since removed from the object.
    WithoutLastApplied,
    /// Without managed fields.
    WithoutManagedFields,
    /// Everything.
    All,
}

impl KeptParts {
    /// Returns the parts to keep according to `config`.
    pub(crate) fn from_config(config: &Config) -> Self {
        match config.cache.managed_fields {
            _ if !writes(config) => Self::WithoutLastApplied,
            ManagedFields::Drop => Self::WithoutManagedFields,
            ManagedFields::KeepForWriters => Self::All,
        }
    }

    fn transform(self) -> Transform {
        match self {
            Self::All => Transform::Keep,
            Self::WithoutManagedFields => Transform::DropManagedFields,
            Self::WithoutLastApplied => {
                Transform::Custom { name: "drop-last-applied".into(), apply: Arc::new(without_last_applied) }
            }
        }
    }
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn without_last_applied(json: &[u8]) -> Bytes {
    let json = skopos_wire::transform::drop_managed_fields(json);
    // Most objects do not have the annotation and need not be parsed.
    if memchr::memmem::find(&json, LAST_APPLIED.as_bytes()).is_none() {
        return json;
    }
    let Ok(mut object) = serde_json::from_slice::<serde_json::Value>(&json) else { return json };
    let annotations = object.pointer_mut("/metadata/annotations").and_then(|value| value.as_object_mut());
    match annotations.and_then(|annotations| annotations.remove(LAST_APPLIED)) {
        Some(_) => serde_json::to_vec(&object).map_or(json, Bytes::from),
        None => json,
    }
}

#[cfg(test)]
mod tests {
    use skopos_fleet::kubeconfig::KubeconfigPaths;

    use super::*;
    use crate::config::HostCluster;

    #[test]
    fn strips_last_applied_and_managed_fields() {
        let json = format!(
            r#"{{"kind":"Pod","metadata":{{"name":"a","managedFields":[{{}}],"annotations":{{"{LAST_APPLIED}":"secret","b":"c"}}}}}}"#
        );
        let kept = String::from_utf8(without_last_applied(json.as_bytes()).to_vec()).unwrap();
        assert!(
            !kept.contains("secret") && !kept.contains("managedFields") && kept.contains(r#""b":"c""#),
            "{kept}"
        );
        assert_eq!(without_last_applied(b"{\"a\":1}"), Bytes::from_static(b"{\"a\":1}"));
    }

    fn kubeconfig(server: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: default\n\
             clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n\
             contexts: [{{name: default, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {{token: t}}}}]\n"
        )
    }

    fn with_hosts(hosts: &[HostCluster]) -> Config {
        let mut config = Config::default();
        config.clusters.vclusters = hosts
            .iter()
            .map(|host| config::VclusterSource { host: host.clone(), ..config::VclusterSource::default() })
            .collect();
        config
    }

    async fn followed(config: &Config) -> Result<(Fleet, BTreeMap<String, Helm>), SourceError> {
        let fleet = Fleet::new(options(config));
        let hosts = follow(&fleet, config, &VclusterDial::default()).await?;
        Ok((fleet, hosts))
    }

    #[tokio::test]
    async fn rejects_two_hosts_with_same_name() {
        let folder = tempfile::tempdir().unwrap();
        let host =
            |file: &str| HostCluster { kubeconfig: Some(folder.path().join(file)), ..HostCluster::default() };
        for file in ["a", "b"] {
            std::fs::write(folder.path().join(file), kubeconfig(&format!("http://{file}"))).unwrap();
        }
        // k3s names every context `default`.
        let error = followed(&with_hosts(&[host("a"), host("b")])).await.unwrap_err();
        assert!(
            matches!(&error, SourceError::SameName { name, .. } if name.as_str() == "default"),
            "{error}"
        );
        assert!(error.to_string().contains("give one of them a `name`"), "{error}");

        let named = HostCluster { name: Some("second".into()), ..host("b") };
        let (fleet, hosts) = followed(&with_hosts(&[host("a"), named.clone(), host("a")])).await.unwrap();
        assert_eq!(hosts.keys().collect::<Vec<_>>(), ["default", "second"]);
        for (name, server, file) in [("default", "http://a/", "a"), ("second", "http://b/", "b")] {
            assert_eq!(fleet.cluster(name).unwrap().spec().unwrap().server().to_string(), server);
            // A later change of the current context does not lead helm elsewhere.
            assert_eq!(hosts[name].kubeconfig, Some(KubeconfigPaths::file(folder.path().join(file))));
            assert_eq!(hosts[name].context.as_deref(), Some("default"));
        }
        fleet.shutdown(std::time::Duration::from_secs(5)).await;
    }

    #[tokio::test]
    async fn missing_host_file_is_accepted_with_named_context() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("later");
        let unnamed = HostCluster { kubeconfig: Some(path), ..HostCluster::default() };
        let error = followed(&with_hosts(std::slice::from_ref(&unnamed))).await.unwrap_err();
        assert!(error.to_string().contains("`context`"), "{error}");
        let named = HostCluster { context: Some("default".into()), ..unnamed };
        let (fleet, hosts) = followed(&with_hosts(&[named])).await.unwrap();
        assert!(hosts.contains_key("default") && fleet.get("default").is_some());
        assert!(!fleet.problems().is_empty());
        fleet.shutdown(std::time::Duration::from_secs(5)).await;
    }
}
