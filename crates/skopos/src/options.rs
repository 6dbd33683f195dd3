//! What an informer keeps, and what makes two informers the same.

use std::any::TypeId;
use std::time::Duration;

use skopos_reflect::{Form, MachineOptions};
use skopos_wire::{FieldSelector, LabelSelector, Limits, ParseError, RawObject};

use crate::checkpoint::clock::WallClock;
use crate::checkpoint::header::Identity;
use crate::checkpoint::kept::Checkpoint;
use crate::error::BuildError;
use crate::journal::JournalOptions;
use crate::object::Object;
use crate::resource::{ResourceId, Scope};
use crate::sleep::SleepClock;
use crate::store::Indexer;
use crate::transform::Transform;

/// How a factory runs its informers. [`FactoryOptions::default`] is right for nearly everybody.
#[derive(Clone, Debug)]
pub struct FactoryOptions {
    /// How often the age of each kind of object is proven by a consistent read of one object's metadata (30 s, each time
    /// up to 20 % sooner). One such probe serves all informers of the kind.
    pub probe_interval: Duration,
    /// How long one probe may take (10 s).
    pub probe_timeout: Duration,
    /// How the list/watch protocol behaves: page size, backoff, how long a watch may be behind a probe, and so on. That a server
    /// streams no lists of a kind is remembered for an hour: informers that are started in that time ask for pages at once.
    pub machine: MachineOptions,
    /// Caps on what is accepted from the server.
    pub limits: Limits,
    /// The age above which content is not called live any more (90 s).
    pub stale_after: Duration,
    /// How often each informer's content is compared with the server's (10 min, each time up to 20 % sooner);
    /// `None`: only on demand.
    pub audit_interval: Option<Duration>,
    /// How long one audit may take (60 s).
    pub audit_timeout: Duration,
    /// How long [`InformerFactory::wait_synced`](crate::InformerFactory) waits by default (30 s).
    pub sync_timeout: Duration,
    /// Leave the transport running when the factory is shut down, because others use it too (false).
    pub keep_transport: bool,
    /// Makes every random choice reproducible; `None`: random.
    pub seed: Option<u64>,
    /// The clock that tells of a machine that slept; for tests.
    pub sleep_clock: SleepClock,
    /// The clock that tells how old a checkpoint is; for tests.
    pub wall_clock: WallClock,
    /// What the cluster is, for checkpoints (none): it is written into them, and they are accepted only if it is the same. RVs
    /// mean nothing in another cluster, so it should change when the cluster is made anew: the uid of its namespace
    /// kube-system does.
    pub cluster: Option<String>,
}

impl Default for FactoryOptions {
    fn default() -> Self {
        Self {
            probe_interval: Duration::from_secs(30),
            probe_timeout: Duration::from_secs(10),
            machine: MachineOptions::default(),
            limits: Limits::default(),
            stale_after: Duration::from_secs(90),
            audit_interval: Some(Duration::from_secs(600)),
            audit_timeout: Duration::from_secs(60),
            sync_timeout: Duration::from_secs(30),
            keep_transport: false,
            seed: None,
            sleep_clock: SleepClock::system(),
            wall_clock: WallClock::system(),
            cluster: None,
        }
    }
}

/// What an informer keeps: of which namespaces, with which selectors, in which form.
///
/// Informers of the same kind and form with the same scope, selectors and transform share one list/watch and one store,
/// whatever their indexes. Functions cannot be compared, so indexes and custom transforms are told apart by their names: the
/// same name must mean the same function.
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
}

impl InformerOptions {
    /// Everything: all namespaces, or all objects of a cluster-scoped kind.
    pub fn all() -> Self {
        Self::of(Scope::All)
    }

    /// One namespace.
    pub fn namespace(namespace: impl Into<String>) -> Self {
        Self::namespaces([namespace])
    }

    /// A set of namespaces, for those who may not watch all of them: one list/watch each, and one store for all.
    ///
    /// Each namespace has its own resource version, and is synced, aged and recovered on its own.
    pub fn namespaces<N: Into<String>>(namespaces: impl IntoIterator<Item = N>) -> Self {
        Self::of(Scope::Namespaces(namespaces.into_iter().map(Into::into).collect()))
    }

    /// Everything in `scope`. Namespaces in any order, or named twice, are the same set.
    pub fn of(mut scope: Scope) -> Self {
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
        }
    }

    /// Only objects that match this label selector, in kubectl's notation: `app=web,tier in (a,b),!canary`.
    pub fn labels(mut self, selector: &str) -> Result<Self, ParseError> {
        self.labels = LabelSelector::parse(selector)?;
        Ok(self)
    }

    /// Only objects that match this field selector: `status.phase=Running,spec.nodeName!=n1`. Which fields it may name is
    /// the server's decision.
    pub fn fields(mut self, selector: &str) -> Result<Self, ParseError> {
        self.fields = FieldSelector::parse(selector)?;
        Ok(self)
    }

    /// Keeps an index: `values` gives the values under which an object is found again
    /// ([`Snapshot::by_index`](crate::Snapshot::by_index)). If a store that is shared has an index of this name already, that
    /// one is used.
    pub fn index<F, I>(self, name: impl AsRef<str>, values: F) -> Self
    where
        F: Fn(&RawObject) -> I + Send + Sync + 'static,
        I: IntoIterator<Item = String>,
    {
        self.indexer(Indexer::new(name, move |object: &Object| values(object.raw())))
    }

    /// Keeps an index, such as [`Indexer::by_label`].
    pub fn indexer(mut self, indexer: Indexer) -> Self {
        self.indexers.push(indexer);
        self
    }

    /// What to do to objects before they are kept.
    pub fn transform(mut self, transform: Transform) -> Self {
        self.transform = transform;
        self
    }

    /// The resync period of handlers that name none of their own (none): so often each is given every object again. Zero: never.
    pub fn resync(mut self, every: Duration) -> Self {
        self.resync = Some(every);
        self
    }

    /// Keeps the last changes for whoever serves watches from them ([`Store::journal`](crate::Store::journal)). If a store
    /// that is shared keeps a journal already, that one is used, with its own bounds.
    pub fn journal(mut self, options: JournalOptions) -> Self {
        self.journal = Some(options);
        self
    }

    /// Begins with what a checkpoint has, instead of a list; see [`checkpoint`](crate::checkpoint). It must be of the same
    /// cluster, kind, scope, selectors, form and transform. If there is an informer of these options already, it is left as
    /// it is.
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

    /// Refuses namespaces for a type that has none.
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

    /// What content is of that an informer with these options keeps.
    pub(crate) fn identity(&self, cluster: Option<&str>, resource: &ResourceId, form: Form) -> Identity {
        Identity {
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

/// Informers with equal keys share one list/watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SharingKey {
    resource: ResourceId,
    scope: Scope,
    labels: String,
    fields: String,
    metadata_only: bool,
    transform: String,
}

/// A DNS-1123 label, which is what a namespace's name must be; and so nothing that changes the meaning of a path.
fn is_dns_label(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}
