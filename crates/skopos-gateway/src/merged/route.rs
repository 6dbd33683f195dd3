//! `/fleet/...`: who asks what of which clusters, and the answer.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{HeaderMap, Method, StatusCode, header};
use skopos::LabelSelector;
use skopos_fleet::{Cluster, ClusterId, DocumentRequest};
use skopos_serve::{BlockCache, Blocks, Registry, Request, ResourceType, ServeOptions, discovery};
use skopos_wire::{GroupResource, Status};
use tokio::time::timeout;

use super::guard::{Guard, Sight};
use super::item::MergedItem;
use super::kinds::{Kind, Kinds, KindsOptions, Shape};
use super::mark::Mark;
use super::merger::Resume;
use super::openapi::{self, Index};
use super::seal::SealKey;
use super::sights::{Question, Sights};
use super::source::MergedSource;
use super::standing::{Clusters, Wanted};
use super::union::{self, Offer};
use crate::authz::{Attributes, Decision};
use crate::catalog::{self, Catalog, Catalogs};
use crate::clusters::{document_answer, status_of};
use crate::ending::{ending, error_event};
use crate::headers::{Stamp, stamp};
use crate::query::Query;
use crate::response::{self, Response};
use crate::route::{Audited, Call, Route, WATCH_LIFETIME};
use crate::services::Services;
use crate::target::{ResourceTarget, Target};

/// The route of all clusters together. Cheap to clone.
#[derive(Clone)]
pub struct Merged {
    services: Services,
    kinds: Arc<Kinds>,
    registry: Arc<Registry>,
    catalogs: Catalogs,
    sights: Arc<Sights>,
    key: SealKey,
    /// Of which compressed lists are made.
    blocks: Blocks,
}

/// The clusters of a request, after authorization.
struct Scope {
    wanted: Wanted,
    /// Those that the request sees.
    seen: Vec<Cluster>,
    /// Those that an open watch need not ask about: the request sees them, or must not.
    considered: Vec<Cluster>,
    denied: Vec<String>,
    /// One of the decisions: the one that an answer is refused with.
    decision: Option<Decision>,
}

/// The most that is kept of compressed objects, with the objects that would be gone otherwise.
const MAX_BLOCK_BYTES: usize = 256 << 20;

/// How many clusters are asked for the columns of a table.
const DEFINITIONS: u32 = 3;

/// How many clusters are asked at the same time whether a caller may read them.
const REVIEWS: usize = 64;

// === impl Merged ===

impl Merged {
    /// Over all clusters of these services. Feeds run until [`Merged::shutdown`].
    #[must_use]
    pub fn new(services: Services, options: KindsOptions) -> Self {
        let catalogs = Catalogs::new(services.fleet.clone());
        let kinds = Arc::new(Kinds::new(services.fleet.clone(), catalogs.clone(), options));
        let registry = Arc::new(Registry::builtin());
        let blocks = BlockCache::new(MAX_BLOCK_BYTES).blocks();
        Self { services, kinds, registry, catalogs, sights: Arc::default(), key: SealKey::random(), blocks }
    }

    /// The same with other services: what runs goes on.
    #[must_use]
    pub fn renewed(&self, services: Services) -> Self {
        Self { services, ..self.clone() }
    }

    /// Waits, at most for `limit`, until watches can be told all that the members hold, which must not change any more.
    pub async fn settle(&self, limit: Duration) {
        self.kinds.settle(limit).await;
    }

    /// Ends what runs, writes what the next process needs, and waits for it; at most for `limit`. Returns whether nothing
    /// is left.
    pub async fn shutdown(&self, limit: Duration) -> bool {
        self.kinds.shutdown(limit).await
    }

    async fn serve(self, call: Call) -> Response {
        let mut audited = Audited { source: "memory", ..Audited::default() };
        let answered = self.routed(&call, &mut audited).await;
        let mut answer = answered.unwrap_or_else(|status| response::status(&status));
        answer.extensions_mut().insert(audited);
        answer
    }

    async fn routed(&self, call: &Call, audited: &mut Audited) -> Result<Response, Status> {
        if call.method != Method::GET && call.method != Method::HEAD {
            let message = "the fleet as a whole is read only: write to one cluster, below /clusters/NAME";
            return Err(Status::failure(405, skopos_wire::StatusReason::MethodNotAllowed, message));
        }
        let target = Target::parse(&call.method, &call.path, &call.query)?;
        audited.what = target.attributes().to_string().into();
        match target {
            Target::Path(what) => self.describe(call, &what, audited).await,
            Target::Resource(target) => self.resource(call, &target, audited).await,
        }
    }

    /// What there is to read: the built-in kinds, in which nothing is any cluster's, and what is served beside them by the
    /// clusters of which the caller may read such a document.
    async fn describe(
        &self,
        call: &Call,
        what: &Attributes,
        audited: &mut Audited,
    ) -> Result<Response, Status> {
        let path = call.path.to_string();
        if path == "/version" {
            let version = serde_json::json!({"major": "1", "minor": "35", "gitVersion": "v1.35.0+skopos",
                "gitCommit": "", "gitTreeState": "clean", "buildDate": "", "goVersion": "", "compiler": "",
                "platform": ""});
            return Ok(response::bytes(StatusCode::OK, "application/json", version.to_string().into()));
        }
        if openapi::is_below(&path) {
            let scope = self.scope(call, what).await?;
            return self.openapi(call, &path, &scope.seen).await;
        }
        let mut types: Vec<Arc<ResourceType>> = discovery::ordered(&self.registry.all());
        let mut standing = Clusters::default();
        if path == "/" || path == "/apis" || path.starts_with("/apis/") {
            let scope = self.scope(call, what).await?;
            if let Some(decision) = scope.decision.as_ref().filter(|decision| decision.allowed) {
                *audited = std::mem::take(audited).decided(decision);
            }
            let (offers, unknown) = self.offers(&scope.seen).await;
            let united = union::unite(&offers);
            types.extend(united.types);
            standing.missing = unknown;
            standing.missing.extend(united.otherwise);
            standing.denied = scope.denied;
        }
        types.retain(|resource| self.keeps(&resource.group, &resource.plural));
        let accept =
            call.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (content_type, document) =
            discovery::document_in_order(&path, accept, &types).ok_or_else(Status::resource_not_served)?;
        let mut answer = response::bytes(StatusCode::OK, content_type, document.to_string().into());
        standing.warn(answer.headers_mut());
        Ok(answer)
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
        let scope = self.scope(call, what).await?;
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
        let shape = Shape::of(&resource);
        let kind = self.kinds.get(&shape).await;
        // The first read of a kind starts it everywhere; whoever has not answered by then is named.
        if timeout(self.services.config.cache.member_deadline.0, kind.history.opened()).await.is_err() {
            kind.history.open();
        }
        let read = Read { merged: self, call, target, resource: &resource, scope, kind, shape };
        let answer = match what.verb.as_str() {
            "watch" => read.watch().await,
            "list" => read.list().await,
            _ => read.get().await,
        }?;
        Ok(answer)
    }

    /// A kind that is not built in, as most of these clusters have it.
    ///
    /// What is known of them is enough: nobody waits for one that is slow to say what it said before. Only what none of them
    /// is known to have is asked for.
    async fn custom(
        &self,
        call: &Call,
        what: &Attributes,
        seen: &[Cluster],
    ) -> Result<Arc<ResourceType>, Status> {
        let elect = |offers: &[Offer]| union::elect(offers, &what.group, &what.version, &what.resource);
        let kept = seen.iter().filter_map(|cluster| Some(offer(cluster, self.catalogs.kept(cluster)?.ok()?)));
        let found = match elect(&kept.collect::<Vec<_>>()) {
            Some(found) => found,
            None => {
                let (offers, unknown) = self.offers(seen).await;
                elect(&offers).ok_or_else(|| not_served(&unknown))?
            }
        };
        Ok(match wants_table(&call.headers) {
            true => self.with_columns(found, seen).await,
            false => found,
        })
    }

    /// What these clusters serve beside the built-in kinds, and of which of them that is not known, and why.
    async fn offers(&self, seen: &[Cluster]) -> (Vec<Offer>, Vec<(ClusterId, String)>) {
        let limit = self.services.config.cache.member_deadline.0;
        let asked = self.ask(seen, |cluster| {
            let catalogs = self.catalogs.clone();
            async move { catalogs.of(&cluster, limit).await }.boxed()
        });
        let asked = asked.await;
        let (mut offers, mut unknown) = (Vec::with_capacity(asked.len()), Vec::new());
        for (cluster, catalog) in asked {
            let catalog = catalog.or_else(|| self.catalogs.kept(&cluster));
            match catalog.unwrap_or_else(|| Err("its discovery takes too long".into())) {
                Ok(catalog) => offers.push(offer(&cluster, catalog)),
                Err(why) => unknown.push((cluster.id().clone(), why.to_string())),
            }
        }
        (offers, unknown)
    }

    /// The index of the documents of these clusters' OpenAPI, or one of them, from a cluster that has it.
    async fn openapi(&self, call: &Call, path: &str, seen: &[Cluster]) -> Result<Response, Status> {
        let limit = self.services.config.cache.member_deadline.0;
        let request = openapi::request().ok_or_else(Status::resource_not_served)?;
        let asked = self.ask(seen, |cluster| {
            let request = request.clone();
            async move { cluster.document(&request, limit).await.ok() }.boxed()
        });
        let asked = asked.await;
        let index = |(cluster, document): (Cluster, Option<Option<skopos_fleet::Document>>)| {
            Some((cluster, Index::parse(&document??.body)?))
        };
        let indexes: Vec<(Cluster, Index)> = asked.into_iter().filter_map(index).collect();
        let Some(name) = openapi::name_of(path) else {
            let united = openapi::united(&indexes);
            return Ok(response::bytes(StatusCode::OK, "application/json", united.into()));
        };
        let (cluster, address) = openapi::elect(&indexes, name).ok_or_else(Status::resource_not_served)?;
        let accept = call.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
        let request = DocumentRequest::new(address, accept).ok_or_else(Status::resource_not_served)?;
        let document = cluster.document(&request, limit).await.map_err(|error| status_of(&error))?;
        Ok(document_answer(&document, call.headers.get(header::IF_NONE_MATCH)))
    }

    /// Asks these clusters, all of them at the same time; `None` for those that have not answered within the deadline for
    /// members.
    fn ask<T: Send + 'static>(
        &self,
        seen: &[Cluster],
        question: impl Fn(Cluster) -> BoxFuture<'static, T>,
    ) -> BoxFuture<'static, Vec<(Cluster, Option<T>)>> {
        let until = tokio::time::Instant::now() + self.services.config.cache.member_deadline.0;
        let asked = seen.iter().cloned().map(|cluster| {
            let answer = tokio::time::timeout_at(until, question(cluster.clone()));
            async move { (cluster, answer.await.ok()) }.boxed()
        });
        let asked: Vec<BoxFuture<'static, _>> = asked.collect();
        stream::iter(asked).buffered(REVIEWS).collect().boxed()
    }

    /// The same with the columns that its definition asks for: that of the first of these clusters that has one in memory,
    /// or gives it in time.
    async fn with_columns(&self, resource: Arc<ResourceType>, seen: &[Cluster]) -> Arc<ResourceType> {
        let ResourceType { group, version, plural, .. } = &*resource;
        let has = |cluster: &&Cluster| {
            let catalog = self.catalogs.kept(cluster).and_then(Result::ok);
            let own = catalog.as_ref().and_then(|catalog| catalog.get(group, version, plural));
            own.is_some_and(|own| union::is_same(own, &resource))
        };
        let mut holders: Vec<&Cluster> = seen.iter().filter(has).collect();
        holders.sort_by_key(|cluster| !catalog::has_definitions(cluster));
        let each = self.services.config.cache.member_deadline.0 / DEFINITIONS;
        for cluster in holders.into_iter().take(DEFINITIONS as usize) {
            let defined = catalog::resolve(cluster, group, version, plural, each).await;
            if let Some(defined) = defined.filter(|defined| union::is_same(defined, &resource)) {
                return defined;
            }
        }
        resource
    }

    /// Whether objects of this kind may be in memory.
    fn keeps(&self, group: &str, plural: &str) -> bool {
        let cache = &self.services.config.cache;
        let secret = group.is_empty() && plural == "secrets";
        let named = |kind: &crate::config::Kind| kind.group == group && kind.resource == plural;
        (!secret || cache.secrets) && !cache.never.iter().any(named)
    }

    /// Which clusters are asked for, and which of them the caller may read.
    ///
    /// All that the request names are asked about, whatever their labels: those of a cluster that the caller may not read
    /// choose nothing, so the answer cannot tell them.
    async fn scope(&self, call: &Call, what: &Attributes) -> Result<Scope, Status> {
        let wanted = wanted(&call.query)?;
        let members = self.services.fleet.members();
        let named: Vec<Cluster> = members.values().filter(|cluster| wanted.names(cluster)).cloned().collect();
        let decisions = stream::iter(named).map(|cluster| async move {
            let decision = self.services.authorizer.decide(cluster.id().as_str(), &call.identity, what).await;
            (cluster, decision)
        });
        let decisions: Vec<(Cluster, Decision)> = decisions.buffered(REVIEWS).collect().await;
        let unknown = wanted.names.iter().flatten().filter(|name| !members.contains_key(name.as_str()));
        let mut denied: Vec<String> = unknown.cloned().collect();
        let mut decision = None;
        let mut seen = Vec::with_capacity(decisions.len());
        let mut considered = Vec::with_capacity(decisions.len());
        for (cluster, decided) in decisions {
            match decided.allowed {
                true if !wanted.wants(&cluster) => {}
                true => {
                    seen.push(cluster.clone());
                    considered.push(cluster);
                }
                false => {
                    denied.push(cluster.id().to_string());
                    considered.push(cluster);
                }
            }
            // An answer that shows something is allowed, whatever else was not.
            decision = decision.filter(|decision: &Decision| decision.allowed).or(Some(decided));
        }
        denied.sort();
        // Clusters that are not there are refused as those that one may not read.
        if decision.is_none()
            && let Some(name) = denied.first()
        {
            decision = Some(self.services.authorizer.decide(name, &call.identity, what).await);
        }
        Ok(Scope { wanted, seen, considered, denied, decision })
    }
}

impl Route for Merged {
    fn answer(&self, call: Call) -> BoxFuture<'static, Response> {
        let merged = self.clone();
        Box::pin(merged.serve(call))
    }
}

/// One read, authorized.
struct Read<'a> {
    merged: &'a Merged,
    call: &'a Call,
    target: &'a ResourceTarget,
    resource: &'a Arc<ResourceType>,
    scope: Scope,
    kind: Arc<Kind>,
    shape: Shape,
}

impl Read<'_> {
    async fn list(&self) -> Result<Response, Status> {
        self.note(None);
        let standing = self.standing();
        let query = self.query(None);
        // The first page of a list that may have more.
        let paged = self.call.query.single("limit")?.is_some_and(|limit| limit != "0")
            && self.call.query.single("continue")?.is_none();
        let source = self.source(self.sight(), paged, standing.annotations());
        let mut answer = skopos_serve::list(&source, &self.options(), &self.request(&query)).await?;
        self.stamp(answer.headers_mut(), &standing);
        Ok(answer)
    }

    /// One object; where several clusters have one of this name, only a table can show them all.
    async fn get(&self) -> Result<Response, Status> {
        let standing = self.standing();
        let what = &self.target.attributes;
        let query = self.query(None);
        let source = self.source(self.sight(), false, Vec::new());
        let contents = source.newest();
        let holders = contents.holders(self.namespace(), &what.name);
        let resource = GroupResource::new(&what.group, &what.resource);
        if holders.is_empty() {
            let mut missing = Status::not_found(resource, &what.name);
            if let Some((id, _)) = standing.missing.first() {
                missing.message =
                    format!("{} in the clusters that are known; nothing is known of {id}", missing.message);
            }
            return Err(missing);
        }
        let request = self.request(&query);
        let mut answer = if wants_table(&self.call.headers) {
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
        self.stamp(answer.headers_mut(), &standing);
        Ok(answer)
    }

    async fn watch(&self) -> Result<Response, Status> {
        let services = &self.merged.services;
        let permit = services.watches.enter(&self.call.identity)?;
        let sight = self.sight();
        // Before it is found good, so that nothing vanishes unseen.
        let vanished = self.kind.history.follow_vanished();
        let from = match self.resumes(&sight)? {
            Some(Resume::Expired) => {
                let oldest = self.kind.history.window().oldest_start();
                let asked = self.call.query.single("resourceVersion")?.unwrap_or_default();
                let event = error_event(&Status::too_old_resource_version(asked, oldest));
                return Ok(response::bytes(StatusCode::OK, "application/json", event));
            }
            Some(Resume::After(mark)) => Some(mark),
            None => None,
        };
        let query = self.query(from);
        let standing = self.standing();
        let source = self.source(sight.clone(), false, Vec::new());
        let permitted = sight.clone();
        let request =
            self.request(&query).permitting(move |item: &MergedItem| permitted.sees(item.cluster()));
        let answer = skopos_serve::watch(&source, &self.options(), &request).await?;
        let guard = Guard {
            fleet: services.fleet.clone(),
            authorizer: services.authorizer.clone(),
            history: self.kind.history.clone(),
            who: self.call.identity.clone(),
            what: self.target.attributes.clone(),
            wanted: self.scope.wanted.clone(),
            sight,
            sights: self.merged.sights.clone(),
            question: self.question(),
            considered: self.scope.considered.clone(),
            vanished,
            draining: self.call.draining.clone(),
        };
        let held = (permit, self.kind.clone());
        let mut answer = answer.map(|body| ending(body, guard.end(), held));
        self.stamp(answer.headers_mut(), &standing);
        Ok(answer)
    }

    /// From which mark a watch goes on, if it goes on from one.
    fn resumes(&self, sight: &Sight) -> Result<Option<Resume>, Status> {
        let query = &self.call.query;
        if query.flag("sendInitialEvents")? {
            self.note(None);
            return Ok(None);
        }
        let version: u64 = match query.single("resourceVersion")?.unwrap_or_default().parse() {
            Ok(version) if version > 0 => version,
            // What is none is refused by those who read it.
            _ => return Ok(None),
        };
        let mark = Mark::new(version);
        self.note(Some(mark));
        if !self.merged.sights.is_as_at(self.question(), mark) {
            return Ok(Some(Resume::Expired));
        }
        let resume = self.kind.history.resume(mark, |cluster| sight.sees(cluster));
        let kept = |mark: Mark| mark.number() >= self.kind.history.window().oldest_start();
        Ok(Some(match resume {
            Resume::After(mark) if !kept(mark) => Resume::Expired,
            resume => resume,
        }))
    }

    /// Remembers what is seen now, by somebody who goes on from a mark if one is given.
    fn note(&self, from: Option<Mark>) {
        let view = self.kind.history.view(false);
        let is_new = |cluster: &ClusterId| {
            let member = view.roster.get(cluster);
            let old = |mark| member.is_some_and(|m| m.contents.iter().any(|entry| entry.mark <= mark));
            from.is_some_and(|mark| !old(mark))
        };
        self.merged.sights.note(self.question(), &self.sight().all(), view.mark, is_new);
    }

    /// The question, whether it is asked by a list or by a watch.
    fn question(&self) -> Question {
        let who = serde_json::to_vec(&*self.call.identity).unwrap_or_default();
        let what = &self.target.attributes;
        let of = |name| self.call.query.all(name).collect::<Vec<_>>().join(",");
        let parts = [&what.group, &what.resource, &what.namespace, &what.name, &of(CLUSTERS), &of(SELECTOR)];
        let parts: Vec<&[u8]> =
            std::iter::once(&*who).chain(parts.iter().map(|part| part.as_bytes())).collect();
        Question::of(&parts)
    }

    /// What is passed on: without what is for the merged view alone, and with the mark to go on from.
    fn query(&self, from: Option<Mark>) -> skopos_serve::Query {
        let mut query = self.call.query.without(&[CLUSTERS, SELECTOR]);
        if let Some(mark) = from {
            query = query.without(&["resourceVersion"]).with("resourceVersion", mark.to_string());
        }
        skopos_serve::Query::parse(&query.to_string())
    }

    fn request<'a>(&'a self, query: &'a skopos_serve::Query) -> Request<'a, MergedItem> {
        let what = &self.target.attributes;
        Request {
            resource: self.resource,
            namespace: self.namespace(),
            name: Some(what.name.as_str()).filter(|name| self.target.name_in_path && !name.is_empty()),
            query,
            headers: &self.call.headers,
            permit: skopos_serve::Permit::all(),
        }
    }

    /// Where the objects lie. A namespace itself lies in none.
    fn namespace(&self) -> Option<&str> {
        Some(self.target.attributes.namespace.as_str())
            .filter(|namespace| self.resource.namespaced && !namespace.is_empty())
    }

    fn sight(&self) -> Sight {
        Sight::new(self.scope.seen.iter().map(|cluster| cluster.id().clone()))
    }

    fn source(&self, sight: Sight, paged: bool, annotations: Vec<(String, String)>) -> MergedSource {
        let what = &self.target.attributes;
        let of = |name| self.call.query.all(name).collect::<Vec<_>>().join(",");
        let list = [what.to_string(), of(CLUSTERS), of(SELECTOR), of("labelSelector"), of("fieldSelector")];
        let parts: Vec<&str> = list.iter().map(String::as_str).collect();
        let seal = self.merged.key.seal_for(&self.call.identity, &parts);
        MergedSource {
            history: self.kind.history.clone(),
            sight,
            paged,
            seal: Arc::new(seal),
            annotations: Arc::new(annotations),
            blocks: self.merged.blocks.clone(),
        }
    }

    fn options(&self) -> ServeOptions {
        let mut options = ServeOptions::default();
        options.max_watch_timeout = Some(WATCH_LIFETIME);
        options
    }

    fn standing(&self) -> Clusters {
        let view = self.kind.history.view(false);
        let max_age = self.merged.services.config.cache.max_age.0;
        let seen = self.scope.seen.iter();
        let mut standing =
            Clusters::look(seen, &self.shape.resource, &view.roster, &self.kind.absences, max_age);
        standing.denied = self.scope.denied.clone();
        standing
    }

    fn stamp(&self, headers: &mut HeaderMap, standing: &Clusters) {
        stamp(headers, &Stamp { source: "merged", age: standing.age, warning: None });
        standing.warn(headers);
    }
}

/// The parameters that are for the merged view alone.
const CLUSTERS: &str = "clusters";
const SELECTOR: &str = "clusterSelector";

fn wanted(query: &Query) -> Result<Wanted, Status> {
    let names: Vec<&str> = query.all(CLUSTERS).collect();
    let names = (!names.is_empty()).then(|| {
        let names = names.iter().flat_map(|names| names.split(',')).filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    });
    let selector = query.single(SELECTOR)?.unwrap_or_default();
    let labels = LabelSelector::parse(selector)
        .map_err(|error| Status::bad_request(format!("clusterSelector: {error}")))?;
    Ok(Wanted { names, labels })
}

fn offer(cluster: &Cluster, catalog: Arc<Catalog>) -> Offer {
    Offer { cluster: cluster.id().clone(), catalog }
}

/// 404, as API servers say it; with the first cluster of which nothing is known.
fn not_served(unknown: &[(ClusterId, String)]) -> Status {
    let mut status = Status::resource_not_served();
    if let Some((id, why)) = unknown.first() {
        status.message =
            format!("{} in the clusters that are known; nothing is known of {id}: {why}", status.message);
    }
    status
}

fn wants_table(headers: &HeaderMap) -> bool {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accept.flat_map(|accept| accept.split(',')).next().is_some_and(|first| first.contains("as=Table"))
}
