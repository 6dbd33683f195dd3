//! Documents in which a server describes itself: discovery, OpenAPI, version. They are cached for when the server is
//! down.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::future::{BoxFuture, Shared};
use http::StatusCode;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::options::ClusterOptions;
use crate::error::FleetError;

/// A request for one of the documents in which a server describes itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DocumentRequest {
    path: Arc<str>,
    accept: Arc<str>,
}

/// A server's response.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Document {
    /// The status; only documents of status 200 are kept.
    pub status: StatusCode,
    /// The content type.
    pub content_type: String,
    /// The server's ETag of this version.
    pub etag: Option<String>,
    /// The content.
    pub body: Bytes,
    /// The time at which the server last confirmed this version, by the wall clock.
    pub fetched_at: SystemTime,
    /// The maximum age at an instant of the monotonic clock.
    known: (Instant, Duration),
}

pub(crate) type Fetching = Shared<BoxFuture<'static, Result<Document, FleetError>>>;

/// The cached documents of one cluster.
#[derive(Default)]
pub(crate) struct Documents {
    slots: Mutex<BTreeMap<DocumentRequest, Slot>>,
}

struct Slot {
    document: Option<Document>,
    fetching: Option<Fetching>,
    last_used: Instant,
}

impl Slot {
    /// Returns the fetch under way. One whose result is there already began before any caller of now: it is over, although its
    /// task may not have said so yet.
    fn under_way(&self) -> Option<&Fetching> {
        self.fetching.as_ref().filter(|fetching| fetching.peek().is_none())
    }

    /// Stores the document of a fetch, if it is one of status 200.
    fn store(&mut self, document: Document) {
        if document.status == StatusCode::OK {
            self.document = Some(document);
        }
    }
}

/// Limit on the length of a path with query, and of a list of content types.
const MAX_LENGTH: usize = 2048;

/// Aggregated discovery of everything in two documents, as kubectl requests it.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                          application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

const JSON: &str = "application/json";

/// A table has only the names, and no schemas.
const NAMES: &str = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json";

impl DocumentRequest {
    /// Creates a request for `path_and_query`, in one of the content types of `accept`. `None` if that is not the path
    /// of a document in which a server describes itself: `/version`, `/api`, `/api/v1`, `/apis`, `/apis/GROUP`,
    /// `/apis/GROUP/VERSION`, `/openapi/v2`, `/openapi/v3` and below, and the lists of
    /// [`definitions`](Self::definitions) and [`api_services`](Self::api_services). Equivalent spellings yield equal
    /// requests.
    pub fn new(path_and_query: &str, accept: &str) -> Option<Self> {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._~/".contains(c);
        let in_query = |c: char| c.is_ascii_graphic() && c != '#';
        let spelled = path.chars().all(plain) && query.chars().all(in_query);
        let short = path_and_query.len() <= MAX_LENGTH && accept.len() <= MAX_LENGTH;
        let header = accept.chars().all(|c| c.is_ascii_graphic() || c == ' ');
        let known = spelled && short && header && is_document(path);
        known.then(|| Self {
            path: without_timeout(path, query).into(),
            accept: normalized_accept(accept).into(),
        })
    }

    /// Returns the requests for the documents without which kubectl cannot work.
    pub fn essential() -> Vec<Self> {
        let json = |path| Self::new(path, JSON);
        json("/version").into_iter().chain(Self::discovery()).chain(json("/openapi/v3")).collect()
    }

    /// Returns the requests for the documents that list everything the server serves.
    pub fn discovery() -> Vec<Self> {
        ["/api", "/apis"].into_iter().filter_map(|path| Self::new(path, AGGREGATED)).collect()
    }

    /// Returns the request for the names of the CustomResourceDefinitions, as a table: the server itself stores these
    /// resources.
    pub fn definitions() -> Self {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?includeObject=None";
        Self { path: path.into(), accept: NAMES.into() }
    }

    /// Returns the request for the APIServices, as a table: they say which group versions another server answers for.
    pub fn api_services() -> Self {
        let path = "/apis/apiregistration.k8s.io/v1/apiservices?includeObject=None";
        Self { path: path.into(), accept: NAMES.into() }
    }

    /// Returns the path with its query.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns whether the response never changes: the path contains its hash, as in the index of OpenAPI.
    pub(crate) fn is_immutable(&self) -> bool {
        let query = self.path.split_once('?').map(|(_, query)| query).unwrap_or_default();
        self.path.starts_with("/openapi/v3/") && query.split('&').any(|pair| pair.starts_with("hash="))
    }

    /// Returns the content types.
    pub fn accept(&self) -> &str {
        &self.accept
    }
}

/// Removes the client's timeout from the query, because it does not change the response.
fn without_timeout(path: &str, query: &str) -> String {
    let others = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("timeout="));
    match others.collect::<Vec<_>>().join("&") {
        none if none.is_empty() => path.to_owned(),
        others => format!("{path}?{others}"),
    }
}

/// Normalizes `accept` to the values of [`DocumentRequest::essential`]. Every server has JSON, so a client that lists
/// it first gets it. Versions of kubectl list the same forms of discovery in different orders, the newest first.
fn normalized_accept(accept: &str) -> String {
    let forms =
        |accept: &str| -> Vec<String> { accept.split(',').map(|form| form.trim().to_owned()).collect() };
    let (asked, aggregated) = (forms(accept), forms(AGGREGATED));
    if asked.first().is_some_and(|first| first == JSON) {
        return JSON.to_owned();
    }
    let same_first = asked.first() == aggregated.first();
    let same = aggregated.iter().all(|form| asked.contains(form))
        && asked.iter().all(|form| aggregated.contains(form));
    if same_first && same { AGGREGATED.to_owned() } else { accept.to_owned() }
}

fn is_document(path: &str) -> bool {
    let Some(path) = path.strip_prefix('/') else { return false };
    let segments: Vec<&str> = path.trim_end_matches('/').split('/').collect();
    if segments.iter().any(|segment| segment.is_empty() || segment.chars().all(|c| c == '.')) {
        return false;
    }
    matches!(
        segments.as_slice(),
        ["version" | "api" | "apis"]
            | ["api", _]
            | ["apis", _]
            | ["apis", _, _]
            | ["openapi", "v2"]
            | ["openapi", "v3", ..]
            | ["apis", "apiextensions.k8s.io", "v1", "customresourcedefinitions"]
            | ["apis", "apiregistration.k8s.io", "v1", "apiservices"]
    )
}

impl Document {
    /// Creates a document from a checkpoint, with its maximum age now.
    pub fn from_checkpoint(
        content_type: impl Into<String>,
        etag: Option<String>,
        body: Bytes,
        age: Duration,
    ) -> Self {
        let now = SystemTime::now();
        let fetched_at = now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        let (content_type, known) = (content_type.into(), (Instant::now(), age));
        Self { status: StatusCode::OK, content_type, etag, body, fetched_at, known }
    }

    pub(crate) fn fetched(
        status: StatusCode,
        content_type: String,
        etag: Option<String>,
        body: Bytes,
        asked_at: Instant,
    ) -> Self {
        let now = SystemTime::now();
        let fetched_at = now.checked_sub(asked_at.elapsed()).unwrap_or(now);
        Self { status, content_type, etag, body, fetched_at, known: (asked_at, Duration::ZERO) }
    }

    /// Returns the document as confirmed by the server.
    pub(crate) fn confirmed(self, asked_at: Instant) -> Self {
        Self::fetched(self.status, self.content_type, self.etag, self.body, asked_at)
    }

    /// Returns the maximum time since the server last confirmed this version.
    pub fn age(&self) -> Duration {
        let (at, age) = self.known;
        // The monotonic clock stops while the machine is suspended; the wall clock may be set back.
        age.saturating_add(at.elapsed()).max(self.fetched_at.elapsed().unwrap_or_default())
    }

    fn bytes(&self) -> usize {
        self.body.len()
    }
}

impl Documents {
    /// Returns the cached document if it is not older than `age`.
    pub(crate) fn fresh(&self, request: &DocumentRequest, age: Duration) -> Option<Document> {
        let mut slots = self.slots.lock();
        let slot = slots.get_mut(request)?;
        slot.last_used = Instant::now();
        slot.document.as_ref().filter(|document| document.age() <= age).cloned()
    }

    /// Returns the cached document of any age.
    pub(crate) fn get(&self, request: &DocumentRequest) -> Option<Document> {
        self.slots.lock().get(request)?.document.clone()
    }

    /// Returns all cached documents.
    pub(crate) fn all(&self) -> Vec<(DocumentRequest, Document)> {
        let slots = self.slots.lock();
        let filled = slots.iter().filter_map(|(request, slot)| Some((request, slot.document.as_ref()?)));
        filled.map(|(request, document)| (request.clone(), document.clone())).collect()
    }

    /// Drops all documents, including fetches under way.
    pub(crate) fn clear(&self) {
        self.slots.lock().clear();
    }

    /// Returns the number of documents and their bytes.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let slots = self.slots.lock();
        let filled = slots.values().filter_map(|slot| slot.document.as_ref());
        filled.fold((0, 0), |(count, bytes), document| (count + 1, bytes + document.bytes()))
    }

    /// Returns the fetch of a document under way.
    pub(crate) fn under_way(&self, request: &DocumentRequest) -> Option<Fetching> {
        self.slots.lock().get(request)?.under_way().cloned()
    }

    /// Joins the fetch of a document under way, or else begins one, which `begin` has to drive.
    pub(crate) fn fetch(
        &self,
        request: &DocumentRequest,
        begin: impl FnOnce(Option<Document>) -> Fetching,
    ) -> Fetching {
        let mut slots = self.slots.lock();
        let now = Instant::now();
        let slot = slots.entry(request.clone()).or_insert_with(|| Slot {
            document: None,
            fetching: None,
            last_used: now,
        });
        slot.last_used = now;
        if let Some(fetching) = slot.under_way() {
            return fetching.clone();
        }
        if let Some(Some(Ok(document))) = slot.fetching.take().map(|finished| finished.peek().cloned()) {
            slot.store(document);
        }
        let fetching = begin(slot.document.clone());
        slot.fetching = Some(fetching.clone());
        fetching
    }

    /// Completes a fetch. Stores a document of status 200, unless the fetch was dropped meanwhile.
    pub(crate) fn fetched(
        &self,
        request: &DocumentRequest,
        fetching: &Fetching,
        result: Option<&Document>,
        options: &ClusterOptions,
    ) {
        let mut slots = self.slots.lock();
        let awaits = |slot: &Slot| slot.fetching.as_ref().is_some_and(|awaited| awaited.ptr_eq(fetching));
        if let Some(slot) = slots.get_mut(request).filter(|slot| awaits(slot)) {
            slot.fetching = None;
            result.into_iter().for_each(|document| slot.store(document.clone()));
        }
        shrink(&mut slots, options);
    }

    /// Adds documents from a checkpoint, unless newer ones are cached.
    pub(crate) fn restore(&self, restored: Vec<(DocumentRequest, Document)>, options: &ClusterOptions) {
        let mut slots = self.slots.lock();
        for (request, document) in restored {
            let slot = slots.entry(request).or_insert_with(|| Slot {
                document: None,
                fetching: None,
                last_used: Instant::now(),
            });
            slot.document.get_or_insert(document);
        }
        shrink(&mut slots, options);
    }
}

/// Removes empty slots, then the least recently used documents while the limits are exceeded.
fn shrink(slots: &mut BTreeMap<DocumentRequest, Slot>, options: &ClusterOptions) {
    slots.retain(|_, slot| slot.document.is_some() || slot.fetching.is_some());
    loop {
        let filled =
            || slots.iter().filter_map(|(request, slot)| Some((request, slot, slot.document.as_ref()?)));
        let bytes: usize = filled().map(|(_, _, document)| document.bytes()).sum();
        if filled().count() <= options.max_documents && bytes <= options.max_document_bytes {
            return;
        }
        let oldest = filled().min_by_key(|(_, slot, _)| slot.last_used).map(|(request, ..)| request.clone());
        let Some(oldest) = oldest else { return };
        slots.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn request(path: &str) -> DocumentRequest {
        DocumentRequest::new(path, "application/json").unwrap()
    }

    fn document(bytes: usize) -> Document {
        Document::fetched(StatusCode::OK, "a/b".into(), None, vec![b'x'; bytes].into(), Instant::now())
    }

    #[test]
    fn only_documents_have_requests() {
        for good in
            ["/version", "/api", "/api/v1", "/apis/", "/apis/apps/v1", "/openapi/v3/apis/apps/v1?hash=A1%3D"]
        {
            assert!(DocumentRequest::new(good, "a/b").is_some(), "{good}");
        }
        for own in [DocumentRequest::definitions(), DocumentRequest::api_services()] {
            assert_eq!(
                DocumentRequest::new(own.path(), own.accept()),
                Some(own),
                "as read from a checkpoint"
            );
        }
        let long = format!("/openapi/v3/{}", "x".repeat(3000));
        let bad = [
            "",
            "/",
            "version",
            "/api/v1/pods",
            "/apis/a/b/c",
            "/api/..",
            "/api/%2e",
            "//api",
            "/openapi",
            "/api?a#b",
            &long,
        ];
        for bad in bad {
            assert!(DocumentRequest::new(bad, "a/b").is_none(), "{bad}");
        }
        assert!(DocumentRequest::new("/api", "a/b\r\nx: y").is_none());
        assert_eq!(DocumentRequest::essential().len(), 4);
    }

    #[test]
    fn prefetches_requests_that_kubectl_sends() {
        // The requests of kubectl 1.32.
        const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;\
                                 g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        const REORDERED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json,\
                                 application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        let essential = DocumentRequest::essential();
        for (path, accept) in [
            ("/version?timeout=5s", "application/json, */*"),
            ("/api?timeout=32s", DISCOVERY),
            ("/apis?timeout=32s", REORDERED),
            ("/openapi/v3?timeout=32s", "application/json, */*"),
        ] {
            assert!(essential.contains(&DocumentRequest::new(path, accept).unwrap()), "{path}");
        }
        let others = [
            ("/api", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
            ("/api", "application/vnd.kubernetes.protobuf, application/json"),
            ("/openapi/v3?hash=a&timeout=3s", "application/json"),
        ];
        for (path, accept) in others {
            assert!(!essential.contains(&DocumentRequest::new(path, accept).unwrap()), "{path} {accept}");
        }
        let hashed = DocumentRequest::new("/openapi/v3?hash=a&timeout=3s", "x/y").unwrap();
        assert_eq!((hashed.path(), hashed.accept()), ("/openapi/v3?hash=a", "x/y"));
    }

    #[tokio::test(start_paused = true)]
    async fn evicts_least_recently_used_document() {
        let options =
            ClusterOptions { max_documents: 2, max_document_bytes: 100, ..ClusterOptions::default() };
        let documents = Documents::default();
        let put = |path: &str, bytes| documents.restore(vec![(request(path), document(bytes))], &options);
        put("/api", 10);
        tokio::time::advance(Duration::from_secs(1)).await;
        put("/apis", 10);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(documents.fresh(&request("/api"), Duration::from_secs(9)).is_some());
        assert!(documents.fresh(&request("/api"), Duration::from_secs(1)).is_none(), "too old");
        tokio::time::advance(Duration::from_secs(1)).await;
        put("/version", 10);
        assert_eq!(documents.counts(), (2, 20));
        assert!(documents.get(&request("/apis")).is_none() && documents.get(&request("/api")).is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        put("/openapi/v3", 95);
        assert_eq!(documents.counts(), (1, 95), "bytes count, too");
    }

    #[test]
    fn a_machine_that_sleeps_makes_no_document_younger() {
        let document = Document { fetched_at: SystemTime::now() - Duration::from_secs(3600), ..document(1) };
        assert!(document.age() >= Duration::from_secs(3600), "{:?}", document.age());
    }

    #[test]
    fn clear_discards_fetch_in_flight() {
        let (documents, options) = (Documents::default(), ClusterOptions::default());
        let never = || std::future::pending().boxed().shared();
        let first = documents.fetch(&request("/api"), |_| never());
        documents.clear();
        let second = documents.fetch(&request("/api"), |_| never());
        assert!(!second.ptr_eq(&first), "no caller joins the request to the old one");
        documents.fetched(&request("/api"), &first, Some(&document(1)), &options);
        assert!(documents.get(&request("/api")).is_none());
        assert!(documents.fetch(&request("/api"), |_| never()).ptr_eq(&second), "the new one is still asked");
        documents.fetched(&request("/api"), &second, Some(&document(1)), &options);
        assert!(documents.get(&request("/api")).is_some());
    }

    #[test]
    fn finished_fetch_is_not_joined() {
        let documents = Documents::default();
        let finished =
            documents.fetch(&request("/api"), |_| std::future::ready(Ok(document(1))).boxed().shared());
        assert!(finished.clone().now_or_never().is_some());
        assert!(documents.under_way(&request("/api")).is_none());
        let next = documents.fetch(&request("/api"), |old| {
            assert!(old.is_some(), "its document is the newest one known");
            std::future::pending().boxed().shared()
        });
        assert!(!next.ptr_eq(&finished), "a caller that wants the newest state must not get an earlier one");
        assert!(documents.get(&request("/api")).is_some());
    }
}
