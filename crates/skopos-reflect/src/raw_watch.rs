//! A watch for callers that need events only, without a store.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use skopos_transport::Transport;
use skopos_wire::{Limits, ObjectKey, RawObject, ResourceVersion, WatchEvent};

use crate::driver::{InFlightRequests, sleep_until};
use crate::{
    Change, Clock, Commit, Content, Encoding, Input, Machine, MachineOptions, Negotiation, ProbeError,
    ReflectorState, ReplaceCause, Resume, Sink, Target, Time, probe,
};

/// A watch that does not end: a [`Stream`] of events. It resumes after every failed connection or request, and reports
/// when it had to skip changes.
///
/// ```no_run
/// # use futures::StreamExt as _;
/// # use skopos_reflect::{RawWatch, RawWatchItem, Target};
/// # async fn f(transport: skopos_transport::Transport) {
/// let mut watch = RawWatch::builder(transport, Target::new("", "v1", "pods")).from_now();
/// while let Some(item) = watch.next().await {
///     match item {
///         RawWatchItem::Event(event) => println!("{event:?}"),
///         RawWatchItem::Skipped { reason, .. } => println!("some changes are unknown: {reason:?}"),
///         RawWatchItem::Unreadable { key, .. } => println!("a change of {key} is unknown"),
///         _ => {}
///     }
/// }
/// // Only here when the transport was shut down.
/// # }
/// ```
///
/// It uses the same state machine as a store's watch. It resumes at its last RV and drops events that it has delivered
/// before. It detects stalled streams and rolled back history (by a probe each half minute), and backs off.
///
/// Nothing is read while the stream is not polled. To the server a slow consumer is a slow watcher, whose stream it may end.
/// The watch then resumes at its position, or skips changes that the server has forgotten.
///
/// Errors are not items: [`state`](RawWatch::state) reports them, for example that the server answers every attempt with 403.
pub struct RawWatch {
    items: BoxStream<'static, RawWatchItem>,
    state: RawWatchState,
}

/// The reflector state of a [`RawWatch`]: whether the watch is open, and if not, why not, since when and after how many attempts.
/// Cheap to clone, and usable from another task than the one that polls the watch. It changes only while the watch is polled.
#[derive(Clone, Debug)]
pub struct RawWatchState(tokio::sync::watch::Receiver<ReflectorState>);

/// A builder for a [`RawWatch`].
#[derive(Debug)]
pub struct RawWatchBuilder {
    transport: Transport,
    target: Target,
    limits: Limits,
    seed: Option<u64>,
    probe_interval: Duration,
    encoding: Encoding,
}

/// An item of a [`RawWatch`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RawWatchItem {
    /// A change or a bookmark: everything below its RV has been delivered, and everything at it except changes that
    /// share the RV with the previous one. Never an error: the watch handles those. An object that was read in place of
    /// an undecodable event is a `Modified`, even when it is new.
    Event(WatchEvent),
    /// The changes between two RVs are unknown: the server had forgotten them, or its history was broken.
    Skipped {
        /// The last RV that was delivered.
        since: ResourceVersion,
        /// The RV after which events continue. Lower than `since` if history was rolled back.
        to: ResourceVersion,
        /// The cause.
        reason: ReplaceCause,
    },
    /// One change of this object could not be decoded, and reading the object did not help.
    Unreadable {
        /// The object.
        key: ObjectKey,
        /// The RV of the change.
        resource_version: ResourceVersion,
    },
    /// An object was deleted, and its last state could not be decoded.
    Gone {
        /// The object.
        key: ObjectKey,
        /// The RV of the deletion.
        resource_version: ResourceVersion,
    },
}

/// An RV after which no watch can begin. The caller is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a watch cannot begin after resourceVersion {text:?}: it means \"any\"; use from_now(), or the RV of a list"
)]
pub struct InvalidStart {
    text: String,
}

impl RawWatch {
    /// Makes a builder for a watch of the target.
    pub fn builder(transport: Transport, target: Target) -> RawWatchBuilder {
        RawWatchBuilder {
            transport,
            target,
            limits: Limits::default(),
            seed: None,
            probe_interval: Duration::from_secs(30),
            encoding: Encoding::default(),
        }
    }

    /// Returns a handle that follows the reflector state.
    pub fn state(&self) -> RawWatchState {
        self.state.clone()
    }
}

impl RawWatchState {
    /// Returns the current reflector state, or the last one once the watch has ended or was dropped.
    pub fn get(&self) -> ReflectorState {
        self.0.borrow().clone()
    }

    /// Waits until the state differs from the one this clone saw last, and returns it; `None` once the watch has ended
    /// or was dropped. States that follow each other quickly may be skipped. Like a stream, it has no time limit of its
    /// own: put it under a deadline. Cancel safe.
    pub async fn changed(&mut self) -> Option<ReflectorState> {
        self.0.changed().await.ok()?;
        Some(self.0.borrow_and_update().clone())
    }
}

impl Stream for RawWatch {
    type Item = RawWatchItem;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<RawWatchItem>> {
        self.items.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for RawWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawWatch").finish_non_exhaustive()
    }
}

impl RawWatchItem {
    /// Returns the RV up to which the item leads.
    fn resource_version(&self) -> Option<&ResourceVersion> {
        match self {
            RawWatchItem::Event(event) => event.resource_version(),
            RawWatchItem::Skipped { to, .. } => Some(to),
            RawWatchItem::Unreadable { resource_version, .. }
            | RawWatchItem::Gone { resource_version, .. } => Some(resource_version),
        }
    }
}

impl RawWatchBuilder {
    /// Sets limits on what is accepted from the server.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Seeds every random choice, for repeatable tests.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the interval at which the collection's RV is read, to detect a stream that is silent although there are
    /// changes. Default 30 s.
    #[must_use]
    pub fn probe_interval(mut self, interval: Duration) -> Self {
        self.probe_interval = interval;
        self
    }

    /// Sets the encoding that is asked for. Default: protobuf, where the server has it.
    #[must_use]
    pub fn encoding(mut self, encoding: Encoding) -> Self {
        self.encoding = encoding;
        self
    }

    /// Starts the watch after this RV. Several events may bear one RV (etcd deletes all keys of a lease at once). A
    /// caller that stopped between two of them starts one RV earlier, and receives some of them again.
    ///
    /// # Errors
    /// If the RV cannot exist: `""`, `"0"`, or no decimal integer.
    pub fn from(self, resource_version: &str) -> Result<RawWatch, InvalidStart> {
        match resource_version.parse::<ResourceVersion>() {
            Ok(resource_version) if !resource_version.is_zero() => Ok(self.build(Some(resource_version))),
            _ => Err(InvalidStart { text: resource_version.to_owned() }),
        }
    }

    /// Starts the watch at about the current RV. The first item is a bookmark with that RV.
    pub fn from_now(self) -> RawWatch {
        self.build(None)
    }

    fn build(self, start: Option<ResourceVersion>) -> RawWatch {
        let clock = Clock::new();
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..));
        let options = MachineOptions {
            content: Content::Changes,
            resume: start.clone().map(|resource_version| Resume { resource_version, epoch: 0 }),
            ..MachineOptions::default()
        };
        let machine = Machine::new(options, seed, clock.now());
        let (state_sender, state) = tokio::sync::watch::channel(machine.state().clone());
        let runner = Runner {
            machine,
            requests: InFlightRequests::new(
                self.transport.clone(),
                self.target.clone(),
                self.limits,
                clock,
                Negotiation::new(self.encoding),
            ),
            queue: Queue { items: VecDeque::new(), last: start, has_events: false, state: state_sender },
            prober: Prober {
                transport: self.transport,
                target: self.target,
                clock,
                interval: self.probe_interval,
                rng: fastrand::Rng::with_seed(seed),
                next: clock.now() + self.probe_interval,
                in_flight: None,
            },
            clock,
        };
        RawWatch { items: Box::pin(stream::unfold(runner, Runner::next)), state: RawWatchState(state) }
    }
}

/// A machine that runs while the stream is polled.
struct Runner {
    machine: Machine,
    requests: InFlightRequests,
    queue: Queue,
    prober: Prober,
    clock: Clock,
}

impl Runner {
    async fn next(mut self) -> Option<(RawWatchItem, Self)> {
        loop {
            if let Some(item) = self.queue.items.pop_front() {
                return Some((item, self));
            }
            if self.machine.is_stopped() {
                return None;
            }
            let input = tokio::select! {
                biased;
                () = sleep_until(&self.clock, self.machine.poll_timeout()) => Input::Timeout,
                input = self.prober.next() => input,
                input = self.requests.next() => input,
            };
            self.machine.handle(self.clock.now(), input, &mut self.queue);
            while let Some(action) = self.machine.poll_action() {
                self.requests.execute(action);
            }
        }
    }
}

/// A periodic read of the collection's RV.
struct Prober {
    transport: Transport,
    target: Target,
    clock: Clock,
    interval: Duration,
    rng: fastrand::Rng,
    next: Time,
    in_flight: Option<(Time, BoxFuture<'static, Result<ResourceVersion, ProbeError>>)>,
}

/// The deadline of a probe: one that takes longer proves little.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

impl Prober {
    /// Waits for the next successful probe. Cancel safe.
    async fn next(&mut self) -> Input {
        loop {
            if let Some((sent_at, in_flight)) = &mut self.in_flight {
                let sent_at = *sent_at;
                let found = in_flight.await;
                self.in_flight = None;
                self.next = self.clock.now() + self.interval.mul_f64(0.9 + 0.2 * self.rng.f64());
                if let Ok(resource_version) = found {
                    return Input::Probed { sent_at, resource_version };
                }
            }
            sleep_until(&self.clock, Some(self.next)).await;
            let (transport, target) = (self.transport.clone(), self.target.clone());
            let in_flight = async move { probe(&transport, &target, PROBE_TIMEOUT).await };
            self.in_flight = Some((self.clock.now(), Box::pin(in_flight)));
        }
    }
}

/// The sink: a queue of items. It holds at most one batch, because nothing is read before it is empty.
struct Queue {
    items: VecDeque<RawWatchItem>,
    last: Option<ResourceVersion>,
    /// True if the events of the coming batch are in the queue already.
    has_events: bool,
    state: tokio::sync::watch::Sender<ReflectorState>,
}

impl Queue {
    fn bookmark(&mut self, resource_version: &ResourceVersion) {
        let resource_version = resource_version.clone();
        self.items.push_back(RawWatchItem::Event(WatchEvent::Bookmark {
            resource_version,
            initial_events_end: false,
        }));
    }
}

impl Sink for Queue {
    fn begin_replace(&mut self) {}

    fn stage(&mut self, _object: RawObject) {}

    fn unstage(&mut self, _key: &ObjectKey) {}

    fn stage_unreadable(&mut self, _key: &ObjectKey) {}

    fn abort_replace(&mut self) {}

    fn fresh_as_of(&mut self, _at: Time) {}

    fn fresh_only_as_of(&mut self, _at: Option<Time>) {}

    fn state(&mut self, state: &ReflectorState) {
        self.state.send_replace(state.clone());
    }

    fn commit_replace(&mut self, commit: Commit) {
        let to = commit.resource_version;
        match self.last.replace(to.clone()) {
            Some(since) => self.items.push_back(RawWatchItem::Skipped { since, to, reason: commit.cause }),
            None => self.bookmark(&to),
        }
    }

    fn event(&mut self, event: &WatchEvent) {
        self.has_events = true;
        self.items.push_back(RawWatchItem::Event(event.clone()));
    }

    fn apply(&mut self, changes: &mut Vec<Change>, resource_version: &ResourceVersion) {
        self.last = Some(resource_version.clone());
        if !std::mem::take(&mut self.has_events) {
            // These changes did not come as events.
            self.items.extend(changes.drain(..).map(|change| match change {
                Change::Put(object) => RawWatchItem::Event(WatchEvent::Modified(object)),
                Change::Deleted(object) => RawWatchItem::Event(WatchEvent::Deleted(object)),
                Change::Gone { key, resource_version } => RawWatchItem::Gone { key, resource_version },
            }));
        }
        // A bookmark followed the last event, or the object that was read is older than the event it replaces.
        let last = self.items.back().and_then(RawWatchItem::resource_version);
        if last.is_none_or(|last| last < resource_version) {
            self.bookmark(resource_version);
        }
    }

    fn advance(&mut self, resource_version: &ResourceVersion) {
        self.last = Some(resource_version.clone());
        self.bookmark(resource_version);
    }

    fn skipped(&mut self, key: &ObjectKey, resource_version: &ResourceVersion) {
        let (key, resource_version) = (key.clone(), resource_version.clone());
        self.items.push_back(RawWatchItem::Unreadable { key, resource_version });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> Queue {
        let (state, _) = tokio::sync::watch::channel(ReflectorState::new(Time::ORIGIN));
        Queue { items: VecDeque::new(), last: Some(10.into()), has_events: false, state }
    }

    fn object(rv: u64) -> RawObject {
        let text =
            format!(r#"{{"metadata":{{"name":"a","namespace":"ns","uid":"u","resourceVersion":"{rv}"}}}}"#);
        RawObject::scan(text.into(), &Limits::default()).expect("an object")
    }

    fn given(queue: &Queue) -> Vec<(bool, u64)> {
        let one = |item: &RawWatchItem| {
            let bookmark = matches!(item, RawWatchItem::Event(WatchEvent::Bookmark { .. }));
            (bookmark, item.resource_version().and_then(ResourceVersion::as_u64).expect("a number"))
        };
        queue.items.iter().map(one).collect()
    }

    #[test]
    fn bookmark_behind_event_of_batch_is_delivered() {
        for (led_to, expected) in [(12, vec![(false, 12)]), (15, vec![(false, 12), (true, 15)])] {
            let mut queue = queue();
            queue.event(&WatchEvent::Modified(object(12)));
            queue.apply(&mut vec![Change::Put(object(12))], &led_to.into());
            assert_eq!(given(&queue), expected);
        }
    }

    #[test]
    fn older_get_result_is_followed_by_bookmark() {
        for (read, expected) in [(12, vec![(false, 12)]), (11, vec![(false, 11), (true, 12)])] {
            let mut queue = queue();
            queue.apply(&mut vec![Change::Put(object(read))], &12.into());
            assert_eq!(given(&queue), expected);
        }
    }
}
