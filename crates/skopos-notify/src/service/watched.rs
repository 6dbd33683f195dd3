use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt as _, select_all};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use skopos::{Closed, Freshness, Informer, InformerFactory, InformerOptions, NotSynced};
use skopos_reflect::{Clock, Time};

use super::NotifierError;
use crate::desired::{ClusterChange, ClusterContent, Desired};
use crate::plan::DesiredView;

/// The informers that a sink is fed by. The factory shares them among all sinks.
#[derive(Clone)]
pub(super) struct Watched {
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
    /// `kube-system`, whose uid is the cluster's identity.
    identity: Informer<Namespace>,
}

/// Changes of a cluster, as they come.
pub(super) type ClusterChanges = BoxStream<'static, ClusterChange>;

/// Watches `kube-system`, whose uid is the cluster's identity.
pub(super) fn identity(factory: &InformerFactory) -> Result<Informer<Namespace>, NotifierError> {
    Ok(factory.informer(InformerOptions::all().fields("metadata.name=kube-system")?)?)
}

/// Returns up to when content is proven; `None` before the first list.
pub(super) fn as_of(freshness: &Freshness, now: Time) -> Option<Time> {
    match freshness {
        Freshness::NeverSynced { .. } => None,
        known => known.age().map(|age| now - age),
    }
}

impl Watched {
    pub(super) fn new(factory: &InformerFactory) -> Result<Self, NotifierError> {
        Ok(Self {
            services: factory.informer(InformerOptions::all())?,
            slices: factory.informer(InformerOptions::all())?,
            identity: identity(factory)?,
        })
    }

    /// Returns what is there and every change that comes.
    ///
    /// # Errors
    /// When the factory was shut down.
    pub(super) fn changes(&self) -> Result<ClusterChanges, Closed> {
        let services = self.services.events()?.map(ClusterChange::Service).boxed();
        let slices = self.slices.events()?.map(ClusterChange::Slice).boxed();
        Ok(select_all([services, slices]).boxed())
    }

    /// Waits until everything was listed once.
    pub(super) async fn wait_synced(&self, limit: Duration) -> Result<(), NotSynced> {
        let (services, slices, _) = tokio::join!(
            self.services.wait_synced(limit),
            self.slices.wait_synced(limit),
            // Without the right for it there is no identity.
            self.identity.wait_synced(limit),
        );
        services.and(slices)
    }

    /// Returns what the cluster asks for now, and why that is old, if it is.
    ///
    /// A sink that belongs to a known cluster (`remembered`) gets no view before it is known that this is the same one.
    pub(super) fn view(
        &self,
        desired: &mut Desired,
        clock: Clock,
        remembered: bool,
    ) -> (DesiredView, Option<String>) {
        let (services, slices) = (self.services.snapshot(), self.slices.snapshot());
        // The age is computed first: content that is read after it is not older.
        let freshness = services.freshness().worst(slices.freshness());
        let now = clock.now();
        let as_of = as_of(&freshness, now);
        let problem = freshness.reason().map(ToString::to_string);
        let entries = desired.look(ClusterContent { services: Some(services), slices: Some(slices) });
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

    /// Compares the views with fresh lists; returns when these were begun, if they agree.
    pub(super) async fn audit(self, clock: Clock, limit: Duration) -> Option<Time> {
        let began = clock.now();
        let (services, slices) = tokio::join!(self.services.audit(limit), self.slices.audit(limit));
        let agrees = [services, slices].into_iter().all(|report| {
            report.is_ok_and(|report| report.is_clean() && report.complete && report.not_compared.is_empty())
        });
        agrees.then_some(began)
    }
}
