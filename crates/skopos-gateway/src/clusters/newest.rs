//! Reads of the newest state of one kind: from memory if that meets the request's
//! [`Requirement`](crate::consistency::Requirement), otherwise from the watch, from a probe, or from the member.
//!
//! ```text
//!  memory meets it? ──yes──▶ memory
//!        │ no
//!  only what the watch brings is missing? ──▶ wait a moment ──▶ memory
//!        │ still not
//!  a probe proves memory, or the member lists what it has: one flight for all who wait, within cache.memberDeadline
//!        │ neither
//!  old content with a warning; an error where old content would be no answer
//! ```

use std::sync::Arc;
use std::time::Duration;

use skopos::{Freshness, ObjectKey, RawObject, Snapshot, Source};
use skopos_serve::ReadError;
use skopos_wire::Status;
use tokio::time::Instant;

use super::memory::Memory;
use super::state::State;
use crate::consistency::CatchUp;

impl Memory {
    /// Reads the newest state.
    ///
    /// # Errors
    /// Returns 503 or 504 where nothing is new enough, and older content is not allowed.
    pub(super) async fn newest(&self) -> Result<State, ReadError> {
        let content = self.catch_up().content();
        if self.requirement.is_met_by(&content) {
            return self.state_of(content, false);
        }
        if !self.cluster.state().condition.is_asked() {
            return self.outdated(None);
        }
        // On the heap: most reads never get here, and all would carry its size.
        Box::pin(self.newer_than(content)).await
    }

    async fn newer_than(&self, content: Snapshot<RawObject>) -> Result<State, ReadError> {
        let deadline = Instant::now() + self.member_deadline;
        let alternative = if self.one.is_some() { 1 } else { content.len() };
        if let Some(content) = self.catch_up().await_watch(&content, alternative, self.member_deadline).await
        {
            return self.state_of(content, false);
        }
        let mut states = self.cluster.states();
        // The cluster may be found unreachable meanwhile.
        let away = states.wait_for(|state| !state.condition.is_asked());
        let left = deadline.saturating_duration_since(Instant::now());
        let asked = async {
            match &self.one {
                Some(key) => self.ask_for_one(key, left).await,
                None => self.ask_for_all(left).await,
            }
        };
        tokio::select! {
            answered = asked => answered,
            _ = away => self.outdated(None),
        }
    }

    fn catch_up(&self) -> CatchUp<'_> {
        let (cluster, kind) = (self.cluster.id(), &self.kind);
        let listing = &self.view.listing;
        CatchUp { cluster, kind, requirement: &self.requirement, floors: &self.floors, listing }
    }

    async fn ask_for_one(&self, key: &ObjectKey, limit: Duration) -> Result<State, ReadError> {
        let read = self.kind.informer().read_one_since(key, Instant::now(), limit).await;
        match read {
            Ok(read) => {
                let live = read.source == Source::Live;
                self.record_read(Freshness::Live { age: read.age }, live);
                Ok(State::from_object(read.object))
            }
            Err(error) => self.outdated(Some(error.to_string().into())),
        }
    }

    async fn ask_for_all(&self, limit: Duration) -> Result<State, ReadError> {
        match self.catch_up().ask(limit).await {
            Ok(read) => self.state_of(read.snapshot, read.source == Source::Live),
            Err(why) => self.outdated(why),
        }
    }

    /// Answers if nothing newer is available: with the current content, unless the requirement forbids it.
    fn outdated(&self, why: Option<Arc<str>>) -> Result<State, ReadError> {
        let content = self.catch_up().content();
        if self.requirement.is_met_by(&content) {
            return self.state_of(content, false);
        }
        let state = self.cluster.state();
        let asked = state.condition.is_asked();
        let consistent = self.requirement.is_consistent();
        if !consistent && (!asked || !self.requirement.is_strict(&content)) {
            let content_state = self.state_of(content, false);
            if let Some(last_read) = self.last_read.lock().as_mut() {
                last_read.late = true;
            }
            return content_state;
        }
        let wanted = match consistent {
            true => "a consistent read cannot be answered",
            false => "memory does not have what was written through the gateway yet",
        };
        let (cluster, resource) = (self.cluster.id(), self.kind.resource());
        let why = match (why, asked, &state.reason) {
            (Some(why), true, _) => why.to_string(),
            (None, true, _) => format!("it did not answer within {:?}", self.member_deadline),
            (_, false, Some(reason)) => format!("it is {}: {reason}", state.condition.as_str()),
            (_, false, None) => format!("it is {}", state.condition.as_str()),
        };
        let message = format!("{resource} of cluster {cluster}: {wanted}: {why}");
        Err(ReadError::from(match asked {
            true => Status::timeout(message, 1),
            false => Status::service_unavailable(message),
        }))
    }

    fn state_of(&self, content: Snapshot<RawObject>, live: bool) -> Result<State, ReadError> {
        self.record_read(content.freshness(), live);
        let own = if live { usize::try_from(content.held_bytes()).unwrap_or(usize::MAX) } else { 0 };
        State::new(content, own).ok_or_else(no_number)
    }
}

/// Returns the error for a server whose versions are not numbers.
pub(super) fn no_number() -> ReadError {
    Status::internal_error("the resource version is no number").into()
}
