//! Catch-up of members whose content must be newer than the merged history, for writes made through the gateway and for
//! consistent reads.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use skopos::{RawObject, ResourceId, Snapshot, Source};
use skopos_fleet::{CachedKind, Cluster, ClusterId};
use tokio::time::{Instant, timeout};

use super::kinds::Kind;
use super::merger::{Position, Roster};
use crate::consistency::{CatchUp, Requirement};
use crate::gateway::services::Services;
use crate::response::reasons;

/// Makes the merged history catch up with what a read of these clusters must show, all in parallel, within
/// `cache.memberDeadline`. Returns the clusters that are still too old, with the reason.
pub(super) async fn catch_up(
    services: &Services,
    merged: &Kind,
    clusters: &[Cluster],
    resource: &ResourceId,
    max_age: Option<Duration>,
) -> BTreeMap<ClusterId, String> {
    let catching_up = clusters.iter().filter_map(|cluster| {
        let (id, cache) = (cluster.id(), &services.config.cache);
        let floor = services.floors.get(id, &resource.group, &resource.plural);
        let requirement = Requirement::for_clusters(cache.reads_of(id.as_str()), max_age, floor);
        let kept = cluster.cached(resource).filter(|_| !requirement.is_empty())?;
        let one = async move {
            let listing = services.listings.get(id, &kept);
            let floors = &services.floors;
            let catch_up =
                CatchUp { cluster: id, kind: &kept, requirement: &requirement, floors, listing: &listing };
            let limit = cache.member_deadline.0;
            let shown = async {
                match newest(cluster, &catch_up, limit).await? {
                    Newest::Kept(content) => heard(merged, id, &content).await,
                    Newest::Listed(content) => show(merged, id, &kept, &content),
                }
                Ok(())
            };
            let shown =
                timeout(limit, shown).await.unwrap_or_else(|_| Err(behind(&format!("not within {limit:?}"))));
            shown.err().map(|why| (id.clone(), why))
        };
        Some(Box::pin(one))
    });
    join_all(catching_up).await.into_iter().flatten().collect()
}

/// Content that is new enough.
enum Newest {
    /// Content of the store; the feed brings it into the merged history.
    Kept(Snapshot<RawObject>),
    /// Content of a list of the member; the feed does not bring it.
    Listed(Snapshot<RawObject>),
}

/// Finds content that meets the requirement.
///
/// # Errors
/// Returns the reason if there is none within `limit`.
async fn newest(cluster: &Cluster, catch_up: &CatchUp<'_>, limit: Duration) -> Result<Newest, String> {
    let deadline = Instant::now() + limit;
    let store = catch_up.kind.informer().snapshot();
    if let Some(listed) =
        catch_up.listing.ahead_of(&store).filter(|listed| catch_up.requirement.is_met_by(listed))
    {
        return Ok(Newest::Listed(listed));
    }
    if catch_up.requirement.is_met_by(&store) {
        return Ok(Newest::Kept(store));
    }
    if !cluster.state().condition.is_asked() {
        return Err(behind(&reason(cluster, catch_up)));
    }
    if let Some(content) = catch_up.await_watch(&store, store.len(), limit).await {
        return Ok(Newest::Kept(content));
    }
    match catch_up.ask(deadline.saturating_duration_since(Instant::now())).await {
        Ok(read) if read.source == Source::Live => Ok(Newest::Listed(read.snapshot)),
        Ok(read) => Ok(Newest::Kept(read.snapshot)),
        // The error's text may be the member's.
        Err(Some(_)) => Err(behind(&reason(cluster, catch_up))),
        Err(None) => Err(behind(&format!("it did not answer within {limit:?}"))),
    }
}

fn reason(cluster: &Cluster, catch_up: &CatchUp<'_>) -> String {
    reasons::describe_cluster(cluster, catch_up.kind.resource())
        .unwrap_or_else(|| "it refused to list them".to_owned())
}

fn behind(why: &str) -> String {
    format!("it may lack what was written through the gateway, or what a consistent read has to show: {why}")
}

/// Waits until the merged history has all changes of the store. A member without content needs no wait: its first content
/// is at least as new.
async fn heard(merged: &Kind, id: &ClusterId, content: &Snapshot<RawObject>) {
    let (epoch, version) = (content.epoch(), content.resource_version());
    let has_told = |roster: &Roster| {
        let member = roster.get(id).filter(|member| member.position.is_some());
        member.is_none_or(|member| member.has_received(epoch, version))
    };
    merged.history.wait_for(has_told).await;
}

/// Shows the listed content of the member in the merged history. A list has all changes of its version, so none of them
/// is sent twice.
fn show(merged: &Kind, id: &ClusterId, kept: &CachedKind, content: &Snapshot<RawObject>) {
    let identity = kept.informer().cluster();
    let position = Position { identity, epoch: content.epoch(), version: content.resource_version().clone() };
    let objects = content.iter().map(|object| object.raw().clone()).collect();
    let store = kept.informer().store();
    merged.followed_stores.listed(id, &store, content, || merged.history.take_ahead(id, position, objects));
}
