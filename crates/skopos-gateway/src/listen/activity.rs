//! Activity of one connection, and the limits that it exceeds.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http::{HeaderMap, Version, header};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::tls::Settings;
use super::{PeerRecord, SourceNetwork};
use crate::config::Limits;
use crate::response::{BodyError, Response, ResponseBody};

/// The activity of a connection, as observed by the reaper.
#[derive(Debug)]
pub(super) struct ConnectionActivity {
    opened: Instant,
    state: Mutex<State>,
    bodies: Mutex<HashMap<u64, Arc<UnreadSince>>>,
    next_body: AtomicU64,
    /// True if the connection counts as half open.
    waiting: AtomicBool,
    /// True if a request had two lengths.
    is_ambiguous: AtomicBool,
    /// True if the connection counts as one without a known caller.
    unknown: AtomicBool,
    pub(super) source: SourceNetwork,
    pub(super) record: Arc<PeerRecord>,
    /// The client's certificate and its intermediates, if it sent any.
    chain: OnceLock<Vec<CertificateDer<'static>>>,
    /// Cancelled to end the connection in order: requests in progress are answered, and HTTP/2 clients get a GOAWAY.
    pub(super) retire: CancellationToken,
    /// Cancelled to close the connection.
    pub(super) close: CancellationToken,
}

#[derive(Debug)]
struct State {
    requests: u64,
    active: usize,
    quiet_since: Instant,
    abandoned: u32,
    control_frames: u32,
    counting_since: Instant,
}

/// The limit that a connection exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitExceeded {
    /// No complete request within the time for the first one.
    NoRequest,
    Idle,
    /// The client does not read.
    Stalled,
    /// The client keeps abandoning requests.
    Resets,
    /// The client sends frames that do nothing.
    Frames,
}

/// The maximum number of frames within [`RESET_WINDOW`] that demand a reply or do nothing. Clients send a few: a PING each
/// second, SETTINGS once.
const MAX_CONTROL_FRAMES: u32 = 1000;

/// The window in which abandoned requests and control frames are counted.
const RESET_WINDOW: Duration = Duration::from_secs(10);

/// The maximum duration of a request of an unknown caller while there is no room for other connections.
const MAX_UNKNOWN_REQUEST: Duration = Duration::from_secs(1);

impl ConnectionActivity {
    pub(super) fn new(source: SourceNetwork, close: CancellationToken) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            opened: now,
            state: Mutex::new(State {
                requests: 0,
                active: 0,
                quiet_since: now,
                abandoned: 0,
                control_frames: 0,
                counting_since: now,
            }),
            is_ambiguous: AtomicBool::new(false),
            bodies: Mutex::default(),
            next_body: AtomicU64::new(0),
            waiting: AtomicBool::new(true),
            unknown: AtomicBool::new(true),
            source,
            record: Arc::default(),
            chain: OnceLock::new(),
            retire: CancellationToken::new(),
            close,
        })
    }

    /// Returns whether the connection counts as half open: no complete request has come, and it was not closed for that.
    pub(super) fn is_half_open(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Stops counting the connection as half open. Returns whether it did until now.
    pub(super) fn mark_settled(&self) -> bool {
        self.waiting.swap(false, Ordering::Relaxed)
    }

    /// Records the certificates of the client.
    pub(super) fn set_chain(&self, chain: Vec<CertificateDer<'static>>) {
        // A connection has one handshake.
        let _ = self.chain.set(chain);
    }

    /// Returns whether the client would be accepted under these settings.
    pub(super) fn is_accepted_by(&self, settings: &Settings) -> bool {
        self.chain.get().is_none_or(|chain| settings.accepts(chain))
    }

    /// Returns whether the connection counts as one without a known caller.
    pub(super) fn is_unknown(&self) -> bool {
        self.unknown.load(Ordering::Relaxed)
    }

    /// Stops counting the connection as unknown. Returns whether it did until now.
    pub(super) fn mark_known(&self) -> bool {
        self.unknown.swap(false, Ordering::Relaxed)
    }

    /// Returns since when the connection has been idle, if it is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let state = self.state.lock();
        (state.active == 0).then_some(state.quiet_since)
    }

    /// Returns whether the connection may be closed now to make room.
    pub(super) fn may_be_closed(&self) -> bool {
        match self.record.is_known() {
            true => self.idle_since().is_some(),
            false => self.overdue().is_some(),
        }
    }

    /// Returns the order in which connections without a known caller are closed, least first: whether one has a request, and
    /// since when it has not ended one. `None` if it has only just begun to send its request.
    pub(super) fn overdue(&self) -> Option<(bool, Instant)> {
        let state = self.state.lock();
        let is_active = state.active > 0;
        let is_due = !is_active || state.quiet_since.elapsed() >= MAX_UNKNOWN_REQUEST;
        is_due.then_some((is_active, state.quiet_since))
    }

    /// Counts a request that has arrived. Only HTTP/2 lets a client abandon a request and keep the connection.
    pub(super) fn begin(self: &Arc<Self>, version: Version) -> InFlight {
        let mut state = self.state.lock();
        state.requests += 1;
        state.active += 1;
        InFlight { activity: self.clone(), finished: version < Version::HTTP_2 }
    }

    /// Returns the limit that the connection exceeds, if any.
    pub(super) fn exceeded_limit(&self, limits: &Limits, now: Instant) -> Option<LimitExceeded> {
        {
            let state = self.state.lock();
            if state.abandoned > limits.resets {
                return Some(LimitExceeded::Resets);
            }
            if state.control_frames > MAX_CONTROL_FRAMES {
                return Some(LimitExceeded::Frames);
            }
            if state.requests == 0 && now.duration_since(self.opened) > limits.handshake.0 {
                return Some(LimitExceeded::NoRequest);
            }
            if state.requests > 0
                && state.active == 0
                && now.duration_since(state.quiet_since) > limits.idle.0
            {
                return Some(LimitExceeded::Idle);
            }
        }
        let stalled = |unread: &Arc<UnreadSince>| {
            unread.unread_since().is_some_and(|since| now.duration_since(since) > limits.stalled.0)
        };
        self.bodies.lock().values().any(stalled).then_some(LimitExceeded::Stalled)
    }

    fn end(&self, finished: bool) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.active = state.active.saturating_sub(1);
        state.quiet_since = now;
        if !finished {
            state.count(now);
            state.abandoned += 1;
        }
    }

    /// Records control frames and ambiguous requests of the client.
    pub(super) fn record_sent(&self, control_frames: u32, is_ambiguous: bool) {
        if is_ambiguous {
            self.is_ambiguous.store(true, Ordering::Relaxed);
        }
        if control_frames > 0 {
            let mut state = self.state.lock();
            state.count(Instant::now());
            state.control_frames = state.control_frames.saturating_add(control_frames);
        }
    }

    /// Returns whether a request had two lengths. Then the start of the next request is ambiguous.
    pub(super) fn is_ambiguous(&self) -> bool {
        self.is_ambiguous.load(Ordering::Relaxed)
    }
}

impl State {
    /// Resets the counters at the end of the window.
    fn count(&mut self, now: Instant) {
        if now.duration_since(self.counting_since) > RESET_WINDOW {
            (self.counting_since, self.abandoned, self.control_frames) = (now, 0, 0);
        }
    }
}

/// A request in progress, until the last byte of its answer is taken.
#[derive(Debug)]
pub(super) struct InFlight {
    activity: Arc<ConnectionActivity>,
    finished: bool,
}

impl InFlight {
    /// Returns the answer with an observed body.
    pub(super) fn watch(self, answer: Response) -> http::Response<WatchedBody> {
        let (parts, body) = answer.into_parts();
        let id = self.activity.next_body.fetch_add(1, Ordering::Relaxed);
        let unread = Arc::new(UnreadSince { since: Mutex::new(Some(Instant::now())) });
        self.activity.bodies.lock().insert(id, unread.clone());
        let unsent = declared_length(&parts.headers).or_else(|| body.size_hint().exact());
        http::Response::from_parts(parts, WatchedBody { body, unread, id, unsent, in_flight: self })
    }
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.activity.end(self.finished);
    }
}

/// The time of the last frame handed to hyper without a poll after it.
#[derive(Debug)]
struct UnreadSince {
    since: Mutex<Option<Instant>>,
}

impl UnreadSince {
    fn unread_since(&self) -> Option<Instant> {
        *self.since.lock()
    }
}

/// A body that observes whether its client reads: hyper polls for more only when it can send.
///
/// The client has abandoned the answer if hyper drops the body while content is left to send. A body that was taken up to its
/// declared length is complete, because hyper does not poll it again. A body with nothing to send at the moment, as a watch
/// between two events, may be dropped at any time.
#[derive(Debug)]
pub(super) struct WatchedBody {
    body: ResponseBody,
    unread: Arc<UnreadSince>,
    id: u64,
    /// The number of bytes left of the declared length.
    unsent: Option<u64>,
    in_flight: InFlight,
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let data = match &polled {
            Poll::Ready(Some(Ok(frame))) => Some(frame.data_ref().map_or(0, |data| data.remaining() as u64)),
            _ => None,
        };
        *self.unread.since.lock() = data.map(|_| Instant::now());
        self.unsent = self.unsent.map(|unsent| unsent.saturating_sub(data.unwrap_or_default()));
        // An error is the gateway's own way to end an answer, and trailers are the last frame.
        let is_last = match &polled {
            Poll::Ready(Some(Ok(frame))) => frame.is_trailers(),
            Poll::Ready(None | Some(Err(_))) => true,
            Poll::Pending => false,
        };
        self.in_flight.finished |= is_last || self.is_complete();
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl WatchedBody {
    /// Returns whether the whole answer was handed over.
    fn is_complete(&self) -> bool {
        self.unsent == Some(0) || self.body.is_end_stream()
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        self.in_flight.finished |= self.is_complete() || self.unread.unread_since().is_none();
        self.in_flight.activity.bodies.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Span;
    use crate::response;

    fn limits() -> Limits {
        Limits { resets: 3, stalled: Span::seconds(5), idle: Span::seconds(20), ..Limits::default() }
    }

    fn activity() -> Arc<ConnectionActivity> {
        ConnectionActivity::new(
            std::net::SocketAddr::from(([127, 0, 0, 1], 1)).into(),
            CancellationToken::new(),
        )
    }

    fn answer(body: ResponseBody) -> Response {
        http::Response::new(body)
    }

    async fn after(activity: &ConnectionActivity, seconds: u64) -> Option<LimitExceeded> {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        activity.exceeded_limit(&limits(), Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn connection_without_request_times_out() {
        let activity = activity();
        assert_eq!(after(&activity, 9).await, None);
        assert_eq!(after(&activity, 2).await, Some(LimitExceeded::NoRequest));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_in_progress_is_not_idle() {
        let activity = activity();
        let in_flight = activity.begin(Version::HTTP_2);
        assert_eq!(after(&activity, 3600).await, None);
        drop(in_flight);
        assert_eq!(after(&activity, 19).await, None);
        assert_eq!(after(&activity, 2).await, Some(LimitExceeded::Idle));
    }

    #[tokio::test(start_paused = true)]
    async fn unread_answer_stalls_but_pending_one_does_not() {
        use http_body_util::BodyExt as _;
        let activity = activity();
        let in_flight = activity.begin(Version::HTTP_2);
        let mut unread = in_flight.watch(answer(response::whole(Bytes::from_static(b"x")))).into_body();
        unread.frame().await.unwrap().unwrap();
        assert_eq!(after(&activity, 4).await, None);
        assert_eq!(after(&activity, 2).await, Some(LimitExceeded::Stalled));
        drop(unread);
        assert_eq!(after(&activity, 1).await, None);

        let in_flight = activity.begin(Version::HTTP_2);
        let silent =
            http_body_util::StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, BodyError>>());
        let mut waiting = in_flight.watch(answer(ResponseBody::new(silent))).into_body();
        assert!(futures::poll!(std::pin::pin!(waiting.frame())).is_pending());
        assert_eq!(after(&activity, 3600).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_requests_are_counted_over_ten_seconds() {
        let activity = activity();
        for _ in 0..3 {
            drop(activity.begin(Version::HTTP_2));
        }
        assert_eq!(after(&activity, 0).await, None);
        tokio::time::advance(Duration::from_secs(11)).await;
        for _ in 0..3 {
            drop(activity.begin(Version::HTTP_2));
        }
        assert_eq!(after(&activity, 0).await, None);
        drop(activity.begin(Version::HTTP_2));
        assert_eq!(after(&activity, 0).await, Some(LimitExceeded::Resets));
    }

    #[tokio::test]
    async fn answers_that_were_taken_whole_are_not_abandoned() {
        use http_body_util::BodyExt as _;
        let activity = activity();
        for _ in 0..10 {
            let body =
                activity.begin(Version::HTTP_2).watch(answer(response::whole(Bytes::from_static(b"x"))));
            body.into_body().collect().await.unwrap();
            drop(activity.begin(Version::HTTP_2).watch(answer(response::whole(Bytes::new()))));
        }
        assert_eq!(activity.exceeded_limit(&limits(), Instant::now()), None);
    }
}
