//! Authorization of a request by each of its clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use skopos_fleet::{Cluster, ClusterId, Fleet};
use tokio::time::Instant;

use super::request::AccessReview;
use crate::authz::Decision;
use crate::gateway::services::Services;

/// The clusters of a request, after authorization.
#[derive(Default)]
pub(crate) struct Scope {
    /// The number of sources that have not listed their clusters yet.
    pub(super) unread: usize,
    /// The clusters that the request sees.
    pub(super) seen: Vec<Cluster>,
    /// The connection generation by which each cluster was asked.
    generations: BTreeMap<ClusterId, u64>,
    /// The clusters that an open watch need not ask: the request sees them, or must not.
    pub(super) considered: Vec<Cluster>,
    pub(super) denied: Vec<String>,
    /// The clusters that did not decide whether the request may see them.
    pub(super) undecided: Vec<ClusterId>,
    /// One of the decisions: the one for the refusal, if the request is refused.
    pub(super) decision: Option<Decision>,
}

/// Maximum number of clusters that are asked concurrently for a decision. A request queued behind clusters that do not
/// answer would count as unanswered, too. Each cluster has connections of its own.
const MAX_CONCURRENT_REVIEWS: usize = 4096;

impl Scope {
    /// Returns the requested clusters, and which of them the caller may read.
    ///
    /// All named clusters are asked, whatever their labels: labels of a cluster that the caller may not read select
    /// nothing, so the answer cannot reveal them.
    pub(super) async fn review(services: &Services, review: &AccessReview) -> Self {
        let AccessReview { who, what, clusters } = review;
        let authorizer = &services.authorizer;
        let unread = services.unread_sources().await;
        let members = services.fleet.members();
        let named: Vec<Cluster> =
            members.values().filter(|cluster| clusters.names(cluster)).cloned().collect();
        let generations = named.iter().map(|cluster| (cluster.id().clone(), cluster.generation())).collect();
        let contexts: BTreeSet<Arc<str>> = named.iter().filter_map(Cluster::original_name).collect();
        let until = Instant::now() + services.config.cache.member_deadline.0;
        let decisions = stream::iter(named).map(|cluster| async move {
            let decision = authorizer.decide_by(cluster.id().as_str(), who, what, until).await;
            (cluster, decision)
        });
        let decisions: Vec<(Cluster, Decision)> = decisions.buffered(MAX_CONCURRENT_REVIEWS).collect().await;
        let is_known = |name: &str| members.contains_key(name) || contexts.contains(name);
        let unknown = clusters.names.iter().flatten().filter(|name| !is_known(name));
        let mut scope = Self { unread, generations, denied: unknown.cloned().collect(), ..Self::default() };
        for (cluster, decided) in decisions {
            match decided.allowed {
                true if !clusters.matches(&cluster) => {}
                true => {
                    scope.seen.push(cluster.clone());
                    scope.considered.push(cluster);
                }
                // A later answer may still allow it.
                false if decided.is_undecided() => scope.undecided.push(cluster.id().clone()),
                false => {
                    scope.denied.push(cluster.id().to_string());
                    scope.considered.push(cluster);
                }
            }
            // An answer that shows anything is allowed; one that shows nothing is denied if any cluster denied it.
            let rank = |decision: &Decision| (decision.allowed, !decision.is_undecided());
            scope.decision = scope.decision.filter(|known| rank(known) >= rank(&decided)).or(Some(decided));
        }
        scope.denied.sort();
        // Unknown clusters are refused like clusters that the caller may not read.
        if scope.decision.is_none()
            && let Some(name) = scope.denied.first()
        {
            scope.decision = Some(authorizer.decide(name, who, what).await);
        }
        scope.drop_replaced(&services.fleet);
        scope
    }

    /// Drops each cluster that was replaced under its name since it was asked: the new one has not decided.
    pub(super) fn drop_replaced(&mut self, fleet: &Fleet) {
        let is_same = |cluster: &Cluster| {
            let now = fleet.get(cluster.id().as_str()).map(|cluster| cluster.generation());
            now.as_ref() == self.generations.get(cluster.id())
        };
        let others: Vec<Cluster> = self.seen.extract_if(.., |cluster| !is_same(cluster)).collect();
        self.considered.retain(|cluster| !others.contains(cluster));
        self.denied.extend(others.iter().map(|cluster| cluster.id().to_string()));
        self.denied.sort();
    }
}
