//! What the handles of a cluster share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use kube::core::ApiResource;
use parking_lot::Mutex;
use skopos::transport::{Death, RequestClass, RequestOptions, TransportBody, Upgrade};
use skopos::{ResourceId, Transport, TransportError};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::documents::{Document, DocumentRequest, Documents, Fetch, Fetching};
use super::introduction::introduce;
use super::kinds::{CachedKind, Ended, Entry, Kinds, Starting};
use super::machine::{ClusterState, Condition, Input, Machine, Paused};
use super::options::{ClusterOptions, Connector};
use super::session::{Link, Session};
use crate::error::FleetError;
use crate::id::ClusterId;
use crate::keeper::Keeper;
use crate::news::News;
use crate::spec::{ClusterSpec, SpecError};

/// One cluster.
pub(crate) struct Unit {
    pub(crate) id: ClusterId,
    /// When it joined.
    pub(crate) began: Instant,
    pub(crate) options: Arc<ClusterOptions>,
    pub(crate) labels: ArcSwap<BTreeMap<String, String>>,
    pub(crate) kinds: Kinds,
    pub(crate) documents: Documents,
    pub(crate) states: watch::Sender<Arc<ClusterState>>,
    /// There is something for the task that tends it.
    pub(crate) stirred: Arc<Notify>,
    pub(crate) keeper: Option<Arc<dyn Keeper>>,
    /// Cancelled when all that was kept of an earlier run is there.
    pub(crate) recalled: CancellationToken,
    pub(crate) stop: CancellationToken,
    /// Cancelled when it left the fleet.
    pub(crate) left: CancellationToken,
    pub(crate) tasks: TaskTracker,
    pub(crate) connector: Connector,
    /// Somebody said that the server is there, or that it is not: what the task that tends it has found is outdated.
    pub(crate) told: AtomicBool,
    link: ArcSwap<Link>,
    machine: Mutex<Machine>,
    state: ArcSwap<ClusterState>,
    news: News,
    requests: AtomicU64,
    request_failures: AtomicU64,
}

/// What a unit is made of.
pub(crate) struct UnitParts {
    pub(crate) id: ClusterId,
    pub(crate) labels: Arc<BTreeMap<String, String>>,
    pub(crate) spec: Result<ClusterSpec, SpecError>,
    pub(crate) options: Arc<ClusterOptions>,
    pub(crate) connector: Connector,
    pub(crate) keeper: Option<Arc<dyn Keeper>>,
    pub(crate) news: News,
    /// Cancelled: all is over.
    pub(crate) stop: CancellationToken,
}

/// How long a keeper may take for one answer. After a restart there are many to give.
pub(crate) const KEEPER_PATIENCE: Duration = Duration::from_secs(20);

/// How often a kind that somebody waits for is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How long what is reached the old way stays up while the new way is tried.
const OVERLAP: Duration = Duration::from_secs(30);

/// How long one fetch of a document may take, however little its first caller waits.
const FETCH: Duration = Duration::from_secs(60);

impl Unit {
    /// A unit, and the task that tends it.
    pub(crate) fn start(parts: UnitParts) -> Arc<Self> {
        let began = Instant::now();
        let machine = Machine::new(began, parts.options.unreachable_after);
        let state = Arc::new(machine.state().clone());
        let stirred = Arc::new(Notify::new());
        let keeper = parts.keeper.as_ref();
        let link =
            Link::new(&parts.id, parts.spec, &parts.options, &parts.connector, keeper, stirred.clone());
        let recalled = CancellationToken::new();
        if keeper.is_none() {
            recalled.cancel();
        }
        let unit = Arc::new(Self {
            link: ArcSwap::new(link),
            id: parts.id,
            began,
            options: parts.options,
            labels: ArcSwap::new(parts.labels),
            kinds: Kinds::new(),
            documents: Documents::default(),
            states: watch::Sender::new(state.clone()),
            stirred,
            keeper: parts.keeper,
            recalled,
            stop: parts.stop,
            left: CancellationToken::new(),
            tasks: TaskTracker::new(),
            connector: parts.connector,
            told: AtomicBool::new(false),
            machine: Mutex::new(machine),
            state: ArcSwap::new(state),
            news: parts.news,
            requests: AtomicU64::new(0),
            request_failures: AtomicU64::new(0),
        });
        unit.tasks.spawn(super::tend::tend(unit.clone()));
        unit.introduce(&unit.link());
        unit
    }

    pub(crate) fn state(&self) -> Arc<ClusterState> {
        self.state.load_full()
    }

    pub(crate) fn link(&self) -> Arc<Link> {
        self.link.load_full()
    }

    pub(crate) fn request_counts(&self) -> (u64, u64) {
        (self.requests.load(Ordering::Relaxed), self.request_failures.load(Ordering::Relaxed))
    }

    /// Takes in what happened, and tells everybody if that changes how it stands.
    pub(crate) fn step(&self, input: Input) -> bool {
        let mut machine = self.machine.lock();
        let changed = machine.step(Instant::now(), input);
        if changed {
            let state = Arc::new(machine.state().clone());
            tracing::info!(cluster = %self.id, %state, "cluster");
            self.publish(state);
            self.news.tell();
        } else if machine.state().answered_at != self.state.load().answered_at {
            self.publish(Arc::new(machine.state().clone()));
        }
        changed
    }

    /// Under the machine's lock, so that states come in their order.
    fn publish(&self, state: Arc<ClusterState>) {
        self.state.store(state.clone());
        self.states.send_replace(state);
    }
}

// Pause, resume, redirect, removal.
impl Unit {
    pub(crate) fn pause(&self, paused: Paused) {
        let why = paused.to_string().into();
        if self.step(Input::Paused(paused)) {
            self.told.store(true, Ordering::Relaxed);
            self.link().park(why);
            self.stirred.notify_one();
        }
    }

    /// `ready`: and known to serve.
    pub(crate) fn resume(&self, ready: bool) {
        if self.step(Input::Resumed { ready }) {
            self.wake();
        }
    }

    pub(crate) fn wake(&self) {
        if !matches!(self.state().condition, Condition::Paused | Condition::Removed) {
            self.told.store(true, Ordering::Relaxed);
            self.link().wake();
            self.stirred.notify_one();
        }
    }

    pub(crate) fn set_labels(&self, labels: &Arc<BTreeMap<String, String>>) {
        if **self.labels.load() != **labels {
            self.labels.store(labels.clone());
            self.news.tell();
        }
    }

    /// Reached this way from now on. A configuration that cannot be used does not take the place of one that could be.
    pub(crate) fn redirect(self: &Arc<Self>, spec: Result<ClusterSpec, SpecError>) {
        let old = self.link();
        let same = match (&old.spec, &spec) {
            (Ok(old), Ok(new)) => new.connects_as(old),
            (Ok(_), Err(_)) => true,
            (Err(old), Err(new)) => old == new,
            (Err(_), Ok(_)) => false,
        };
        if !same {
            self.take_way(&old, spec);
        }
    }

    /// Tries again to make what could not be made: files may be there now.
    pub(crate) fn renew_link(self: &Arc<Self>) {
        let old = self.link();
        self.take_way(&old, old.spec.clone());
    }

    fn take_way(self: &Arc<Self>, old: &Arc<Link>, spec: Result<ClusterSpec, SpecError>) {
        if self.left.is_cancelled() {
            return;
        }
        let new = self.renew(spec);
        self.kinds.forget_starting();
        let kinds = self.kinds.all();
        old.superseded.cancel();
        self.step(Input::Redirected("its address or credentials changed"));
        self.stirred.notify_one();
        let (unit, old) = (self.clone(), old.clone());
        self.tasks.spawn(async move { unit.move_over(kinds, &old, &new).await });
    }

    /// Where the link leads is another cluster than the one that all content is of: everything begins anew.
    pub(crate) fn begin_anew(self: &Arc<Self>, old: &Arc<Link>) {
        if self.left.is_cancelled() || !Arc::ptr_eq(old, &self.link()) {
            return;
        }
        self.renew(old.spec.clone());
        self.kinds.discard(Ended::Replaced);
        self.documents.clear();
        self.step(Input::Redirected("another cluster is in its place"));
        self.stirred.notify_one();
        let (old, limit) = (old.clone(), self.options.shutdown_limit);
        self.tasks.spawn(async move {
            old.close(limit).await;
        });
    }

    /// Another link in the place of the one that there is.
    fn renew(self: &Arc<Self>, spec: Result<ClusterSpec, SpecError>) -> Arc<Link> {
        let keeper = self.keeper.as_ref();
        let new = Link::new(&self.id, spec, &self.options, &self.connector, keeper, self.stirred.clone());
        if let Some(paused) = &self.state().paused {
            new.park(paused.to_string().into());
        }
        self.link.store(new.clone());
        self.introduce(&new);
        new
    }

    /// Has the server asked who it is, if anybody wants to know.
    fn introduce(self: &Arc<Self>, link: &Arc<Link>) {
        if let Some(keeper) = self.keeper.clone() {
            let introduction = introduce(self.clone(), link.clone(), keeper);
            let (stop, superseded) = (self.stop.clone(), link.superseded.clone());
            self.tasks.spawn(async move {
                stop.run_until_cancelled(superseded.run_until_cancelled(introduction)).await;
            });
        }
    }

    /// Moves every kind to the new way, each when it has content there; then ends the old one.
    async fn move_over(&self, kinds: Vec<Arc<Entry>>, old: &Link, new: &Arc<Link>) {
        let moves = kinds.into_iter().map(|entry| self.move_kind(entry, new));
        let moving = new.superseded.run_until_cancelled(futures::future::join_all(moves));
        let mut moving = std::pin::pin!(self.stop.run_until_cancelled(moving));
        let moved = timeout(OVERLAP, &mut moving).await.is_ok();
        old.close(self.options.shutdown_limit).await;
        if !moved {
            moving.await;
        }
    }

    async fn move_kind(&self, old: Arc<Entry>, new: &Arc<Link>) {
        let starting = self.starting(new.clone(), old.informer.resource().clone(), old.pinned);
        let Ok(entry) = starting.clone().await else { return };
        while !entry.has_content() {
            tokio::time::sleep(LOOK).await;
        }
        self.kinds.replace(&old, starting);
    }

    /// It left the fleet: nothing is asked of it any more; what there is can be read.
    pub(crate) fn leave(&self, reason: Arc<str>) {
        self.left.cancel();
        self.step(Input::Removed(reason));
        self.kinds.end(Ended::Removed);
    }

    /// Ends what runs; what there is can be read. `false` if something was left after the limit.
    pub(crate) async fn end(&self, why: Ended) -> bool {
        self.kinds.end(why);
        self.link().close(self.options.shutdown_limit).await
    }

    /// Ends lists and watches alone.
    pub(crate) async fn freeze(&self, limit: Duration) -> bool {
        match self.link().made() {
            Some(session) => session.factory.freeze(limit).await,
            None => true,
        }
    }

    /// Ends it, and waits until nothing is left.
    pub(crate) async fn shutdown(&self, limit: Duration) -> bool {
        self.stop.cancel();
        self.tasks.close();
        timeout(limit, self.tasks.wait()).await.is_ok()
    }

    fn is_over(&self) -> Option<FleetError> {
        if self.left.is_cancelled() {
            let since = self.state().since;
            return Some(FleetError::Removed { cluster: self.id.clone(), since });
        }
        self.stop.is_cancelled().then_some(FleetError::Closed)
    }
}

// Kinds.
impl Unit {
    pub(crate) async fn kind(
        self: &Arc<Self>,
        resource: &ResourceId,
        limit: Duration,
    ) -> Result<CachedKind, FleetError> {
        let begun = Instant::now();
        let with_content = || self.kinds.get(resource).map(CachedKind::new).filter(CachedKind::has_content);
        if let Some(kind) = with_content() {
            return Ok(kind);
        }
        let waiting = self.stop.run_until_cancelled(async {
            self.recalled.cancelled().await;
            match with_content() {
                Some(kind) => Ok(kind),
                None => self.await_kind(resource).await,
            }
        });
        match timeout_at(begun + limit, waiting).await {
            Ok(Some(result)) => result,
            Ok(None) => Err(FleetError::Closed),
            Err(_) => Err(self.too_late(begun, Some(resource))),
        }
    }

    async fn await_kind(self: &Arc<Self>, resource: &ResourceId) -> Result<CachedKind, FleetError> {
        if let Some(over) = self.is_over() {
            return Err(over);
        }
        let running = self.kinds.is_started(resource);
        if !running {
            self.check_answers(false)?;
        }
        let kind = CachedKind::new(self.await_start(resource).await?);
        loop {
            if kind.has_content() {
                return Ok(kind);
            }
            if let Some(ended) = kind.end_reason() {
                return Err(self.ended(resource, ended));
            }
            if let Some((code, reason)) = kind.refusal() {
                self.kinds.refused(resource, code, reason.clone());
                return Err(self.refused(resource, code, reason));
            }
            self.check_answers(true)?;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A kind that has begun to run, by the way that leads to the cluster now.
    async fn await_start(self: &Arc<Self>, resource: &ResourceId) -> Result<Arc<Entry>, FleetError> {
        loop {
            let link = self.link();
            let starting = self.start_kind(resource, false)?;
            // Also of one that was started before the cluster was paused.
            self.check_answers(true)?;
            match starting.await {
                Err(_) if !Arc::ptr_eq(&link, &self.link()) => {}
                started => return started,
            }
        }
    }

    /// Whether there is any point in waiting.
    fn check_answers(&self, unreachable: bool) -> Result<(), FleetError> {
        let state = self.state();
        let cluster = self.id.clone();
        match (&state.condition, &state.paused) {
            (Condition::Paused, Some(paused)) => Err(FleetError::Paused { cluster, paused: paused.clone() }),
            (Condition::Unreachable, _) if unreachable => {
                let reason = state.reason.clone().unwrap_or_else(|| "it does not answer".into());
                Err(match &self.link().spec {
                    Err(_) => FleetError::Config { cluster, reason },
                    Ok(_) => FleetError::Unreachable { cluster, since: state.since, reason },
                })
            }
            _ => Ok(()),
        }
    }

    /// The start of a kind, which goes on whether anybody waits for it or not.
    pub(crate) fn start_kind(
        self: &Arc<Self>,
        resource: &ResourceId,
        pinned: bool,
    ) -> Result<Starting, FleetError> {
        if let Some((code, reason)) = self.kinds.refusal(resource).filter(|_| !pinned) {
            return Err(self.refused(resource, code, reason));
        }
        let begin = || self.starting(self.link(), resource.clone(), pinned);
        let start = self.kinds.start(resource, &self.options, begin);
        let start = start.map_err(|reason| {
            let resource = Box::new(resource.clone());
            FleetError::Budget { cluster: self.id.clone(), resource, reason }
        })?;
        if let Some(number) = start.begun {
            let (unit, starting, resource) = (self.clone(), start.starting.clone(), resource.clone());
            self.tasks.spawn(async move {
                let started = unit.stop.run_until_cancelled(starting).await;
                if !matches!(started, Some(Ok(_))) {
                    unit.kinds.failed(&resource, number);
                }
                unit.stirred.notify_one();
            });
        }
        Ok(start.starting)
    }

    /// Starts a kind over a link. Holds nothing of the unit, which holds it.
    fn starting(&self, link: Arc<Link>, resource: ResourceId, pinned: bool) -> Starting {
        let (id, options) = (self.id.clone(), self.options.clone());
        // Later there was something newer in memory, and readers are not to see what was before that.
        let keeper = self.keeper.clone().filter(|_| !self.recalled.is_cancelled());
        let starting = async move {
            let session = link.session().await?;
            let mut chosen = options.informer.options(&id, &resource);
            if let Some((keeper, identity)) = keeper.zip(session.factory.cluster()) {
                let preparing = keeper.prepare(&id, &identity, &resource, chosen.clone());
                chosen = timeout(KEEPER_PATIENCE, preparing).await.unwrap_or(chosen);
            }
            let informer = session.factory.raw(&api_resource(&resource), chosen);
            let informer = informer.map_err(|error| match session.factory.is_closed() {
                true => FleetError::Closed,
                false => FleetError::Config { cluster: id.clone(), reason: error.to_string().into() },
            })?;
            Ok(Entry::new(informer, pinned))
        };
        starting.boxed().shared()
    }

    fn refused(&self, resource: &ResourceId, code: u16, reason: Arc<str>) -> FleetError {
        FleetError::Refused { cluster: self.id.clone(), resource: Box::new(resource.clone()), code, reason }
    }

    fn ended(&self, resource: &ResourceId, ended: Ended) -> FleetError {
        let (cluster, resource) = (self.id.clone(), Box::new(resource.clone()));
        match ended {
            Ended::Removed => FleetError::Removed { cluster, since: self.state().since },
            Ended::Closed => FleetError::Closed,
            Ended::Idle | Ended::Evicted | Ended::Unwanted | Ended::Reconnected | Ended::Replaced => {
                let reason = "it was let go before it was complete; ask again".into();
                FleetError::Budget { cluster, resource, reason }
            }
        }
    }

    fn too_late(&self, begun: Instant, resource: Option<&ResourceId>) -> FleetError {
        let entry = resource.and_then(|resource| self.kinds.get(resource));
        let of_kind = entry.map(|entry| entry.informer.state().to_string());
        let reason = match of_kind {
            Some(reason) => reason.into(),
            None => self.state().reason.clone().unwrap_or_else(|| "no answer yet".into()),
        };
        FleetError::Deadline { cluster: self.id.clone(), waited: begun.elapsed(), reason }
    }
}

// Requests and documents.
impl Unit {
    pub(crate) async fn session_within(&self, limit: Duration) -> Result<Session, FleetError> {
        let begun = Instant::now();
        if let Some(over) = self.is_over() {
            return Err(over);
        }
        let session = timeout(limit, self.link().session()).await;
        session.unwrap_or_else(|_| Err(self.too_late(begun, None)))
    }

    pub(crate) async fn request(
        &self,
        request: Request<Body>,
        limit: Duration,
    ) -> Result<Response<TransportBody>, FleetError> {
        self.asked(limit, |transport| async move { transport.send(request).await }).await
    }

    pub(crate) async fn upgrade(
        &self,
        request: Request<Body>,
        limit: Duration,
    ) -> Result<Upgrade, FleetError> {
        self.asked(limit, |transport| async move { transport.upgrade(request).await }).await
    }

    async fn asked<T, F>(&self, limit: Duration, ask: impl FnOnce(Transport) -> F) -> Result<T, FleetError>
    where
        F: Future<Output = Result<T, TransportError>>,
    {
        let begun = Instant::now();
        self.check_answers(false)?;
        let session = self.session_within(limit).await?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let result = match timeout_at(begun + limit, ask(session.transport)).await {
            Ok(result) => result.map_err(|error| self.failed(error, begun)),
            Err(_) => Err(self.too_late(begun, None)),
        };
        if result.is_err() {
            self.request_failures.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    fn failed(&self, error: TransportError, begun: Instant) -> FleetError {
        let cluster = self.id.clone();
        match (error.death(), &self.state().paused) {
            (Death::Parked(_), Some(paused)) => FleetError::Paused { cluster, paused: paused.clone() },
            (Death::Parked(why), None) => {
                FleetError::Unreachable { cluster, since: self.state().since, reason: why.clone() }
            }
            (Death::CallerDeadline { because, .. }, _) => {
                let reason = because.as_ref().map(|death| death.to_string().into());
                let reason = reason.unwrap_or_else(|| "no answer".into());
                FleetError::Deadline { cluster, waited: begun.elapsed(), reason }
            }
            (Death::Closed, _) => self.is_over().unwrap_or(FleetError::Transport { cluster, error }),
            _ => FleetError::Transport { cluster, error },
        }
    }

    pub(crate) async fn document(
        self: &Arc<Self>,
        request: &DocumentRequest,
        limit: Duration,
    ) -> Result<Document, FleetError> {
        let begun = Instant::now();
        if let Some(document) = self.documents.young(request, self.options.document_age) {
            return Ok(document);
        }
        // What is kept of an earlier run is better than nothing.
        let _ = timeout_at(begun + limit, self.recalled.cancelled()).await;
        let refusal = self.is_over().map_or_else(|| self.check_answers(false), Err);
        if let Err(refusal) = refusal {
            return self.documents.get(request).ok_or(refusal);
        }
        let fetch = self.fetch_ahead(request);
        let fetched = match timeout_at(begun + limit, self.stop.run_until_cancelled(fetch.fetching)).await {
            Ok(Some(result)) => result,
            Ok(None) => Err(FleetError::Closed),
            Err(_) => Err(self.too_late(begun, None)),
        };
        match (fetched, fetch.old) {
            // A server in trouble says less than what it said when it was well.
            (Ok(document), Some(old)) if document.status.is_server_error() => Ok(old),
            (Ok(document), _) => Ok(document),
            (Err(_), Some(old)) => Ok(old),
            (Err(error), None) => Err(error),
        }
    }

    /// The fetch of a document, which goes on whether anybody waits for it or not.
    pub(crate) fn fetch_ahead(self: &Arc<Self>, request: &DocumentRequest) -> Fetch {
        let fetch = self.documents.fetch(request, |old| self.fetching(request.clone(), old));
        if fetch.begun {
            let (unit, fetching, request) = (self.clone(), fetch.fetching.clone(), request.clone());
            self.tasks.spawn(async move {
                let fetched = unit.stop.run_until_cancelled(fetching).await;
                let document = fetched.as_ref().and_then(|result| result.as_ref().ok());
                unit.documents.fetched(&request, document, &unit.options);
            });
        }
        fetch
    }

    /// Fetches a document. Holds nothing of the unit, which holds it.
    fn fetching(&self, request: DocumentRequest, old: Option<Document>) -> Fetching {
        let (id, link, limit) = (self.id.clone(), self.link(), self.options.max_document_bytes);
        let fetching = async move {
            let session = link.session().await?;
            let asked_at = Instant::now();
            let fetch = fetch(&session, &request, old.as_ref(), limit);
            let (status, headers, body) = fetch.await.map_err(|failure| failure.of(&id))?;
            match old {
                Some(old) if status == StatusCode::NOT_MODIFIED => Ok(old.confirmed(asked_at)),
                _ => {
                    let content_type = text(&headers, header::CONTENT_TYPE).unwrap_or_default();
                    let etag = text(&headers, header::ETAG);
                    Ok(Document::fetched(status, content_type, etag, body, asked_at))
                }
            }
        };
        fetching.boxed().shared()
    }
}

enum FetchFailure {
    Transport(TransportError),
    Malformed(String),
}

impl FetchFailure {
    fn of(self, id: &ClusterId) -> FleetError {
        let cluster = id.clone();
        match self {
            Self::Transport(error) => FleetError::Transport { cluster, error },
            Self::Malformed(reason) => FleetError::Malformed { cluster, reason: reason.into() },
        }
    }
}

async fn fetch(
    session: &Session,
    request: &DocumentRequest,
    old: Option<&Document>,
    limit: usize,
) -> Result<(StatusCode, HeaderMap, Bytes), FetchFailure> {
    let mut builder = Request::get(request.path()).header(header::ACCEPT, request.accept());
    if let Some(etag) = old.and_then(|old| old.etag.as_deref()) {
        builder = builder.header(header::IF_NONE_MATCH, etag);
    }
    let options = RequestOptions {
        class: Some(RequestClass::Read),
        deadline: Some(FETCH),
        ..RequestOptions::default()
    };
    let malformed = |error: &dyn std::fmt::Display| FetchFailure::Malformed(error.to_string());
    let request = builder.extension(options).body(Body::empty()).map_err(|error| malformed(&error))?;
    let response = session.transport.send(request).await.map_err(FetchFailure::Transport)?;
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, limit).collect().await.map_err(|error| {
        match error.downcast::<TransportError>() {
            Ok(error) => FetchFailure::Transport(*error),
            Err(_) => FetchFailure::Malformed(format!("more than {limit} bytes")),
        }
    })?;
    Ok((parts.status, parts.headers, body.to_bytes()))
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

fn api_resource(resource: &ResourceId) -> ApiResource {
    let ResourceId { group, version, plural, kind } = resource.clone();
    let api_version = match group.as_str() {
        "" => version.clone(),
        group => format!("{group}/{version}"),
    };
    ApiResource { group, version, api_version, kind, plural }
}
