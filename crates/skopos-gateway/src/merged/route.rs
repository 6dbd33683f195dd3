//! `/fleet/...`: requests to many clusters, and their answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, Method, StatusCode};
use skopos::LabelSelector;
use skopos_fleet::{Cluster, ClusterId, Fleet};
use skopos_serve::{BlockCache, Blocks, Registry, Request, ResourceType, ServeOptions};
use skopos_wire::{GroupResource, Status};
use tokio::time::{Instant, timeout};

use super::answer_status::{AnswerStatus, ClusterSelection, StatusBuilder};
use super::fresh;
use super::item::MergedItem;
use super::kinds::{Kind, Kinds, KindsOptions, Shape};
use super::merged_version::MergedVersion;
use super::merger::Resume;
use super::source::MergedSource;
use super::token_signer::TokenKey;
use super::union_cache::UnionCache;
use super::visibility_log::{QueryKey, VisibilityLog};
use super::watch_authz::{VisibleClusters, WatchAuthorizer};
use crate::authz::{Attributes, Decision};
use crate::catalog::Catalogs;
use crate::clusters::Served;
use crate::gateway::route::{Audited, Call, Route, WATCH_LIFETIME};
use crate::gateway::services::Services;
use crate::request::headers::{self, Stamp, stamp};
use crate::request::query::Query;
use crate::request::target::{ResourceTarget, Target};
use crate::request::via;
use crate::request::watch_path::spelled_as_list;
use crate::response::terminating_body::{end_when, error_event};
use crate::response::{self, Response};

/// The route of all clusters together. Cheap to clone.
#[derive(Clone)]
pub struct Merged {
    pub(super) services: Services,
    pub(super) kinds: Arc<Kinds>,
    pub(super) registry: Arc<Registry>,
    pub(super) catalogs: Catalogs,
    pub(super) unions: Arc<UnionCache>,
    visibility_log: Arc<VisibilityLog>,
    key: TokenKey,
    /// The blocks from which compressed lists are made.
    blocks: Blocks,
}

/// The clusters of a request, after authorization.
pub(super) struct Scope {
    selection: ClusterSelection,
    /// The number of sources that have not listed their clusters yet.
    pub(super) unread: usize,
    /// The clusters that the request sees.
    pub(super) seen: Vec<Cluster>,
    /// The connection generation by which each cluster was asked.
    generations: BTreeMap<ClusterId, u64>,
    /// The clusters that an open watch need not ask: the request sees them, or must not.
    considered: Vec<Cluster>,
    pub(super) denied: Vec<String>,
    /// The clusters that did not decide whether the request may see them.
    pub(super) undecided: Vec<ClusterId>,
    /// One of the decisions: the one for the refusal, if the request is refused.
    pub(super) decision: Option<Decision>,
}

/// The memory limit for compressed objects, with the objects that only this cache keeps.
const MAX_BLOCK_BYTES: usize = 256 << 20;

/// Maximum number of clusters that are asked concurrently for a decision. A request queued behind clusters that do not
/// answer would count as unanswered, too. Each cluster has connections of its own.
const MAX_CONCURRENT_REVIEWS: usize = 4096;

impl Merged {
    /// Makes the route over all clusters of these services. Feeds run until [`Merged::shutdown`].
    pub fn new(services: Services, options: KindsOptions) -> Self {
        let catalogs = Catalogs::new(services.fleet.clone(), services.definitions.clone());
        let key = options.seed.map_or_else(TokenKey::random, TokenKey::from_seed);
        let kinds = Arc::new(Kinds::new(
            services.fleet.clone(),
            catalogs.clone(),
            services.listings.clone(),
            options,
        ));
        let registry = Arc::new(Registry::builtin());
        let blocks = BlockCache::new(MAX_BLOCK_BYTES).blocks();
        Self {
            services,
            kinds,
            registry,
            catalogs,
            unions: Arc::default(),
            visibility_log: Arc::default(),
            key,
            blocks,
        }
    }

    /// Returns the route with other services; running feeds continue.
    #[must_use]
    pub fn renewed(&self, services: Services) -> Self {
        // The configuration may change what is cached in memory.
        Self { services, unions: Arc::default(), ..self.clone() }
    }

    /// Returns the memory held for lists and watches, and the statistics of watches of the kinds in memory.
    pub fn served(&self) -> Served {
        self.kinds.served()
    }

    /// Waits, at most for `limit`, until watches can get all content of the members. The content must not change any
    /// more.
    pub async fn settle(&self, limit: Duration) {
        self.kinds.settle(limit).await;
    }

    /// Stops the feeds, writes the state for the next process, and waits for both; at most for `limit`. Returns whether
    /// all tasks have ended.
    pub async fn shutdown(&self, limit: Duration) -> bool {
        self.kinds.shutdown(limit).await
    }

    async fn serve(self, call: Call) -> Response {
        let mut audited = Audited { source: "memory", ..Audited::default() };
        let answered = self.routed(call, &mut audited).await;
        let mut answer = answered.unwrap_or_else(|status| response::status(&status));
        answer.extensions_mut().insert(audited);
        answer
    }

    async fn routed(&self, mut call: Call, audited: &mut Audited) -> Result<Response, Status> {
        via::refuse_gateways(&call.headers)?;
        if call.method != Method::GET && call.method != Method::HEAD {
            let message = "the fleet as a whole is read only: write to one cluster, below /clusters/NAME";
            return Err(Status::failure(405, skopos_wire::StatusReason::MethodNotAllowed, message));
        }
        (call.path, call.query) = spelled_as_list(&call.method, call.path, call.query)?;
        let target = Target::parse(&call.method, &call.path, &call.query)?;
        audited.what = target.attributes().to_string().into();
        match target {
            Target::Path(what) => self.describe(&call, &what, audited).await,
            Target::Resource(target) => self.resource(&call, &target, audited).await,
        }
    }

    async fn resource(
        &self,
        call: &Call,
        target: &ResourceTarget,
        audited: &mut Audited,
    ) -> Result<Response, Status> {
        let what = &target.attributes;
        if !what.subresource.is_empty() {
            return Err(Status::resource_not_served());
        }
        let builtin = self.registry.resolve(&what.group, &what.version, &what.resource);
        if !self.keeps(&what.group, &what.resource) {
            let why = "this kind is not kept in memory, so there is no merged view of it: ask one cluster";
            return Err(Status::forbidden(GroupResource::new(&what.group, &what.resource), &what.name, why));
        }
        let mut scope = self.scope(call, what).await?;
        if let Some(decision) = &scope.decision {
            *audited = std::mem::take(audited).decided(decision);
            if scope.seen.is_empty() && !decision.allowed {
                return Err(what.forbidden(&call.identity, decision));
            }
        }
        let resource = match builtin {
            Some(builtin) => builtin,
            None => self.custom(call, what, &scope.seen).await?,
        };
        let namespace = target.place(resource.namespaced)?;
        let shape = Shape::new(&resource);
        let kind = self.kinds.get(&shape).await;
        // The first read of a kind starts it in each cluster; clusters without an answer by the deadline are named as
        // missing.
        let seen: Vec<ClusterId> = scope.seen.iter().map(|cluster| cluster.id().clone()).collect();
        let limit = self.services.config.cache.member_deadline.0;
        if timeout(limit, kind.history.opened_to(&seen)).await.is_err() {
            kind.history.open();
        }
        let behind = match wants_newest(&call.query)? {
            true => fresh::catch_up(&self.services, &kind, &scope.seen, &shape.resource, &call.headers).await,
            false => BTreeMap::new(),
        };
        // Clusters may also have been replaced meanwhile.
        scope.drop_replaced(&self.services.fleet);
        let Scope { selection, unread, seen, considered, denied, undecided, .. } = scope;
        let status_builder = Arc::new(StatusBuilder {
            behind,
            seen,
            resource: shape.resource,
            absences: kind.absences.clone(),
            max_age: self.services.config.cache.max_age.0,
            unread,
            denied,
            undecided,
        });
        let resource = &resource;
        let read = Read {
            merged: self,
            call,
            target,
            resource,
            namespace,
            selection,
            considered,
            status_builder,
            kind,
        };
        let answer = match what.verb.as_str() {
            "watch" => read.watch().await,
            "list" => read.list().await,
            _ => read.get().await,
        }?;
        Ok(answer)
    }

    /// Returns whether objects of this kind may be in memory.
    pub(super) fn keeps(&self, group: &str, plural: &str) -> bool {
        self.services.config.cache.keeps(group, plural)
    }

    /// Returns the requested clusters, and which of them the caller may read.
    ///
    /// All named clusters are asked, whatever their labels: labels of a cluster that the caller may not read select
    /// nothing, so the answer cannot reveal them.
    pub(super) async fn scope(&self, call: &Call, what: &Attributes) -> Result<Scope, Status> {
        let selection = parse_selection(&call.query)?;
        let unread = self.services.unread_sources().await;
        let members = self.services.fleet.members();
        let named: Vec<Cluster> =
            members.values().filter(|cluster| selection.names(cluster)).cloned().collect();
        let generations = named.iter().map(|cluster| (cluster.id().clone(), cluster.generation())).collect();
        let contexts: BTreeSet<Arc<str>> = named.iter().filter_map(Cluster::original_name).collect();
        let until = Instant::now() + self.services.config.cache.member_deadline.0;
        let decisions = stream::iter(named).map(|cluster| async move {
            let authorizer = &self.services.authorizer;
            let decision = authorizer.decide_by(cluster.id().as_str(), &call.identity, what, until).await;
            (cluster, decision)
        });
        let decisions: Vec<(Cluster, Decision)> = decisions.buffered(MAX_CONCURRENT_REVIEWS).collect().await;
        let is_known = |name: &str| members.contains_key(name) || contexts.contains(name);
        let unknown = selection.names.iter().flatten().filter(|name| !is_known(name));
        let mut denied: Vec<String> = unknown.cloned().collect();
        let (mut decision, mut undecided) = (None, Vec::new());
        let mut seen = Vec::with_capacity(decisions.len());
        let mut considered = Vec::with_capacity(decisions.len());
        for (cluster, decided) in decisions {
            match decided.allowed {
                true if !selection.matches(&cluster) => {}
                true => {
                    seen.push(cluster.clone());
                    considered.push(cluster);
                }
                // A later answer may still allow it.
                false if decided.is_undecided() => undecided.push(cluster.id().clone()),
                false => {
                    denied.push(cluster.id().to_string());
                    considered.push(cluster);
                }
            }
            // An answer that shows anything is allowed; one that shows nothing is denied if any cluster denied it.
            let rank = |decision: &Decision| (decision.allowed, !decision.is_undecided());
            decision = decision.filter(|known| rank(known) >= rank(&decided)).or(Some(decided));
        }
        denied.sort();
        // Unknown clusters are refused like clusters that the caller may not read.
        if decision.is_none()
            && let Some(name) = denied.first()
        {
            decision = Some(self.services.authorizer.decide(name, &call.identity, what).await);
        }
        let mut scope =
            Scope { selection, unread, seen, generations, considered, denied, undecided, decision };
        scope.drop_replaced(&self.services.fleet);
        Ok(scope)
    }
}

impl Scope {
    /// Drops each cluster that was replaced under its name since it was asked: the new one has not decided.
    fn drop_replaced(&mut self, fleet: &Fleet) {
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

impl Route for Merged {
    fn answer(&self, call: Call) -> BoxFuture<'static, Response> {
        let merged = self.clone();
        Box::pin(merged.serve(call))
    }

    fn impersonates(&self) -> bool {
        true
    }
}

/// One read, authorized.
struct Read<'a> {
    merged: &'a Merged,
    call: &'a Call,
    target: &'a ResourceTarget,
    resource: &'a Arc<ResourceType>,
    /// The namespace of the objects.
    namespace: Option<&'a str>,
    selection: ClusterSelection,
    considered: Vec<Cluster>,
    status_builder: Arc<StatusBuilder>,
    kind: Arc<Kind>,
}

impl Read<'_> {
    async fn list(&self) -> Result<Response, Status> {
        self.record_visibility(None);
        let query = self.query(None);
        let source = self.source(self.visible());
        let mut answer = skopos_serve::list(&source, &self.options(), &self.request(&query)).await?;
        self.stamp(answer.headers_mut(), &source.last_status.lock());
        Ok(answer)
    }

    /// Returns one object. If several clusters have one of this name, only a table can show them all.
    async fn get(&self) -> Result<Response, Status> {
        let what = &self.target.attributes;
        let query = self.query(None);
        let source = self.source(self.visible());
        let contents = source.newest();
        let answer_status = contents.answer_status(&self.status_builder);
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
        let mut answer = if headers::wants_table(&self.call.headers) {
            skopos_serve::list(&source, &self.options(), &request).await?
        } else if let [_] = holders.as_slice() {
            skopos_serve::get(&source, &self.options(), &request).await?
        } else {
            let names: Vec<_> = holders.iter().take(10).map(ToString::to_string).collect();
            let problem = format!(
                "{} clusters have one of this name ({}): add ?clusters=NAME, or ask /clusters/NAME",
                holders.len(),
                names.join(", ")
            );
            return Err(Status::conflict(resource, &what.name, problem));
        };
        self.stamp(answer.headers_mut(), &answer_status);
        Ok(answer)
    }

    async fn watch(&self) -> Result<Response, Status> {
        let services = &self.merged.services;
        let permit = services.watches.acquire(&self.call.identity)?;
        let visible = self.visible();
        // Before the watch is accepted, so that no vanished member is missed.
        let vanished = self.kind.history.follow_vanished();
        let from = match self.resume_point(&visible)? {
            Some(Resume::Expired) => {
                self.require_watchable().await?;
                let oldest = self.kind.history.window().oldest_start();
                let asked = self.call.query.single("resourceVersion")?.unwrap_or_default();
                let event = error_event(&Status::too_old_resource_version(asked, oldest));
                return Ok(response::bytes(StatusCode::OK, "application/json", event));
            }
            Some(Resume::After(merged_version)) => Some(merged_version),
            None => None,
        };
        let query = self.query(from);
        let answer_status = self.answer_status();
        let source = self.source(visible.clone());
        let permitted = visible.clone();
        let request = self.request(&query).permitting(move |item: &MergedItem| permitted.permits(item));
        let answer = skopos_serve::watch(&source, &self.options(), &request).await?;
        let watch_authorizer = WatchAuthorizer {
            fleet: services.fleet.clone(),
            authorizer: services.authorizer.clone(),
            history: self.kind.history.clone(),
            who: self.call.identity.clone(),
            what: self.target.attributes.clone(),
            selection: self.selection.clone(),
            visible,
            visibility_log: self.merged.visibility_log.clone(),
            query_key: self.query_key(),
            considered: self.considered.clone(),
            vanished,
            draining: self.call.draining.clone(),
        };
        let held = (permit, self.kind.clone());
        let mut answer = answer.map(|body| end_when(body, watch_authorizer.wait_for_end(), held));
        self.stamp(answer.headers_mut(), &answer_status);
        Ok(answer)
    }

    /// Refuses a caller who may list a cluster but not watch it: its client would list again in an endless loop.
    async fn require_watchable(&self) -> Result<(), Status> {
        let what = &self.target.attributes;
        let list = Attributes { verb: "list".into(), ..what.clone() };
        let listed = self.merged.scope(self.call, &list).await?.seen;
        let is_listed_only = |cluster: &&Cluster| {
            self.considered.contains(cluster) && !self.status_builder.seen.contains(cluster)
        };
        let Some(cluster) = listed.iter().find(is_listed_only) else { return Ok(()) };
        let id = cluster.id();
        let why =
            format!("they may be listed in cluster {id} and not be watched there: name others by ?clusters=");
        Err(Status::forbidden(GroupResource::new(&what.group, &what.resource), &what.name, why))
    }

    /// Returns the merged version from which a watch resumes, if it resumes.
    fn resume_point(&self, visible: &VisibleClusters) -> Result<Option<Resume>, Status> {
        let query = &self.call.query;
        if query.flag("sendInitialEvents")? {
            self.record_visibility(None);
            return Ok(None);
        }
        let version: u64 = match query.single("resourceVersion")?.unwrap_or_default().parse() {
            Ok(version) if version > 0 => version,
            // An invalid version is refused later, by its parser.
            _ => return Ok(None),
        };
        let merged_version = MergedVersion::new(version);
        self.record_visibility(Some(merged_version));
        if !self.merged.visibility_log.is_unchanged_since(self.query_key(), merged_version) {
            return Ok(Some(Resume::Expired));
        }
        let resume = self.kind.history.resume(merged_version, |cluster| visible.contains(cluster));
        let kept = |merged_version: MergedVersion| {
            merged_version.number() >= self.kind.history.window().oldest_start()
        };
        Ok(Some(match resume {
            Resume::After(merged_version) if !kept(merged_version) => Resume::Expired,
            resume => resume,
        }))
    }

    /// Records what the caller sees now, and the merged version from which it resumes, if given.
    fn record_visibility(&self, from: Option<MergedVersion>) {
        let view = self.kind.history.view();
        let is_new = |cluster: &ClusterId| {
            let member = view.roster.get(cluster);
            let old = |merged_version| {
                member.is_some_and(|m| m.contents.iter().any(|entry| entry.merged_version <= merged_version))
            };
            from.is_some_and(|merged_version| !old(merged_version))
        };
        self.merged.visibility_log.record(
            self.query_key(),
            &self.visible().all(),
            view.merged_version,
            is_new,
        );
    }

    /// Returns the key of the query; it is the same for lists and watches.
    fn query_key(&self) -> QueryKey {
        let who = serde_json::to_vec(&*self.call.identity).unwrap_or_default();
        let what = &self.target.attributes;
        let value = |name| self.call.query.all(name).collect::<Vec<_>>().join(",");
        let parts =
            [&what.group, &what.resource, &what.namespace, &what.name, &value(CLUSTERS), &value(SELECTOR)];
        let parts: Vec<&[u8]> =
            std::iter::once(&*who).chain(parts.iter().map(|part| part.as_bytes())).collect();
        QueryKey::from_parts(&parts)
    }

    /// Returns the query for `skopos-serve`: without the parameters of the merged view, and with the merged version to
    /// resume from.
    fn query(&self, from: Option<MergedVersion>) -> skopos_serve::Query {
        let mut query = self.call.query.without(&[CLUSTERS, SELECTOR]);
        if let Some(merged_version) = from {
            query = query.without(&["resourceVersion"]).with("resourceVersion", merged_version.to_string());
        }
        skopos_serve::Query::parse(&query.to_string())
    }

    fn request<'a>(&'a self, query: &'a skopos_serve::Query) -> Request<'a, MergedItem> {
        let what = &self.target.attributes;
        Request {
            resource: self.resource,
            namespace: self.namespace,
            name: Some(what.name.as_str()).filter(|name| self.target.name_in_path && !name.is_empty()),
            query,
            headers: &self.call.headers,
            permit: skopos_serve::ItemFilter::all(),
        }
    }

    fn visible(&self) -> VisibleClusters {
        VisibleClusters::new(self.status_builder.seen.iter().map(|cluster| cluster.id().clone()))
    }

    fn source(&self, visible: VisibleClusters) -> MergedSource {
        let what = &self.target.attributes;
        let value = |name| self.call.query.all(name).collect::<Vec<_>>().join(",");
        let list = [
            what.to_string(),
            value(CLUSTERS),
            value(SELECTOR),
            value("labelSelector"),
            value("fieldSelector"),
        ];
        let parts: Vec<&str> = list.iter().map(String::as_str).collect();
        let signer = self.merged.key.signer_for(&self.call.identity, &parts);
        MergedSource {
            kind: self.kind.clone(),
            visible,
            signer: Arc::new(signer),
            status_builder: self.status_builder.clone(),
            last_status: Arc::default(),
            blocks: self.merged.blocks.clone(),
        }
    }

    fn options(&self) -> ServeOptions {
        let mut options = ServeOptions::default();
        options.max_watch_timeout = Some(WATCH_LIFETIME);
        options
    }

    fn answer_status(&self) -> AnswerStatus {
        let ages = self.kind.followed_stores.ages();
        self.status_builder.build(&self.kind.history.view().roster, &ages)
    }

    fn stamp(&self, headers: &mut HeaderMap, answer_status: &AnswerStatus) {
        stamp(headers, &Stamp { source: "merged", age: answer_status.age, warning: None });
        answer_status.warn(headers);
    }
}

/// Returns whether a request reads the newest state: it names neither a version nor a page.
fn wants_newest(query: &Query) -> Result<bool, Status> {
    let is_unset = |name| Ok::<_, Status>(query.single(name)?.unwrap_or_default().is_empty());
    Ok(is_unset("resourceVersion")? && is_unset("continue")?)
}

/// The parameters that are for the merged view alone.
const CLUSTERS: &str = "clusters";
const SELECTOR: &str = "clusterSelector";

fn parse_selection(query: &Query) -> Result<ClusterSelection, Status> {
    let names: Vec<&str> = query.all(CLUSTERS).collect();
    let names = (!names.is_empty()).then(|| {
        let names = names.iter().flat_map(|names| names.split(',')).filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    });
    let selector = query.single(SELECTOR)?.unwrap_or_default();
    let labels = LabelSelector::parse(selector)
        .map_err(|error| Status::bad_request(format!("clusterSelector: {error}")))?;
    Ok(ClusterSelection { names, labels })
}
