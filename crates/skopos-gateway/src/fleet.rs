//! The fleet that a configuration describes.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use skopos::journal::JournalOptions;
use skopos::{InformerOptions, ResourceId, Transform};
use skopos_fleet::checkpoint::{Admits, CheckpointKeeper, Directory, KeeperOptions};
use skopos_fleet::kubeconfig::{Kubeconfig, KubeconfigPolicy};
use skopos_fleet::source::{
    KubeconfigFile, KubeconfigFolder, SecretFlavour, SecretSource, VclusterDial, VclusterSource,
};
use skopos_fleet::vcluster::Helm;
use skopos_fleet::{
    AddressPolicy, Cluster, ClusterId, ClusterOptions, ClusterSpec, Fleet, FleetOptions, InformerChoice,
    Keeper,
};
use skopos_serve::Registry;

use crate::bucket;
use crate::config::{self, Config, HostCluster, LoopbackTrust};
use crate::merged::Restarts;

/// How the fleet behaves of which `config` speaks: what it keeps, for how long, and within which bounds.
#[must_use]
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
    let writes = writes(config);
    let cluster = ClusterOptions {
        kinds: pinned.collect(),
        prefetch_documents: true,
        idle_stop: Some(config.cache.idle_stop.0),
        memory_budget: Some(config.cache.bytes_per_cluster.0),
        informer: InformerChoice::new(move |_, _| {
            InformerOptions::all().journal(JournalOptions::default()).transform(kept(writes))
        }),
        ..ClusterOptions::default()
    };
    FleetOptions { cluster, retain_removed: config.clusters.retain_removed.0, ..FleetOptions::default() }
}

/// Whether writes go through to the clusters.
pub(crate) fn writes(config: &Config) -> bool {
    config.outbound.impersonate || config.authorization.loopback == LoopbackTrust::Trusted
}

/// What the configuration in force says of memory. Cheap to clone; all clones say the same.
#[derive(Clone, Debug)]
pub(crate) struct Wishes(Arc<ArcSwap<Config>>);

impl Wishes {
    /// Those of `config`.
    pub(crate) fn of(config: Arc<Config>) -> Self {
        Self(Arc::new(ArcSwap::new(config)))
    }

    /// From now on those of `config`.
    pub(crate) fn take(&self, config: Arc<Config>) {
        self.0.store(config);
    }

    /// Which kinds may be in memory, and on disk.
    pub(crate) fn admits(&self) -> Admits {
        let wishes = self.0.clone();
        Admits::new(move |kind| {
            let cache = &wishes.load().cache;
            let secret = kind.group.is_empty() && kind.plural == "secrets";
            let never =
                cache.never.iter().any(|never| never.group == kind.group && never.resource == kind.plural);
            (!secret || cache.secrets) && !never
        })
    }
}

/// What outlives the process: the clusters' content, and what merged views need to go on.
#[derive(Clone, Default)]
pub(crate) struct Kept {
    pub(crate) keeper: Option<Arc<dyn Keeper>>,
    pub(crate) restarts: Restarts,
}

/// What `config` says is to be kept, of the kinds that `admits` says, and where. Connects to nothing; a bucket that does not
/// answer is found out when it is used.
///
/// # Errors
/// When the folder cannot be used, or another gateway uses it; when the bucket cannot be used as it is configured.
pub(crate) fn keeping(config: &Config, admits: Admits) -> io::Result<Kept> {
    let Some(checkpoints) = &config.checkpoints else { return Ok(Kept::default()) };
    let mut options = KeeperOptions::default();
    options.every = checkpoints.every.0;
    options.limits.bytes = checkpoints.kind_bytes.0;
    options.total_bytes = checkpoints.total_bytes.0;
    options.orphans = checkpoints.retain.0;
    options.admits = admits;
    let (keeper, restarts) = match (&checkpoints.folder, &checkpoints.bucket) {
        (Some(folder), _) => {
            let keeper = CheckpointKeeper::new(Directory::open(folder.join("clusters"))?, options);
            (keeper, Restarts::Folder(folder.join("merged")))
        }
        (None, Some(source)) => {
            let bucket = bucket::open(source, bucket::environment()).map_err(io::Error::other)?;
            let keeper = CheckpointKeeper::new(bucket.below("clusters"), options);
            // One further level for its own list.
            (keeper, Restarts::Bucket { bucket: bucket.below("views"), every: checkpoints.every.0 })
        }
        (None, None) => return Ok(Kept::default()),
    };
    Ok(Kept { keeper: Some(Arc::new(keeper)), restarts })
}

/// Why a source of clusters cannot be followed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The kubeconfig of a host cluster cannot be used.
    #[error("host cluster {kubeconfig}: {problem}")]
    Host {
        /// The file, or what stands for it.
        kubeconfig: String,
        /// Why not.
        problem: String,
    },
    /// A network is not written as one.
    #[error("clusters.addresses: {0:?} is no network, such as 10.0.0.0/8")]
    Network(String),
}

/// Follows all sources of clusters that `config` names; virtual clusters are connected to as `dial` says. Returns the
/// clusters in which virtual clusters are looked for, with how helm reaches them.
///
/// # Errors
/// When a host cluster's kubeconfig cannot be read, or a network not parsed. Whatever is wrong with single clusters is a
/// problem of the fleet, and no error.
pub async fn follow(
    fleet: &Fleet,
    config: &Config,
    dial: &VclusterDial,
) -> Result<BTreeMap<String, Helm>, SourceError> {
    let clusters = &config.clusters;
    let addresses = addresses(&clusters.addresses)?;
    for source in &clusters.kubeconfigs {
        let file =
            KubeconfigFile::new(&source.path, KubeconfigPolicy::trusted()).labels(source.labels.clone());
        match &source.contexts {
            Some(contexts) => fleet.follow(file.contexts(contexts.iter().cloned())),
            None => fleet.follow(file),
        }
    }
    for source in &clusters.folders {
        let folder = KubeconfigFolder::new(&source.path, policy(source.allow, &addresses));
        fleet.follow(folder.labels(source.labels.clone()));
    }
    for source in &clusters.secrets {
        let flavour = match source.flavour {
            config::SecretFlavour::ClusterApi => SecretFlavour::ClusterApi,
            config::SecretFlavour::Plain => SecretFlavour::Plain,
        };
        let secrets =
            SecretSource::new(host(fleet, &source.host).await?, flavour, policy(source.allow, &addresses));
        fleet.follow(secrets.namespaces(source.namespaces.iter().cloned()));
    }
    let mut hosts = BTreeMap::new();
    for source in &clusters.vclusters {
        let policy = policy(config::KubeconfigSwitches::default(), &addresses);
        let host = host(fleet, &source.host).await?;
        let config::HostCluster { kubeconfig, context } = source.host.clone();
        hosts.insert(host.id().to_string(), Helm { kubeconfig, context, ..Helm::default() });
        let vclusters = VclusterSource::new(host, policy).dial(dial.clone());
        fleet.follow(vclusters.namespaces(source.namespaces.iter().cloned()));
    }
    Ok(hosts)
}

/// A host cluster: a member of the fleet of its own name, so that it can be asked who may do what in it.
async fn host(fleet: &Fleet, host: &HostCluster) -> Result<Cluster, SourceError> {
    let named = host.kubeconfig.as_ref().map_or("in this pod".to_owned(), |path| path.display().to_string());
    let wrong = |problem: &dyn std::fmt::Display| SourceError::Host {
        kubeconfig: named.clone(),
        problem: problem.to_string(),
    };
    let (name, spec) = match &host.kubeconfig {
        Some(path) => {
            let bytes = tokio::fs::read(path).await.map_err(|error| wrong(&error))?;
            let parsed =
                Kubeconfig::parse(&bytes, &KubeconfigPolicy::trusted()).map_err(|error| wrong(&error))?;
            let parsed = match path.parent() {
                Some(folder) => parsed.in_folder(folder),
                None => parsed,
            };
            let spec = parsed.cluster(host.context.as_deref()).map_err(|error| wrong(&error))?;
            let name = host.context.as_deref().or(parsed.current_context()).unwrap_or("host").to_owned();
            (name, spec)
        }
        None => {
            let config = kube::Config::incluster().map_err(|error| wrong(&error))?;
            ("host".to_owned(), ClusterSpec::from_config(config))
        }
    };
    let id = ClusterId::nearest(&name).map_err(|error| wrong(&error))?;
    fleet.join(id, spec).map_err(|error| wrong(&error))
}

/// What a kubeconfig of somebody else may do.
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

/// The name of a kind for informers.
#[must_use]
pub fn resource_id(resource: &skopos_serve::ResourceType) -> ResourceId {
    ResourceId {
        group: resource.group.clone(),
        version: resource.version.clone(),
        plural: resource.plural.clone(),
        kind: resource.kind.clone(),
    }
}

/// What of an object is kept. `kubectl apply` needs what it last applied, so that stays where writes go through; it may have
/// in it what somebody has taken out of the object since.
fn kept(writes: bool) -> Transform {
    match writes {
        true => Transform::DropManagedFields,
        false => {
            Transform::Custom { name: "drop-last-applied".into(), apply: Arc::new(without_last_applied) }
        }
    }
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn without_last_applied(json: &[u8]) -> Bytes {
    let json = skopos_wire::transform::drop_managed_fields(json);
    // Most objects do not have it, and need not be taken apart.
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
    use super::*;

    #[test]
    fn what_was_last_applied_is_not_kept_where_nobody_writes() {
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
}
