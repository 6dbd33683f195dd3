//! Log of the requests and their outcomes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::connection::ConnectionId;

/// Request that reached the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestRecord {
    /// Sequence number, counted from 1.
    pub id: u64,
    /// Arrival time since the start of the server, on tokio's clock.
    pub at: Duration,
    /// Connection of the request.
    pub connection: ConnectionId,
    /// Verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, or `other` for everything without
    /// a resource.
    pub verb: &'static str,
    /// Path as sent.
    pub path: String,
    /// Query as sent, without `?`.
    pub query: String,
    /// Plural name of the resource, if any.
    pub resource: Option<String>,
    /// `User-Agent` header.
    pub user_agent: Option<String>,
    /// `Accept` header: the requested response form.
    pub accept: Option<String>,
    /// Outcome.
    pub outcome: Outcome,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is no response yet.
    Waiting,
    /// The headers were sent, the body is in progress (an open watch).
    Streaming(u16),
    /// The body ended.
    Answered(u16),
    /// The client or the connection closed before the body's end.
    Dropped,
}

/// Log of the latest requests. Clones share it.
#[derive(Clone)]
pub(crate) struct RequestLog {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    activity: Arc<Notify>,
    observer: Option<RequestObserver>,
    started: Instant,
    capacity: usize,
}

/// Callback for each new request and each change of an outcome.
pub(crate) type RequestObserver = Arc<dyn Fn(&RequestRecord) + Send + Sync>;

#[derive(Debug, Default)]
struct State {
    records: VecDeque<RequestRecord>,
    last_id: u64,
    streaming_watches: usize,
}

/// Entry of a request in the log; its outcome is recorded when the body ends or on drop.
#[derive(Debug)]
pub(crate) struct LogEntry {
    log: RequestLog,
    id: u64,
    watch: bool,
    code: u16,
    ended: bool,
}

impl RequestRecord {
    /// Returns the decoded value of a query parameter.
    pub fn query_param(&self, name: &str) -> Option<String> {
        skopos_serve::Query::parse(&self.query).get(name).map(str::to_owned)
    }

    /// Returns whether the request is an open watch.
    pub fn is_open_watch(&self) -> bool {
        self.verb == "watch" && matches!(self.outcome, Outcome::Streaming(_))
    }
}

impl RequestLog {
    /// Creates a log of the latest `capacity` requests, which notifies `activity` of every change.
    pub(crate) fn new(capacity: usize, activity: Arc<Notify>, observer: Option<RequestObserver>) -> Self {
        let inner = Inner { state: Mutex::default(), activity, observer, started: Instant::now(), capacity };
        Self { inner: Arc::new(inner) }
    }

    /// Records a request; `record` gets its id and time here.
    pub(crate) fn begin(&self, mut record: RequestRecord) -> LogEntry {
        let watch = record.verb == "watch";
        record.at = self.inner.started.elapsed();
        let mut state = self.inner.state.lock();
        state.last_id += 1;
        let id = state.last_id;
        record.id = id;
        if state.records.len() == self.inner.capacity {
            state.records.pop_front();
        }
        let seen = self.inner.observer.is_some().then(|| record.clone());
        state.records.push_back(record);
        drop(state);
        self.observe(seen);
        self.inner.activity.notify_waiters();
        LogEntry { log: self.clone(), id, watch, code: 0, ended: false }
    }

    pub(crate) fn records(&self) -> Vec<RequestRecord> {
        self.inner.state.lock().records.iter().cloned().collect()
    }

    /// Returns the number of open watches.
    pub(crate) fn open_watches(&self) -> usize {
        self.inner.state.lock().streaming_watches
    }

    pub(crate) fn clear(&self) {
        self.inner.state.lock().records.clear();
    }

    fn set(&self, id: u64, outcome: Outcome, watches: isize) {
        let mut state = self.inner.state.lock();
        state.streaming_watches = state.streaming_watches.saturating_add_signed(watches);
        let mut seen = None;
        let first = state.records.front().map_or(u64::MAX, |record| record.id);
        if let Some(record) = id.checked_sub(first).and_then(|at| state.records.get_mut(at as usize)) {
            record.outcome = outcome;
            seen = self.inner.observer.is_some().then(|| record.clone());
        }
        drop(state);
        self.observe(seen);
        self.inner.activity.notify_waiters();
    }
}

impl RequestLog {
    /// Calls the observer outside of the lock, so that it may call the server.
    fn observe(&self, record: Option<RequestRecord>) {
        if let (Some(observer), Some(record)) = (&self.inner.observer, record) {
            observer(&record);
        }
    }
}

impl fmt::Debug for RequestLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestLog").field("inner", &self.inner.state).finish_non_exhaustive()
    }
}

impl LogEntry {
    /// Records that the headers are about to be sent.
    pub(crate) fn streaming(&mut self, code: u16) {
        self.code = code;
        self.log.set(self.id, Outcome::Streaming(code), isize::from(self.watch));
    }

    /// Records that the body ended.
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
