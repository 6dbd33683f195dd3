//! Get, list and watch from memory, with their age.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, header};
use parking_lot::Mutex;
use skopos::{Freshness, ObjectKey, RawObject, ResourceVersion, Snapshot};
use skopos_fleet::{CachedKind, Cluster, Condition, Ended, FleetError};
use skopos_serve::{
    Blocks, Compacted, Contents, ReadError, Request, ResourceType, ServeOptions, Source, Wanted, Window,
};
use skopos_wire::Status;
use tokio::time::{sleep, timeout};

use super::view::{Row, View};
use super::{Allowed, Clusters, status_of};
use crate::catalog;
use crate::ending::ending;
use crate::fleet::{resource_id, writes};
use crate::headers::{Stamp, stamp};
use crate::query::Query;
use crate::response::Response;
use crate::route::{Audited, Call, WATCH_LIFETIME};
use crate::target::ResourceTarget;

/// What is kept of a kind, as one request sees it.
#[derive(Clone)]
struct Memory {
    view: Arc<View>,
    kind: CachedKind,
    cluster: Cluster,
    max_age: Duration,
    member_deadline: Duration,
    /// What was read last, for the headers.
    said: Arc<Mutex<Option<Said>>>,
}

/// What an answer was made of.
#[derive(Clone, Debug)]
struct Said {
    freshness: Freshness,
    /// Listed from the member for this read.
    live: bool,
    /// The newest was asked for, and this is older than that may be.
    late: bool,
}

/// The state at one revision.
struct State {
    snapshot: Snapshot<RawObject>,
    revision: u64,
    /// How many bytes of it are its own: it was listed from the member, and shares nothing with the store.
    own: usize,
}

impl Clusters {
    /// The answer from memory; `None` if the member has to answer.
    pub(super) async fn answer_from_memory(
        &self,
        allowed: &Allowed,
        target: &ResourceTarget,
    ) -> Option<Result<Response, Status>> {
        let Allowed { cluster, call } = allowed;
        if !self.may_be_kept(target, call) {
            return None;
        }
        // `kubectl apply` gets the object first, and takes fields that it does not find among those last applied for somebody
        // else's: they would stay for ever.
        let lacking = !self.keeps_applied && writes(&self.services.config);
        if lacking && target.attributes.verb == "get" && is_asked(cluster.state().condition) {
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
            // Who does not answer will not do so for being asked once more.
            Err(error) if is_away(cluster, &error) => return Some(Err(status_of(&error))),
            // Why it cannot be kept does not matter here: the member says what is to be said.
            Err(_) => return None,
        };
        let view = self.views.of(cluster.id(), &kind)?;
        let memory = Memory {
            view,
            kind,
            cluster: cluster.clone(),
            max_age: cache.max_age.0,
            member_deadline: cache.member_deadline.0,
            said: Arc::default(),
        };
        Some(self.tell(memory, &resource, call, target).await)
    }

    /// Whether such a request may be answered from memory at all.
    fn may_be_kept(&self, target: &ResourceTarget, call: &Call) -> bool {
        let what = &target.attributes;
        target.reads()
            && call.method == Method::GET
            && what.subresource.is_empty()
            && self.services.config.cache.keeps(&what.group, &what.resource)
            && accepts_json(&call.headers)
    }

    async fn tell(
        &self,
        memory: Memory,
        resource: &Arc<ResourceType>,
        call: &Call,
        target: &ResourceTarget,
    ) -> Result<Response, Status> {
        let what = &target.attributes;
        let namespace = target.place(resource.namespaced)?;
        let name = Some(what.name.as_str()).filter(|name| target.name_in_path && !name.is_empty());
        let query = skopos_serve::Query::parse(&call.query.to_string());
        let request = Request {
            resource,
            namespace,
            name,
            query: &query,
            headers: &call.headers,
            permit: skopos_serve::Permit::all(),
        };
        let options = serve_options();
        let mut answer = match what.verb.as_str() {
            "get" => skopos_serve::get(&memory, &options, &request).await?,
            "list" => {
                let allowed = skopos_serve::deadline::of_request(&query, options.request_timeout)?;
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
        let permit = self.services.watches.enter(&call.identity)?;
        let answer = skopos_serve::watch(memory, options, request).await?;
        let (authorizer, cluster) = (self.services.authorizer.clone(), memory.cluster.id().clone());
        let (draining, identity) = (call.draining.clone(), call.identity.clone());
        let (what, kind) = (target.attributes.clone(), memory.kind.clone());
        let end = async move {
            tokio::select! {
                () = sleep(WATCH_LIFETIME) => {}
                () = draining.cancelled() => {}
                _ = authorizer.revoked(cluster.as_str(), &identity, &what) => {}
                ended = kind.ended() => return (ended == Ended::Replaced).then(|| Status::expired(REPLACED)),
            }
            None
        };
        let held = (permit, memory.view.clone());
        Ok(answer.map(|body| ending(body, end, held)))
    }
}

const REPLACED: &str = "another cluster has taken the place of the one that was watched: list anew";

fn serve_options() -> ServeOptions {
    let mut options = ServeOptions::default();
    options.min_watch_timeout = WATCH_LIFETIME / 2;
    // A last bookmark comes before the end.
    options.max_watch_timeout = Some(WATCH_LIFETIME - Duration::from_secs(5));
    options
}

/// Whether a cluster that stands so is worth being waited for.
fn is_asked(condition: Condition) -> bool {
    matches!(condition, Condition::Connecting | Condition::Live | Condition::Degraded)
}

/// Whether it is the cluster itself that does not answer.
fn is_away(cluster: &Cluster, error: &FleetError) -> bool {
    match error {
        FleetError::Paused { .. } | FleetError::Unreachable { .. } | FleetError::Removed { .. } => true,
        // A long list may take its time on its way through, and what is wrong with a kind its own cluster says best.
        FleetError::Deadline { .. } => {
            !matches!(cluster.state().condition, Condition::Live | Condition::Degraded)
        }
        _ => false,
    }
}

/// Whether the client takes JSON in some form.
fn accepts_json(headers: &HeaderMap) -> bool {
    let mut all = headers.get_all(header::ACCEPT).iter().peekable();
    all.peek().is_none()
        || all.any(|accept| {
            let accept = accept.to_str().unwrap_or_default();
            accept.split(',').any(|kind| {
                let kind = kind.split(';').next().unwrap_or_default().trim();
                matches!(kind, "" | "*/*" | "application/*" | "application/json")
            })
        })
}

/// Fields that a CustomResourceDefinition may make selectable: the member knows which.
fn selects_custom_fields(query: &Query) -> bool {
    let fields = query.all("fieldSelector").flat_map(|text| text.split(','));
    fields.into_iter().any(|field| !field.is_empty() && !field.trim_start().starts_with("metadata."))
}

// === impl Memory ===

impl Memory {
    /// The newest state: within the configured age from memory; the member is asked otherwise, and where it does not
    /// answer in time, memory with what is known of its age.
    async fn newest(&self) -> Snapshot<RawObject> {
        let informer = self.kind.informer();
        let snapshot = informer.snapshot();
        let asked = is_asked(self.cluster.state().condition);
        if snapshot.freshness().is_within(self.max_age) || !asked {
            return self.say(snapshot, false);
        }
        let mut states = self.cluster.states();
        let away = states.wait_for(|state| !is_asked(state.condition));
        let (kind, max_age, deadline) = (self.kind.clone(), self.max_age, self.member_deadline);
        let read = async move { kind.informer().read(max_age, deadline).await.ok() };
        let read = tokio::select! {
            read = timeout(deadline, self.view.live.ask(read)) => read.ok().flatten(),
            // Found while it was being asked.
            _ = away => None,
        };
        match read {
            Some(read) => {
                let live = read.source == skopos::Source::Live;
                self.say(read.snapshot, live)
            }
            None => self.say(informer.snapshot(), false),
        }
    }

    fn say(&self, snapshot: Snapshot<RawObject>, live: bool) -> Snapshot<RawObject> {
        *self.said.lock() = Some(Said { freshness: snapshot.freshness(), live, late: false });
        snapshot
    }

    fn stamp(&self, answer: &mut Response) {
        let said = self.said.lock().clone();
        let now = || Said { freshness: self.kind.informer().freshness(), live: false, late: false };
        let said = said.unwrap_or_else(now);
        let age = said.freshness.age();
        let is_old = said.late || !said.live && !said.freshness.is_live();
        let warning = is_old.then(|| self.warning(&said.freshness));
        let source = if said.live { "member" } else { "memory" };
        stamp(answer.headers_mut(), &Stamp { source, age, warning });
        answer.extensions_mut().insert(Audited { source, age, ..Audited::default() });
    }

    /// What a person has to know: kubectl prints it.
    fn warning(&self, freshness: &Freshness) -> String {
        let (cluster, resource) = (self.cluster.id(), self.kind.resource());
        let age = match freshness.age() {
            Some(age) => format!("up to {age:.0?} old"),
            None => "of unknown age".to_owned(),
        };
        let state = self.cluster.state();
        let why = match (state.condition, &state.reason) {
            (Condition::Live, _) | (_, None) => match freshness.reason() {
                Some(reason) => reason.to_string(),
                None if freshness.is_live() => {
                    format!("nothing newer could be had within {:?}", self.member_deadline)
                }
                None => String::new(),
            },
            (_, Some(reason)) => reason.to_string(),
        };
        let state = match state.condition {
            Condition::Live => String::new(),
            condition => format!(": {}", condition.word()),
        };
        format!("{resource} of cluster {cluster} from memory, {age}{state}: {why}")
    }
}

impl Source for Memory {
    type Item = Row;
    type Contents = State;

    async fn read(&self, wanted: Wanted, patience: Duration) -> Result<State, ReadError> {
        let informer = self.kind.informer();
        let mut own = 0;
        let snapshot = match wanted {
            Wanted::Newest => {
                let snapshot = self.newest().await;
                if let Some(said) = self.said.lock().as_mut() {
                    said.late = !said.live && !said.freshness.is_within(self.max_age);
                    own = if said.live { snapshot.json_bytes() as usize } else { 0 };
                }
                snapshot
            }
            Wanted::Any => self.say(informer.snapshot(), false),
            Wanted::NotOlderThan(revision) => {
                let snapshot = informer.snapshot();
                if revision_of(&snapshot)? >= revision {
                    self.say(snapshot, false)
                } else if let Some((snapshot, bytes)) = self.view.remembered(snapshot.epoch(), revision) {
                    // Of the member: memory may be behind it for long.
                    own = bytes;
                    self.say(snapshot, false)
                } else if let Err(oldest) = self.view.window.start(revision) {
                    // Of a history that is no more: it is not to come.
                    return Err(Compacted { requested: revision, oldest }.into());
                } else {
                    let reached = informer.wait_for(&number(revision)?, patience).await;
                    let ahead = || ReadError::Ahead {
                        requested: revision,
                        current: informer.snapshot().resource_version().as_u64().unwrap_or_default(),
                    };
                    self.say(reached.map_err(|_| ahead())?, false)
                }
            }
            Wanted::Exactly(revision) => {
                let snapshot = informer.snapshot();
                let current = revision_of(&snapshot)?;
                if current == revision {
                    self.say(snapshot, false)
                } else if let Some((snapshot, bytes)) = self.view.remembered(snapshot.epoch(), revision) {
                    own = bytes;
                    self.say(snapshot, false)
                } else if revision > current {
                    return Err(ReadError::Ahead { requested: revision, current });
                } else {
                    return Err(Compacted { requested: revision, oldest: current }.into());
                }
            }
        };
        let revision = revision_of(&snapshot)?;
        Ok(State { snapshot, revision, own })
    }

    fn remember(&self, contents: &State) {
        self.view.remember(contents.revision, &contents.snapshot, contents.own);
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

fn revision_of(snapshot: &Snapshot<RawObject>) -> Result<u64, ReadError> {
    let revision = snapshot.resource_version().as_u64();
    revision.ok_or_else(|| Status::internal_error("the resource version is no number").into())
}

fn number(revision: u64) -> Result<ResourceVersion, ReadError> {
    let parsed = revision.to_string().parse::<ResourceVersion>();
    parsed.map_err(|_| Status::invalid_resource_version(&revision.to_string()).into())
}

// === impl State ===

impl State {
    /// The key that stands for where a page starts, and whether it begins behind it.
    fn start(namespace: Option<&str>, from: &str) -> Option<(ObjectKey, bool)> {
        let (from, behind) = from.strip_suffix('\0').map_or((from, false), |from| (from, true));
        let (within, name) = match namespace {
            Some(namespace) => (Some(namespace), from),
            None => from.split_once('/').map_or((None, from), |(namespace, name)| (Some(namespace), name)),
        };
        ObjectKey::checked(within, name).ok().map(|key| (key, behind))
    }

    /// Objects in order, from `from` on.
    fn starting_at<'a>(
        &'a self,
        namespace: Option<&'a str>,
        from: Option<&str>,
        max: usize,
    ) -> Vec<skopos::Object<RawObject>> {
        let Some((start, behind)) = from.and_then(|from| Self::start(namespace, from)) else {
            return match namespace {
                Some(namespace) => self.snapshot.in_namespace(namespace).take(max).collect(),
                None => self.snapshot.page(None, max).objects,
            };
        };
        let first = (!behind).then(|| self.snapshot.get(&start)).flatten();
        let rest = self.snapshot.page(Some(&start), max.saturating_sub(first.iter().count())).objects;
        let inside =
            |object: &skopos::Object<RawObject>| namespace.is_none_or(|ns| object.namespace() == Some(ns));
        first.into_iter().chain(rest.into_iter().take_while(inside)).collect()
    }
}

impl Contents for State {
    type Item = Row;

    fn revision(&self) -> u64 {
        self.revision
    }

    fn get(&self, namespace: Option<&str>, name: &str) -> Result<Option<Row>, Compacted> {
        // What cannot be a key is not there.
        let key = ObjectKey::checked(namespace, name).ok();
        Ok(key.and_then(|key| self.snapshot.get(&key)).and_then(Row::of))
    }

    fn page(&self, namespace: Option<&str>, from: Option<&str>, max: usize) -> Result<Vec<Row>, Compacted> {
        Ok(self.starting_at(namespace, from, max).into_iter().filter_map(Row::of).collect())
    }

    fn count(&self, namespace: Option<&str>, from: Option<&str>) -> Result<usize, Compacted> {
        Ok(match (namespace, from) {
            (None, None) => self.snapshot.len(),
            _ => self.starting_at(namespace, from, usize::MAX).len(),
        })
    }
}
