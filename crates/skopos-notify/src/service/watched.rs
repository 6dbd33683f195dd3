use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt as _, select_all};
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use skopos::{AuditReport, Closed, Freshness, Informer, InformerFactory, InformerOptions, NotSynced};
use skopos_reflect::{Clock, Time};

use super::NotifierError;
use crate::desired::{ClaimSource, ClusterChange, ClusterContent, Desired};
use crate::plan::DesiredView;

/// The informers that feed a sink. The factory shares them among all sinks.
#[derive(Clone)]
pub(super) struct Watched {
    services: Option<(Informer<Service>, Informer<EndpointSlice>)>,
    pods: Option<Informer<Pod>>,
    /// `kube-system`, whose uid is the cluster's identity.
    identity: Informer<Namespace>,
}

/// Stream of changes of a cluster.
pub(super) type ClusterChanges = BoxStream<'static, ClusterChange>;

/// Makes the informer of `kube-system`, whose uid is the cluster's identity.
pub(super) fn identity(factory: &InformerFactory) -> Result<Informer<Namespace>, NotifierError> {
    Ok(factory.informer(InformerOptions::all().fields("metadata.name=kube-system")?)?)
}

/// Returns the time up to which content is proven; `None` before the first list.
pub(super) fn as_of(freshness: &Freshness, now: Time) -> Option<Time> {
    match freshness {
        Freshness::NeverSynced { .. } => None,
        known => known.age().map(|age| now - age),
    }
}

impl Watched {
    /// Makes the informers that these sources need.
    pub(super) fn new(factory: &InformerFactory, sources: &[ClaimSource]) -> Result<Self, NotifierError> {
        let all = InformerOptions::all;
        let services = sources.iter().any(|source| !source.is_of_pods());
        let services =
            services.then(|| Ok::<_, NotifierError>((factory.informer(all())?, factory.informer(all())?)));
        let pods = sources.iter().any(ClaimSource::is_of_pods).then(|| factory.informer(all()));
        Ok(Self { services: services.transpose()?, pods: pods.transpose()?, identity: identity(factory)? })
    }

    /// Returns the existing objects and every later change.
    ///
    /// # Errors
    /// When the factory was shut down.
    pub(super) fn changes(&self) -> Result<ClusterChanges, Closed> {
        let mut changes: Vec<ClusterChanges> = Vec::new();
        if let Some((services, slices)) = &self.services {
            changes.push(services.events()?.map(ClusterChange::Service).boxed());
            changes.push(slices.events()?.map(ClusterChange::Slice).boxed());
        }
        if let Some(pods) = &self.pods {
            changes.push(pods.events()?.map(ClusterChange::Pod).boxed());
        }
        Ok(select_all(changes).boxed())
    }

    /// Waits until all informers are synced.
    pub(super) async fn wait_synced(&self, limit: Duration) -> Result<(), NotSynced> {
        let services = async {
            let Some((services, slices)) = &self.services else { return Ok(()) };
            let (services, slices) = tokio::join!(services.wait_synced(limit), slices.wait_synced(limit));
            services.and(slices)
        };
        let pods = async {
            match &self.pods {
                Some(pods) => pods.wait_synced(limit).await,
                None => Ok(()),
            }
        };
        // Without the right to read `kube-system` there is no identity.
        let (services, pods, _) = tokio::join!(services, pods, self.identity.wait_synced(limit));
        services.and(pods)
    }

    /// Returns the cluster's wanted state, and the reason if it is old.
    ///
    /// A sink that belongs to a known cluster (`remembered`) gets no view before this cluster is known to be the same.
    pub(super) fn view(
        &self,
        desired: &mut Desired,
        clock: Clock,
        remembered: bool,
    ) -> (DesiredView, Option<String>) {
        let content = ClusterContent {
            services: self.services.as_ref().map(|(services, _)| services.snapshot()),
            slices: self.services.as_ref().map(|(_, slices)| slices.snapshot()),
            pods: self.pods.as_ref().map(Informer::snapshot),
        };
        // The age is computed first, so that content that is read after it is not older.
        let freshness = content.freshness();
        let now = clock.now();
        let as_of = freshness.as_ref().and_then(|freshness| as_of(freshness, now));
        let problem = freshness.and_then(|freshness| freshness.reason().map(ToString::to_string));
        let entries = desired.look(content);
        let cluster = self.identity.snapshot().iter().next().map(|namespace| Arc::from(namespace.uid()));
        if remembered && !self.identity.has_synced() {
            return (DesiredView { entries, as_of: None, cluster }, Some(self.unidentified()));
        }
        (DesiredView { entries, as_of, cluster }, problem)
    }

    fn unidentified(&self) -> String {
        let reason = self
            .identity
            .freshness()
            .reason()
            .map_or_else(|| "no answer yet".to_owned(), ToString::to_string);
        format!(
            "the namespace kube-system cannot be read, which says whether this is the cluster that the sink belongs to: {reason}"
        )
    }

    /// Compares the views with fresh lists; returns the time at which these began, if they agree.
    pub(super) async fn audit(self, clock: Clock, limit: Duration) -> Option<Time> {
        let began = clock.now();
        let services = async {
            let Some((services, slices)) = &self.services else { return true };
            let (services, slices) = tokio::join!(services.audit(limit), slices.audit(limit));
            agrees(services) && agrees(slices)
        };
        let pods = async {
            match &self.pods {
                Some(pods) => agrees(pods.audit(limit).await),
                None => true,
            }
        };
        let (services, pods) = tokio::join!(services, pods);
        let agrees = services && pods;
        agrees.then_some(began)
    }
}

/// Returns whether a comparison with a list was complete and found no difference.
fn agrees<E>(report: Result<AuditReport, E>) -> bool {
    report.is_ok_and(|report| report.is_clean() && report.complete && report.not_compared.is_empty())
}
