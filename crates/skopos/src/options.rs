//! What an informer keeps, and what makes two informers the same.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use skopos_reflect::Form;
use skopos_wire::{FieldSelector, LabelSelector, RawObject, ParseError};

use crate::error::BuildError;
use crate::sleep::SleepClock;

/// How a factory runs its informers. [`FactoryOptions::default`] is right for nearly everybody.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FactoryOptions {
    /// How often the age of each kind of object is proven by a consistent read of one object's metadata (30 s, each time
    /// with a jitter of ±10 %). One such probe serves all informers of the kind.
    pub probe_interval: Duration,
    /// How long one probe may take (10 s).
    pub probe_timeout: Duration,
    /// How long a watch may be behind a probe before it is checked on another connection (15 s).
    pub grace: Duration,
    /// The age above which content is not called live any more (90 s).
    pub stale_after: Duration,
    /// How often each informer's content is compared with the server's (10 min, jitter ±10 %); `None`: only on demand.
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
}

impl Default for FactoryOptions {
    fn default() -> Self {
        Self {
            probe_interval: Duration::from_secs(30),
            probe_timeout: Duration::from_secs(10),
            grace: Duration::from_secs(15),
            stale_after: Duration::from_secs(90),
            audit_interval: Some(Duration::from_secs(600)),
            audit_timeout: Duration::from_secs(60),
            sync_timeout: Duration::from_secs(30),
            keep_transport: false,
            seed: None,
            sleep_clock: SleepClock::system(),
        }
    }
}

/// What an informer keeps: of which namespaces, with which selectors, in which form.
///
/// Two informers of the same kind and form with equal options share one list/watch and one store. Functions cannot be
/// compared, so indexes and custom transforms are told apart by their names: the same name must mean the same function.
#[derive(Clone, Debug)]
pub struct InformerOptions {
    pub(crate) scope: Scope,
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
    pub(crate) indexes: BTreeMap<String, IndexFn>,
    pub(crate) transform: Transform,
    pub(crate) resync: Option<Duration>,
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
        let mut namespaces: Vec<String> = namespaces.into_iter().map(Into::into).collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        Self::of(Scope::Namespaces(namespaces))
    }

    /// Everything in `scope`.
    pub fn of(scope: Scope) -> Self {
        Self {
            scope,
            labels: LabelSelector::default(),
            fields: FieldSelector::default(),
            indexes: BTreeMap::new(),
            transform: Transform::Keep,
            resync: None,
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

    /// Keeps an index: `values` gives the values under which an object is found again.
    pub fn index<F, I>(mut self, name: impl Into<String>, values: F) -> Self
    where
        F: Fn(&RawObject) -> I + Send + Sync + 'static,
        I: IntoIterator<Item = String>,
    {
        let values: IndexFn = IndexFn(Arc::new(move |object| values(object).into_iter().collect()));
        self.indexes.insert(name.into(), values);
        self
    }

    /// What to do to objects before they are kept.
    pub fn transform(mut self, transform: Transform) -> Self {
        self.transform = transform;
        self
    }

    /// The resync period of handlers that name none of their own (none): so often each is given every object again.
    pub fn resync(mut self, every: Duration) -> Self {
        self.resync = Some(every);
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

    pub(crate) fn sharing_key(&self, resource: &ResourceId, form: Form) -> SharingKey {
        SharingKey {
            resource: resource.clone(),
            scope: self.scope.clone(),
            labels: self.labels.to_string(),
            fields: self.fields.to_string(),
            metadata_only: matches!(form, Form::MetadataOnly),
            transform: self.transform.name().to_owned(),
            indexes: self.indexes.keys().cloned().collect(),
        }
    }
}

/// Which namespaces an informer covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// All namespaces, and cluster-scoped objects.
    All,
    /// These namespaces, sorted and without duplicates.
    Namespaces(Vec<String>),
}

/// What is done to each object before it is kept.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Transform {
    /// Kept as the server sent it.
    #[default]
    Keep,
    /// Without `metadata.managedFields`, which is often half of an object and which hardly anybody reads.
    DropManagedFields,
    /// Your own function from JSON to JSON. It must leave name, namespace, uid and resourceVersion as they are.
    Custom {
        /// Tells this transform from others: the same name must mean the same function.
        name: String,
        /// From the object's JSON to the JSON that is kept.
        apply: TransformFn,
    },
}

/// The function of a [`Transform::Custom`].
pub type TransformFn = Arc<dyn Fn(&[u8]) -> Bytes + Send + Sync>;

impl Transform {
    fn name(&self) -> &str {
        match self {
            Self::Keep => "keep",
            Self::DropManagedFields => "drop-managed-fields",
            Self::Custom { name, .. } => name,
        }
    }

    /// Applies the transform to the JSON of one object.
    pub(crate) fn apply(&self, json: Bytes) -> Bytes {
        match self {
            Self::Keep => json,
            Self::DropManagedFields => skopos_wire::transform::drop_managed_fields(&json),
            Self::Custom { apply, .. } => apply(&json),
        }
    }
}

impl fmt::Debug for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Gives the values under which an index finds an object.
#[derive(Clone)]
pub(crate) struct IndexFn(pub(crate) Arc<dyn Fn(&RawObject) -> Vec<String> + Send + Sync>);

impl fmt::Debug for IndexFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IndexFn")
    }
}

/// A kind of object as the server's paths name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceId {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version, for example `v1`.
    pub version: String,
    /// The plural name, for example `pods`.
    pub plural: String,
    /// The kind, for example `Pod`.
    pub kind: String,
}

impl fmt::Display for ResourceId {
    /// As kubectl writes it: `pods`, `deployments.apps`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.as_str() {
            "" => write!(f, "{}", self.plural),
            group => write!(f, "{}.{group}", self.plural),
        }
    }
}

/// Informers with equal keys share one list/watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SharingKey {
    resource: ResourceId,
    scope: Scope,
    labels: String,
    fields: String,
    metadata_only: bool,
    transform: String,
    indexes: Vec<String>,
}

/// A DNS-1123 label, which is what a namespace's name must be; and so nothing that changes the meaning of a path.
fn is_dns_label(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(inner) && !name.starts_with('-') && !name.ends_with('-')
}
