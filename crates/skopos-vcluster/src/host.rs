//! The host cluster of virtual clusters.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use skopos_fleet::vcluster::{ConfigSecret, Part, Workload, WorkloadKind, names};

use crate::cluster::VirtualCluster;
use crate::error::Error;
use crate::helm::Helm;
use crate::progress::{Progress, Silent};
use crate::session::{Extent, Resource, Session, escaped};
use crate::status::PodState;

/// A cluster that hosts virtual clusters, with the operations on them. Cheap to clone.
///
/// Every operation is a future that may be dropped at any point. Calling it again continues where it was. All
/// operations are compatible with the vcluster CLI: each completes what the other has begun.
#[derive(Clone)]
pub struct Host {
    pub(crate) client: kube::Client,
    pub(crate) options: Arc<HostOptions>,
}

/// Options of a [`Host`].
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Time without a response after which an operation fails, even if its timeout is longer. Default 30 s.
    pub answer_timeout: Duration,
    /// The invocation of helm, if it is available.
    pub helm: Helm,
    /// The wall clock, for the annotation with the time of a pause.
    pub now: fn() -> jiff::Zoned,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self { answer_timeout: Duration::from_secs(30), helm: Helm::default(), now: jiff::Zoned::now }
    }
}

impl Host {
    /// Creates a host reached by this client.
    pub fn new(client: kube::Client, options: HostOptions) -> Self {
        Self { client, options: Arc::new(options) }
    }

    /// Returns all virtual clusters, or those of one namespace, by namespace and name.
    ///
    /// # Errors
    /// If the host refuses or does not answer, or the timeout expires.
    pub async fn list(
        &self,
        namespace: Option<&str>,
        within: Duration,
    ) -> Result<Vec<VirtualCluster>, Error> {
        check_namespace(namespace)?;
        let session = self.session(&Silent, within);
        self.find_all(&session, namespace, names::SELECTOR).await
    }

    /// Returns the virtual cluster of this name, in one namespace or in any.
    ///
    /// # Errors
    /// If there is none, or there are several; if the host refuses or does not answer, or the timeout expires.
    pub async fn find(
        &self,
        name: &str,
        namespace: Option<&str>,
        within: Duration,
    ) -> Result<VirtualCluster, Error> {
        self.find_one(&self.session(&Silent, within), name, namespace).await
    }

    pub(crate) fn session<'a>(&'a self, progress: &'a dyn Progress, within: Duration) -> Session<'a> {
        Session::new(&self.client, progress, within, self.options.answer_timeout)
    }

    pub(crate) async fn find_one(
        &self,
        session: &Session<'_>,
        name: &str,
        namespace: Option<&str>,
    ) -> Result<VirtualCluster, Error> {
        check_name(name)?;
        check_namespace(namespace)?;
        let selector = names::release_selector(Part::ControlPlane.app(), name);
        let mut found = self.find_all(session, namespace, &selector).await?;
        let mut namespaces: Vec<String> = found.iter().map(|cluster| cluster.namespace.clone()).collect();
        namespaces.dedup();
        if namespaces.len() > 1 {
            return Err(Error::Ambiguous { name: name.to_owned(), namespaces });
        }
        // Of a StatefulSet and a Deployment, which no chart creates together, the first one wins.
        found.truncate(1);
        let missing = || Error::NotFound { name: name.to_owned(), namespace: namespace.map(str::to_owned) };
        found.pop().ok_or_else(missing)
    }

    /// Returns the control planes matching a selector.
    pub(crate) async fn find_all(
        &self,
        session: &Session<'_>,
        namespace: Option<&str>,
        selector: &str,
    ) -> Result<Vec<VirtualCluster>, Error> {
        let list = |resource: Resource, extent| {
            let path = resource.path(namespace, None);
            async move { session.list(&path, selector, extent).await }
        };
        let (sets, deployments, pods, secrets) = futures::try_join!(
            list(STATEFUL_SETS, Extent::Whole),
            list(DEPLOYMENTS, Extent::Whole),
            list(PODS, Extent::Whole),
            // Without access to Secrets the caller does not learn whether workloads are asleep.
            async { Ok(list(SECRETS, Extent::Metadata).await.unwrap_or_default()) },
        )?;
        let mut workloads = workloads(WorkloadKind::StatefulSet, &sets);
        workloads.extend(self::workloads(WorkloadKind::Deployment, &deployments));
        let pods: Vec<PodState> =
            pods.iter().filter_map(|pod| PodState::parse(pod.get().as_bytes()).ok().flatten()).collect();
        let configs: Vec<ConfigSecret> =
            secrets.iter().filter_map(|secret| ConfigSecret::parse(secret.get().as_bytes())).collect();
        Ok(VirtualCluster::assemble_all(workloads, &configs, &pods))
    }

    /// Returns the workloads of one part of a virtual cluster.
    pub(crate) async fn workloads(
        &self,
        session: &Session<'_>,
        (part, kind): (Part, WorkloadKind),
        of: &VirtualCluster,
    ) -> Result<Vec<Workload>, Error> {
        let path = Resource::new("apps", kind.plural()).path(Some(&of.namespace), None);
        let selector = names::release_selector(part.app(), &of.name);
        Ok(workloads(kind, &session.list(&path, &selector, Extent::Whole).await?))
    }

    /// Reads a workload, at least as new as this state of it: a gateway answers from memory, which may lag behind.
    pub(crate) async fn read_again(
        &self,
        session: &Session<'_>,
        workload: &Workload,
    ) -> Result<Option<Workload>, Error> {
        let path = path_of(workload);
        let parsed = |json: Bytes| Workload::parse(workload.kind, &json).ok().flatten();
        let now = session.get(&path).await?.and_then(parsed);
        if !now.as_ref().is_some_and(|now| now.is_older_than(workload)) {
            return Ok(now);
        }
        let known = escaped(&workload.resource_version);
        Ok(session.get(&format!("{path}?resourceVersion={known}")).await?.and_then(parsed))
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("options", &self.options).finish_non_exhaustive()
    }
}

pub(crate) const STATEFUL_SETS: Resource = Resource::new("apps", "statefulsets");
pub(crate) const DEPLOYMENTS: Resource = Resource::new("apps", "deployments");
pub(crate) const PODS: Resource = Resource::core("pods");
pub(crate) const SECRETS: Resource = Resource::core("secrets");
pub(crate) const NAMESPACES: Resource = Resource::core("namespaces");
pub(crate) const SERVICES: Resource = Resource::core("services");

/// Returns the parts that a pause and a resume change. If the control plane is a StatefulSet, nothing else is changed,
/// as in the vcluster CLI.
pub(crate) fn parts(control_plane: WorkloadKind) -> &'static [(Part, WorkloadKind)] {
    match control_plane {
        WorkloadKind::StatefulSet => &[(Part::ControlPlane, WorkloadKind::StatefulSet)],
        WorkloadKind::Deployment => &[
            (Part::ControlPlane, WorkloadKind::Deployment),
            (Part::Api, WorkloadKind::Deployment),
            (Part::Controller, WorkloadKind::Deployment),
            (Part::Etcd, WorkloadKind::StatefulSet),
        ],
    }
}

pub(crate) fn path_of(workload: &Workload) -> String {
    Resource::new("apps", workload.kind.plural()).path(Some(&workload.namespace), Some(&workload.name))
}

/// Parses workloads. Unreadable objects are not attributed to any virtual cluster.
fn workloads(kind: WorkloadKind, objects: &[Box<RawValue>]) -> Vec<Workload> {
    objects.iter().filter_map(|json| Workload::parse(kind, json.get().as_bytes()).ok().flatten()).collect()
}

pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let shown = || name.chars().take(64).collect();
    match names::is_valid(name) {
        true => Ok(()),
        false => Err(Error::InvalidName { what: "virtual cluster", value: shown(), most: 53 }),
    }
}

pub(crate) fn check_namespace(namespace: Option<&str>) -> Result<(), Error> {
    let Some(namespace) = namespace else { return Ok(()) };
    let good = (1..=63).contains(&namespace.len())
        && namespace.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    let shown = || namespace.chars().take(64).collect();
    if good { Ok(()) } else { Err(Error::InvalidName { what: "namespace", value: shown(), most: 63 }) }
}
