//! Answers to get, list and watch from memory, with their age.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, header};
use parking_lot::Mutex;
use skopos::{Freshness, ObjectKey, RawObject, ResourceVersion, Snapshot};
use skopos_fleet::{CachedKind, Cluster, Condition, FleetError, StopReason};
use skopos_serve::{
    Blocks, Compacted, ReadError, Request, ResourceType, ServeOptions, Source, VersionRequirement, Window,
};
use skopos_wire::{Status, protobuf};
use tokio::time::{sleep, timeout};

use super::newest::no_number;
use super::presentation::Presentation;
use super::state::State;
use super::view::{Row, View};
use super::{Allowed, Clusters, status_of};
use crate::catalog;
use crate::config::fleet::{KeptParts, resource_id, writes};
use crate::consistency::{Floors, Requirement};
use crate::gateway::route::{Audited, Call, WATCH_LIFETIME};
use crate::request::headers::{self, Stamp, stamp};
use crate::request::query::Query;
use crate::request::target::ResourceTarget;
use crate::response::Response;
use crate::response::terminating_body::end_when;

/// The cached content of a kind, as one request sees it.
#[derive(Clone)]
pub(super) struct Memory {
    pub(super) view: Arc<View>,
    pub(super) kind: CachedKind,
    pub(super) cluster: Cluster,
    /// The required age of the newest state.
    pub(super) requirement: Arc<Requirement>,
    pub(super) floors: Floors,
    /// The requested object, if the request is for one.
    pub(super) one: Option<ObjectKey>,
    pub(super) member_deadline: Duration,
    /// The member's warnings for this kind.
    warnings: Vec<HeaderValue>,
    /// The source and the freshness of the last read, for the headers.
    pub(super) last_read: Arc<Mutex<Option<ReadInfo>>>,
}

/// The source and the freshness of an answer.
#[derive(Clone, Debug)]
pub(super) struct ReadInfo {
    freshness: Freshness,
    /// True if listed from the member for this read.
    live: bool,
    /// True if the newest state was requested, and this is older than allowed.
    pub(super) late: bool,
}

impl Clusters {
    /// Answers from memory; `None` if the member must answer.
    pub(super) async fn answer_from_memory(
        &self,
        allowed: &Allowed,
        target: &ResourceTarget,
    ) -> Option<Result<Response, Status>> {
        let Allowed { cluster, call } = allowed;
        if !self.may_be_kept(target, call) {
            return None;
        }
        // A client that updates an object reads it first. It takes fields that are missing there for another client's:
        // they would stay, or be removed.
        let lacks_parts = self.kept < KeptParts::All && writes(&self.services.config);
        if lacks_parts && target.attributes.verb == "get" && cluster.state().condition.is_asked() {
            return None;
        }
        let cache = &self.services.config.cache;
        let what = &target.attributes;
        let limit = cache.first_use_deadline.0;
        let resource = catalog::resolve(cluster, &what.group, &what.version, &what.resource, limit).await?;
        if resource.custom && selects_custom_fields(&call.query) {
            return None;
        }
        let kind = match cluster.kind(&resource_id(&resource), limit).await {
            Ok(kind) => kind,
            // A second request to a cluster that does not answer would not help.
            Err(error) if is_away(cluster, &error) => return Some(Err(status_of(&error))),
            // The reason does not matter here: the member's own answer reports it.
            Err(_) => return None,
        };
        let view = self.views.get(cluster.id(), &kind)?;
        let namespace = match target.place(resource.namespaced) {
            Ok(namespace) => namespace,
            Err(status) => return Some(Err(status)),
        };
        let answers = cluster.state().condition.is_asked();
        let presentation = match (resource.custom, answers) {
            // Its definition has everything.
            (true, _) => None,
            (false, true) => self.presentations.get(cluster, &resource).await,
            (false, false) => self.presentations.kept(cluster, &resource),
        };
        let other_columns = headers::wants_table(&call.headers)
            && presentation.as_ref().is_some_and(|presentation| presentation.has_other_columns);
        if other_columns && answers {
            return None;
        }
        let one = (what.verb == "get").then(|| ObjectKey::checked(namespace, &what.name).ok()).flatten();
        let floor = self.services.floors.get(cluster.id(), &what.group, &what.resource);
        let reads = cache.reads_of(cluster.id().as_str());
        let requirement = Requirement::new(reads, cache.max_age.0, &call.headers, floor);
        let memory = Memory {
            view,
            kind,
            cluster: cluster.clone(),
            requirement: Arc::new(requirement),
            floors: self.services.floors.clone(),
            one,
            member_deadline: cache.member_deadline.0,
            warnings: warnings(&resource, presentation.as_deref(), other_columns),
            last_read: Arc::default(),
        };
        Some(self.respond(memory, &resource, namespace, call, target).await)
    }

    /// Returns whether memory may answer such a request at all.
    fn may_be_kept(&self, target: &ResourceTarget, call: &Call) -> bool {
        let what = &target.attributes;
        target.reads()
            && call.method == Method::GET
            && what.subresource.is_empty()
            && self.services.config.cache.keeps(&what.group, &what.resource)
            && accepts_form_of_memory(&call.headers)
    }

    async fn respond(
        &self,
        memory: Memory,
        resource: &Arc<ResourceType>,
        namespace: Option<&str>,
        call: &Call,
        target: &ResourceTarget,
    ) -> Result<Response, Status> {
        let what = &target.attributes;
        let name = Some(what.name.as_str()).filter(|name| target.name_in_path && !name.is_empty());
        let query = skopos_serve::Query::parse(&call.query.to_string());
        let request = Request {
            resource,
            namespace,
            name,
            query: &query,
            headers: &call.headers,
            permit: skopos_serve::ItemFilter::all(),
        };
        let options = serve_options();
        let mut answer = match what.verb.as_str() {
            "get" => skopos_serve::get(&memory, &options, &request).await?,
            "list" => {
                let allowed = skopos_serve::deadline::from_query(&query, options.request_timeout)?;
                let listing = skopos_serve::list(&memory, &options, &request);
                match timeout(allowed, listing).await {
                    Ok(answer) => answer?,
                    Err(_) => {
                        return Err(Status::timeout(
                            "the request did not complete within the allotted timeout",
                            0,
                        ));
                    }
                }
            }
            _ => self.watch(&memory, &options, &request, call, target).await?,
        };
        memory.stamp(&mut answer);
        Ok(answer)
    }

    async fn watch(
        &self,
        memory: &Memory,
        options: &ServeOptions,
        request: &Request<'_, Row>,
        call: &Call,
        target: &ResourceTarget,
    ) -> Result<Response, Status> {
        let permit = self.services.watches.acquire(&call.identity)?;
        let answer = skopos_serve::watch(memory, options, request).await?;
        let (authorizer, cluster) = (self.services.authorizer.clone(), memory.cluster.id().clone());
        let (draining, identity) = (call.draining.clone(), call.identity.clone());
        let (what, kind) = (target.attributes.clone(), memory.kind.clone());
        let end = async move {
            tokio::select! {
                () = sleep(WATCH_LIFETIME) => {}
                () = draining.cancelled() => {}
                _ = authorizer.revoked(cluster.as_str(), &identity, &what) => {}
                ended = kind.ended() => return (ended == StopReason::Replaced).then(|| Status::expired(REPLACED)),
            }
            None
        };
        let held = (permit, memory.view.clone());
        Ok(answer.map(|body| end_when(body, end, held)))
    }
}

const REPLACED: &str = "another cluster has replaced the one that was watched: list again";

fn serve_options() -> ServeOptions {
    let mut options = ServeOptions::default();
    options.min_watch_timeout = WATCH_LIFETIME / 2;
    // So that a last bookmark comes before the end.
    options.max_watch_timeout = Some(WATCH_LIFETIME - Duration::from_secs(5));
    options
}

/// Returns the warnings that the member would send, and one if its tables have other columns.
fn warnings(
    resource: &ResourceType,
    presentation: Option<&Presentation>,
    other_columns: bool,
) -> Vec<HeaderValue> {
    let own = resource.deprecation.as_deref();
    let own = own.into_iter().chain(other_columns.then_some(OTHER_COLUMNS)).filter_map(headers::warning);
    own.chain(presentation.iter().flat_map(|shown| shown.warnings.iter().cloned())).collect()
}

const OTHER_COLUMNS: &str = "skopos: the columns of this table are those of Kubernetes 1.36; the cluster has others, and does not answer";

/// Returns whether the cluster itself does not answer.
fn is_away(cluster: &Cluster, error: &FleetError) -> bool {
    match error {
        FleetError::Paused { .. } | FleetError::Unreachable { .. } | FleetError::Removed { .. } => true,
        // A long list may be slow, and the cluster's own answer best explains a problem with one kind.
        FleetError::Deadline { .. } => {
            !matches!(cluster.state().condition, Condition::Live | Condition::Degraded)
        }
        _ => false,
    }
}

/// Returns whether the client accepts JSON in some form, or protobuf.
fn accepts_form_of_memory(headers: &HeaderMap) -> bool {
    let mut all = headers.get_all(header::ACCEPT).iter().peekable();
    all.peek().is_none()
        || all.any(|accept| {
            let accept = accept.to_str().unwrap_or_default();
            accept.split(',').any(|kind| {
                let kind = kind.split(';').next().unwrap_or_default().trim();
                matches!(kind, "" | "*/*" | "application/*" | "application/json" | protobuf::MEDIA_TYPE)
            })
        })
}

/// Returns whether the query selects by fields that a CustomResourceDefinition may make selectable: only the member knows
/// them.
fn selects_custom_fields(query: &Query) -> bool {
    let fields = query.all("fieldSelector").flat_map(|text| text.split(','));
    fields.into_iter().any(|field| !field.is_empty() && !field.trim_start().starts_with("metadata."))
}

impl Memory {
    /// Records the source of the answer.
    pub(super) fn record_read(&self, freshness: Freshness, live: bool) {
        *self.last_read.lock() = Some(ReadInfo { freshness, live, late: false });
    }

    fn stamp(&self, answer: &mut Response) {
        let last_read = self.last_read.lock().clone();
        let now = || ReadInfo { freshness: self.kind.informer().freshness(), live: false, late: false };
        let last_read = last_read.unwrap_or_else(now);
        let age = last_read.freshness.age();
        let is_old = last_read.late || !last_read.live && !last_read.freshness.is_live();
        let warning = is_old.then(|| self.warning(&last_read.freshness));
        let source = if last_read.live { "member" } else { "memory" };
        stamp(answer.headers_mut(), &Stamp { source, age, warning });
        for warning in &self.warnings {
            answer.headers_mut().append(header::WARNING, warning.clone());
        }
        answer.extensions_mut().insert(Audited { source, age, has_objects: true, ..Audited::default() });
    }

    /// Returns the warning for users, which kubectl prints. Leaves out a reason that concerns another kind.
    fn warning(&self, freshness: &Freshness) -> String {
        let (cluster, resource) = (self.cluster.id(), self.kind.resource());
        let age = match freshness.age() {
            Some(age) => format!("up to {age:.0?} old"),
            None => "of unknown age".to_owned(),
        };
        let state = self.cluster.state();
        let is_own = state.kind.as_ref().is_none_or(|kind| kind == resource);
        let of_cluster = state.reason.as_ref().filter(|_| is_own && state.condition != Condition::Live);
        let why = match (of_cluster, freshness.reason()) {
            (Some(reason), _) => format!("the cluster is {}: {reason}", state.condition.as_str()),
            (None, Some(reason)) => reason.to_string(),
            (None, None) => format!("the cluster gave nothing newer within {:?}", self.member_deadline),
        };
        format!("skopos: {resource} of cluster {cluster} from memory, {age}: {why}")
    }
}

impl Source for Memory {
    type Item = Row;
    type Contents = State;

    async fn read(&self, wanted: VersionRequirement, limit: Duration) -> Result<State, ReadError> {
        let informer = self.kind.informer();
        let (snapshot, own) = match wanted {
            VersionRequirement::Newest => return self.newest().await,
            VersionRequirement::Any => (informer.snapshot(), 0),
            VersionRequirement::NotOlderThan(revision) => self.not_older_than(revision, limit).await?,
            VersionRequirement::Exactly(revision) => self.exactly(revision)?,
        };
        self.record_read(snapshot.freshness(), false);
        State::new(snapshot, own).ok_or_else(no_number)
    }

    fn remember(&self, contents: &State) {
        if let Some(snapshot) = contents.snapshot() {
            self.view.remember(contents.revision, snapshot, contents.own);
        }
    }

    fn window(&self) -> &Arc<Window<Row>> {
        &self.view.window
    }

    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }

    fn blocks(&self) -> Option<&Blocks> {
        Some(&self.view.blocks)
    }
}

impl Memory {
    /// Returns a state at this revision or a later one, with the number of bytes that it does not share with the store.
    async fn not_older_than(
        &self,
        revision: u64,
        limit: Duration,
    ) -> Result<(Snapshot<RawObject>, usize), ReadError> {
        let informer = self.kind.informer();
        let snapshot = informer.snapshot();
        if revision_of(&snapshot)? >= revision {
            return Ok((snapshot, 0));
        }
        // A list of the member: memory may be behind it for long.
        if let Some(remembered) = self.view.remembered(snapshot.epoch(), revision) {
            return Ok(remembered);
        }
        if let Err(oldest) = self.view.window.start(revision) {
            // A revision of a history that has ended: it will never come.
            return Err(Compacted { requested: revision, oldest }.into());
        }
        let reached = informer.wait_for(&number(revision)?, limit).await;
        let current = || informer.snapshot().resource_version().as_u64().unwrap_or_default();
        let reached = reached.map_err(|_| ReadError::Ahead { requested: revision, current: current() })?;
        Ok((reached, 0))
    }

    /// Returns the state at exactly this revision, with the number of bytes that it does not share with the store.
    fn exactly(&self, revision: u64) -> Result<(Snapshot<RawObject>, usize), ReadError> {
        let snapshot = self.kind.informer().snapshot();
        let current = revision_of(&snapshot)?;
        if current == revision {
            return Ok((snapshot, 0));
        }
        let remembered = self.view.remembered(snapshot.epoch(), revision);
        remembered.ok_or(match revision > current {
            true => ReadError::Ahead { requested: revision, current },
            false => Compacted { requested: revision, oldest: current }.into(),
        })
    }
}

fn revision_of(snapshot: &Snapshot<RawObject>) -> Result<u64, ReadError> {
    snapshot.resource_version().as_u64().ok_or_else(no_number)
}

fn number(revision: u64) -> Result<ResourceVersion, ReadError> {
    let parsed = revision.to_string().parse::<ResourceVersion>();
    parsed.map_err(|_| Status::invalid_resource_version(&revision.to_string()).into())
}
