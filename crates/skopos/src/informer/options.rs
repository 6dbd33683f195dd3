//! Options of factories and informers, and the key by which informers are shared.

use std::any::TypeId;
use std::time::Duration;

use serde::de::DeserializeOwned;
use skopos_reflect::{Encoding, Form, MachineOptions};
use skopos_wire::{FieldSelector, LabelSelector, Limits, ParseError};

use super::resource::{ResourceId, Scope};
use super::transform::Transform;
use crate::checkpoint::clock::RestartClock;
use crate::checkpoint::content::Checkpoint;
use crate::checkpoint::header::ContentIdentity;
use crate::error::BuildError;
use crate::freshness::sleep::SleepClock;
use crate::journal::JournalOptions;
use crate::store::Indexer;

/// The options of a factory. [`FactoryOptions::default`] suits nearly every use.
#[derive(Clone, Debug)]
pub struct FactoryOptions {
    /// The interval at which a consistent read of one object's metadata proves the age of each resource (30 s, each time up
    /// to 20 % sooner). One such probe serves all informers of the resource.
    pub probe_interval: Duration,
    /// The timeout of one probe (10 s).
    pub probe_timeout: Duration,
    /// The options of the list/watch protocol: page size, backoff, a watch's maximum lag behind a probe, and so on. If a
    /// server does not stream lists of a resource, that is remembered for an hour: informers started in that time request
    /// pages at once.
    pub machine: MachineOptions,
    /// The encoding that is asked for: protobuf for built-in kinds, which costs server and client a fraction of JSON, or JSON
    /// only. A server that refuses protobuf of a resource is asked for JSON at once, and from then on.
    pub encoding: Encoding,
    /// Limits on what is accepted from the server.
    pub limits: Limits,
    /// The age above which content is no longer live (90 s).
    pub stale_after: Duration,
    /// The interval at which each informer's content is compared with the server's (10 min, each time up to 20 % sooner);
    /// `None`: only on demand.
    pub audit_interval: Option<Duration>,
    /// The timeout of one audit (60 s).
    pub audit_timeout: Duration,
    /// True to leave the transport running when the factory is shut down, because others use it too (false).
    pub keep_transport: bool,
    /// The seed that makes every random choice reproducible; `None`: random.
    pub seed: Option<u64>,
    /// The clock that detects a suspend of the machine; replaced in tests.
    pub sleep_clock: SleepClock,
    /// The clock that measures the age of a checkpoint; replaced in tests.
    pub restart_clock: RestartClock,
    /// The cluster's name, for checkpoints (none): it is written into them, and only those of the same cluster are
    /// accepted. RVs mean nothing in another cluster, so the name should change when the cluster is created again: the uid
    /// of its namespace kube-system does.
    pub cluster: Option<String>,
}

impl Default for FactoryOptions {
    fn default() -> Self {
        Self {
            probe_interval: Duration::from_secs(30),
            probe_timeout: Duration::from_secs(10),
            machine: MachineOptions::default(),
            encoding: Encoding::default(),
            limits: Limits::default(),
            stale_after: Duration::from_secs(90),
            audit_interval: Some(Duration::from_secs(600)),
            audit_timeout: Duration::from_secs(60),
            keep_transport: false,
            seed: None,
            sleep_clock: SleepClock::system(),
            restart_clock: RestartClock::system(),
            cluster: None,
        }
    }
}

/// The options of an informer: its namespaces, selectors, form and so on.
///
/// Informers of the same resource and form with the same scope, selectors and transform share one list/watch and one store,
/// whatever their indexes. Functions cannot be compared, so indexes and custom transforms are distinguished by their names:
/// the same name must mean the same function.
#[derive(Clone, Debug)]
pub struct InformerOptions {
    pub(crate) scope: Scope,
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
    pub(crate) indexers: Vec<Indexer>,
    pub(crate) transform: Transform,
    pub(crate) resync: Option<Duration>,
    pub(crate) journal: Option<JournalOptions>,
    pub(crate) restored: Option<Checkpoint>,
    pub(crate) compact_above: Option<u64>,
}

impl InformerOptions {
    /// Creates options for everything: all namespaces, or all objects of a cluster-scoped resource.
    pub fn all() -> Self {
        Self::from_scope(Scope::All)
    }

    /// Creates options for one namespace.
    pub fn namespace(namespace: impl Into<String>) -> Self {
        Self::namespaces([namespace])
    }

    /// Creates options for a set of namespaces, for clients that may not watch all of them: one list/watch each, and one
    /// store for all.
    ///
    /// Each namespace has its own resource version, and is synced, aged and recovered on its own.
    pub fn namespaces<N: Into<String>>(namespaces: impl IntoIterator<Item = N>) -> Self {
        Self::from_scope(Scope::Namespaces(namespaces.into_iter().map(Into::into).collect()))
    }

    /// Creates options for everything in `scope`. Namespaces in any order, or named twice, are the same set.
    pub fn from_scope(mut scope: Scope) -> Self {
        if let Scope::Namespaces(namespaces) = &mut scope {
            namespaces.sort_unstable();
            namespaces.dedup();
        }
        Self {
            scope,
            labels: LabelSelector::default(),
            fields: FieldSelector::default(),
            indexers: Vec::new(),
            transform: Transform::Keep,
            resync: None,
            journal: None,
            restored: None,
            compact_above: None,
        }
    }

    /// Restricts the informer to objects that match this label selector, in kubectl's notation:
    /// `app=web,tier in (a,b),!canary`.
    pub fn labels(mut self, selector: &str) -> Result<Self, ParseError> {
        self.labels = LabelSelector::parse(selector)?;
        Ok(self)
    }

    /// Restricts the informer to objects that match this field selector: `status.phase=Running,spec.nodeName!=n1`. The
    /// server decides which fields it may name.
    pub fn fields(mut self, selector: &str) -> Result<Self, ParseError> {
        self.fields = FieldSelector::parse(selector)?;
        Ok(self)
    }

    /// Adds an index: `values` returns the values under which an object is found
    /// ([`Snapshot::by_index`](crate::Snapshot::by_index)). Versions are decoded for it, see [`Indexer::typed`]. If a shared
    /// store already has an index of this name, that one is used.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Pod;
    /// use skopos::InformerOptions;
    ///
    /// let options = InformerOptions::all().index("by_node", |pod: &Pod| pod.spec.as_ref()?.node_name.clone());
    /// ```
    #[must_use]
    pub fn index<K, V, I>(
        self,
        name: impl AsRef<str>,
        values: impl Fn(&K) -> I + Send + Sync + 'static,
    ) -> Self
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
        I: IntoIterator<Item = V>,
        V: Into<String>,
    {
        self.indexer(Indexer::typed(name, values))
    }

    /// Adds an index, such as [`Indexer::by_label`] or one over undecoded objects ([`Indexer::new`]).
    #[must_use]
    pub fn indexer(mut self, indexer: Indexer) -> Self {
        self.indexers.push(indexer);
        self
    }

    /// Sets the transform that is applied to objects before they are stored.
    #[must_use]
    pub fn transform(mut self, transform: Transform) -> Self {
        self.transform = transform;
        self
    }

    /// Sets the interval at which handlers without an own resync period receive every object again (none). Zero: never.
    #[must_use]
    pub fn resync(mut self, every: Duration) -> Self {
        self.resync = Some(every);
        self
    }

    /// Stores the last changes, for servers that answer watches from them ([`Store::journal`](crate::Store::journal)). If a
    /// shared store already has a journal, that one is used, with its own bounds.
    #[must_use]
    pub fn journal(mut self, options: JournalOptions) -> Self {
        self.journal = Some(options);
        self
    }

    /// Holds objects compressed, once all of them together take more than `bytes` (default: never). They read as before, and
    /// take a third of the memory or less; each read of a field other than metadata, and each decoding, takes some
    /// microseconds more. Secrets are never compressed. If a shared store exists already, its own setting stays.
    #[must_use]
    pub fn compact_above(mut self, bytes: u64) -> Self {
        self.compact_above = Some(bytes);
        self
    }

    /// Starts from a checkpoint instead of a list; see [`checkpoint`](crate::checkpoint). It must have the same cluster,
    /// resource, scope, selectors, form and transform. An existing informer of these options is not changed.
    #[must_use]
    pub fn restored(mut self, checkpoint: Checkpoint) -> Self {
        self.restored = Some(checkpoint);
        self
    }

    pub(crate) fn check(&self) -> Result<(), BuildError> {
        let Scope::Namespaces(namespaces) = &self.scope else { return Ok(()) };
        if namespaces.is_empty() {
            return Err(BuildError::NoNamespaces);
        }
        match namespaces.iter().find(|name| !is_dns_label(name)) {
            Some(name) => Err(BuildError::InvalidNamespace { name: name.clone() }),
            None => Ok(()),
        }
    }

    /// Refuses indexes that read whole objects of another resource than the informer has.
    pub(crate) fn check_indexers(&self, resource: &ResourceId, form: Form) -> Result<(), BuildError> {
        let reads_others = |reads: &ResourceId| {
            reads.kind != resource.kind || reads.group != resource.group || form != Form::Full
        };
        let refused = self
            .indexers
            .iter()
            .find_map(|indexer| Some((indexer, indexer.resource().filter(|reads| reads_others(reads))?)));
        let Some((indexer, reads)) = refused else { return Ok(()) };
        let found = match form {
            Form::MetadataOnly => format!("only the metadata of {resource}"),
            _ => resource.to_string(),
        };
        Err(BuildError::IndexOfAnotherType {
            index: indexer.name().to_owned(),
            reads: Box::new(reads.clone()),
            found,
        })
    }

    /// Refuses namespaces for a cluster-scoped type.
    pub(crate) fn check_scope<K: kube::Resource>(&self, resource: &ResourceId) -> Result<(), BuildError>
    where
        K::Scope: 'static,
    {
        let cluster_scoped = TypeId::of::<K::Scope>() == TypeId::of::<k8s_openapi::ClusterResourceScope>();
        match &self.scope {
            Scope::Namespaces(_) if cluster_scoped => {
                Err(BuildError::ClusterScoped { resource: resource.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Returns the identity of content with these options.
    pub(crate) fn identity(
        &self,
        cluster: Option<&str>,
        resource: &ResourceId,
        form: Form,
    ) -> ContentIdentity {
        ContentIdentity {
            cluster: cluster.map(str::to_owned),
            resource: resource.clone(),
            metadata_only: matches!(form, Form::MetadataOnly),
            scope: self.scope.clone(),
            labels: self.labels.to_string(),
            fields: self.fields.to_string(),
            transform: self.transform.name().to_owned(),
        }
    }

    pub(crate) fn sharing_key(&self, resource: &ResourceId, form: Form) -> SharingKey {
        SharingKey {
            resource: resource.clone(),
            scope: self.scope.clone(),
            labels: self.labels.to_string(),
            fields: self.fields.to_string(),
            metadata_only: matches!(form, Form::MetadataOnly),
            transform: self.transform.name().to_owned(),
        }
    }
}

/// The key of an informer: informers with equal keys share one list/watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SharingKey {
    resource: ResourceId,
    scope: Scope,
    labels: String,
    fields: String,
    metadata_only: bool,
    transform: String,
}

/// Returns whether `name` is a DNS-1123 label, as a namespace's name must be; such a name cannot change the meaning of a
/// path.
fn is_dns_label(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}
