//! What clients asked, and what became of it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::connection::ConnectionId;

/// A request that reached the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestRecord {
    /// Counts requests from 1.
    pub id: u64,
    /// When it came, since the server started, on tokio's clock.
    pub at: Duration,
    /// The connection that it came over.
    pub connection: ConnectionId,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, or `other` for everything
    /// that is not about a resource.
    pub verb: &'static str,
    /// The path, as it was sent.
    pub path: String,
    /// The query, as it was sent, without `?`.
    pub query: String,
    /// The plural name of the resource, if there is one.
    pub resource: Option<String>,
    /// The header `User-Agent`.
    pub user_agent: Option<String>,
    /// The header `Accept`: in which form the answer is wanted.
    pub accept: Option<String>,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is no answer yet.
    Waiting,
    /// The headers were sent, the body is on its way (an open watch).
    Streaming(u16),
    /// The body ended.
    Answered(u16),
    /// The client or the connection went away before the body's end.
    Dropped,
}

/// The latest requests. Clones share it.
#[derive(Clone)]
pub(crate) struct RequestLog {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Mutex<Inner>,
    activity: Arc<Notify>,
    observer: Option<RequestObserver>,
    started: Instant,
    capacity: usize,
}

/// Called with each request when it comes and whenever its outcome changes.
pub(crate) type RequestObserver = Arc<dyn Fn(&RequestRecord) + Send + Sync>;

#[derive(Debug, Default)]
struct Inner {
    records: VecDeque<RequestRecord>,
    last_id: u64,
    streaming_watches: usize,
}

/// A request in the log; its fate is written down when this is told or dropped.
#[derive(Debug)]
pub(crate) struct LogEntry {
    log: RequestLog,
    id: u64,
    watch: bool,
    code: u16,
    ended: bool,
}

// === impl RequestRecord ===

impl RequestRecord {
    /// The value of a query parameter, decoded.
    #[must_use]
    pub fn query_param(&self, name: &str) -> Option<String> {
        skopos_serve::Query::parse(&self.query).get(name).map(str::to_owned)
    }

    /// Whether it is an open watch.
    #[must_use]
    pub fn is_open_watch(&self) -> bool {
        self.verb == "watch" && matches!(self.outcome, Outcome::Streaming(_))
    }
}

// === impl RequestLog ===

impl RequestLog {
    /// A log of the latest `capacity` requests, which tells `activity` of every change.
    pub(crate) fn new(capacity: usize, activity: Arc<Notify>, observer: Option<RequestObserver>) -> Self {
        let shared =
            Shared { inner: Mutex::default(), activity, observer, started: Instant::now(), capacity };
        Self { shared: Arc::new(shared) }
    }

    /// Notes a request; `record` gets its id and time here.
    pub(crate) fn begin(&self, mut record: RequestRecord) -> LogEntry {
        let watch = record.verb == "watch";
        record.at = self.shared.started.elapsed();
        let mut inner = self.shared.inner.lock();
        inner.last_id += 1;
        let id = inner.last_id;
        record.id = id;
        if inner.records.len() == self.shared.capacity {
            inner.records.pop_front();
        }
        let seen = self.shared.observer.is_some().then(|| record.clone());
        inner.records.push_back(record);
        drop(inner);
        self.observe(seen);
        self.shared.activity.notify_waiters();
        LogEntry { log: self.clone(), id, watch, code: 0, ended: false }
    }

    pub(crate) fn records(&self) -> Vec<RequestRecord> {
        self.shared.inner.lock().records.iter().cloned().collect()
    }

    /// How many watches are open.
    pub(crate) fn open_watches(&self) -> usize {
        self.shared.inner.lock().streaming_watches
    }

    pub(crate) fn clear(&self) {
        self.shared.inner.lock().records.clear();
    }

    fn set(&self, id: u64, outcome: Outcome, watches: isize) {
        let mut inner = self.shared.inner.lock();
        inner.streaming_watches = inner.streaming_watches.saturating_add_signed(watches);
        let mut seen = None;
        let first = inner.records.front().map_or(u64::MAX, |record| record.id);
        if let Some(record) = id.checked_sub(first).and_then(|at| inner.records.get_mut(at as usize)) {
            record.outcome = outcome;
            seen = self.shared.observer.is_some().then(|| record.clone());
        }
        drop(inner);
        self.observe(seen);
        self.shared.activity.notify_waiters();
    }
}

impl RequestLog {
    /// Outside of the lock, so that the observer may ask the server.
    fn observe(&self, record: Option<RequestRecord>) {
        if let (Some(observer), Some(record)) = (&self.shared.observer, record) {
            observer(&record);
        }
    }
}

impl fmt::Debug for RequestLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestLog").field("inner", &self.shared.inner).finish_non_exhaustive()
    }
}

// === impl LogEntry ===

impl LogEntry {
    /// The headers are about to be sent.
    pub(crate) fn streaming(&mut self, code: u16) {
        self.code = code;
        self.log.set(self.id, Outcome::Streaming(code), isize::from(self.watch));
    }

    /// The body ended.
    pub(crate) fn ended(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.log.set(self.id, Outcome::Answered(self.code), -isize::from(self.watch && self.code != 0));
        }
    }
}

impl Drop for LogEntry {
    fn drop(&mut self) {
        if !self.ended {
            self.log.set(self.id, Outcome::Dropped, -isize::from(self.watch && self.code != 0));
        }
    }
}
