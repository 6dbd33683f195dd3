//! Reads of all clusters together: get, list and watch of an authorized request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use skopos_fleet::{Cluster, ClusterId};
use skopos_serve::{BlockCache, Blocks, ItemFilter, Request, ResourceType, ServeOptions};
use skopos_wire::{GroupResource, Status};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::answer_status::{Answer, AnswerStatus, StatusBuilder};
use super::continue_keys::ContinueKeys;
use super::fresh;
use super::item::MergedItem;
use super::kinds::{Kind, Kinds, KindsOptions, Shape};
use super::merged_version::MergedVersion;
use super::merger::Resume;
use super::request::{AccessReview, ReadRequest, ReadVerb, WatchStart};
use super::scope::Scope;
use super::source::{ContinuedList, MergedSource};
use super::token_signer::TokenSigner;
use super::visibility_log::VisibilityLog;
use super::watch_authz::{VisibleClusters, WatchAuthorizer};
use crate::authz::Attributes;
use crate::catalog::Catalogs;
use crate::gateway::route::WATCH_LIFETIME;
use crate::gateway::services::Services;
use crate::request::target::ResourceTarget;
use crate::response::terminating_body::end_when;

/// The merged views of all kinds. Cheap to clone.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) kinds: Arc<Kinds>,
    visibility_log: Arc<VisibilityLog>,
    keys: ContinueKeys,
    /// The blocks from which compressed lists are made.
    blocks: Blocks,
    options: ServeOptions,
}

/// One read, authorized.
struct Read<'a> {
    reader: &'a Reader,
    services: &'a Services,
    request: &'a ReadRequest,
    resource: &'a Arc<ResourceType>,
    /// The namespace of the objects.
    namespace: Option<&'a str>,
    considered: Vec<Cluster>,
    source: MergedSource,
}

/// The memory limit for compressed objects, with the objects that only this cache keeps.
const MAX_BLOCK_BYTES: usize = 256 << 20;

impl Reader {
    /// Makes the views over the clusters of these services.
    pub(super) fn new(services: &Services, catalogs: Catalogs, options: KindsOptions) -> Self {
        let random = || options.seed.map_or_else(ContinueKeys::random, ContinueKeys::from_seed);
        let keys = options.continue_keys.clone().unwrap_or_else(random);
        let kinds = Kinds::new(services.fleet.clone(), catalogs, services.listings.clone(), options);
        let blocks = BlockCache::new(MAX_BLOCK_BYTES).blocks();
        let mut options = ServeOptions::default();
        options.max_watch_timeout = Some(WATCH_LIFETIME);
        Self { kinds: Arc::new(kinds), visibility_log: Arc::default(), keys, blocks, options }
    }

    /// Reads the file of the keys again until cancelled.
    pub(super) async fn follow_keys(&self, stop: CancellationToken) {
        self.keys.clone().follow(stop).await;
    }

    /// Reads objects of the clusters in scope.
    ///
    /// # Errors
    /// The API server's errors, and 429 for too many watches of a caller.
    pub(super) async fn read(
        &self,
        services: &Services,
        request: &ReadRequest,
        resource: &Arc<ResourceType>,
        mut scope: Scope,
    ) -> Result<Answer, Status> {
        let target =
            ResourceTarget { attributes: request.review.what.clone(), name_in_path: request.is_get() };
        let namespace = target.place(resource.namespaced)?;
        let shape = Shape::new(resource);
        let kind = self.kinds.get(&shape).await;
        // The first read of a kind starts it in each cluster; clusters without an answer by the deadline are named as
        // missing.
        let seen: Vec<ClusterId> = scope.seen.iter().map(|cluster| cluster.id().clone()).collect();
        let cache = &services.config.cache;
        if timeout(cache.member_deadline.0, kind.history.opened_to(&seen)).await.is_err() {
            kind.history.open();
        }
        let list = request.list.each_ref().map(String::as_str);
        let signer = Arc::new(self.keys.signer_for(&request.review.who, &list));
        let mut continued = self.list_of_other_replica(request, &signer, &kind);
        let behind = if let Some(continued) = &mut continued {
            let newest = Some(Duration::ZERO);
            let behind = fresh::catch_up(services, &kind, &scope.seen, &shape.resource, newest).await;
            continued.is_proven = behind.is_empty();
            behind
        } else if request.wants_newest.clone()? {
            fresh::catch_up(services, &kind, &scope.seen, &shape.resource, request.max_age).await
        } else {
            BTreeMap::new()
        };
        // Clusters may also have been replaced meanwhile.
        scope.drop_replaced(&services.fleet);
        let start = AnswerStatus::new(&scope);
        let Scope { seen, considered, .. } = scope;
        let (absences, max_age) = (kind.absences.clone(), cache.max_age.0);
        let source = MergedSource {
            kind,
            visible: VisibleClusters::new(seen.iter().map(|cluster| cluster.id().clone())),
            signer,
            is_shared: self.keys.is_shared(),
            continued,
            status_builder: Arc::new(StatusBuilder {
                start,
                seen,
                resource: shape.resource,
                absences,
                max_age,
                behind,
            }),
            last_status: Arc::default(),
            last_read: Arc::default(),
            blocks: self.blocks.clone(),
        };
        let read = Read { reader: self, services, request, resource, namespace, considered, source };
        match request.verb {
            ReadVerb::Get => read.get().await,
            ReadVerb::List => read.list().await,
            ReadVerb::Watch => read.watch().await,
        }
    }

    /// Returns the list of another replica that a request continues; `None` if it continues one of this process, or none.
    fn list_of_other_replica(
        &self,
        request: &ReadRequest,
        signer: &TokenSigner,
        kind: &Kind,
    ) -> Option<ContinuedList> {
        let token = request.continue_token().filter(|_| self.keys.is_shared())?;
        let (token, clusters) = signer.verify(token, kind.history.now()).ok()?;
        let version = MergedVersion::new(u64::try_from(token.resource_version).ok()?);
        let own = kind.history.view().merged_version.instance();
        (version.instance() != own).then_some(ContinuedList { version, clusters, is_proven: false })
    }
}

impl Read<'_> {
    async fn list(&self) -> Result<Answer, Status> {
        self.record_visibility(None);
        let query = self.request.parameters(None);
        let options = &self.reader.options;
        let response = skopos_serve::list(&self.source, options, &self.request(&query)).await?;
        let answer_status = self.source.last_status.lock().clone();
        Ok(Answer::Objects(response, answer_status))
    }

    /// Returns one object. If several clusters have one of this name, only a table can show them all.
    async fn get(&self) -> Result<Answer, Status> {
        let what = &self.request.review.what;
        let query = self.request.parameters(None);
        let (source, options) = (&self.source, &self.reader.options);
        let contents = source.newest();
        let answer_status = contents.answer_status(&source.status_builder);
        let holders = contents.holders(self.namespace, &what.name);
        let resource = GroupResource::new(&what.group, &what.resource);
        if holders.is_empty() {
            let mut missing = Status::not_found(resource, &what.name);
            if let Some((id, _)) = answer_status.missing.first() {
                missing.message =
                    format!("{} in the clusters that are known; nothing is known of {id}", missing.message);
            }
            return Err(missing);
        }
        let request = self.request(&query);
        let response = if self.request.wants_table {
            skopos_serve::list(source, options, &request).await?
        } else if let [_] = holders.as_slice() {
            skopos_serve::get(source, options, &request).await?
        } else {
            let names: Vec<_> = holders.iter().take(10).map(ToString::to_string).collect();
            let problem = format!(
                "{} clusters have one of this name ({}): add ?clusters=NAME, or ask /clusters/NAME",
                holders.len(),
                names.join(", ")
            );
            return Err(Status::conflict(resource, &what.name, problem));
        };
        Ok(Answer::Objects(response, answer_status))
    }

    async fn watch(&self) -> Result<Answer, Status> {
        let (services, source) = (self.services, &self.source);
        let (history, visible) = (&source.kind.history, &source.visible);
        let permit = services.watches.acquire(&self.request.review.who)?;
        // Before the watch is accepted, so that no vanished member is missed.
        let vanished = history.follow_vanished();
        let from = match self.request.start.clone()? {
            WatchStart::InitialEvents => {
                self.record_visibility(None);
                None
            }
            WatchStart::Unversioned => None,
            WatchStart::After(merged_version, spelled) => match self.resume(merged_version) {
                Resume::After(merged_version) => Some(merged_version),
                Resume::Expired => {
                    self.require_watchable().await?;
                    let oldest = history.window().oldest_start();
                    return Ok(Answer::WatchEnd(Status::too_old_resource_version(&spelled, oldest)));
                }
            },
        };
        let query = self.request.parameters(from);
        let ages = source.kind.followed_stores.ages();
        let answer_status = source.status_builder.build(&history.view().roster, &ages);
        let permitted = visible.clone();
        let request = self.request(&query).permitting(move |item: &MergedItem| permitted.permits(item));
        let response = skopos_serve::watch(source, &self.reader.options, &request).await?;
        let watch_authorizer = WatchAuthorizer {
            fleet: services.fleet.clone(),
            authorizer: services.authorizer.clone(),
            history: history.clone(),
            review: self.request.review.clone(),
            visible: visible.clone(),
            visibility_log: self.reader.visibility_log.clone(),
            query_key: self.request.query_key,
            considered: self.considered.clone(),
            vanished,
            draining: self.request.draining.clone(),
        };
        let held = (permit, source.kind.clone());
        let response = response.map(|body| end_when(body, watch_authorizer.wait_for_end(), held));
        Ok(Answer::Objects(response, answer_status))
    }

    /// Refuses a caller who may list a cluster but not watch it: its client would list again in an endless loop.
    async fn require_watchable(&self) -> Result<(), Status> {
        let review = &self.request.review;
        let what = Attributes { verb: "list".into(), ..review.what.clone() };
        let listed = Scope::review(self.services, &AccessReview { what, ..(**review).clone() }).await.seen;
        let is_listed_only = |cluster: &&Cluster| {
            self.considered.contains(cluster) && !self.source.status_builder.seen.contains(cluster)
        };
        let Some(cluster) = listed.iter().find(is_listed_only) else { return Ok(()) };
        let id = cluster.id();
        let why =
            format!("they may be listed in cluster {id} and not be watched there: name others by ?clusters=");
        let resource = GroupResource::new(&review.what.group, &review.what.resource);
        Err(Status::forbidden(resource, &review.what.name, why))
    }

    /// Decides whether a watch resumes from a merged version, and from where.
    fn resume(&self, merged_version: MergedVersion) -> Resume {
        self.record_visibility(Some(merged_version));
        if !self.reader.visibility_log.is_unchanged_since(self.request.query_key, merged_version) {
            return Resume::Expired;
        }
        let history = &self.source.kind.history;
        match history.resume(merged_version, |cluster| self.source.visible.contains(cluster)) {
            Resume::After(version) if version.number() < history.window().oldest_start() => Resume::Expired,
            resume => resume,
        }
    }

    /// Records what the caller sees now, and the merged version from which it resumes, if given.
    fn record_visibility(&self, from: Option<MergedVersion>) {
        let view = self.source.kind.history.view();
        let is_new = |cluster: &ClusterId| {
            let member = view.roster.get(cluster);
            let old = |merged_version| {
                member.is_some_and(|m| m.contents.iter().any(|entry| entry.merged_version <= merged_version))
            };
            from.is_some_and(|merged_version| !old(merged_version))
        };
        let (log, query_key) = (&self.reader.visibility_log, self.request.query_key);
        log.record(query_key, &self.source.visible.all(), view.merged_version, is_new);
    }

    fn request<'a>(&'a self, query: &'a skopos_serve::Query) -> Request<'a, MergedItem> {
        let name = self.request.review.what.name.as_str();
        Request {
            resource: self.resource,
            namespace: self.namespace,
            name: Some(name).filter(|name| self.request.is_get() && !name.is_empty()),
            query,
            headers: &self.request.headers,
            permit: ItemFilter::all(),
        }
    }
}
