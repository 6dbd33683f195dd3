//! Streamed lists (WatchList): the current state as events, a bookmark that ends it, and then the watch.
//!
//! A server that does not support them, or a proxy that swallows the bookmark, would leave a client waiting without end
//! (kubernetes#140890). So the end has a deadline, after which an ordinary list is made and streams are not tried again.

use skopos_wire::{BrokenFrame, ObjectKey, WatchEvent};

use super::listing::ListProgress;
use super::*;

/// A streamed list that was requested or is being received.
#[derive(Debug)]
pub(super) struct Streaming {
    pub(super) id: RequestId,
    pub(super) plan: ListPlan,
    /// The deadline for the next progress.
    pub(super) deadline: Time,
    progress: ListProgress,
    /// The last key in list order.
    last_key: Option<ObjectKey>,
    /// The deadline of the whole list, counted from the response. Set together with `begin_replace`.
    final_deadline: Option<Time>,
    /// The `timeoutSeconds` of the stream as a watch.
    timeout: Duration,
}

impl Streaming {
    /// Returns whether `begin_replace` was called.
    pub(super) fn has_begun(&self) -> bool {
        self.final_deadline.is_some()
    }

    /// Extends the deadline after progress.
    fn extend_deadline(&mut self, until: Time) {
        self.deadline = self.final_deadline.map_or(until, |final_deadline| until.min(final_deadline));
    }
}

/// The maximum duration of the whole streamed list, as a multiple of `initial_events_timeout`.
const MAX_DURATION_FACTOR: u32 = 12;
/// The number of consecutive failures after which a throttled stream gives way to pages.
const MAX_THROTTLED_ATTEMPTS: u32 = 2;

impl Machine {
    pub(super) fn start_stream(&mut self, plan: ListPlan) {
        let id = self.new_id();
        let timeout = self.watch_timeout();
        self.stats.watch_requests += 1;
        self.actions.push_back(Action::Watch(WatchRequest {
            id,
            start: WatchStart::InitialEvents,
            timeout,
            avoid: plan.avoid,
            wait_for_connection: self.outage,
            retire_avoided: false,
            verification: false,
        }));
        self.state = State::Streaming(Streaming {
            id,
            deadline: self.now + self.options.stream_headers_timeout,
            progress: ListProgress::new(self.now),
            last_key: None,
            final_deadline: None,
            timeout,
            plan,
        });
    }

    pub(super) fn on_stream_opened(&mut self, sink: &mut dyn Sink) {
        let State::Streaming(streaming) = &mut self.state else { return };
        if !streaming.has_begun() {
            streaming.final_deadline =
                Some(self.now + self.options.initial_events_timeout.saturating_mul(MAX_DURATION_FACTOR));
            sink.begin_replace();
        }
        streaming.extend_deadline(self.now + self.options.initial_events_timeout);
        let cause = streaming.plan.cause;
        self.on_success();
        self.set_listing(cause);
    }

    pub(super) fn on_initial_events(
        &mut self,
        events: Vec<Result<WatchEvent, BrokenFrame>>,
        sink: &mut dyn Sink,
    ) {
        let mut events = events.into_iter();
        while let Some(event) = events.next() {
            let State::Streaming(streaming) = &mut self.state else { return };
            if !streaming.has_begun() {
                return;
            }
            let bytes = match &event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => Some(object.content_len()),
                Ok(_) => None,
                Err(_) => Some(0),
            };
            if let Some(bytes) = bytes
                && let Err(verdict) = streaming.progress.take(bytes, &self.options)
            {
                self.actions.push_back(Action::Cancel { id: streaming.id });
                return self.on_stream_failed(verdict, sink);
            }
            match event {
                Ok(WatchEvent::Added(object)) => {
                    // The initial events come in key order, and only they are progress of the list: additions and other
                    // changes may continue without end.
                    if streaming.last_key.as_ref().is_none_or(|last_key| comes_after(object.key(), last_key))
                    {
                        streaming.last_key = Some(object.key().clone());
                        streaming.extend_deadline(self.now + self.options.initial_events_timeout);
                    }
                    sink.stage(object);
                }
                Ok(WatchEvent::Modified(object)) => sink.stage(object),
                Ok(WatchEvent::Deleted(object)) => sink.unstage(object.key()),
                Ok(WatchEvent::Bookmark { initial_events_end: false, .. }) => self.stats.bookmarks += 1,
                Ok(WatchEvent::Bookmark { resource_version, initial_events_end: true }) => {
                    self.stats.bookmarks += 1;
                    self.on_initial_events_end(resource_version, sink);
                    // The rest of the chunk are changes already.
                    let rest: Vec<_> = events.collect();
                    if !rest.is_empty() && matches!(self.state, State::Watching(_)) {
                        self.on_events(rest, sink);
                    }
                    return;
                }
                Ok(WatchEvent::Error(status)) => {
                    // Not every peer ends the stream after it.
                    self.actions.push_back(Action::Cancel { id: streaming.id });
                    return self.on_stream_failed(Verdict::from_event(&status), sink);
                }
                Err(frame) => {
                    self.stats.undecodable += 1;
                    streaming.progress.unreadable(frame.key, sink);
                }
            }
        }
    }

    fn on_initial_events_end(&mut self, resource_version: ResourceVersion, sink: &mut dyn Sink) {
        let state = std::mem::replace(
            &mut self.state,
            State::Waiting { until: self.now, next: Next::Watch { avoid: None, retire_avoided: false } },
        );
        let State::Streaming(Streaming { id, plan, progress, timeout, .. }) = state else { return };
        if self.commit(plan, progress, resource_version, id, sink) {
            self.continue_as_watch(id, timeout);
        } else {
            self.actions.push_back(Action::Cancel { id });
        }
    }

    /// Handles a list whose end is overdue.
    pub(super) fn on_stream_overdue(&mut self, sink: &mut dyn Sink) {
        let State::Streaming(streaming) = &self.state else { return };
        let (id, opened) = (streaming.id, streaming.has_begun());
        self.actions.push_back(Action::Cancel { id });
        if opened {
            self.fall_back_to_pages(&Reason::new(Cause::Silence, "the streamed list does not end"), sink);
        } else {
            self.on_stream_failed(Verdict::new(Meaning::TimedOut, "no answer to a streamed list"), sink);
        }
    }

    /// Handles a failed stream. If the stream may still be open, cancel it first.
    pub(super) fn on_stream_failed(&mut self, verdict: Verdict, sink: &mut dyn Sink) {
        if let State::Streaming(streaming) = &self.state {
            self.on_list_refused(streaming.has_begun(), &verdict);
        }
        match verdict.meaning {
            // 422 and 400 from servers that know the parameter and refuse it; 410 and 504 make no sense here.
            Meaning::Rejected | Meaning::Expired | Meaning::TooLargeResourceVersion => {
                self.fall_back_to_pages(&verdict.reason, sink);
            }
            _ => {
                let state = std::mem::replace(
                    &mut self.state,
                    State::Waiting {
                        until: self.now,
                        next: Next::Watch { avoid: None, retire_avoided: false },
                    },
                );
                let State::Streaming(mut streaming) = state else { return };
                if streaming.has_begun() {
                    sink.abort_replace();
                }
                // Pages can be resumed, and a cause that breaks, holds back or forbids streams may spare lists. A
                // server that keeps throttling streams may throttle nothing else.
                let refused = verdict.meaning == Meaning::Throttled
                    && self.reflector.attempts >= MAX_THROTTLED_ATTEMPTS;
                streaming.plan.paged = streaming.has_begun() || verdict.list_may_succeed() || refused;
                streaming.plan.avoid = Some(streaming.id);
                self.fail(verdict, Next::List(streaming.plan), sink);
            }
        }
    }

    /// Falls back to ordinary lists, permanently.
    fn fall_back_to_pages(&mut self, reason: &Reason, sink: &mut dyn Sink) {
        let state = std::mem::replace(
            &mut self.state,
            State::Waiting { until: self.now, next: Next::Watch { avoid: None, retire_avoided: false } },
        );
        let State::Streaming(streaming) = state else { return };
        if streaming.has_begun() {
            sink.abort_replace();
        }
        self.watch_list_supported = false;
        sink.watch_list_unsupported();
        self.stats.failures += 1;
        self.reflector.reason =
            Some(reason.with_message(format!("no streamed list ({reason}); listing in pages")));
        self.link_changed = true;
        self.start_list(ListPlan { avoid: None, ..streaming.plan });
    }
}

/// Returns whether a key comes after another in the server's order: that of etcd's keys, `namespace/name` as one string.
fn comes_after(key: &ObjectKey, other: &ObjectKey) -> bool {
    fn path(key: &ObjectKey) -> impl Iterator<Item = u8> + '_ {
        key.namespace().unwrap_or_default().bytes().chain([b'/']).chain(key.name().bytes())
    }
    path(key).gt(path(other))
}
