//! Discovery of the merged view: the built-in kinds, and the custom ones that the caller's clusters serve.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::HeaderValue;
use skopos_fleet::{Cluster, ClusterId, DocumentRequest};
use skopos_serve::{Registry, ResourceType, discovery};
use skopos_wire::{GroupResource, Status};
use tokio::time::{Instant, timeout_at};

use super::answer_status::{Answer, AnswerStatus};
use super::openapi::{self, Index};
use super::request::ReadRequest;
use super::scope::Scope;
use super::union::{self, Offer};
use super::union_cache::UnionCache;
use crate::authz::Attributes;
use crate::catalog::{self, Catalog, Catalogs};
use crate::clusters::{document_answer, status_of};
use crate::config::Cache;

/// Maximum number of documents that are read concurrently.
const MAX_CONCURRENT_DOCUMENTS: usize = 64;

/// Maximum number of clusters that are asked for the columns of a table.
const MAX_DEFINITION_READS: u32 = 3;

/// The catalogs of the clusters, and their unions. Cheap to clone.
#[derive(Clone)]
pub(super) struct Discovery {
    registry: Arc<Registry>,
    catalogs: Catalogs,
    unions: Arc<UnionCache>,
}

/// Returns the version document.
pub(super) fn version() -> Answer {
    let version = serde_json::json!({"major": "1", "minor": "35", "gitVersion": "v1.35.0+skopos",
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "", "goVersion": "", "compiler": "",
        "platform": ""});
    Answer::Document("application/json", version.to_string().into(), AnswerStatus::default())
}

impl Discovery {
    /// Makes the discovery of these catalogs' clusters.
    pub(super) fn new(catalogs: Catalogs) -> Self {
        Self { registry: Arc::new(Registry::builtin()), catalogs, unions: Arc::default() }
    }

    /// Returns the discovery without cached documents: another configuration may change what is cached in memory.
    pub(super) fn renewed(&self) -> Self {
        Self { unions: Arc::default(), ..self.clone() }
    }

    /// Returns the discovery document: the built-in kinds, which reveal nothing about any cluster, and the kinds that are
    /// served beside them by the clusters in scope, whose discovery the caller may read.
    ///
    /// # Errors
    /// 404 for a path without a document.
    pub(super) async fn document(
        &self,
        cache: &Cache,
        path: &str,
        accept: &str,
        scope: Option<Scope>,
    ) -> Result<Answer, Status> {
        let (mut united, mut answer_status) = (None, AnswerStatus::default());
        if let Some(scope) = scope {
            let (offers, unknown) = self.offers(cache, &scope.seen).await;
            let whole = self.unions.get(offers);
            answer_status = AnswerStatus::new(&scope);
            answer_status.missing.extend(unknown);
            answer_status.missing.extend_from_slice(&whole.union().otherwise);
            united = Some(whole);
        }
        let write = || {
            let mut types = discovery::ordered(&self.registry.all());
            types.extend(united.iter().flat_map(|united| &united.union().types).cloned());
            types.retain(|resource| cache.keeps(&resource.group, &resource.plural));
            let (content_type, document) = discovery::document_in_order(path, accept, &types)?;
            Some((content_type, Bytes::from(document.to_string())))
        };
        let document = match &united {
            // The document that every client requests.
            Some(united) if path == "/apis" => united.document(accept, write),
            _ => write(),
        };
        let (content_type, document) = document.ok_or_else(Status::resource_not_served)?;
        Ok(Answer::Document(content_type, document, answer_status))
    }

    /// Returns the resource of a read: a built-in one, or as most of these clusters define it.
    ///
    /// Known catalogs are enough: no request waits for a slow cluster to repeat its answer. The clusters are asked only
    /// if no known catalog has the kind.
    ///
    /// # Errors
    /// 404 if no cluster serves it; 403 if an aggregated API does.
    pub(super) async fn resource(
        &self,
        cache: &Cache,
        request: &ReadRequest,
        seen: &[Cluster],
    ) -> Result<Arc<ResourceType>, Status> {
        let what = &request.review.what;
        if let Some(builtin) = self.registry.resolve(&what.group, &what.version, &what.resource) {
            return Ok(builtin);
        }
        let elect = |offers: &[Offer]| union::elect(offers, &what.group, &what.version, &what.resource);
        let kept = seen.iter().filter_map(|cluster| Some(offer(cluster, self.catalogs.peek(cluster)?.ok()?)));
        let found = match elect(&kept.collect::<Vec<_>>()) {
            Some(found) => found,
            None => {
                let (offers, unknown) = self.offers(cache, seen).await;
                let is_aggregated =
                    |offer: &Offer| offer.catalog.is_aggregated(&what.group, &what.version, &what.resource);
                match elect(&offers) {
                    Some(found) => found,
                    None if offers.iter().any(is_aggregated) => return Err(aggregated(what)),
                    None => return Err(not_served(&unknown)),
                }
            }
        };
        Ok(match request.wants_table {
            true => self.with_columns(cache, found, seen).await,
            false => found,
        })
    }

    /// Returns what these clusters serve beside the built-in kinds, and the clusters for which that is unknown, with the
    /// reason.
    async fn offers(&self, cache: &Cache, seen: &[Cluster]) -> (Vec<Offer>, Vec<(ClusterId, String)>) {
        let limit = cache.member_deadline.0;
        let asked = ask(seen, limit, |cluster| {
            let catalogs = self.catalogs.clone();
            async move { catalogs.current(&cluster, limit).await }.boxed()
        });
        let asked = asked.await;
        let (mut offers, mut unknown) = (Vec::with_capacity(asked.len()), Vec::new());
        for (cluster, catalog) in asked {
            let catalog = catalog.or_else(|| self.catalogs.peek(&cluster));
            match catalog.unwrap_or_else(|| Err("its discovery takes too long".into())) {
                Ok(catalog) => offers.push(offer(&cluster, catalog)),
                Err(why) => unknown.push((cluster.id().clone(), why.to_string())),
            }
        }
        (offers, unknown)
    }

    /// Returns the index of these clusters' OpenAPI documents, or one document from a cluster that has it.
    ///
    /// # Errors
    /// 404 if no cluster has the document.
    pub(super) async fn openapi(
        &self,
        cache: &Cache,
        document: Option<&str>,
        accept: &str,
        known: Option<&HeaderValue>,
        seen: &[Cluster],
    ) -> Result<Answer, Status> {
        let limit = cache.member_deadline.0;
        let request = openapi::request().ok_or_else(Status::resource_not_served)?;
        let asked = ask(seen, limit, |cluster| {
            let request = request.clone();
            async move { cluster.current_document(&request, limit).await.ok() }.boxed()
        });
        let asked = asked.await;
        let index = |(cluster, document): (Cluster, Option<Option<skopos_fleet::Document>>)| {
            Some((cluster, Index::parse(&document??.body)?))
        };
        let indexes: Vec<(Cluster, Index)> = asked.into_iter().filter_map(index).collect();
        let Some(name) = document else {
            let united = openapi::united(&indexes).into();
            return Ok(Answer::Document("application/json", united, AnswerStatus::default()));
        };
        let (cluster, address) = openapi::elect(&indexes, name).ok_or_else(Status::resource_not_served)?;
        let request = DocumentRequest::new(address, accept).ok_or_else(Status::resource_not_served)?;
        let document = cluster.current_document(&request, limit).await.map_err(|error| status_of(&error))?;
        document_answer(&document, known).map(Answer::OfMember)
    }

    /// Adds the columns of the resource's definition, from the first of these clusters that has one in memory or returns
    /// it in time.
    async fn with_columns(
        &self,
        cache: &Cache,
        resource: Arc<ResourceType>,
        seen: &[Cluster],
    ) -> Arc<ResourceType> {
        let ResourceType { group, version, plural, .. } = &*resource;
        let has = |cluster: &&Cluster| {
            let catalog = self.catalogs.peek(cluster).and_then(Result::ok);
            let own = catalog.as_ref().and_then(|catalog| catalog.get(group, version, plural));
            own.is_some_and(|own| union::is_same(own, &resource))
        };
        let mut holders: Vec<&Cluster> = seen.iter().filter(has).collect();
        holders.sort_by_key(|cluster| !catalog::has_definitions(cluster));
        let each = cache.member_deadline.0 / MAX_DEFINITION_READS;
        for cluster in holders.into_iter().take(MAX_DEFINITION_READS as usize) {
            let defined = catalog::resolve(cluster, group, version, plural, each).await;
            if let Some(defined) = defined.filter(|defined| union::is_same(defined, &resource)) {
                return defined;
            }
        }
        resource
    }
}

/// Asks these clusters, at most [`MAX_CONCURRENT_DOCUMENTS`] concurrently; `None` for those that do not answer within
/// the limit.
fn ask<T: Send + 'static>(
    seen: &[Cluster],
    limit: Duration,
    question: impl Fn(Cluster) -> BoxFuture<'static, T>,
) -> BoxFuture<'static, Vec<(Cluster, Option<T>)>> {
    let until = Instant::now() + limit;
    let asked = seen.iter().cloned().map(|cluster| {
        let answer = timeout_at(until, question(cluster.clone()));
        async move { (cluster, answer.await.ok()) }.boxed()
    });
    let asked: Vec<BoxFuture<'static, _>> = asked.collect();
    stream::iter(asked).buffered(MAX_CONCURRENT_DOCUMENTS).collect().boxed()
}

fn offer(cluster: &Cluster, catalog: Arc<Catalog>) -> Offer {
    Offer { cluster: cluster.id().clone(), catalog }
}

/// Returns the refusal of a kind whose answers may depend on the caller.
fn aggregated(what: &Attributes) -> Status {
    let why = "an aggregated API serves this kind, and its answers may depend on the caller, so there is no merged view of it: \
               ask one cluster, below /clusters/NAME";
    Status::forbidden(GroupResource::new(&what.group, &what.resource), &what.name, why)
}

/// Returns 404 with the message of API servers, and the first cluster about which nothing is known.
fn not_served(unknown: &[(ClusterId, String)]) -> Status {
    let mut status = Status::resource_not_served();
    if let Some((id, why)) = unknown.first() {
        status.message =
            format!("{} in the clusters that are known; nothing is known of {id}: {why}", status.message);
    }
    status
}
